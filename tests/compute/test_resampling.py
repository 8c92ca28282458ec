"""Confidence intervals and conformal prediction."""

import math
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute import resampling
from hgld.compute.conformal import (
    Items,
    check_coverage,
    conformal_threshold,
    measure_sets,
    prediction_sets,
    scores_above,
    sets_by_level,
)
from hgld.compute.resampling import (
    check_resampling,
    percentile_interval,
    resample_blocks,
    resampled_counts,
    resampled_means,
)
from hgld.errors import ConfigurationError, InputError


def test_every_resample_has_as_many_items_each_equally_likely() -> None:
    codes = np.array([0, 2, 2, 1])
    counts = resampled_counts(codes, 4, 20_000, np.random.default_rng(0))
    assert (counts.sum(1) == 4).all()
    np.testing.assert_allclose(counts.mean(0), [1, 1, 2, 0], atol=0.03)
    # Variances of binomial counts.
    np.testing.assert_allclose(counts.var(0), [0.75, 0.75, 1, 0], atol=0.03)


def test_blocks_add_up_and_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "_BLOCK_SIZE", 30)
    assert list(resample_blocks(10, 7)) == [4, 4, 2]
    assert list(resample_blocks(2, 1000)) == [1, 1]
    codes = np.arange(7)
    rng = np.random.default_rng(0)
    blocks = [resampled_counts(codes, 7, rows, rng) for rows in resample_blocks(10, 7)]
    np.testing.assert_array_equal(np.vstack(blocks), resampled_counts(codes, 7, 10, np.random.default_rng(0)))


def test_means_are_those_of_all_rows_of_the_drawn_clusters() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 7.0], [np.nan, 9.0]])
    clusters = np.array([0, 0, 1, 2])
    means = resampled_means(values, clusters, 50, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    for mean in means:
        rows = np.concatenate([values[clusters == drawn] for drawn in rng.integers(3, size=3)])
        known = [column[~np.isnan(column)] for column in rows.T]
        np.testing.assert_allclose(mean, [column.mean() if len(column) else np.nan for column in known], rtol=1e-12)
    assert np.isnan(means).any()
    assert np.isnan(resampled_means(values[:0], clusters[:0], 3, rng)).all()


def test_intervals_leave_out_resamples_without_a_value() -> None:
    assert percentile_interval(np.array([np.nan, 1.0, 1.0]), 0.95) == (1.0, 1.0)
    assert all(map(math.isnan, percentile_interval(np.array([np.nan]), 0.95)))


@pytest.mark.parametrize(("confidence", "n_resamples"), [(0.0, 10), (1.0, 10), (0.95, 0)])
def test_wrong_settings_are_refused(confidence: float, n_resamples: int) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more resamples"):
        check_resampling(confidence, n_resamples)


def draw_items(n: int, n_classes: int, rng: np.random.Generator) -> Items:
    """Items whose scores tell something about their classes, but not as much as they say."""
    scores = rng.dirichlet(np.full(n_classes, 0.4), n)
    truth = 0.6 * scores + 0.4 / n_classes
    return Items(scores, (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1))


@given(st.lists(st.integers(0, 5), max_size=60), st.sampled_from([0.5, 0.8, 0.9, 0.95, 1.0]))
def test_threshold_is_the_smallest_value_that_enough_do_not_exceed(values: list[int], coverage: float) -> None:
    """With one more item that is worse than all, it admits the share ``coverage`` of all, and no lower one does."""
    enough = [
        each for each in values if sum(other <= each for other in values) >= coverage * (len(values) + 1) - 1e-9
    ]
    assert conformal_threshold(np.array(values, np.float64), coverage) == min(enough, default=inf)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 8))
def test_scores_above_add_up_what_comes_before(seed: int, n: int, n_classes: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 4, (n, n_classes)) / 4  # with ties
    expected = [
        [
            sum(other for j, other in enumerate(row) if other > own or (other == own and j < i))
            for i, own in enumerate(row)
        ]
        for row in scores.tolist()
    ]
    np.testing.assert_allclose(scores_above(scores), expected)


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(2, 6))
def test_more_coverage_gives_larger_sets_up_to_all_classes(seed: int, n_known: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    known, items = draw_items(n_known, n_classes, rng), draw_items(20, n_classes, rng)
    sets = [prediction_sets(items.scores, known, coverage) for coverage in (0.3, 0.6, 0.9, 0.99, 1.0)]
    assert all((few <= many).all() for few, many in pairwise(sets))
    assert sets[0][np.arange(20), items.scores.argmax(axis=1)].all(), "the first class is in every set"
    assert sets[-1].all()


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_exchangeable_items_are_covered_as_promised(coverage: float) -> None:
    """The expected coverage lies between the promise and the promise + 1 / (n + 1), as scores are continuous."""
    n_known, held = 59, []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        items = draw_items(n_known + 100, 8, rng)
        known, others = items.select(np.arange(n_known)), items.select(np.arange(n_known, n_known + 100))
        held.append(prediction_sets(others.scores, known, coverage)[np.arange(100), others.classes].mean())
    error = 3 * np.std(held) / np.sqrt(len(held))
    assert coverage - error <= np.mean(held) <= coverage + 1 / (n_known + 1) + error


def test_each_level_has_sets_of_its_own() -> None:
    """By hand: lake and sea are natural. Of the three known items, the true classes come first, second and third."""
    scores = np.array([[0.5, 0.2, 0.3], [0.4, 0.5, 0.1], [0.1, 0.3, 0.6]])
    known = Items(scores, np.array([0, 0, 0]))  # 0, 0.5 and 0.9 come before the class
    levels = {"group": ["lake", "sea", "church"], "root": ["natural", "natural", "human-made"]}
    rows = sets_by_level(np.array([[0.8, 0.15, 0.05], [0.3, 0.3, 0.4]]), known, 0.5, levels)
    assert rows == [
        [
            {"level": "group", "coverage": 0.5, "members": ["lake"]},
            {"level": "root", "coverage": 0.5, "members": ["natural"]},
        ],
        [
            {"level": "group", "coverage": 0.5, "members": ["church", "lake"]},
            {"level": "root", "coverage": 0.5, "members": ["natural"]},
        ],
    ]
    group, root = measure_sets([(known, known), (known.select(np.array([1])), known)], 0.5, levels)
    assert (group.held, group.size) == (3 / 4, 7 / 4)
    assert (root.held, root.size) == (3 / 4, 1.0)


def test_too_few_known_items_promise_nothing() -> None:
    rng = np.random.default_rng(0)
    levels = {"group": ["a", "b", "c"]}
    scores = draw_items(5, 3, rng).scores
    assert len(sets_by_level(scores, draw_items(19, 3, rng), 0.95, levels)) == 5
    with pytest.raises(InputError, match="calibrated on 19 known groups or more, and there are 18; decide more"):
        sets_by_level(scores, draw_items(18, 3, rng), 0.95, levels)
    with pytest.raises(InputError, match="calibrated on 9 known groups or more, and there are 0"):
        sets_by_level(scores, draw_items(0, 3, rng), 0.9, levels)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 95.0])
def test_wrong_coverage_is_refused(coverage: float) -> None:
    check_coverage(None)
    with pytest.raises(ConfigurationError, match=r"expected between 0 and 1, such as 0\.95"):
        check_coverage(coverage)

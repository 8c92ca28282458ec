from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.evaluation.decomposability import (
    batch_decomposability_gap,
    calibrated_gap_bound,
    gap_bound,
)
from tests.evaluation import oracles

Array = npt.NDArray[Any]


def data(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    fine = rng.integers(8, size=n)
    return rng.normal(size=(n, 5)), np.stack([fine, fine // 2, fine // 4], axis=1)


def test_the_gap_of_batches_is_the_whole_set_minus_their_mean() -> None:
    embeddings, labels = data(60, seed=2)
    rng = np.random.default_rng(0)
    batches = [rng.permutation(60)[:n] for n in (12, 12, 20)]
    result = batch_decomposability_gap(embeddings, labels, [*batches, batches[0][[0, 0]]], metric="AP_l3")

    def mean(rows: Array) -> float:
        values = []
        for q in rows:
            scores = embeddings @ embeddings[q] / np.linalg.norm(embeddings, axis=1)
            held = [item for item in np.argsort(-scores) if item != q and item in rows]
            levels = [int((labels[q] == labels[item]).sum()) for item in held]
            values.append(oracles.by_name(levels, 3, cutoffs=[2])["AP_l3"])
        return float(np.nanmean(values))

    assert result.whole == pytest.approx(mean(np.unique(np.concatenate(batches))), abs=1e-9)
    assert result.batches == pytest.approx(np.mean([mean(batch) for batch in batches]), abs=1e-9)
    assert result.gap == result.whole - result.batches < 0


def test_batches_without_positives_are_errors() -> None:
    embeddings, labels = data(8, seed=0)
    for batches in ([], [np.array([0])], [np.array([3, 3])]):
        with pytest.raises(InputError, match="no batch has two images of a class"):
            batch_decomposability_gap(embeddings, labels, batches)


BATCHES = st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=6)


def slow_bound(positives: list[int], negatives: list[int]) -> float:
    total = 0.0
    for b in range(len(positives)):
        for j in range(1, positives[b] + 1):
            plus = j + sum(positives[:b])
            total += plus / (plus + sum(negatives[:b]))
    return 1 - total / sum(positives)


def slow_calibrated_bound(good: list[int], bad: list[int], negatives: list[int], bad_negatives: list[int]) -> float:
    total = 0.0
    for b in range(len(good)):
        for j in range(1, good[b] + 1):
            plus = j + sum(good[:b])
            total += plus / (plus + sum(bad_negatives[:b]))
        for j in range(1, bad[b] + 1):
            plus = j + good[b] + sum(good[:b]) + sum(bad[:b])
            total += plus / (plus + sum(negatives[:b]))
    return 1 - total / (sum(good) + sum(bad))


@given(BATCHES)
def test_bounds_are_the_equations(batches: list[tuple[int, ...]]) -> None:
    good, bad, good_negatives, bad_negatives = (list(column) for column in zip(*batches, strict=True))
    positives, negatives = np.add(good, bad), np.add(good_negatives, bad_negatives)
    values = (
        gap_bound(positives[None], negatives[None])[0],
        calibrated_gap_bound(positives[None], negatives[None], np.array([bad]), np.array([bad_negatives]))[0],
    )
    if not positives.sum():
        assert np.isnan(values).all()
        return
    assert values[0] == pytest.approx(slow_bound(positives.tolist(), negatives.tolist()), abs=1e-9)
    expected = slow_calibrated_bound(good, bad, negatives.tolist(), bad_negatives)
    assert values[1] == pytest.approx(expected, abs=1e-9)


def average_precision(relevant: Array) -> float:
    ranks = np.flatnonzero(relevant) + 1
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks))


def test_the_gap_of_batches_one_after_the_other_is_the_bound() -> None:
    """Positives first in each batch, and the batches one after the other: the worst case of Eq. 26 (Fig. 11)."""
    positives, negatives = np.array([2, 1, 3]), np.array([4, 5, 3])
    ranking = np.concatenate([np.r_[np.ones(p), np.zeros(n)] for p, n in zip(positives, negatives, strict=True)])
    assert gap_bound(positives[None], negatives[None])[0] == pytest.approx(1 - average_precision(ranking))


def test_many_items_keep_the_precision() -> None:
    positives, negatives = np.full((1, 300), 3), np.full((1, 300), 60_000)
    expected = slow_bound(positives[0].tolist(), negatives[0].tolist())
    assert gap_bound(positives, negatives)[0] == pytest.approx(expected, abs=1e-7)


def test_counts_that_do_not_fit_are_errors() -> None:
    ones = np.ones((1, 2), np.int64)
    with pytest.raises(InputError, match="expected the same"):
        gap_bound(ones, np.ones((1, 3), np.int64))
    with pytest.raises(InputError, match="more positives or negatives violate"):
        calibrated_gap_bound(ones, ones, 2 * ones, ones)

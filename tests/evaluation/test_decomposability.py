from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.decomposability import (
    batch_decomposability_gap,
    calibrated_gap_bound,
    decomposability_gap,
    gap_bound,
)
from tests.evaluation import oracles

Array = npt.NDArray[Any]


def data(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    fine = rng.integers(8, size=n)
    return rng.normal(size=(n, 5)), np.stack([fine, fine // 2, fine // 4], axis=1)


METRICS = ("AP_l3", "AP_l1", "mAP@R_l2", "R@2_l3", "H-AP", "NDCG", "ASI")


def slow_gaps(
    queries: Array, labels: Array, gallery: Array, gallery_labels: Array, batches: Array, alone: bool
) -> dict[str, list[float]]:
    """Eq. 6, query by query and batch by batch."""
    gaps = {metric: list[float]() for metric in METRICS}
    for q in range(len(queries)):
        scores = gallery @ queries[q] / np.linalg.norm(gallery, axis=1)
        order = [item for item in np.argsort(-scores) if not (alone and item == q)]
        values = {}
        for batch in ["all", *sorted(set(batches.tolist()))]:
            held = [item for item in order if batch in ("all", batches[item])]
            levels = [int((labels[q] == gallery_labels[item]).sum()) for item in held]
            values[batch] = oracles.by_name(levels, 3, cutoffs=[2])
        whole = values.pop("all")
        for metric, own in gaps.items():
            within = [value[metric] for value in values.values() if not np.isnan(value[metric])]
            own.append(whole[metric] - sum(within) / len(within) if within else np.nan)
    return gaps


def test_the_gap_is_equation_6() -> None:
    gallery, gallery_labels = data(40, seed=0)
    queries, labels = data(7, seed=1)
    batches = np.arange(40) % 6 * 10 - 20
    for metric, expected in slow_gaps(queries, labels, gallery, gallery_labels, batches, alone=False).items():
        gap = decomposability_gap(queries, labels, gallery, gallery_labels, batches=batches, metric=metric)
        np.testing.assert_allclose(gap, expected, atol=1e-12, err_msg=metric)
    for metric, expected in slow_gaps(gallery, gallery_labels, gallery, gallery_labels, batches, alone=True).items():
        alone = decomposability_gap(gallery, gallery_labels, batches=batches, metric=metric)
        np.testing.assert_allclose(alone, expected, atol=1e-12, err_msg=metric)


def test_single_batch_has_no_gap_and_small_batches_a_negative_one() -> None:
    embeddings, labels = data(60, seed=0)
    gap = decomposability_gap(embeddings, labels, batches=np.zeros(60))
    np.testing.assert_allclose(gap, 0, atol=1e-12)
    means = [np.nanmean(decomposability_gap(embeddings, labels, batches=np.arange(60) % n)) for n in (1, 3, 15)]
    assert means[0] > means[1] > means[2]


def test_gap_without_positives_is_nan() -> None:
    embeddings, labels = torch.eye(4), np.array([0, 0, 1, 0])
    gap = decomposability_gap(embeddings, labels, batches=[0, 0, 1, 1])
    assert np.isnan(gap).tolist() == [False, False, True, False]


IN_PART = "gallery is given in part; expected its embeddings and its labels"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batches": [0, 1]}, InputError, r"batches has the shape \(2,\); expected one number for each of 4 items"),
        ({"batches": [0, 0, 0, 7]}, InputError, "batch 7 holds a single item, which cannot be ranked against itself"),
        ({"gallery_embeddings": np.eye(4)}, ConfigurationError, IN_PART),
        ({"gallery_labels": np.zeros(4, np.int64)}, ConfigurationError, IN_PART),
        ({"metric": "MRR"}, ConfigurationError, "there is no metric 'MRR'"),
    ],
)
def test_inconsistent_arguments_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        decomposability_gap(np.eye(4), np.array([0, 0, 1, 1]), **{"batches": [0, 0, 1, 1], **options})


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

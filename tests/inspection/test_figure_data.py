"""Precision-recall curves, score distributions and class means, against slow loops."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.retrieval_task import LabelJudgements, RetrievalTask, leave_one_out_task
from hgld.inspection import figure_data
from hgld.inspection.figure_data import (
    PrecisionRecall,
    ScoreCounts,
    class_means,
    count_scores,
    neighbour_agreement,
    precision_recall,
)
from hgld.ragged import RaggedIndices
from tests.evaluation import oracles

GRID = [0.001, 0.1, 1 / 3, 0.5, 0.7, 1.0]


def data(seed: int, n: int = 15) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return embeddings without ties, and labels of three levels, some of which are unique at each level."""
    rng = np.random.default_rng(seed)
    fine = rng.integers(10, size=n)
    labels = np.stack([fine, fine // 2, fine // 4], axis=1)
    return rng.normal(size=(n, 6)).astype(np.float32), labels


def leave_one_out(seed: int, recall: Sequence[float], queries: slice = slice(None)) -> PrecisionRecall:
    embeddings, labels = data(seed)
    rows = np.arange(len(labels))[queries]
    task = RetrievalTask(
        "alone",
        torch.from_numpy(embeddings[rows]),
        torch.from_numpy(embeddings),
        LabelJudgements(labels[rows], labels),
        excluded=RaggedIndices.from_lists([[row] for row in rows]),
    )
    return precision_recall(task, recall, config=RankingConfig(block_size=4))


def ranked_levels(seed: int) -> list[list[int]]:
    """Return the levels of all other items for each query, best first."""
    embeddings, labels = data(seed)
    units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    rankings = []
    for query, row in enumerate(units):
        others = [item for item in np.argsort(-units @ row).tolist() if item != query]
        rankings.append([int((labels[query] == labels[item]).sum()) for item in others])
    return rankings


def precision_at(levels: Sequence[int], table: Sequence[float], recall: float) -> float:
    """Return H-P@k at the first k that reaches the H-R@k; with relevances of 0 and 1, precision and recall."""
    for k in range(1, len(levels) + 1):
        if oracles.h_recall_at_k(levels, table, k) >= recall - 1e-9:
            return oracles.h_precision_at_k(levels, table, k)
    return math.nan


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_curves_are_means_over_the_queries_with_positives(seed: int) -> None:
    curves, rankings = leave_one_out(seed, GRID), ranked_levels(seed)
    for at, recall in enumerate(GRID):
        for level in (1, 2, 3):
            table = [float(n >= level) for n in range(4)]
            values = [precision_at(levels, table, recall) for levels in rankings]
            assert curves.precision[level - 1, at] == pytest.approx(mean_without_nan(values), nan_ok=True)
        values = [precision_at(levels, oracles.equation_20(levels, 3), recall) for levels in rankings]
        assert curves.hierarchical[at] == pytest.approx(mean_without_nan(values), nan_ok=True)


def mean_without_nan(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


@pytest.mark.parametrize("query", range(6))
def test_area_below_a_curve_is_ap(query: int) -> None:
    """Eq. 32: the area below the hierarchical curve is H-AP; the recalls are in the middle of each stair."""
    levels = ranked_levels(1)[query]
    means = evaluate_retrieval(*data(1), metrics=["H-AP", "AP_l1", "AP_l2", "AP_l3"]).per_query.iloc[query]
    tables = [[float(n >= level) for n in range(4)] for level in (1, 2, 3)]
    for n, (table, name) in enumerate(
        zip([*tables, oracles.equation_20(levels, 3)], ["AP_l1", "AP_l2", "AP_l3", "H-AP"], strict=True)
    ):
        if not sum(table[level] for level in levels):
            assert math.isnan(means[name])
            continue
        recalls = [oracles.h_recall_at_k(levels, table, k) for k in range(len(levels) + 1)]
        stairs = [(low, high) for low, high in pairwise(recalls) if high > low]
        curves = leave_one_out(1, [(low + high) / 2 for low, high in stairs], slice(query, query + 1))
        heights = [*curves.precision, curves.hierarchical][n]
        area = sum((high - low) * height for (low, high), height in zip(stairs, heights, strict=True))
        assert area == pytest.approx(means[name])


def test_block_size_does_not_change_the_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = leave_one_out(2, GRID)
    monkeypatch.setattr(figure_data, "_BLOCK", {"cpu": 1})
    parts = leave_one_out(2, GRID)
    np.testing.assert_allclose(parts.precision, whole.precision)
    np.testing.assert_allclose(parts.hierarchical, whole.hierarchical)


@pytest.mark.parametrize("recall", [[0.0, 0.5], [0.5, 1.1], [math.nan]])
def test_recalls_outside_0_to_1_are_refused(recall: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="`recall` is .*; expected numbers above 0 and up to 1"):
        leave_one_out(0, recall)


N_BINS = 20


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_each_pair_is_counted_once(seed: int, block_size: int) -> None:
    rng = np.random.default_rng(seed)
    fine = rng.integers(6, size=9)
    labels = np.stack([fine, fine // 3], axis=1)
    vectors = rng.normal(size=(9, 3))
    mask = rng.random(9) < 0.8
    task = leave_one_out_task(torch.from_numpy(vectors), labels)
    config = RankingConfig(block_size=block_size, precision="float64")
    histogram = count_scores(replace(task, gallery_mask=mask), n_bins=N_BINS, config=config)
    counts = np.zeros((3, N_BINS), int)
    for a in range(9):
        for b in range(9):
            if a != b and mask[b]:
                cosine = vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b])
                counts[
                    (labels[a] == labels[b]).sum(), int(np.searchsorted(histogram.edges, cosine, side="right")) - 1
                ] += 1
    np.testing.assert_array_equal(histogram.counts, counts)


def test_cosines_of_1_and_minus_1_fall_into_the_outer_bins() -> None:
    labels = np.zeros((1, 1), int)
    for sign, at in ((1.0, N_BINS - 1), (-1.0, 0)):
        vector = torch.tensor([[0.3, 0.7, 0.1]])
        task = RetrievalTask("one", vector, sign * vector, LabelJudgements(labels, labels))
        histogram = count_scores(task, n_bins=N_BINS)
        assert np.argwhere(histogram.counts).tolist() == [[1, at]]


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=3, max_size=3))
def test_separation_is_the_share_of_correctly_ordered_pairs(table: list[list[int]]) -> None:
    counts = np.array(table) + np.eye(3, 4, dtype=int)  # at least one pair at each level
    wins, n = 0.0, 0
    for fine in np.repeat(np.arange(4), counts[2]):
        for other in np.repeat(np.arange(4), counts[:2].sum(0)):
            wins += 1.0 if fine > other else 0.5 if fine == other else 0.0
            n += 1
    assert np.isclose(ScoreCounts(counts, np.linspace(-1, 1, 5)).separation(), wins / n)


def test_densities_integrate_to_one_and_are_nan_without_pairs() -> None:
    densities = ScoreCounts(np.array([[2, 0, 6], [0, 0, 0]]), np.array([-1.0, -0.5, 0.0, 1.0])).densities()
    np.testing.assert_allclose(densities[0], [0.5, 0, 0.75])
    assert np.isnan(densities[1]).all()


def test_means_are_averages_of_directions() -> None:
    embeddings = np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.5], [1.0, 2.0]], np.float32)
    result = class_means([(torch.from_numpy(embeddings), np.array([[7, 1], [4, 0], [7, 1], [4, 0]]))])
    assert result.labels.tolist() == [[4, 0], [7, 1]]
    np.testing.assert_allclose(result.means[1], [math.sqrt(0.5), math.sqrt(0.5)])


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 7))
def test_means_of_parts_in_blocks_equal_a_slow_loop(seed: int, max_classes: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(40, 3)).astype(np.float32)
    fine = rng.integers(-1, 6, size=40)
    labels = np.stack([fine, np.where(fine < 0, -1, fine // 2)], axis=1)
    parts = [(torch.from_numpy(vectors[rows]), labels[rows]) for rows in (slice(0, 25), slice(25, None))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hgld.inspection.figure_data._VECTORS_PER_BLOCK", 4)
        result = class_means(parts, max_classes=max_classes)
    present = sorted(set(fine[fine >= 0].tolist()))
    assert result.n_classes == len(present)
    assert len(result.labels) == min(max_classes, len(present))
    assert result.labels[:, 0].tolist() == sorted(set(result.labels[:, 0].tolist()) & set(present))
    for mean, (label, coarse) in zip(result.means, result.labels.tolist(), strict=True):
        assert coarse == label // 2
        total = sum(vector / np.linalg.norm(vector) for vector in vectors[fine == label].astype(float))
        np.testing.assert_allclose(mean, total / np.linalg.norm(total), atol=1e-6)


def test_neighbour_agreement_equals_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    means, categories = rng.normal(size=(15, 4)), rng.integers(5, size=15)
    units = means / np.linalg.norm(means, axis=1, keepdims=True)
    shares = []
    for row in range(15):
        others = [n for n in np.argsort(-units @ units[row]) if n != row]
        if any(categories[n] == categories[row] for n in others):
            shares.append(sum(categories[n] == categories[row] for n in others[:5]) / 5)
    assert len(shares) > 0
    assert np.isclose(neighbour_agreement(means, categories), np.mean(shares))
    with pytest.warns(UserWarning, match="none of 15 queries has a positive"):
        assert math.isnan(neighbour_agreement(means, np.arange(15)))

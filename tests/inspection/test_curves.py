from __future__ import annotations

import math
from collections.abc import Sequence
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
from hgld.evaluation.relevance import LabelJudgements
from hgld.inspection import figure_data
from hgld.inspection.figure_data import PrecisionRecall, precision_recall
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
    return precision_recall(
        torch.from_numpy(embeddings[rows]),
        torch.from_numpy(embeddings),
        LabelJudgements(labels[rows], labels),
        recall=recall,
        excluded=RaggedIndices.from_lists([[row] for row in rows]),
        config=RankingConfig(block_size=4),
    )


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

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
from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.relevance_judgements import LabelJudgements
from hgld.inspection import curves
from hgld.inspection.curves import PrecisionRecall, precision_recall
from hgld.ragged import RaggedIndices
from tests.evaluation import oracles

GRID = [0.001, 0.1, 1 / 3, 0.5, 0.7, 1.0]


def data(seed: int, n: int = 15) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Embeddings without ties, and labels of three levels, of which some are alone at each."""
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
        excluded=RaggedIndices.of([[row] for row in rows]),
        config=RankingConfig(block_size=4),
    )


def ranked_levels(seed: int) -> list[list[int]]:
    """For each query the levels of all others, best first."""
    embeddings, labels = data(seed)
    units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    rankings = []
    for query, row in enumerate(units):
        others = [item for item in np.argsort(-units @ row).tolist() if item != query]
        rankings.append([int((labels[query] == labels[item]).sum()) for item in others])
    return rankings


def precision_at(levels: Sequence[int], table: Sequence[float], recall: float) -> float:
    """H-P@k at the first k whose H-R@k is that recall; with relevances of 0 and 1, precision and recall."""
    for k in range(1, len(levels) + 1):
        if oracles.h_recall_at_k(levels, table, k) >= recall - 1e-9:
            return oracles.h_precision_at_k(levels, table, k)
    return math.nan


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_curves_are_means_over_the_queries_with_positives(seed: int) -> None:
    found, rankings = leave_one_out(seed, GRID), ranked_levels(seed)
    for at, recall in enumerate(GRID):
        for level in (1, 2, 3):
            table = [float(of >= level) for of in range(4)]
            values = [precision_at(levels, table, recall) for levels in rankings]
            assert found.precision[level - 1, at] == pytest.approx(mean_of_known(values), nan_ok=True)
        values = [precision_at(levels, oracles.equation_20(levels, 3), recall) for levels in rankings]
        assert found.hierarchical[at] == pytest.approx(mean_of_known(values), nan_ok=True)


def mean_of_known(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


@pytest.mark.parametrize("query", range(6))
def test_the_area_below_a_curve_is_ap_and_that_below_the_hierarchical_one_is_h_ap(query: int) -> None:
    """Eq. 32, with a recall amid each stair of the staircase."""
    levels = ranked_levels(1)[query]
    means = evaluate_retrieval(*data(1), metrics=["H-AP", "AP_l1", "AP_l2", "AP_l3"]).per_query.iloc[query]
    tables = [[float(of >= level) for of in range(4)] for level in (1, 2, 3)]
    for n, (table, name) in enumerate(
        zip([*tables, oracles.equation_20(levels, 3)], ["AP_l1", "AP_l2", "AP_l3", "H-AP"], strict=True)
    ):
        if not sum(table[level] for level in levels):
            assert math.isnan(means[name])
            continue
        recalls = [oracles.h_recall_at_k(levels, table, k) for k in range(len(levels) + 1)]
        stairs = [(low, high) for low, high in pairwise(recalls) if high > low]
        found = leave_one_out(1, [(low + high) / 2 for low, high in stairs], slice(query, query + 1))
        heights = [*found.precision, found.hierarchical][n]
        area = sum((high - low) * height for (low, high), height in zip(stairs, heights, strict=True))
        assert area == pytest.approx(means[name])


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = leave_one_out(2, GRID)
    monkeypatch.setattr(curves, "_BLOCK", {"cpu": 1})
    parts = leave_one_out(2, GRID)
    np.testing.assert_allclose(parts.precision, whole.precision)
    np.testing.assert_allclose(parts.hierarchical, whole.hierarchical)


@pytest.mark.parametrize("recall", [[0.0, 0.5], [0.5, 1.1], [math.nan]])
def test_a_recall_is_above_0_and_up_to_1(recall: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="the recalls are .*; expected numbers above 0, and up to 1"):
        leave_one_out(0, recall)

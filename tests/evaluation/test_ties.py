"""Ties as Eq. 3 has them: H(0) = 1, so that items with equal scores are all ranked before each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute.scoring import Precision
from hgld.evaluation.evaluate import evaluate_retrieval

METRICS = ("AP", "AP_l1", "H-AP", "NDCG", "NDCG@3", "mAP@3", "mAP@R", "R@1", "R@3", "P@3")
#: By level, the labels of an item that has this level for a query with the labels [0, 0].
LABELS = np.array([[9, 9], [5, 0], [0, 0]])


def by_equations(scores: list[float], levels: list[int]) -> dict[str, float]:
    """Each metric from the ranks of Eq. 3, by loops over pairs of items."""
    items = range(len(levels))
    rank = [1 + sum(scores[j] >= scores[k] for j in items if j != k) for k in items]
    counts = [levels.count(level) for level in range(3)]

    def ap(least: int, last: float = math.inf, divisor: int | None = None) -> float:
        positive = [k for k in items if levels[k] >= least]
        shares = [sum(scores[j] >= scores[k] for j in positive) / rank[k] for k in positive if rank[k] <= last]
        return sum(shares) / (divisor or len(positive))

    def h_ap() -> float:  # Eqs. 18 to 20
        relevance = [0.0] + [(level / 2) / counts[level] if counts[level] else 0.0 for level in (1, 2)]
        rel = [relevance[level] for level in levels]
        total = 0.0
        for k in items:
            h_rank = rel[k] + sum(min(rel[k], rel[j]) for j in items if j != k and scores[j] >= scores[k])
            total += h_rank / rank[k]
        return total / sum(rel)

    def ndcg(last: float = math.inf) -> float:
        gained = sum((2.0 ** levels[k] - 1) / math.log2(1 + rank[k]) for k in items if rank[k] <= last)
        best = sorted(levels, reverse=True)
        ideal = [(2.0**level - 1) / math.log2(2 + place) for place, level in enumerate(best) if place < last]
        return gained / sum(ideal)

    n_positive = counts[2]
    hits = {k: sum(rank[j] <= k for j in items if levels[j] == 2) for k in (1, 3)}
    return {
        "AP": ap(2), "AP_l1": ap(1), "H-AP": h_ap(), "NDCG": ndcg(), "NDCG@3": ndcg(3),
        "mAP@3": ap(2, 3, min(3, n_positive)), "mAP@R": ap(2, n_positive),
        "R@1": float(hits[1] > 0), "R@3": float(hits[3] > 0), "P@3": hits[3] / 3,
    }  # fmt: skip


def evaluated(scores: list[float], levels: list[int], **options: Any) -> dict[str, float]:
    gallery = np.array(scores)[:, None]
    settings = {"metrics": METRICS, "distance": "dot", **options}
    return evaluate_retrieval(np.ones((1, 1)), LABELS[2:], gallery, LABELS[levels], **settings).means


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=3, max_size=15),
    st.sampled_from(["float32", "float64"]),
)
def test_metrics_are_those_of_the_equations(items: list[tuple[int, int]], precision: Precision) -> None:
    scores, levels = [float(score) for score, _ in items], [*[level for _, level in items[1:]], 2]
    found = evaluated(scores, levels, ties="heaviside", precision=precision)
    expected = by_equations(scores, levels)
    assert found == pytest.approx(expected, abs=1e-12)
    apart = [score + place / 64 for place, score in enumerate(scores)]
    assert evaluated(apart, levels, ties="heaviside") == pytest.approx(evaluated(apart, levels), abs=1e-12)


def test_a_tie_of_positives_costs_nothing_and_excluded_items_do_not_count() -> None:
    assert evaluated([1.0, 1.0, 0.0], [2, 2, 0], ties="heaviside")["AP"] == 1
    assert evaluated([1.0, 1.0, 1.0], [2, 0, 0], ties="heaviside")["AP"] == pytest.approx(1 / 3)
    vectors = torch.ones(4, 2)
    alone = evaluate_retrieval(vectors, np.array([0, 0, 1, 1]), metrics=["AP"], ties="heaviside")
    assert alone.means["AP"] == pytest.approx(1 / 3)

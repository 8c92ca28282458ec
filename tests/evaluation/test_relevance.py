from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.relevance import (
    Relevance,
    by_level,
    exponential_gain,
    hierarchical_relevance,
    weighted_ap_relevance,
)
from hgld.hierarchy import relevance
from hgld.losses import SmoothHAP, SupHAP
from tests.evaluation import oracles

#: Rounding of float64 in a power or a sum of three positive terms, a division, and the same in the oracle.
ROUNDING = 4 * np.finfo(np.float64).eps
LISTS = st.lists(st.integers(0, 3), min_size=1, max_size=20)


def counts(levels: list[int]) -> torch.Tensor:
    return torch.tensor([[levels.count(level) for level in range(4)]], dtype=torch.float64)


@given(LISTS, st.floats(0, 6), st.booleans())
def test_hierarchical_relevance_is_equation_20(levels: list[int], alpha: float, count_query: bool) -> None:
    relevance = hierarchical_relevance(counts(levels), alpha, count_query=count_query)
    expected = oracles.equation_20(levels, 3, alpha, count_query)
    assert relevance.tolist()[0] == pytest.approx(expected, rel=ROUNDING, abs=0)


@given(LISTS, st.lists(st.floats(0.01, 5), min_size=3, max_size=3))
def test_weighted_ap_relevance_is_that_of_property_1(levels: list[int], weights: list[float]) -> None:
    relevance = weighted_ap_relevance(counts(levels), weights).tolist()[0]
    expected = oracles.property_1(levels, weights)
    for level in set(levels):  # of a level without items nothing asks for its relevance
        assert relevance[level] == pytest.approx(expected[level], rel=ROUNDING, abs=0)


def test_relevance_agrees_with_the_hierarchy() -> None:
    rng = np.random.default_rng(0)
    fine = rng.integers(12, size=50)
    labels = np.stack([fine, fine // 3, fine // 6], axis=1)
    queries, gallery = labels[:10], labels[10:]
    levels = (queries[:, None] == gallery[None]).sum(2)
    table = hierarchical_relevance(
        torch.from_numpy(np.stack([(levels == level).sum(1) for level in range(4)], axis=1)).double(), alpha=2.0
    )
    expected = relevance(queries, gallery, alpha=2.0)
    np.testing.assert_allclose(np.take_along_axis(table.numpy(), levels, axis=1), expected, atol=1e-15)


def test_the_gain_is_exponential() -> None:
    assert exponential_gain(counts([0, 3])).tolist() == [[0, 1, 3, 7]]


@pytest.mark.parametrize("alpha", [-0.1, float("nan")])
def test_negative_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match="alpha is .*; expected 0 or more"):
        hierarchical_relevance(counts([1]), alpha)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.5, 0.0], [1, 1, -1], [1, 1, 1, 1]])
def test_invalid_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="expected 3 positive ones, coarsest first"):
        weighted_ap_relevance(counts([1]), weights)


@pytest.mark.parametrize(
    "table", [[1, 2, 3, 4], [0, 1, -1, 2], [0, 1, 2, float("nan")], [0, 1, float("inf"), 2], [[[0]]]]
)
def test_invalid_relevance_values_are_refused(table: list[float]) -> None:
    with pytest.raises(
        ConfigurationError, match="expected (one per level|0 at level 0, and finite numbers of 0 or more)"
    ):
        by_level(table)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            lambda counts: -exponential_gain(counts),
            "the relevance of level 1 is -1 in row 0; expected 0 at level 0, and",
        ),
        (lambda counts: exponential_gain(counts) + 1, "the relevance of level 0 is 1 in row 0"),
        (lambda counts: exponential_gain(counts) * torch.nan, "the relevance of level 0 is nan"),
        (lambda counts: counts[:, 1:], "the relevances have the shape .*; expected a tensor of the shape"),
        (lambda counts: counts.tolist(), "the relevances have list; expected a tensor"),
    ],
)
def test_relevance_functions_are_checked_in_evaluations_and_losses(own: Relevance, message: str) -> None:
    embeddings, labels = torch.eye(4), np.array([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 1, 0]])
    for name in ("relevance", "gain"):
        options: dict[str, Any] = {name: own}
        with pytest.raises(ConfigurationError, match=message):
            evaluate_retrieval(embeddings, labels, metrics=["H-AP", "NDCG"], **options)
    for loss in (SupHAP(relevance=own), SmoothHAP(relevance=own)):
        with pytest.raises(ConfigurationError, match=message):
            loss(embeddings, labels)


@pytest.mark.parametrize("table", [[0, 1, 2], [[0, 1, 2, 3]] * 3])
def test_relevance_values_of_another_shape_are_refused(table: list[float]) -> None:
    with pytest.raises(ConfigurationError, match=r"expected 4 levels \(level 0 first\) for one or all of 2 queries"):
        by_level(table)(counts([1]).expand(2, -1))

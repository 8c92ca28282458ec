"""Euclidean and Poincaré distances, compared with float64 distances of all pairs, one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute import scoring
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import Distance, ScoringConfig
from hgld.errors import ConfigurationError, InputError
from hgld.losses.hyperbolic import PoincareBall
from hgld.ragged import RaggedIndices

Points = npt.NDArray[np.float64]


def distance_of(distance: Distance, x: Points, y: Points) -> float:
    """The distance of two points, as it is defined."""
    apart = math.fsum((x - y) ** 2)
    if distance == "euclidean":
        return math.sqrt(apart)
    return 2 * math.asinh(math.sqrt(apart / ((1 - math.fsum(x**2)) * (1 - math.fsum(y**2)))))


def rounding(distance: Distance, x: Points, y: Points, exact: float, eps: float) -> float:
    """How far a distance may be off, see :mod:`hgld.compute.scoring`: that of its square, or of sinh(D / 2)^2."""
    noise = 16 * eps * float(np.linalg.norm(x) + np.linalg.norm(y)) ** 2
    if distance == "euclidean":
        return math.sqrt(exact**2 + noise) - exact + 16 * eps * exact
    gaps = 1 - math.fsum(x**2), 1 - math.fsum(y**2)
    noise /= gaps[0] * gaps[1]
    of_gaps = 2**-50 / min(gaps)  # of the oracle, too
    return 2 * math.asinh(math.sqrt(math.sinh(exact / 2) ** 2 + noise)) - exact + (16 * eps + of_gaps) * (1 + exact)


def points(seed: int, n: int, kind: str, distance: Distance) -> Points:
    """Points that are spread, near each other, or near the boundary of the ball; the first is 0."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(n, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    if kind == "near":
        values = 0.5 * directions[:1] + rng.normal(size=(n, 4)) * 10 ** rng.uniform(-6, -2, (n, 1))
    else:
        gaps = 10 ** rng.uniform(-3 if kind == "boundary" else -0.5, 0, (n, 1))
        values = directions * (1 - gaps)
    values[0] = 0
    return (values * (1 if distance == "poincare" else 10)).astype(np.float32).astype(np.float64)


@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["spread", "near", "boundary"]),
    distance=st.sampled_from(["euclidean", "poincare"]),
    precision=st.sampled_from(["float32", "float64"]),
)
def test_order_differs_from_exact_distances_within_rounding_only(
    seed: int, kind: str, distance: Distance, precision: Any
) -> None:
    vectors = points(seed, 20, kind, distance)
    stored = torch.from_numpy(vectors).to(getattr(torch, precision))
    itself = RaggedIndices.identity(20)
    config = ScoringConfig(distance=distance, precision=precision, block_size=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scoring._WIDTH, "cpu", 7)
        scores, positions = nearest_neighbours(stored, stored, 19, excluded=itself, config=config)
    eps = float(torch.finfo(getattr(torch, precision)).eps)
    for row, (found, values) in enumerate(zip(positions, scores, strict=True)):
        exact = [distance_of(distance, vectors[row], vectors[item]) for item in found]
        slack = [
            rounding(distance, vectors[row], vectors[item], own, eps) for item, own in zip(found, exact, strict=True)
        ]
        assert sorted(found) == [item for item in range(20) if item != row]
        np.testing.assert_array_less(np.abs(np.array(exact) + values), np.array(slack) + 1e-30)
        assert (np.diff(values) <= 0).all()


def test_poincare_distances_are_those_of_the_losses() -> None:
    ball = PoincareBall(curvature=1.0)
    inside = ball.points(torch.randn(30, 8, generator=torch.Generator().manual_seed(0)))
    scores, positions = nearest_neighbours(inside, inside, 30, config=ScoringConfig(distance="poincare"))
    expected = ball.distances(inside, inside).numpy()
    np.testing.assert_allclose(-scores[:, 1:], np.take_along_axis(expected, positions, 1)[:, 1:], rtol=1e-4)


@given(seed=st.integers(0, 2**32))
def test_unit_vectors_rank_alike_by_all_distances(seed: int) -> None:
    lengths: dict[Distance, float] = {"cosine": 1, "dot": 1, "euclidean": 3, "poincare": 0.9}
    vectors = torch.randn(12, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    vectors = torch.nn.functional.normalize(vectors)
    orders = [
        nearest_neighbours(
            vectors * length, vectors * length, 12, config=ScoringConfig(distance=distance, precision="float64")
        )[1]
        for distance, length in lengths.items()
    ]
    for order in orders[1:]:
        np.testing.assert_array_equal(order, orders[0])


def test_points_outside_of_the_ball_and_unknown_distances_are_refused() -> None:
    inside, outside = torch.tensor([[0.5, 0.0]]), torch.tensor([[0.0, 0.0], [0.6, 0.8]])
    with pytest.raises(InputError, match="1 of 2 gallery embeddings have a length of 1 or more, outside of the Poin"):
        nearest_neighbours(inside, outside, 1, config=ScoringConfig(distance="poincare"))
    with pytest.raises(ConfigurationError, match='`distance` is "l2"; expected one of cosine, dot, euclidean, poin'):
        ScoringConfig(distance="l2")  # type: ignore[arg-type]

"""Exact nearest neighbours, distances, and the highest scores of blocks."""

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
from hgld.compute.nearest_neighbours import RunningTopK, merge_top_k, nearest_neighbours
from hgld.compute.scoring import Distance, Precision, ScoringConfig
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.retrieval_task import LabelJudgements
from hgld.losses.hyperbolic import PoincareBall
from hgld.ragged import RaggedIndices
from tests.evaluation.helpers import rank


def sorted_neighbours(
    scores: npt.NDArray[np.float32], k: int, excluded: list[list[int]], gallery_mask: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Sort all allowed items by decreasing score, then by position."""
    best_scores, positions = np.full((len(scores), k), np.nan, np.float32), np.full((len(scores), k), -1)
    for row, excluded_items in enumerate(excluded):
        allowed = [item for item in range(scores.shape[1]) if item not in excluded_items and gallery_mask[item]]
        row_scores = scores[row].tolist()
        best = sorted(allowed, key=lambda item: (-row_scores[item], item))[:k]
        best_scores[row, : len(best)], positions[row, : len(best)] = scores[row, best], best
    return best_scores, positions


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Score the gallery in many small blocks."""
    monkeypatch.setitem(scoring._WIDTH, "cpu", 7)


@pytest.mark.usefixtures("small_blocks")
@given(data=st.data(), precision=st.sampled_from(["float32", "float64"]))
def test_equals_the_front_of_a_full_sort(data: st.DataObject, precision: Precision) -> None:
    n_queries, n_gallery = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 40))
    # Few distinct integers, so that many scores tie and all are exact.
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    queries = rng.integers(1, 3, (n_queries, 2)).astype(np.float32)
    gallery = rng.integers(-1, 3, (n_gallery, 2)).astype(np.float32)
    gallery[(gallery == 0).all(axis=1)] = 1
    items = st.lists(st.integers(0, n_gallery - 1), max_size=5)
    excluded = data.draw(st.lists(items, min_size=n_queries, max_size=n_queries))
    gallery_mask = rng.random(n_gallery) >= data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    k = data.draw(st.integers(1, 45))
    config = RankingConfig(precision=precision, distance="dot", block_size=data.draw(st.sampled_from([None, 1, 4])))
    scores, positions = nearest_neighbours(
        queries, gallery, k, excluded=RaggedIndices.from_lists(excluded), gallery_mask=gallery_mask, config=config
    )
    expected_scores, expected_positions = sorted_neighbours(queries @ gallery.T, k, excluded, gallery_mask)
    np.testing.assert_array_equal(positions, expected_positions)
    np.testing.assert_array_equal(scores, expected_scores)
    assert (scores.dtype.name, positions.dtype.name) == (precision, "int64")


@pytest.mark.usefixtures("small_blocks")
def test_order_is_that_of_evaluated_rankings() -> None:
    rng = np.random.default_rng(3)
    embeddings = torch.from_numpy(rng.normal(size=(50, 8))).half()
    labels = np.stack([np.arange(50) // 3, np.arange(50) // 12], axis=1)
    judgements = LabelJudgements(labels, labels)
    itself = RaggedIndices.from_lists([[row] for row in range(50)])
    _, positions = nearest_neighbours(embeddings, embeddings, 50, excluded=itself)
    levels = judgements.levels(slice(None), slice(None)).numpy()
    (ranked,) = rank(embeddings, embeddings, judgements, excluded=itself)
    np.testing.assert_array_equal(np.take_along_axis(levels, positions[:, :49], axis=1), ranked.levels[:, :49])
    assert (positions[:, 49] == -1).all()


def test_scores_are_cosines() -> None:
    scores, _ = nearest_neighbours(np.array([[3.0, 4.0]]), np.array([[30.0, 40.0], [-3.0, -4.0], [4.0, -3.0]]), k=3)
    np.testing.assert_allclose(scores, [[1, 0, -1]], atol=1e-7)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": 0}, ConfigurationError, "`k` is 0; expected at least 1"),
        (
            {"excluded": RaggedIndices.from_lists([[9], []])},
            InputError,
            "`excluded` names the gallery position 9 for query 0",
        ),
        ({"gallery_embeddings": np.ones((3, 5))}, InputError, "2 dimensions and the gallery embeddings 5"),
        (
            {"query_embeddings": np.array([[1, np.nan], [0, 1]])},
            InputError,
            r"1 of 2 query embeddings have NaN.*rows 0",
        ),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"query_embeddings": np.ones((2, 2)), "gallery_embeddings": np.ones((3, 2)), "k": 1}
    with pytest.raises(error, match=message):
        nearest_neighbours(**arguments | change)


@given(st.integers(1, 8), st.integers(1, 9), st.integers(1, 5), st.integers(0, 1000))
def test_blocks_give_the_first_of_a_stable_sort(k: int, width: int, n_values: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Few different scores, so that most tie; the lowest is left out.
    scores = torch.randint(0, n_values + 1, (4, 17), generator=generator).float()
    scores[scores == 0] = -torch.inf
    best, positions = torch.full((4, k), -torch.inf), torch.full((4, k), -1)
    top_k = RunningTopK(4, k, torch.float32, torch.device("cpu"))
    for start in range(0, 17, width):
        block = scores[:, start : start + width]
        best, positions = merge_top_k(best, positions, block, start)
        top_k.add(block, start)
    for row in range(4):
        kept = sorted((-score, column) for column, score in enumerate(scores[row].tolist()) if score > -torch.inf)[:k]
        n_missing = k - len(kept)
        assert positions[row].tolist() == [column for _, column in kept] + [-1] * n_missing
        assert best[row].tolist() == [-score for score, _ in kept] + [-torch.inf] * n_missing
    found, columns = top_k.result()
    assert columns.tolist() == positions.tolist()
    torch.testing.assert_close(torch.from_numpy(found), best.masked_fill(positions < 0, torch.nan), equal_nan=True)


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
    with pytest.raises(ConfigurationError, match='`distance` is "l2"; choose cosine, dot, euclidean or poincare'):
        ScoringConfig(distance="l2")  # type: ignore[arg-type]

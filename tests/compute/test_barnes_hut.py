"""The gradient of t-SNE beside that of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgld.compute import barnes_hut
from hgld.compute.barnes_hut import barnes_hut_gradient

#: Coordinates on a grid and beside it, so that points coincide, almost or exactly, and lie on the edges of cells.
COORDINATES = st.one_of(st.integers(-4, 4).map(float), st.floats(-4, 4, width=32))
POINTS = st.lists(st.tuples(COORDINATES, COORDINATES), min_size=2, max_size=24)


def random_neighbours(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Similarities of two to all neighbours of each point, in CSR."""
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(n)[: rng.integers(0, n)] for _ in range(n)]
    first = np.cumsum([0, *map(len, chosen)], dtype=np.int64)
    neighbours = np.concatenate(chosen).astype(np.int64)
    return rng.random(len(neighbours)).astype(np.float32), neighbours, first


@given(points=POINTS, scale=st.sampled_from([1.0, 1e-4, 1e-6, 37.0]), seed=st.integers(0, 9))
@example(points=[(0.0, 0.0)] * 5, scale=1.0, seed=0)
@example(points=[(-1.0, -2.0), (-1.0, -2.0), (3.0, 1.0), (3.0, 1.0)], scale=1.0, seed=1)
def test_gradient_is_that_of_scikit_learn_to_the_last_bit(
    points: list[tuple[float, float]], scale: float, seed: int
) -> None:
    oracle = pytest.importorskip("sklearn.manifold._barnes_hut_tsne")
    positions = np.float32(scale) * np.array(points, np.float32)
    similarities, neighbours, first = random_neighbours(len(points), seed)
    expected = np.zeros_like(positions)
    divergence = oracle.gradient(similarities, positions, neighbours, first, expected, 0.5, 2, 0)

    gradient, error = barnes_hut_gradient(similarities, neighbours, first, positions, True)

    np.testing.assert_array_equal(gradient, expected)
    assert error == divergence
    without, nothing = barnes_hut_gradient(similarities, neighbours, first, positions, False)
    np.testing.assert_array_equal(without, expected)
    assert nothing == 0


def test_points_close_together_need_more_cells_than_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = pytest.importorskip("sklearn.manifold._barnes_hut_tsne")
    monkeypatch.setattr(barnes_hut, "_CELLS_PER_POINT", 1)
    # Each pair is split about twenty times before its points are in cells of their own.
    centres = np.random.default_rng(0).normal(size=(20, 2))
    positions = np.concatenate([centres, centres + 3e-6]).astype(np.float32)
    similarities, neighbours, first = random_neighbours(len(positions), 0)
    expected = np.zeros_like(positions)
    oracle.gradient(similarities, positions, neighbours, first, expected, 0.5, 2, 0)

    np.testing.assert_array_equal(barnes_hut_gradient(similarities, neighbours, first, positions, False)[0], expected)

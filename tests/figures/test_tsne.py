import numpy as np
import pytest

from hgld.figures.comparisons import tsne_2d


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 13])
def test_positions_of_few_vectors_are_finite(n: int) -> None:
    positions = tsne_2d(np.random.default_rng(0).normal(size=(n, 8)))
    assert positions.shape == (n, 2)
    assert np.isfinite(positions).all()

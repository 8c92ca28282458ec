from __future__ import annotations

import numpy as np
import pytest

from hgld.compute.compiled import is_compiled
from hgld.figures import tsne
from hgld.figures.tsne import tsne_2d


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 13])
def test_positions_of_few_vectors_are_finite(n: int) -> None:
    positions = tsne_2d(np.random.default_rng(0).normal(size=(n, 8)))
    assert positions.shape == (n, 2)
    assert np.isfinite(positions).all()


@pytest.mark.skipif(not is_compiled(), reason="compiled loops are switched off, or numba is missing")
@pytest.mark.parametrize("n", [4, 90])
def test_compiled_descent_is_that_of_scikit_learn_to_the_last_bit(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(n).normal(size=(n, 5))
    vectors[n // 2 :] += 4
    expected = tsne_2d(vectors)  # scikit-learn's, as the vectors are few
    monkeypatch.setattr(tsne, "_COMPILE_FROM", 0)

    np.testing.assert_array_equal(tsne_2d(vectors), expected)

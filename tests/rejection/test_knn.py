"""The distance to the k-th nearest image, against loops over single images."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.rejection.neighbours import Knn


@given(seed=st.integers(0, 10_000), k=st.integers(1, 8))
def test_distances_are_those_of_loops(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    index, queries = rng.normal(size=(8, 3)), rng.normal(size=(5, 3))
    scores = Knn(k).fit(index).score(queries)
    for query, score in zip(queries, scores, strict=True):
        unit = query / np.linalg.norm(query)
        distances = [float(np.linalg.norm(unit - image / np.linalg.norm(image))) for image in index]
        assert score == pytest.approx(sorted(distances)[k - 1], abs=1e-12)


def test_small_distances_keep_their_digits() -> None:
    detector = Knn(1).fit(np.eye(2))
    angles = np.array([1e-9, 1e-6, 1e-3])
    scores = detector.score(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    np.testing.assert_allclose(scores, 2 * np.sin(angles / 2), rtol=1e-12)

"""Vectors on a plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hgld.compute.threads import one_thread


def tsne_2d(vectors: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Positions on a plane that keep neighbours together (t-SNE), shape (n, 2).

    The perplexity is 30, or a third of the other vectors where there are few.
    """
    from sklearn.manifold import TSNE

    n = len(vectors)
    if n < 4:  # too few to have neighbours
        return np.array([[float(row), 0.0] for row in range(n)])
    with one_thread():
        method = TSNE(perplexity=min(30.0, (n - 1) / 3), init="pca", random_state=seed)
        return np.asarray(method.fit_transform(vectors), np.float64)

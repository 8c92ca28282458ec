"""Projection of vectors to two dimensions by t-SNE."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgld.compute.barnes_hut import barnes_hut_gradient
from hgld.compute.compiled import is_compiled
from hgld.compute.threads import one_thread

#: Iterations with early exaggeration, and in all; iterations between two checks of convergence.
_EXPLORATION, _ITERATIONS, _CHECK_EVERY = 250, 1000, 50
_MIN_GAIN, _MIN_GRADIENT_NORM = 0.01, 1e-7
#: Vectors from which on compiling pays, which takes five seconds the first time.
_COMPILE_FROM = 1000


def tsne_2d(vectors: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Project vectors to two dimensions by t-SNE (van der Maaten and Hinton, 2008), which keeps neighbours together.

    The perplexity is 30, or a third of the number of other vectors if that is less. The result is that of
    scikit-learn's ``TSNE``, to the last bit, in less than half the time for thousands of vectors where loops can be
    compiled.

    Args:
        vectors: float64, shape (n, d).
        seed: Seed of the optimisation.

    Returns:
        float64, shape (n, 2); fewer than four vectors are placed side by side.
    """
    from sklearn.manifold import TSNE

    n = len(vectors)
    if n < 4:
        return np.array([[float(row), 0.0] for row in range(n)])

    class CompiledTSNE(TSNE):  # type: ignore[misc]
        """scikit-learn's preparation of the similarities and first positions, and a descent of our own."""

        def _tsne(self, similarities: Any, _freedom: int, _n_samples: int, **settings: Any) -> NDArray[np.float32]:
            start: NDArray[np.float32] = settings["X_embedded"]
            return _descend(similarities, start, self.early_exaggeration, self.learning_rate_)

    with one_thread():
        tsne = CompiledTSNE if n >= _COMPILE_FROM and is_compiled() else TSNE
        method = tsne(perplexity=min(30.0, (n - 1) / 3), init="pca", random_state=seed)
        return np.asarray(method.fit_transform(vectors), np.float64)


def _descend(
    similarities: Any, start: NDArray[np.float32], exaggeration: float, learning_rate: np.float64
) -> NDArray[np.float32]:
    """Move points downhill on the divergence, with momentum and a gain for every coordinate, as scikit-learn does.

    Args:
        similarities: Joint probabilities of neighbours, as a sparse matrix of shape (n, n).
        start: First positions, float32, shape (n, 2).
        exaggeration: Factor of the similarities in the first ``_EXPLORATION`` iterations.
        learning_rate: Length of a step, as a factor of the gradient. Its type decides the precision of the steps,
            which differs between versions of NumPy.
    """
    similarities *= exaggeration
    points, last = _descend_phase(similarities, start, range(_EXPLORATION), _EXPLORATION, 0.5, learning_rate)
    similarities /= exaggeration
    return _descend_phase(similarities, points, range(last + 1, _ITERATIONS), 300, 0.8, learning_rate)[0]


def _descend_phase(
    similarities: Any,
    start: NDArray[np.float32],
    iterations: range,
    patience: int,
    momentum: float,
    learning_rate: np.float64,
) -> tuple[NDArray[np.float32], int]:
    """Descend for some iterations, fewer if the divergence has not fallen for more than ``patience`` of them.

    Returns:
        The positions, and the number of the last iteration.
    """
    values = similarities.data.astype(np.float32)
    neighbours, first = similarities.indices.astype(np.int64), similarities.indptr.astype(np.int64)
    points = np.array(start, order="C")
    update: NDArray[Any] = np.zeros_like(points)
    gains = np.ones_like(points)
    best, best_at, at = np.inf, iterations.start, iterations.start
    for at in iterations:
        check = (at + 1) % _CHECK_EVERY == 0
        gradient, divergence = barnes_hut_gradient(
            values, neighbours, first, points, check or at == iterations.stop - 1
        )
        gradient *= 4.0
        downhill = update * gradient < 0.0
        gains = np.maximum(
            np.where(downhill, gains + np.float32(0.2), gains * np.float32(0.8)), np.float32(_MIN_GAIN)
        )
        gradient *= gains
        update = momentum * update - learning_rate * gradient
        points += update
        if check:
            if divergence < best:
                best, best_at = divergence, at
            elif at - best_at > patience:
                break
            if np.linalg.norm(gradient) <= _MIN_GRADIENT_NORM:
                break
    return points, at

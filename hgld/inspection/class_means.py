"""Mean embeddings of classes, and how well their neighbourhoods agree with a category (paper, Fig. 9a, b)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.evaluation import evaluate_retrieval
from hgld.hierarchy.label_matrix import LabelMatrix

#: Number of nearest classes that :func:`neighbour_agreement` considers.
N_NEIGHBOURS = 5


def class_means(
    embeddings: npt.NDArray[np.float32], labels: LabelMatrix
) -> tuple[npt.NDArray[np.float64], LabelMatrix]:
    """Return the normalised mean of the normalised embeddings of each class of the finest level.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first.

    Returns:
        The means, float64, shape (n_classes, d), and their labels, int64, shape (n_classes, L).
    """
    _, rows, classes = np.unique(labels[:, 0], return_index=True, return_inverse=True)
    sums = np.zeros((len(rows), embeddings.shape[1]))
    np.add.at(sums, classes, _normalised(embeddings.astype(np.float64)))
    return _normalised(sums), labels[rows]


def neighbour_agreement(means: npt.NDArray[np.float64], categories: LabelMatrix) -> float:
    """Return the mean share of the five nearest classes that are of the same category as a class.

    Args:
        means: float64, shape (n_classes, d); two classes or more.
        categories: int64, shape (n_classes,).

    Returns:
        Mean over the classes that are not alone in their category, from 0 to 1; NaN if there are none.

    >>> neighbour_agreement(np.array([[1, 0.0], [0.9, 0.1], [0, 1]]), np.array([0, 0, 1]))  # two neighbours each
    0.5
    """
    metric = f"P@{min(N_NEIGHBOURS, len(means) - 1)}"
    return evaluate_retrieval(means, categories, metrics=[metric]).means[metric]


def _normalised(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

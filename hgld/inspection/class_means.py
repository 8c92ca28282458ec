"""The mean embedding of each class, and how near those of a category are to each other (paper, Fig. 9a, b)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.hierarchy.label_matrix import LabelMatrix

#: How many of the nearest classes are looked at.
NEAREST = 5


def class_means(
    embeddings: npt.NDArray[np.float32], labels: LabelMatrix
) -> tuple[npt.NDArray[np.float64], LabelMatrix]:
    """The mean of the embeddings of each of the finest classes, all scaled to length 1.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first.

    Returns:
        The means, float64, shape (n_classes, d), and their labels, int64, shape (n_classes, L).
    """
    _, rows, classes = np.unique(labels[:, 0], return_index=True, return_inverse=True)
    sums = np.zeros((len(rows), embeddings.shape[1]))
    np.add.at(sums, classes, _units(embeddings.astype(np.float64)))
    return _units(sums), labels[rows]


def share_nearby(means: npt.NDArray[np.float64], categories: npt.NDArray[np.int64]) -> float:
    """The share of the five nearest classes that are of the same category; classes alone in theirs do not count.

    Args:
        means: float64, shape (n_classes, d); two classes or more.
        categories: int64, shape (n_classes,).

    Returns:
        From 0 to 1; NaN if all are alone.

    >>> share_nearby(np.array([[1, 0.0], [0.9, 0.1], [0, 1]]), np.array([0, 0, 1]))  # there are two others
    0.5
    """
    metric = f"P@{min(NEAREST, len(means) - 1)}"
    return evaluate_retrieval(means, categories, metrics=[metric]).means[metric]


def _units(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

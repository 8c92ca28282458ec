"""Mean embeddings of classes, and how well their neighbourhoods agree with a category (paper, Fig. 9a, b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.directions import normalised, sum_directions
from hgld.hierarchy.label_matrix import LabelMatrix

#: Number of nearest classes that :func:`neighbour_agreement` considers.
N_NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class MeanEmbeddings:
    """Mean embeddings of classes of the finest level, perhaps of a sample of them.

    Args:
        means: Means of length 1, float64, shape (n, d).
        labels: Labels of the n classes, int64, shape (n, L), finest first; in ascending order of the finest.
        n_classes: Number of classes that the sample was drawn from; n if there are no others.
    """

    means: npt.NDArray[np.float64]
    labels: LabelMatrix
    n_classes: int


def class_means(
    parts: Sequence[tuple[torch.Tensor, LabelMatrix]], *, max_classes: int | None = None, seed: int = 0
) -> MeanEmbeddings:
    """Return the normalised mean of the normalised embeddings of each class of the finest level.

    The embeddings are read in blocks, so that they may be memory-mapped; other memory is that of the means.

    Args:
        parts: Embeddings, float, shape (n, d), each with labels, int64, shape (n, L), finest first; rows whose finest
            label is -1 are ignored. The labels of all parts number the same classes.
        max_classes: Largest number of classes; of more, a random sample is taken.
        seed: Seed of the sample.
    """
    labels = np.concatenate([labels for _, labels in parts])
    classes, rows = np.unique(labels[:, 0], return_index=True)
    classes, rows = classes[classes >= 0], rows[classes >= 0]
    n_classes = len(classes)
    if max_classes is not None and n_classes > max_classes:
        sample = np.sort(np.random.default_rng(seed).choice(n_classes, max_classes, replace=False))
        classes, rows = classes[sample], rows[sample]
    sums = np.zeros((len(classes), parts[0][0].shape[1]))
    for vectors, part_labels in parts:
        positions = np.searchsorted(classes, part_labels[:, 0]).clip(max=len(classes) - 1)
        positions[classes[positions] != part_labels[:, 0]] = -1
        sums += sum_directions(vectors, positions, len(classes))
    return MeanEmbeddings(normalised(sums), labels[rows], n_classes)


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

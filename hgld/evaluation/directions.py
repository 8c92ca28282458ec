"""Mean directions of groups of embeddings: of a video's frames, of a template's media, of a class's images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

#: Embeddings read at once: 64 MB as float64 where vectors have 2,048 numbers.
_BLOCK = 4096


def sum_directions(vectors: torch.Tensor, groups: npt.NDArray[np.int64], n_groups: int) -> npt.NDArray[np.float64]:
    """Return the sum of the L2-normalised vectors of each group; vectors are read in blocks.

    Args:
        vectors: float, shape (n, d); may be memory-mapped.
        groups: int64, shape (n,); position of the group of each vector, -1 for vectors of none, which are not read.
        n_groups: Number of groups.

    Returns:
        float64, shape (n_groups, d).

    >>> sum_directions(torch.tensor([[2.0, 0.0], [0.0, 3.0], [9.0, 9.0]]), np.array([0, 0, -1]), 1)
    array([[1., 1.]])
    """
    sums = np.zeros((n_groups, vectors.shape[1]))
    selected = np.flatnonzero(groups >= 0)
    for start in range(0, len(selected), _BLOCK):
        rows = selected[start : start + _BLOCK]
        np.add.at(sums, groups[rows], normalised(vectors[torch.from_numpy(rows)].double().numpy()))
    return sums


def normalised(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return vectors divided by their length."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

"""Search for the nearest images of every image by embeddings, in blocks of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from hgld.arrays import Booleans, Integers
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.ragged import RaggedIndices

#: Number of images that are searched for at once. The last bits of cosines depend on it.
BLOCK = 4096


def blocks_of(n: int, size: int = BLOCK) -> list[slice]:
    """Return slices that divide n items into blocks of ``size`` items; the last may be smaller.

    >>> blocks_of(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def nearest_images(
    vectors: torch.Tensor,
    k: int,
    excluded: Callable[[Integers], RaggedIndices],
    usable: Booleans | None = None,
) -> tuple[NDArray[Any], Integers]:
    """Return the cosines and rows of the k nearest images of each image, best first, shape (N, k).

    Args:
        vectors: float, shape (N, d).
        k: Number of nearest images; if there are fewer, cosines are NaN and rows -1.
        excluded: Function from the rows of n images to the rows that are not neighbours of each image.
        usable: bool, shape (N,): whether an image may be found. Default: all images.
    """
    cosines = []
    neighbours = []
    for block in blocks_of(len(vectors)):
        rows = np.arange(block.start, block.stop)
        block_cosines, block_neighbours = nearest_neighbours(
            vectors[block], vectors, k, excluded=excluded(rows), gallery_mask=usable
        )
        cosines.append(block_cosines)
        neighbours.append(block_neighbours)
    return np.concatenate(cosines), np.concatenate(neighbours)


def mean_direction(vectors: torch.Tensor) -> torch.Tensor:
    """Return the mean of the directions of vectors, float32, shape (d,)."""
    total = torch.zeros(vectors.shape[1])
    for block in blocks_of(len(vectors)):
        total += functional.normalize(vectors[block].float(), dim=1).sum(0)
    return total / len(vectors)


def centred(vectors: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Return the directions of vectors after subtraction of a mean direction, float32, shape (n, d)."""
    directions = functional.normalize(vectors.float(), dim=1)
    return functional.normalize(directions - mean, dim=1)


def only_itself(rows: Integers) -> RaggedIndices:
    """Exclude each image from its own neighbours, for ``excluded`` of :func:`nearest_images`."""
    return RaggedIndices(np.arange(len(rows) + 1), rows)

"""Small galleries, and an obvious search to compare with."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.io.text_array import TextArray
from hgld.search.gallery import Gallery

LEVELS = ("product", "group", "kind")


def gallery_of(
    vectors: npt.ArrayLike, ids: Sequence[str], labels: Sequence[Sequence[str]] = (), level_names: Sequence[str] = ()
) -> Gallery:
    """Return a gallery in memory; labels are names for each image, finest first."""
    names, codes = [], []
    for column in zip(*labels, strict=True):
        values, code = np.unique(np.array(column, np.str_), return_inverse=True)
        names.append(tuple(values.tolist()))
        codes.append(code)
    matrix = np.stack(codes, axis=1) if codes else np.empty((len(ids), 0), np.int64)
    return Gallery(torch.as_tensor(np.asarray(vectors)), TextArray(ids), matrix, tuple(level_names), tuple(names))


def toy_gallery(n: int = 12, dim: int = 4, seed: int = 0) -> Gallery:
    """Return a gallery of 6 products in 3 groups and 2 kinds."""
    vectors = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    labels = [[f"p{row % 6}", f"g{row % 6 // 2}", f"k{row % 6 // 4}"] for row in range(n)]
    return gallery_of(vectors, [f"image {row}" for row in range(n)], labels, LEVELS)


def obvious_neighbours(queries: npt.NDArray[Any], vectors: npt.NDArray[Any], k: int) -> list[list[tuple[int, float]]]:
    """Return positions and cosines of the k nearest vectors of each query; of equal ones, the first comes first."""
    answers = []
    for query in queries:
        cosines = [
            float(query @ vector) / (math.sqrt(float(query @ query)) * math.sqrt(float(vector @ vector)))
            for vector in vectors
        ]
        order = sorted(range(len(vectors)), key=lambda position: (-cosines[position], position))
        answers.append([(position, cosines[position]) for position in order[:k]])
    return answers


def obvious_vote(neighbours: Sequence[tuple[float, Sequence[str]]], temperature: float) -> list[tuple[str, float]]:
    """Return the label and the share of each level, finest first, from cosines and labels, finest first."""
    total = sum(math.exp(score / temperature) for score, _ in neighbours)
    answer: list[tuple[str, float]] = []
    voters = list(neighbours)
    for column in reversed(range(len(neighbours[0][1]))):
        sums: dict[str, float] = {}
        for score, labels in voters:  # nearest first, so the first of equal sums is that of the nearer one
            sums[labels[column]] = sums.get(labels[column], 0.0) + math.exp(score / temperature)
        best = max(sums, key=lambda label: sums[label])
        answer.insert(0, (best, sums[best] / total))
        voters = [(score, labels) for score, labels in voters if labels[column] == best]
    return answer

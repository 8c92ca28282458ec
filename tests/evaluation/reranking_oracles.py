"""Every method of re-ranking as its paper says, for one query and a gallery without it: plain loops and sets."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hgld.evaluation.settings import RerankSettings

Vector = npt.NDArray[Any]


def cos(a: Vector, b: Vector) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def direction(a: Vector) -> Vector:
    return np.asarray(a / math.sqrt(float(a @ a)))


def nearest(query: Vector, items: Sequence[Vector], leave_out: int | None = None) -> list[int]:
    """Positions of items, the highest cosine first, without one of them."""
    cosines = np.array(items) @ query / np.linalg.norm(items, axis=1)
    return [i for i in np.argsort(-cosines, kind="stable").tolist() if i != leave_out]


def ranking(query: Vector, gallery: Sequence[Vector], settings: RerankSettings) -> list[int]:
    """Positions of all gallery items in their order."""
    before = nearest(query, gallery)
    if settings.rerank in ("aqe", "alpha-qe"):
        near = before[: settings.rerank_neighbours]
        return nearest(expanded(query, [gallery[i] for i in near], settings), gallery)
    if settings.rerank == "dba":
        augmented = []
        for i, item in enumerate(gallery):
            near = nearest(item, gallery, leave_out=i)[: settings.rerank_neighbours]
            augmented.append(expanded(item, [gallery[j] for j in near], settings))
        return nearest(query, augmented)
    raise AssertionError(settings.rerank)


def expanded(vector: Vector, near: Sequence[Vector], settings: RerankSettings) -> Vector:
    """The sum of a vector and its neighbours x, each times cos(vector, x)^alpha, or 1."""
    total = direction(vector)
    for x in near:
        weight = 1.0 if settings.rerank == "aqe" else max(cos(vector, x), 0.0) ** settings.rerank_alpha
        total = total + weight * direction(x)
    return total

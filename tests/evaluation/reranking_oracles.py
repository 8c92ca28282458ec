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
        near = before[: settings.neighbours]
        return nearest(expanded(query, [gallery[i] for i in near], settings), gallery)
    if settings.rerank == "dba":
        augmented = []
        for i, item in enumerate(gallery):
            near = nearest(item, gallery, leave_out=i)[: settings.neighbours]
            augmented.append(expanded(item, [gallery[j] for j in near], settings))
        return nearest(query, augmented)
    n = settings.rerank_candidates or 400
    first, rest = before[:n], before[n:]
    method = {"k-reciprocal": k_reciprocal, "diffusion": diffusion, "superglobal": superglobal}[settings.rerank or ""]
    scores = method(direction(query), [direction(gallery[i]) for i in first], settings)
    return [first[i] for i in sorted(range(len(first)), key=lambda i: (-scores[i], i))] + rest


def expanded(vector: Vector, near: Sequence[Vector], settings: RerankSettings) -> Vector:
    """The sum of a vector and its neighbours x, each times cos(vector, x)^alpha, or 1."""
    total = direction(vector)
    for x in near:
        weight = 1.0 if settings.rerank == "aqe" else max(cos(vector, x), 0.0) ** settings.rerank_alpha
        total = total + weight * direction(x)
    return total


def k_reciprocal(query: Vector, candidates: Sequence[Vector], settings: RerankSettings) -> list[float]:
    """Zhong et al.: sets of k-reciprocal neighbours, grown, encoded and compared; the query is point 0."""
    points = np.array([query, *candidates])  # of length 1
    everyone = range(len(points))
    d = (1 - points @ points.T).tolist()
    by_distance = [sorted((j for j in everyone if j != i), key=lambda j: d[i][j]) for i in everyone]

    def first(i: int, k: int) -> set[int]:
        """N(i, k) and i itself, which is its own first neighbour."""
        return {i, *by_distance[i][:k]}

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in first(i, k) if i in first(j, k)}

    k1 = settings.neighbours
    encodings = []
    for i in everyone:
        own = reciprocal(i, k1)
        members = set(own)
        for j in own:
            others = reciprocal(j, round(k1 / 2))
            if len(own & others) >= 2 / 3 * len(others):
                members |= others
        encodings.append([math.exp(-d[i][j]) if j in members else 0.0 for j in everyone])
    mixed = []
    for i in everyone:
        group = sorted(first(i, 5))  # k2 = 6 with itself
        mixed.append([sum(encodings[g][j] for g in group) for j in everyone])
    scores = []
    for i in everyone[1:]:
        # Both sums are over 6 encodings, or over all points where these are fewer.
        minima = sum(min(a, b) for a, b in zip(mixed[0], mixed[i], strict=True))
        maxima = sum(max(a, b) for a, b in zip(mixed[0], mixed[i], strict=True))
        scores.append(-(0.7 * (1 - minima / maxima) + 0.3 * d[0][i]))
    return scores


def diffusion(query: Vector, candidates: Sequence[Vector], settings: RerankSettings) -> list[float]:
    """Iscen et al.: f = 0.01 (I - 0.99 S)^-1 y; y has the query's ten nearest."""
    everyone = range(len(candidates))

    def affinity(a: Vector, b: Vector) -> float:
        return float(max(cos(a, b), 0.0) ** settings.rerank_alpha)

    near = [nearest(x, candidates, leave_out=i)[: settings.neighbours] for i, x in enumerate(candidates)]
    w = np.array(
        [
            [affinity(candidates[i], candidates[j]) if i in near[j] and j in near[i] else 0.0 for j in everyone]
            for i in everyone
        ]
    )
    degrees = w.sum(1)
    for i in everyone:
        for j in everyone:
            if w[i, j]:
                w[i, j] /= math.sqrt(degrees[i] * degrees[j])
    y = np.array([affinity(query, x) if i < 10 else 0.0 for i, x in enumerate(candidates)])
    steady = 0.01 * np.linalg.inv(np.eye(len(y)) - 0.99 * w) @ y
    return [float(value) for value in steady]


def superglobal(query: Vector, candidates: Sequence[Vector], settings: RerankSettings) -> list[float]:
    """Shao et al.: refined candidates, the query as a maximum of the first of them, and the mean of both products."""
    refined = []
    for i, x in enumerate(candidates):
        total, weights = x, 1.0
        for j in nearest(x, candidates, leave_out=i)[: settings.neighbours]:
            weight = 0.15 * max(cos(x, candidates[j]), 0.0)
            total, weights = total + weight * candidates[j], weights + weight
        refined.append(total / weights)
    s1 = [float(query @ x) for x in refined]
    first = sorted(range(len(candidates)), key=lambda i: -s1[i])[: settings.neighbours + 1]
    pooled = np.max([refined[i] for i in first], axis=0)
    return [(s1[i] + float(pooled @ x)) / 2 for i, x in enumerate(candidates)]

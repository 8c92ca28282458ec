"""Sums of steps, ranks and metrics of one query as slow, plain loops over their equations."""

import math
from collections.abc import Callable, Sequence

import torch

from hgld.losses.kernels.steps import Step

H = Callable[[float], float]


def heaviside(t: float) -> float:
    return float(t >= 0)


def sigmoid(t: float, tau: float = 0.01) -> float:
    return 1 / (1 + math.exp(-t / tau)) if t > -700 * tau else 0.0


def h_minus(t: float, tau: float = 0.01, rho: float = 100.0, delta: float = 0.05) -> float:
    """Return H^- of Eq. 4, with the second branch at 0."""
    if t < 0:
        return sigmoid(t, tau)
    if t <= delta:
        return sigmoid(t, tau) + 0.5
    return rho * (t - delta) + sigmoid(delta, tau) + 0.5


def step_sum(scores: Sequence[float], levels: Sequence[int], k: int, weights: torch.Tensor, step: Step) -> float:
    """Return S_k of :mod:`hgld.losses.kernels.rank_loss`."""
    if levels[k] < 1:
        return 0.0
    total = 0.0
    for j in range(len(scores)):
        if j != k and levels[j] >= 0:
            t = torch.tensor(scores[j] - scores[k], dtype=torch.float64)
            total += weights[levels[k], levels[j]].item() * step.value(t).item()
    return total


def rank(scores: Sequence[float], levels: Sequence[int], k: int, h: H = heaviside) -> float:
    """Return the rank of item k (Eq. 3), with ``h`` for items of lower levels."""
    total = 1.0
    for j in range(len(scores)):
        if j != k and levels[j] >= 0:
            total += (h if levels[j] < levels[k] else heaviside)(scores[j] - scores[k])
    return total


def average_precision(scores: Sequence[float], levels: Sequence[int], n_levels: int) -> float:
    """Return the average precision (Eq. 9), with ties counted against the ranking."""
    binary = [-1 if level < 0 else int(level == n_levels) for level in levels]
    return h_ap(scores, binary, [0.0, 1.0])


def h_ap(scores: Sequence[float], levels: Sequence[int], relevance: Sequence[float], h: H = heaviside) -> float:
    """Return H-AP (Eq. 19), or with ``h`` its surrogate in Eq. 21."""
    positives = [k for k in range(len(scores)) if levels[k] > 0]
    total = 0.0
    for k in positives:
        h_rank = relevance[levels[k]] + sum(
            min(relevance[levels[k]], relevance[levels[j]]) * heaviside(scores[j] - scores[k])
            for j in positives
            if j != k
        )
        total += h_rank / rank(scores, levels, k, h)
    return total / sum(relevance[levels[k]] for k in positives)


def ndcg(scores: Sequence[float], levels: Sequence[int], h: H = heaviside) -> float:
    """Return NDCG (Eq. 23), or with ``h`` its surrogate in Eq. 24."""
    gains = [2.0 ** max(level, 0) - 1 for level in levels]
    dcg = sum(gains[k] / math.log2(1 + rank(scores, levels, k, h)) for k in range(len(scores)) if gains[k])
    ideal = sum(gain / math.log2(2 + place) for place, gain in enumerate(sorted(gains, reverse=True)))
    return dcg / ideal


def recall(scores: Sequence[float], levels: Sequence[int], k: int, tau_star: float, h: H) -> float:
    """Return the surrogate of recall at k in Eq. 16."""
    positives = [p for p in range(len(scores)) if levels[p] > 0]
    hits = sum(sigmoid(k - rank(scores, levels, p, h), tau_star) for p in positives)
    return hits / min(len(positives), k)

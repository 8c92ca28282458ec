"""Sums of steps, ranks and metrics of one query as slow, plain loops over their equations, with gradients.

Scores are a float64 tensor of shape (n,), and levels a list; items of level -1 are excluded.
"""

import math
from collections.abc import Callable, Sequence

import torch

from hgld.losses.kernels.steps import Step

H = Callable[[torch.Tensor], torch.Tensor]


def heaviside(t: torch.Tensor) -> torch.Tensor:
    return (t >= 0).to(t.dtype)


def sigmoid(t: torch.Tensor, tau: float = 0.01) -> torch.Tensor:
    return torch.sigmoid(t / tau)


def h_minus(t: torch.Tensor, tau: float = 0.01, rho: float = 100.0, delta: float = 0.05) -> torch.Tensor:
    """Return H^- of Eq. 4, with the second branch at 0."""
    if t < 0:
        return sigmoid(t, tau)
    if t <= delta:
        return sigmoid(t, tau) + 0.5
    return rho * (t - delta) + 1 / (1 + math.exp(-delta / tau)) + 0.5


def step_sum(scores: torch.Tensor, levels: Sequence[int], k: int, weights: torch.Tensor, step: Step) -> float:
    """Return S_k of :mod:`hgld.losses.kernels.rank_loss`."""
    others = [j for j in range(len(scores)) if j != k and min(levels[k] - 1, levels[j]) >= 0]
    return sum(weights[levels[k], levels[j]].item() * step.value(scores[j] - scores[k]).item() for j in others)


def rank(
    scores: torch.Tensor, levels: Sequence[int], k: int, minus: H = heaviside, plus: H = heaviside
) -> torch.Tensor:
    """Return the rank of item k (Eq. 3), with ``minus`` for items of lower levels."""
    total = torch.ones((), dtype=torch.float64)
    for j in range(len(scores)):
        if j != k and levels[j] >= 0:
            total = total + (minus if levels[j] < levels[k] else plus)(scores[j] - scores[k])
    return total


def average_precision(scores: torch.Tensor, levels: Sequence[int], n_levels: int) -> float:
    """Return the average precision (Eq. 9), with ties counted against the ranking."""
    return h_ap(scores, [-1 if level < 0 else int(level == n_levels) for level in levels], [0.0, 1.0]).item()


def h_ap(
    scores: torch.Tensor,
    levels: Sequence[int],
    relevance: Sequence[float],
    minus: H = heaviside,
    plus: H = heaviside,
) -> torch.Tensor:
    """Return H-AP (Eq. 19), or with other steps its surrogate in Eq. 21."""
    positives = [k for k in range(len(scores)) if levels[k] > 0]
    total = torch.zeros((), dtype=torch.float64)
    for k in positives:
        h_rank = torch.tensor(relevance[levels[k]], dtype=torch.float64)
        for j in positives:
            if j != k:
                h_rank = h_rank + min(relevance[levels[k]], relevance[levels[j]]) * plus(scores[j] - scores[k])
        total = total + h_rank / rank(scores, levels, k, minus, plus)
    return total / sum(relevance[levels[k]] for k in positives)


def ndcg(scores: torch.Tensor, levels: Sequence[int], minus: H = heaviside) -> torch.Tensor:
    """Return NDCG (Eq. 23), or with ``minus`` its surrogate in Eq. 24."""
    gains = [2.0 ** max(level, 0) - 1 for level in levels]
    terms = [gains[k] / torch.log2(1 + rank(scores, levels, k, minus)) for k in range(len(scores)) if gains[k]]
    ideal = sum(gain / math.log2(2 + place) for place, gain in enumerate(sorted(gains, reverse=True)))
    return torch.stack(terms).sum() / ideal


def recall(
    scores: torch.Tensor, levels: Sequence[int], k: int, tau_star: float, minus: H, plus: H = heaviside
) -> torch.Tensor:
    """Return the surrogate of recall at k in Eq. 16."""
    positives = [p for p in range(len(scores)) if levels[p] > 0]
    hits = [sigmoid(k - rank(scores, levels, p, minus, plus), tau_star) for p in positives]
    return torch.stack(hits).sum() / min(len(positives), k)

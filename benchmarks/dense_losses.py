"""Straightforward implementations of Sup-H-AP and Smooth-AP, the references of ``losses.py``.

They follow the equations with arrays of batch x batch x batch and autograd, regardless of memory. As in the authors'
published code, each item of the batch is a query against the whole batch, and one of its own positives.
"""

from __future__ import annotations

import torch

TAU, RHO, DELTA = 0.01, 100.0, 0.05


def sup_h_ap(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return L_Sup-H-AP (paper, Eq. 21) with the step of Eq. 4 and the relevance of Eq. 20 for alpha = 1.

    Args:
        embeddings: float, shape (B, d), L2-normalised.
        labels: int64, shape (B, L), finest first.
    """
    differences, levels = _pairs(embeddings, labels)
    depth = labels.shape[1]
    counts = (levels[:, :, None] == torch.arange(depth + 1, device=levels.device)).sum(1)
    relevance = (torch.arange(depth + 1, device=levels.device) / depth / counts.clamp(min=1)).gather(1, levels)
    is_lower = levels[:, None, :] < levels[:, :, None]
    heaviside = (differences >= 0).float()
    rank_plus = (heaviside * ~is_lower).sum(2)  # includes k itself
    h_rank_plus = (heaviside * torch.minimum(relevance[:, None, :], relevance[:, :, None])).sum(2)
    at_delta = torch.sigmoid(torch.tensor(DELTA / TAU)) + 0.5
    line = RHO * (differences - DELTA) + at_delta
    step = torch.where(differences > DELTA, line, torch.sigmoid(differences / TAU) + 0.5 * heaviside)
    rank_minus = (step * is_lower).sum(2)
    ratios = h_rank_plus / (rank_plus + rank_minus)
    return (1 - (ratios * (levels > 0)).sum(1) / relevance.sum(1)).mean()


def smooth_ap(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return Smooth-AP (Brown et al., Eq. 6) at the finest level.

    Args:
        embeddings: float, shape (B, d), L2-normalised.
        labels: int64, shape (B, L), finest first.
    """
    differences, levels = _pairs(embeddings, labels)
    is_positive = (levels == labels.shape[1]).float()
    others = 1 - torch.eye(len(labels), device=labels.device)
    steps = torch.sigmoid(differences / TAU) * others
    rank_plus = 1 + (steps * is_positive[:, None, :]).sum(2)
    rank = 1 + steps.sum(2)
    return (1 - (rank_plus / rank * is_positive).sum(1) / is_positive.sum(1)).mean()


def _pairs(embeddings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return s_j - s_k for all queries and items k, j, shape (B, B, B), and the levels of all pairs, shape (B, B)."""
    scores = embeddings @ embeddings.T
    return scores[:, None, :] - scores[:, :, None], (labels[:, None] == labels).sum(2)

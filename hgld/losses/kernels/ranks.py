"""Ranks of the positives of a query, with steps in the place of Heaviside's.

For one query, item k has the score s_k and the level lv_k, 0 to L; Omega^+ are the items of level 1 or more, and

    rank^+(k) = 1 + sum over j != k with lv_j >= lv_k of h^+(s_j - s_k)
    rank^-(k) = sum over j with lv_j < lv_k of h^-(s_j - s_k)                                (paper, Eqs. 3 and 5)
    H-rank^+(k) = rel(k) + sum over j != k in Omega^+ of min(rel(k), rel(j)) h^+(s_j - s_k)  (Eq. 18)

Levels are compared, never relevances: two levels may have the same relevance.
"""

from __future__ import annotations

import torch

from hgld.losses.kernels.step_sums import step_sums, sums_of_steps
from hgld.losses.kernels.steps import Step


def rank(scores: torch.Tensor, levels: torch.Tensor, n_levels: int, *, plus: Step, minus: Step) -> torch.Tensor:
    """rank^+(k) + rank^-(k).

    Args:
        scores: float32 or float64, shape (n_query, n_items).
        levels: int64, the same shape; -1 for an item that is not in the query's retrieval set.
        n_levels: L.
        plus: h^+.
        minus: h^-.

    Returns:
        The dtype and shape of ``scores``; 1 where the level of k is below 1.
    """
    everything = scores.new_ones(1, n_levels + 1, n_levels + 1)
    if plus == minus:
        return 1 + step_sums(scores, levels, everything, plus)
    return 1 + sums_of_steps(scores, levels, [(everything.triu(), plus), (everything.tril(-1), minus)])


def h_rank_plus(
    scores: torch.Tensor, levels: torch.Tensor, relevance: torch.Tensor, *, plus: Step, finer: Step | None = None
) -> torch.Tensor:
    """H-rank^+(k).

    Args:
        scores: as in :func:`rank`.
        levels: as in :func:`rank`.
        relevance: the dtype of ``scores``, shape (n_query, L + 1), by level; 0 for level 0.
        plus: h^+.
        finer: the step for items of finer levels than that of k; None for ``plus``.

    Returns:
        The dtype and shape of ``scores``; 0 where the level of k is below 1.
    """
    least = torch.minimum(relevance.unsqueeze(1), relevance.unsqueeze(2))
    own = relevance.gather(1, levels.clamp(min=0))
    if finer is None:
        return own + step_sums(scores, levels, least, plus)
    return own + sums_of_steps(scores, levels, [(least.tril(), plus), (least.triu(1), finer)])


def count_levels(levels: torch.Tensor, n_levels: int) -> torch.Tensor:
    """How many items each level has for each query: float64, shape (n_query, L + 1)."""
    return torch.stack([(levels == level).sum(1) for level in range(n_levels + 1)], 1).to(torch.float64)

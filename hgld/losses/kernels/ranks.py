"""Surrogate ranks of the positives of a query, with steps in place of Heaviside's.

For one query, item k has the score s_k and the level lv_k, 0 to L; Omega^+ are the items of level 1 or more, and

    rank^+(k) = 1 + sum over j != k with lv_j >= lv_k of h^+(s_j - s_k)
    rank^-(k) = sum over j with lv_j < lv_k of h^-(s_j - s_k)                                (paper, Eqs. 3 and 5)
    H-rank^+(k) = rel(k) + sum over j != k in Omega^+ of min(rel(k), rel(j)) h^+(s_j - s_k)  (Eq. 18)

Levels are compared, never relevances: two levels may have the same relevance.
"""

from __future__ import annotations

import torch

from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.step_sums import combined_step_sums, step_sums
from hgld.losses.kernels.steps import Step


def rank(
    scores: torch.Tensor,
    levels: torch.Tensor,
    n_levels: int,
    *,
    plus: Step,
    minus: Step,
    ranking: Ranking | None = None,
) -> torch.Tensor:
    """Return rank^+(k) + rank^-(k) of every positive.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items).
        levels: int64 tensor of the same shape; -1 for items excluded from the query's retrieval set.
        n_levels: Number of levels L.
        plus: Step h^+.
        minus: Step h^-.
        ranking: Ranking of these scores and levels, where other sums need it, too.

    Returns:
        Tensor of the shape and dtype of ``scores``; 1 where the level of k is below 1.

    >>> from hgld.losses import Heaviside
    >>> rank(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]]), 1, plus=Heaviside(), minus=Heaviside())
    tensor([[1., 3., 1.]])
    """
    ones = scores.new_ones(1, n_levels + 1, n_levels + 1)
    if plus == minus:
        return 1 + step_sums(scores, levels, ones, plus, ranking)
    return 1 + combined_step_sums(scores, levels, [(ones.triu(), plus), (ones.tril(-1), minus)], ranking)


def h_rank_plus(
    scores: torch.Tensor,
    levels: torch.Tensor,
    relevance: torch.Tensor,
    *,
    plus: Step,
    finer: Step | None = None,
    ranking: Ranking | None = None,
) -> torch.Tensor:
    """Return H-rank^+(k) of every positive.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items).
        levels: int64 tensor of the same shape; -1 for items excluded from the query's retrieval set.
        relevance: Relevance of each level, of shape (n_query, L + 1) and the dtype of ``scores``; 0 for level 0.
        plus: Step h^+.
        finer: Step for items of finer levels than that of k. Default: ``plus``.
        ranking: See :func:`rank`.

    Returns:
        Tensor of the shape and dtype of ``scores``; 0 where the level of k is below 1.
    """
    pair_relevance = torch.minimum(relevance.unsqueeze(1), relevance.unsqueeze(2))
    own = relevance.gather(1, levels.clamp(min=0))
    if finer is None:
        return own + step_sums(scores, levels, pair_relevance, plus, ranking)
    terms = [(pair_relevance.tril(), plus), (pair_relevance.triu(1), finer)]
    return own + combined_step_sums(scores, levels, terms, ranking)

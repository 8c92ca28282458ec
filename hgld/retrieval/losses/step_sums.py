"""Sums of steps over the items of a retrieval set: every rank of every rank loss is one of them.

For a query with scores s_j and levels lv_j, and a weight w for each pair of levels,

    S_k = sum over j != k of w[lv_k, lv_j] h(s_j - s_k)

is rank^+(k) - 1 with w = [lv_j >= lv_k] and Heaviside's step, rank^-(k) with w = [lv_j < lv_k] and a smooth one
(paper, Eq. 3), and H-rank^+(k) - rel(k) with w = min(rel_k, rel_j) among positives (Eq. 18).
"""

from __future__ import annotations

import torch

from hgld.retrieval.losses.pair_sums import pair_sums
from hgld.retrieval.losses.steps import Heaviside, Step


def step_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    """S_k of every positive item k of every query; see the module for the formula.

    Args:
        scores: float32 or float64, shape (n_query, n_items); the only argument that has a gradient.
        levels: int64, the same shape; 0 to L, or -1 for an item that is not in the query's retrieval set.
        weights: the dtype of ``scores``, shape (n_query or 1, L + 1, L + 1): of a pair by the levels of k and j.
        step: h.

    Returns:
        The dtype and shape of ``scores``; 0 where the level of k is below 1.
    """
    if isinstance(step, Heaviside):
        return heaviside_sums(scores, levels, weights)
    return pair_sums(scores, levels, weights, step)


@torch.no_grad()
def heaviside_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """:func:`step_sums` of Heaviside's step, by counting the items of each level in sorted order. Ties count."""
    n_levels = weights.shape[1] - 1
    ascending, order = scores.sort(1)
    position = torch.arange(scores.shape[1], device=scores.device)
    is_first = torch.ones_like(ascending, dtype=torch.bool)
    is_first[:, 1:] = ascending[:, 1:] > ascending[:, :-1]
    first_of_tie = torch.where(is_first, position, 0).cummax(1).values
    sorted_levels = levels.gather(1, order)
    row = sorted_levels.clamp(min=0)
    sums = torch.zeros_like(ascending)
    for level in range(n_levels + 1):
        of_level = sorted_levels == level
        up_to = of_level.cumsum(1, dtype=torch.int32)
        below = (up_to - of_level.int()).gather(1, first_of_tie)
        sums += (up_to[:, -1:] - below - of_level.int()) * weights[:, :, level].expand(len(scores), -1).gather(1, row)
    return torch.zeros_like(sums).scatter_(1, order, sums * (sorted_levels > 0))

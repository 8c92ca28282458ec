"""Sums of steps over the items of a retrieval set: every rank of every rank loss is one of them.

For a query with scores s_j and levels lv_j, and a weight w for each pair of levels,

    S_k = sum over j != k of w[lv_k, lv_j] h(s_j - s_k)

is rank^+(k) - 1 with w = [lv_j >= lv_k] and Heaviside's step, rank^-(k) with w = [lv_j < lv_k] and a smooth one
(paper, Eq. 3), and H-rank^+(k) - rel(k) with w = min(rel_k, rel_j) among positives (Eq. 18).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hgld.losses.kernels.interpolated_sums import interpolated_sums
from hgld.losses.kernels.pair_sums import pair_sums
from hgld.losses.kernels.sorting import sort_scores
from hgld.losses.kernels.steps import Sigmoid, Step, SupRankStep

#: With more pairs than this for each query, and this for each of its items on top, the sums of smooth steps are had
#: without pairs: a pair takes some 10 ns of a CPU core, without them a query takes 0.7 ms and 0.5 us for each item.
PAIRS_PER_QUERY = 2**16
PAIRS_PER_ITEM = 64


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
    return sums_of_steps(scores, levels, [(weights, step)])


def sums_of_steps(
    scores: torch.Tensor, levels: torch.Tensor, terms: Sequence[tuple[torch.Tensor, Step]]
) -> torch.Tensor:
    """The sum of several :func:`step_sums` of the same scores and levels, each with weights and a step of its own."""
    of_heaviside: list[torch.Tensor] = []
    sums = torch.zeros_like(scores)
    for weights, step in terms:
        jump, rest = step.split()
        if jump:
            of_heaviside.append(weights * jump)
        if rest is not None:
            sums = sums + _sums_of_rest(scores, levels, weights, rest)
    return sums + heaviside_sums(scores, levels, torch.stack(of_heaviside).sum(0)) if of_heaviside else sums


def _sums_of_rest(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    least_pairs = PAIRS_PER_QUERY + PAIRS_PER_ITEM * scores.shape[1]
    if isinstance(step, (Sigmoid, SupRankStep)) and _pairs_per_query(levels, weights) > least_pairs:
        return interpolated_sums(scores, levels, weights, step)
    return pair_sums(scores, levels, weights, step)


def _pairs_per_query(levels: torch.Tensor, weights: torch.Tensor) -> float:
    """How many pairs have a weight, on average."""
    has_weight = (weights != 0).any(0).to(torch.float64)
    has_weight[0] = 0
    counts = torch.stack([(levels == level).sum(1) for level in range(len(has_weight))], 1).to(torch.float64)
    return float(((counts @ has_weight.T) * counts).sum(1).mean())


@torch.no_grad()
def heaviside_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """:func:`step_sums` of Heaviside's step, by counting the items of each level in sorted order. Ties count."""
    n_levels = weights.shape[1] - 1
    ascending, order = sort_scores(scores)
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

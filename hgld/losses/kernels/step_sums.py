"""Sums of steps over the items of a retrieval set, of which every surrogate rank is made.

For a query with scores s_j and levels lv_j, and a weight w for each pair of levels,

    S_k = sum over j != k of w[lv_k, lv_j] h(s_j - s_k)

is rank^+(k) - 1 with w = [lv_j >= lv_k] and Heaviside's step, rank^-(k) with w = [lv_j < lv_k] and a smooth step
(paper, Eq. 3), and H-rank^+(k) - rel(k) with w = min(rel_k, rel_j) among positives (Eq. 18).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hgld.compute.compiled import is_compiled
from hgld.losses.kernels.heaviside_sums import heaviside_sums
from hgld.losses.kernels.interpolated_sums import grid_over, interpolated_sums
from hgld.losses.kernels.level_counts import count_levels
from hgld.losses.kernels.pair_sums import pair_sums
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.steps import Sigmoid, Step, SupRankStep

#: What an item and a point of the grid cost by interpolation, in pairs of the compiled loops. On a core, forward and
#: backward, a pair takes some 0.4 ns, and an item and a point 0.2 us each with three levels.
PAIRS_PER_ITEM = 512
PAIRS_PER_POINT = 1024
#: Pairs that the compiled loops sum in the time of one without them, about.
COMPILED_PAIRS = 8


def step_sums(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step, ranking: Ranking | None = None
) -> torch.Tensor:
    """Return S_k of every positive item k of every query; see the module for the formula.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items); the only argument with a gradient.
        levels: int64 tensor of the same shape: 0 to L, or -1 for items excluded from the query's retrieval set.
        weights: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1) and the dtype of
            ``scores``.
        step: Step h.
        ranking: Ranking of these scores and levels, where other sums need it, too.

    Returns:
        Tensor of the shape and dtype of ``scores``; 0 where the level of k is below 1.
    """
    return combined_step_sums(scores, levels, [(weights, step)], ranking)


def combined_step_sums(
    scores: torch.Tensor,
    levels: torch.Tensor,
    terms: Sequence[tuple[torch.Tensor, Step]],
    ranking: Ranking | None = None,
) -> torch.Tensor:
    """Return the sum of several :func:`step_sums` of the same scores and levels.

    Args:
        scores: See :func:`step_sums`.
        levels: See :func:`step_sums`.
        terms: Weights and step of each sum.
        ranking: See :func:`step_sums`.

    Returns:
        Tensor of the shape and dtype of ``scores``.
    """
    ranking = ranking or Ranking(scores, levels)
    jump_weights: list[torch.Tensor] = []
    sums = torch.zeros_like(scores)
    for weights, step in terms:
        jump, rest = step.split()
        if jump:
            jump_weights.append(weights * jump)
        if rest is not None:
            sums = sums + _smooth_sums(scores, levels, weights, rest, ranking)
    return sums + heaviside_sums(ranking, torch.stack(jump_weights).sum(0)) if jump_weights else sums


def _smooth_sums(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step, ranking: Ranking
) -> torch.Tensor:
    if isinstance(step, (Sigmoid, SupRankStep)):
        pairs = _pairs_per_query(levels, weights) * (1 if is_compiled(scores.device) else COMPILED_PAIRS)
        pairs -= PAIRS_PER_ITEM * scores.shape[1]
        if pairs > 0 and (grid := grid_over(scores, step)) and pairs > PAIRS_PER_POINT * grid.n_points:
            return interpolated_sums(scores, levels, weights, step, grid, ranking)
    return pair_sums(scores, levels, weights, step)


def _pairs_per_query(levels: torch.Tensor, weights: torch.Tensor) -> float:
    """Return the mean number of pairs that have a weight."""
    has_weight = (weights != 0).any(0).to(torch.float64)
    has_weight[0] = 0
    counts = count_levels(levels, len(has_weight) - 1)
    return float(((counts @ has_weight.T) * counts).sum(1).mean())

"""Sums of steps over the items of a retrieval set, of which every surrogate rank is made.

For a query with scores s_j and levels lv_j, and a weight w for each pair of levels,

    S_k = sum over j != k of w[lv_k, lv_j] h(s_j - s_k)

is rank^+(k) - 1 with w = [lv_j >= lv_k] and Heaviside's step, rank^-(k) with w = [lv_j < lv_k] and a smooth step
(paper, Eq. 3), and H-rank^+(k) - rel(k) with w = min(rel_k, rel_j) among positives (Eq. 18).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hgld.losses.kernels.heaviside_sums import heaviside_sums
from hgld.losses.kernels.interpolated_sums import interpolated_sums
from hgld.losses.kernels.level_counts import count_levels
from hgld.losses.kernels.pair_sums import pair_sums
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.steps import Sigmoid, Step, SupRankStep

#: Smooth steps are summed by interpolation where the pairs per query exceed this number plus that per item. On a core
#: with compiled loops, a query takes some 0.6 ns a pair and 25 ns an item by pairs, and by interpolation 0.06 (one
#: level) to 0.14 ms (three levels) and 70 to 100 ns an item; without them, 5 to 10 ns a pair, and 0.4 to 0.7 ms and
#: 500 ns an item.
PAIRS_PER_QUERY = 2**17
PAIRS_PER_ITEM = 64


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
    most_pairs = PAIRS_PER_QUERY + PAIRS_PER_ITEM * scores.shape[1]
    if isinstance(step, (Sigmoid, SupRankStep)) and _pairs_per_query(levels, weights) > most_pairs:
        return interpolated_sums(scores, levels, weights, step, ranking)
    return pair_sums(scores, levels, weights, step)


def _pairs_per_query(levels: torch.Tensor, weights: torch.Tensor) -> float:
    """Return the mean number of pairs that have a weight."""
    has_weight = (weights != 0).any(0).to(torch.float64)
    has_weight[0] = 0
    counts = count_levels(levels, len(has_weight) - 1)
    return float(((counts @ has_weight.T) * counts).sum(1).mean())

"""Sums of steps over the items of a retrieval set, and the surrogate ranks that are made of them.

For a query with scores s_j and levels lv_j, 0 to L, and a weight w for each pair of levels,

    S_k = sum over j != k of w[lv_k, lv_j] h(s_j - s_k)

is rank^+(k) - 1 with w = [lv_j >= lv_k] and Heaviside's step, rank^-(k) with w = [lv_j < lv_k] and a smooth step
(paper, Eqs. 3 and 5), and H-rank^+(k) - rel(k) with w = min(rel_k, rel_j) among positives (Eq. 18). Levels are
compared, never relevances: two levels may have the same relevance.
"""

from __future__ import annotations

import torch

from hgld.compute.compiled import is_compiled
from hgld.losses.kernels.interpolation import grid_over, interpolated_sums
from hgld.losses.kernels.pair_sums import pair_sums
from hgld.losses.kernels.ranking import Ranking, heaviside_sums
from hgld.losses.kernels.steps import Sigmoid, Step, SupRankStep

#: What an item and a point of the grid cost by interpolation, in pairs of the compiled loops. On a core, forward and
#: backward, a pair takes some 0.4 ns, and an item and a point 0.2 us each with three levels.
PAIRS_PER_ITEM = 512
PAIRS_PER_POINT = 1024
#: Number of levels from which on an item costs more by interpolation, in proportion.
MANY_LEVELS = 16
#: Pairs that the compiled loops sum in the time of one without them, about.
COMPILED_PAIRS = 8


def step_sums(ranking: Ranking, *terms: tuple[torch.Tensor, Step]) -> torch.Tensor:
    """Return S_k of every positive item k of every query, added up over several weights and steps.

    Args:
        ranking: The items.
        *terms: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1) and the dtype of the
            scores; and the step h.

    Returns:
        Tensor of the shape and dtype of the scores; 0 where the level of k is below 1.
    """
    jump_weights: list[torch.Tensor] = []
    sums = torch.zeros_like(ranking.scores)
    for weights, step in terms:
        jump, rest = step.split()
        if jump:
            jump_weights.append(weights * jump)
        if rest is not None:
            sums = sums + _smooth_sums(ranking, weights, rest)
    return sums + heaviside_sums(ranking, torch.stack(jump_weights).sum(0)) if jump_weights else sums


def _smooth_sums(ranking: Ranking, weights: torch.Tensor, step: Step) -> torch.Tensor:
    if isinstance(step, (Sigmoid, SupRankStep)):
        has_weight = (weights != 0).any(0).to(torch.float64)
        has_weight[0] = 0
        pairs = ((ranking.counts @ has_weight.T) * ranking.counts).sum(1).mean().item()
        pairs *= 1 if is_compiled(weights.device) else COMPILED_PAIRS
        pairs -= PAIRS_PER_ITEM * ranking.scores.shape[1] * max(1, ranking.n_levels / MANY_LEVELS)
        if pairs > 0 and (grid := grid_over(ranking.scores, step)) and pairs > PAIRS_PER_POINT * grid.n_points:
            return interpolated_sums(ranking, weights, step, grid)
    return pair_sums(ranking, weights, step)


def rank(ranking: Ranking, *, plus: Step, minus: Step) -> torch.Tensor:
    """Return rank^+(k) + rank^-(k) of every positive, 1 for other items.

    Args:
        ranking: The items.
        plus: Step h^+, for items of the level of k or finer ones.
        minus: Step h^-, for items of coarser levels.

    >>> from hgld.losses import Heaviside
    >>> ranking = Ranking(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]]), 1)
    >>> rank(ranking, plus=Heaviside(), minus=Heaviside())
    tensor([[1., 3., 1.]])
    """
    ones = ranking.scores.new_ones(1, ranking.n_levels + 1, ranking.n_levels + 1)
    if plus == minus:
        return 1 + step_sums(ranking, (ones, plus))
    return 1 + step_sums(ranking, (ones.triu(), plus), (ones.tril(-1), minus))


def h_rank_plus(ranking: Ranking, relevance: torch.Tensor, *, plus: Step, finer: Step | None = None) -> torch.Tensor:
    """Return H-rank^+(k) of every positive, 0 for other items.

    Args:
        ranking: The items.
        relevance: Relevance of each level, of shape (n_query, L + 1) and the dtype of the scores; 0 for level 0.
        plus: Step h^+.
        finer: Step for items of finer levels than that of k. Default: ``plus``.
    """
    pair_relevance = torch.minimum(relevance.unsqueeze(1), relevance.unsqueeze(2))
    own = relevance.gather(1, ranking.levels.clamp(min=0))
    if finer is None:
        return own + step_sums(ranking, (pair_relevance, plus))
    return own + step_sums(ranking, (pair_relevance.tril(), plus), (pair_relevance.triu(1), finer))

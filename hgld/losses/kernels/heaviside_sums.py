"""Sums of Heaviside's step over the items of a retrieval set, by counting the sorted items of each level."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.compute.compiled import compiled, is_compiled
from hgld.losses.kernels.sorting import Ranking

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]


@torch.no_grad()
def heaviside_sums(ranking: Ranking, weights: torch.Tensor) -> torch.Tensor:
    """Return the :func:`~hgld.losses.kernels.step_sums.step_sums` of Heaviside's step. Ties count.

    Args:
        ranking: Ranking of the scores.
        weights: See there.
    """
    if is_compiled(weights.device):
        sums = torch.zeros_like(ranking.ascending, memory_format=torch.contiguous_format)
        arrays = (ranking.ascending, ranking.order, ranking.levels, weights.detach(), sums)
        _counts_from_the_top(*(array.contiguous().numpy() for array in arrays))
        return sums
    return _counts_by_level(ranking, weights)


@compiled()
def _counts_from_the_top(ascending: Floats, order: Ints, levels: Ints, weights: Floats, sums: Floats) -> None:
    """Write the sums of each query, from the highest score to the lowest; ties are counted together.

    Weights are added up in float64.
    """
    n_query, n_items = ascending.shape
    n_levels = weights.shape[1] - 1
    totals = np.empty(n_levels + 1, np.float64)  # for each level of k, the weights of the items so far
    by_item = np.zeros((n_levels + 2, n_levels + 1), np.float64)  # weights by the levels of j plus 1, and of k
    for query in range(n_query):
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        for other in range(n_levels + 1):
            for level in range(1, n_levels + 1):
                by_item[other + 1, level] = query_weights[level, other]
        query_scores, query_levels, query_order = ascending[query], levels[query], order[query]
        totals[:] = 0
        end = n_items
        for place in range(n_items - 1, -1, -1):
            item_weights = by_item[query_levels[place] + 1]
            for level in range(n_levels + 1):
                totals[level] += item_weights[level]
            if place > 0 and query_scores[place - 1] == query_scores[place]:
                continue
            for tied in range(place, end):
                level = query_levels[tied]
                if level > 0:
                    sums[query, query_order[tied]] = totals[level] - by_item[level + 1, level]
            end = place


def _counts_by_level(ranking: Ranking, weights: torch.Tensor) -> torch.Tensor:
    """Return the sums by operations of torch, for GPUs and where loops are not compiled."""
    ascending = ranking.ascending
    position = torch.arange(ascending.shape[1], device=ascending.device)
    is_first = torch.ones_like(ascending, dtype=torch.bool)
    is_first[:, 1:] = ascending[:, 1:] > ascending[:, :-1]
    first_of_tie = torch.where(is_first, position, 0).cummax(1).values
    row = ranking.levels.long().clamp(min=0)
    sums = torch.zeros_like(ascending)
    for level in range(weights.shape[1]):
        at_level = ranking.levels == level
        cumulative = at_level.cumsum(1, dtype=torch.int32)
        below = (cumulative - at_level.int()).gather(1, first_of_tie)
        counts = cumulative[:, -1:] - below - at_level.int()
        sums += counts * weights[:, :, level].expand(len(ascending), -1).gather(1, row)
    return torch.zeros_like(sums).scatter_(1, ranking.order, sums * (ranking.levels > 0))

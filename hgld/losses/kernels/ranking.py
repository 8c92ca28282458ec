"""The items of a query's retrieval set: their scores and levels, in the order of the scores."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hgld.arrays import AnyFloats
from hgld.compute.compiled import compiled, is_compiled

Ints = NDArray[np.integer[Any]]


class Ranking:
    """The items of each query; their order and counts per level are computed once for all sums.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items), with the gradient of the
            sums.
        levels: int64 tensor of the same shape: 0 to L, or -1 for items excluded from the query's
            retrieval set.

    >>> ranking = Ranking(torch.tensor([[0.5, -1.0, 0.25]]), torch.tensor([[2, 0, 1]]), 2)
    >>> ranking.order, ranking.sorted_levels
    (tensor([[1, 2, 0]]), tensor([[0, 1, 2]]))
    >>> ranking.counts
    tensor([[1., 1., 1.]], dtype=torch.float64)
    """

    def __init__(self, scores: Tensor, levels: Tensor, n_levels: int) -> None:
        self.scores = scores
        self.levels = levels
        self.n_levels = n_levels

    @cached_property
    def counts(self) -> Tensor:
        """Number of items of each level, float64, shape (n_query, L + 1)."""
        counts = self.scores.new_zeros(len(self.levels), self.n_levels + 2, dtype=torch.float64)
        ones = counts.new_ones(1, 1).expand_as(self.levels)
        return counts.scatter_add_(1, self.levels + 1, ones)[:, 1:]

    @cached_property
    def order(self) -> Tensor:
        """int64 indices of the items by ascending score, ties in any order."""
        scores = self.scores.detach()
        if scores.device.type == "cpu":  # NumPy sorts several times as fast as torch
            return torch.from_numpy(np.argsort(scores.numpy(), axis=1))
        return scores.argsort(1)

    @cached_property
    def ascending(self) -> Tensor:
        """Scores in ascending order."""
        return self.scores.detach().gather(1, self.order)

    @cached_property
    def sorted_levels(self) -> Tensor:
        """Levels in the order of ascending scores."""
        return self.levels.gather(1, self.order)

    @cached_property
    def by_level(self) -> tuple[Tensor, Tensor]:
        """Items ordered by level, and the place where each level begins; only on the CPU.

        int64 indices of shape (n_query, n_items), and places of shape (n_query, L + 2): the last is
        the number of items.
        """
        levels = self.levels.to(torch.int16)  # NumPy sorts int16 by counting
        order = torch.from_numpy(np.argsort(levels.numpy(), axis=1, kind="stable"))
        bounds = torch.arange(self.n_levels + 2, dtype=torch.int16).expand(len(levels), -1)
        return order, torch.searchsorted(levels.gather(1, order), bounds.contiguous())


@torch.no_grad()
def heaviside_sums(ranking: Ranking, weights: Tensor) -> Tensor:
    """Return sums of Heaviside's step over pairs, by counting; ties count.

    Args:
        weights: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1).
    """
    if not is_compiled(weights.device):
        return _counts_by_level(ranking, weights)
    sums = torch.zeros_like(ranking.ascending, memory_format=torch.contiguous_format)
    _counts_from_the_top(
        ranking.ascending.numpy(),
        ranking.order.numpy(),
        ranking.sorted_levels.to(torch.int16).numpy(),
        weights.contiguous().numpy(),
        sums.numpy(),
    )
    return sums


@compiled()
def _counts_from_the_top(
    ascending: AnyFloats, order: Ints, levels: Ints, weights: AnyFloats, sums: AnyFloats
) -> None:
    """Write the sums of each query, from the highest score to the lowest; ties count together."""
    n_query, n_items = ascending.shape
    n_levels = weights.shape[1] - 1
    # For each level of k, the sum of the weights of the items so far.
    totals = np.empty(n_levels + 1, np.float64)
    # Weights by the level of j plus 1 and the level of k.
    by_item = np.zeros((n_levels + 2, n_levels + 1), np.float64)
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


def _counts_by_level(ranking: Ranking, weights: Tensor) -> Tensor:
    """Return the sums by operations of torch, for GPUs and where loops are not compiled."""
    ascending, levels = ranking.ascending, ranking.sorted_levels
    position = torch.arange(ascending.shape[1], device=ascending.device)
    is_first = torch.ones_like(ascending, dtype=torch.bool)
    is_first[:, 1:] = ascending[:, 1:] > ascending[:, :-1]
    first_of_tie = torch.where(is_first, position, 0).cummax(1).values
    sums = torch.zeros_like(ascending)
    for level in range(weights.shape[1]):
        at_level = (levels == level).int()
        cumulative = at_level.cumsum(1, dtype=torch.int32)
        counts = cumulative[:, -1:] - at_level - (cumulative - at_level).gather(1, first_of_tie)
        level_weights = weights[:, :, level].expand(len(ascending), -1)
        sums += counts * level_weights.gather(1, levels.clamp(min=0))
    return torch.zeros_like(sums).scatter_(1, ranking.order, sums * (levels > 0))

"""Sums of any step over all pairs, in blocks that fit into a cache and are not stored.

The common steps are summed by compiled loops where those work (:mod:`~hgld.losses.kernels.pair_loops`), and other
steps, or on a GPU, by torch. A pair of H^- in float32, forward and backward, takes 0.8 ns by the loops and 5 ns by
torch (``benchmarks/pair_step.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from hgld.compute.compiled import is_compiled
from hgld.losses.kernels.autograd import first_derivative_only
from hgld.losses.kernels.pair_loops import has_loop, loop_sums
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import Step

#: Pairs of one block: as many as the caches of a CPU hold, or as keep a GPU busy.
BLOCK_PAIRS = {"cpu": 2**18, "cuda": 2**25}


def pair_sums(ranking: Ranking, weights: torch.Tensor, step: Step) -> torch.Tensor:
    """Return S_k of every positive item k (:mod:`~hgld.losses.kernels.step_sums`) over the pairs that have a weight.

    Memory is O(n_query x n_items + block); the backward pass recomputes the blocks.

    Args:
        ranking: The items.
        weights: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1) and the dtype of
            the scores.
        step: Step h.
    """
    return _PairSums.apply(ranking.scores, ranking, weights, step)  # type: ignore[no-any-return]


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, ranking: Ranking, weights: torch.Tensor, step: Step) -> torch.Tensor:
        order, starts = ranking.by_level
        items = (scores, ranking.levels, order, starts, weights)
        ctx.save_for_backward(*items)
        ctx.step, ctx.by_loop = step, is_compiled(scores.device) and has_loop(scores, step)
        if ctx.by_loop:
            return loop_sums(scores, order, starts, weights, step)  # type: ignore[arg-type]  # has_loop
        sums = torch.zeros_like(scores)
        at_0 = step.value(scores.new_zeros(()))
        for block in _blocks(*items):
            values = block_sums(scores.take(block.k), scores.take(block.j), block.weights, step)
            sums.view(-1).index_add_(0, block.k.view(-1), ((values - block.own * at_0) * block.is_k).view(-1))
        return sums

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scores, _, order, starts, weights = ctx.saved_tensors
        if ctx.by_loop:
            return loop_sums(scores, order, starts, weights, ctx.step, upstream), None, None, None
        grad_scores = torch.zeros_like(scores)
        for block in _blocks(*ctx.saved_tensors):
            upstream_k = upstream.take(block.k) * block.is_k
            slopes_k, slopes_j = block_slopes(
                scores.take(block.k), scores.take(block.j), block.weights, upstream_k, ctx.step
            )
            grad_scores.view(-1).index_add_(0, block.k.view(-1), -(slopes_k * upstream_k).view(-1))
            grad_scores.view(-1).index_add_(0, block.j.view(-1), (slopes_j * block.weights).view(-1))
        return grad_scores, None, None, None


class _Block(NamedTuple):
    """Items k of one level, and the items j that have a weight for them; a row per query, padded."""

    k: torch.Tensor  #: int64, shape (n, P): indices into the flattened scores
    is_k: torch.Tensor  #: Boolean, shape (n, P): False for padding
    j: torch.Tensor  #: int64, shape (n, M)
    weights: torch.Tensor  #: shape (n, M): weights of the items j, 0 for padding
    own: torch.Tensor  #: shape (n, 1): weight of a pair of two items k


def block_sums(k_scores: torch.Tensor, j_scores: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    """Return the weighted sums over j of a step of s_j - s_k, shape (rows, k).

    This function and :func:`block_slopes` have no control flow that depends on data, so ``torch.compile`` can trace
    them as a whole.
    """
    return step.value(j_scores.unsqueeze(1) - k_scores.unsqueeze(2)).mul_(weights.unsqueeze(1)).sum(2)


def block_slopes(
    k_scores: torch.Tensor, j_scores: torch.Tensor, weights: torch.Tensor, upstream: torch.Tensor, step: Step
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of slopes over j with their weights, and over k with upstream gradients of shape (rows, k)."""
    slopes = step.slope(j_scores.unsqueeze(1) - k_scores.unsqueeze(2))
    over_k = (upstream.unsqueeze(1) @ slopes).squeeze(1)
    return slopes.mul_(weights.unsqueeze(1)).sum(2), over_k


def _blocks(
    scores: torch.Tensor, levels: torch.Tensor, order: torch.Tensor, starts: torch.Tensor, weights: torch.Tensor
) -> Iterator[_Block]:
    """Yield all pairs that have a weight; blocks have queries with similar numbers of items, hence little padding."""
    n_query, n_items = scores.shape
    max_pairs = BLOCK_PAIRS[scores.device.type]
    has_weight, weights = (weights != 0).any(0), weights.expand(n_query, -1, -1)
    for level in range(1, weights.shape[1]):
        j_levels = has_weight[level].nonzero().view(-1).tolist()
        if not j_levels:
            continue
        first_k, n_k = starts[:, level], starts[:, level + 1] - starts[:, level]
        first_j, n_j = starts[:, j_levels[0]], starts[:, j_levels[-1] + 1] - starts[:, j_levels[0]]
        queries = (n_j * (n_items + 1) + n_k).argsort(descending=True)
        queries = queries[(n_j * n_k)[queries] > 0]
        while len(queries):
            most_j = int(n_j[queries[0]])
            n_rows = max(1, max_pairs // (most_j * int(n_k[queries].max())))
            rows, queries = queries[:n_rows], queries[n_rows:]
            k, is_k = _padded(order[rows], first_k[rows], n_k[rows])
            j, is_j = _padded(order[rows], first_j[rows], n_j[rows])
            j_weights = weights[rows, level].gather(1, levels[rows].gather(1, j).clamp_(min=0)) * is_j
            begin, own = rows.unsqueeze(1) * n_items, weights[rows, level, level].unsqueeze(1)
            width = max(1, max_pairs // (len(rows) * most_j))
            for some_k, some_is_k in zip(torch.split(k, width, 1), torch.split(is_k, width, 1), strict=True):
                yield _Block(some_k + begin, some_is_k, j + begin, j_weights, own)


def _padded(order: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``sizes`` items from ``starts`` on for each query, padded, and the mask of real items."""
    offsets = torch.arange(int(sizes.max()), device=order.device)
    positions = (starts.unsqueeze(1) + offsets).clamp_(max=order.shape[1] - 1)
    return order.gather(1, positions), offsets < sizes.unsqueeze(1)

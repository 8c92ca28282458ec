"""Sums of any step over all pairs, in blocks that fit into a cache and are not stored.

The common steps are summed by compiled loops where those work (:mod:`~hgld.losses.kernels.compiled_pair_sums`), and
other steps, or on a GPU, by torch. A pair of H^- in float32, forward and backward, takes 1.0 ns by the loops and
4.8 ns by torch, where an exponential and some ten passes over a block remain; Inductor leaves 3.4 ns, and needs a C++
compiler (``benchmarks/pair_step.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hgld.compute.compiled import is_compiled
from hgld.losses.kernels.compiled_pair_sums import CompiledPairSums, pair_kernel
from hgld.losses.kernels.derivatives import first_derivative_only
from hgld.losses.kernels.steps import Step

#: Pairs of one block: as many as the caches of a CPU hold, or as keep a GPU busy.
BLOCK_PAIRS = {"cpu": 2**18, "cuda": 2**25}


def pair_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    """Return the :func:`~hgld.losses.kernels.step_sums.step_sums` of any step, over the pairs that have a weight.

    Memory is O(n_query x n_items + block); the backward pass recomputes the blocks.
    """
    if is_compiled(scores.device) and (kernel := pair_kernel(scores, step)) is not None:
        return CompiledPairSums.apply(scores, levels, weights, kernel)  # type: ignore[no-any-return]
    return _PairSums.apply(scores, levels, weights, step)  # type: ignore[no-any-return]


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step
    ) -> torch.Tensor:
        ctx.save_for_backward(scores, levels, weights)
        ctx.step = step
        sums = torch.zeros_like(scores)
        at_0 = step.value(scores.new_zeros(()))
        for rows in _rows(scores, levels, weights):
            row_sums = torch.zeros_like(rows.is_k)
            for block in rows.blocks:
                block.k_part(row_sums).copy_(block_sums(*block.items(rows), block.uniform, step))
            sums.view(-1).index_add_(0, rows.k.view(-1), ((row_sums - rows.own * at_0) * rows.is_k).view(-1))
        return sums

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scores, levels, weights = ctx.saved_tensors
        grad_scores = torch.zeros_like(scores)
        for rows in _rows(scores, levels, weights):
            grad_k, grad_j = torch.zeros_like(rows.is_k), torch.zeros_like(rows.weights)
            upstream_k = upstream.reshape(-1)[rows.k] * rows.is_k
            for block in rows.blocks:
                slopes_k, slopes_j = block_slopes(
                    *block.items(rows), block.k_part(upstream_k), block.uniform, ctx.step
                )
                block.k_part(grad_k).copy_(slopes_k)
                block.j_part(grad_j).add_(slopes_j)
            grad_scores.view(-1).index_add_(0, rows.k.view(-1), (grad_k * upstream_k).neg_().view(-1))
            grad_scores.view(-1).index_add_(0, rows.j.view(-1), (grad_j * rows.weights).view(-1))
        return grad_scores, None, None, None


@dataclass(frozen=True, eq=False)
class _Rows:
    """Items k of one level and the items j that have a weight for them, a row per query that has both.

    Rows are padded, and sorted by their numbers of items so that blocks have little padding.
    """

    k: torch.Tensor  #: int64, shape (n, P): indices into the flattened scores
    is_k: torch.Tensor  #: shape (n, P): 1, or 0 for padding
    k_scores: torch.Tensor
    j: torch.Tensor  #: int64, shape (n, M)
    j_scores: torch.Tensor
    weights: torch.Tensor  #: shape (n, M): weights of the items j, 0 for padding
    own: torch.Tensor  #: shape (n, 1): weight of a pair of two items k
    blocks: list[_Block]


@dataclass(frozen=True)
class _Block:
    """A rectangle of pairs for some rows."""

    rows: slice
    k: slice
    j: slice
    #: Whether all items j of a row have the same weight and none is padding.
    uniform: bool

    def k_part(self, array: torch.Tensor) -> torch.Tensor:
        return array[self.rows, self.k]

    def j_part(self, array: torch.Tensor) -> torch.Tensor:
        return array[self.rows, self.j]

    def items(self, rows: _Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return scores of the items k and j, and weights of the items j."""
        return self.k_part(rows.k_scores), self.j_part(rows.j_scores), self.j_part(rows.weights)


def block_sums(
    k_scores: torch.Tensor, j_scores: torch.Tensor, weights: torch.Tensor, uniform: bool, step: Step
) -> torch.Tensor:
    """Return the weighted sums over j of a step of s_j - s_k, shape (rows, k).

    This function and :func:`block_slopes` have no control flow that depends on data, so ``torch.compile`` can trace
    them as a whole.

    Args:
        k_scores: Scores of the items k, shape (rows, k).
        j_scores: Scores of the items j, shape (rows, j).
        weights: Weights of the items j, shape (rows, j).
        uniform: Whether all items j of a row have the same weight.
        step: Step h.
    """
    return _sum_over_j(step.value(j_scores.unsqueeze(1) - k_scores.unsqueeze(2)), weights, uniform)


def block_slopes(
    k_scores: torch.Tensor,
    j_scores: torch.Tensor,
    weights: torch.Tensor,
    upstream: torch.Tensor,
    uniform: bool,
    step: Step,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of slopes over j with their weights, and over k with upstream gradients of shape (rows, k).

    For the other arguments, see :func:`block_sums`.
    """
    slopes = step.slope(j_scores.unsqueeze(1) - k_scores.unsqueeze(2))
    over_k = (upstream.unsqueeze(1) @ slopes).squeeze(1)
    return _sum_over_j(slopes, weights, uniform), over_k


def _sum_over_j(values: torch.Tensor, weights: torch.Tensor, uniform: bool) -> torch.Tensor:
    """Return the weighted sum over j of values of pairs, which are overwritten."""
    if uniform:
        return values.sum(2) * weights[:, :1]
    return values.mul_(weights.unsqueeze(1)).sum(2)


def _rows(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor) -> Iterator[_Rows]:
    """Yield all pairs that have a weight, from coarse levels of k to fine ones."""
    n_query, n_items = scores.shape
    n_levels = weights.shape[1] - 1
    device = scores.device
    sorted_levels, order = levels.to(torch.int16).sort(dim=1, stable=True)
    bounds = torch.arange(-1, n_levels + 2, dtype=torch.int16, device=device).expand(n_query, -1).contiguous()
    starts = torch.searchsorted(sorted_levels, bounds)
    starts_on_cpu, has_weight = starts.cpu(), (weights != 0).any(0).cpu()
    equals_next = (weights[:, :, 1:] == weights[:, :, :-1]).all(0).cpu()
    weights = weights.expand(n_query, -1, -1)
    for level in range(1, n_levels + 1):
        j_levels = has_weight[level].nonzero().view(-1).tolist()
        if not j_levels:
            continue
        first, last = j_levels[0], j_levels[-1]
        n_k = starts_on_cpu[:, level + 2] - starts_on_cpu[:, level + 1]
        n_j = starts_on_cpu[:, last + 2] - starts_on_cpu[:, first + 1]
        by_size = (n_j * (n_items + 1) + n_k).argsort()
        by_size = by_size[(n_j * n_k)[by_size] > 0]
        if not len(by_size):
            continue
        n_k, n_j, queries = n_k[by_size], n_j[by_size], by_size.to(device)
        k, is_k = _padded(order, starts[:, level + 1], queries, n_k)
        j, is_j = _padded(order, starts[:, first + 1], queries, n_j)
        level_of_j = levels[queries].gather(1, j).clamp_(min=0)
        row_begin = queries.unsqueeze(1) * n_items
        k, j = k + row_begin, j + row_begin
        uniform = bool(equals_next[level, first:last].all())
        yield _Rows(
            k,
            is_k.to(scores.dtype),
            scores.reshape(-1)[k],
            j,
            scores.reshape(-1)[j],
            weights[queries, level].gather(1, level_of_j) * is_j,
            weights[queries, level, level].unsqueeze(1),
            list(_blocks(n_k.tolist(), n_j.tolist(), uniform, BLOCK_PAIRS[device.type])),
        )


def _padded(
    order: torch.Tensor, starts: torch.Tensor, queries: torch.Tensor, sizes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``sizes`` items from ``starts`` on for each query, padded, and the mask of real items."""
    offsets = torch.arange(int(sizes.max()), device=order.device)
    positions = (starts[queries].unsqueeze(1) + offsets).clamp_(max=order.shape[1] - 1)
    return order[queries].gather(1, positions), offsets < sizes.to(order.device).unsqueeze(1)


def _blocks(n_k: list[int], n_j: list[int], uniform: bool, max_pairs: int) -> Iterator[_Block]:
    """Yield rectangles of at most ``max_pairs`` pairs, or of one item k; the numbers of items j are ascending."""
    begin = 0
    while begin < len(n_k):
        end, width = begin + 1, n_k[begin]
        while end < len(n_k) and (end + 1 - begin) * max(width, n_k[end]) * n_j[end] <= max_pairs:
            width = max(width, n_k[end])
            end += 1
        height = n_j[end - 1]
        k_per_block = max(1, max_pairs // ((end - begin) * height))
        for first in range(0, width, k_per_block):
            k = slice(first, min(first + k_per_block, width))
            yield _Block(slice(begin, end), k, slice(0, height), uniform and n_j[begin] == height)
        begin = end

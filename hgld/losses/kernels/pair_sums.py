"""Sums of any step, pair by pair: in blocks that fit into a cache, of which nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hgld.losses.kernels.steps import Step

#: Pairs of one block: what stays in the caches of a CPU, and what keeps a GPU busy.
BLOCK_PAIRS = {"cpu": 2**18, "cuda": 2**25}


def pair_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    """:func:`~hgld.losses.kernels.step_sums.step_sums` of any step, over the pairs that have a weight.

    Memory is O(n_query x n_items + block); the backward pass evaluates the blocks anew.
    """
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
            of_k = torch.zeros_like(rows.is_k)
            for block in rows.blocks:
                block.of_k(of_k).copy_(block.sum_over_j(rows, step.value(block.differences(rows))))
            sums.view(-1).index_add_(0, rows.k.view(-1), ((of_k - rows.own * at_0) * rows.is_k).view(-1))
        return sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scores, levels, weights = ctx.saved_tensors
        gradient = torch.zeros_like(scores)
        for rows in _rows(scores, levels, weights):
            of_k, of_j = torch.zeros_like(rows.is_k), torch.zeros_like(rows.weights)
            upstream_of_k = upstream.reshape(-1)[rows.k] * rows.is_k
            for block in rows.blocks:
                slopes = ctx.step.slope(block.differences(rows))
                block.of_j(of_j).add_((block.of_k(upstream_of_k).unsqueeze(1) @ slopes).squeeze(1))
                block.of_k(of_k).copy_(block.sum_over_j(rows, slopes))
            gradient.view(-1).index_add_(0, rows.k.view(-1), (of_k * upstream_of_k).neg_().view(-1))
            gradient.view(-1).index_add_(0, rows.j.view(-1), (of_j * rows.weights).view(-1))
        return gradient, None, None, None


@dataclass(frozen=True, eq=False)
class _Rows:
    """Items k of one level and the items j that have a weight for them; a row per query that has both.

    Rows are padded. Those with alike numbers of items stand together, so that blocks have little padding.
    """

    k: torch.Tensor  #: int64, shape (n, P): places in the flattened scores
    is_k: torch.Tensor  #: shape (n, P): 1, or 0 for padding
    k_scores: torch.Tensor
    j: torch.Tensor  #: int64, shape (n, M)
    j_scores: torch.Tensor
    weights: torch.Tensor  #: shape (n, M): of the items j; 0 for padding
    own: torch.Tensor  #: shape (n, 1): the weight of a pair of items k
    blocks: list[_Block]


@dataclass(frozen=True)
class _Block:
    """A rectangle of pairs for some rows."""

    rows: slice
    k: slice
    j: slice
    #: whether in each row all items j have the same weight, none of them being padding
    even: bool

    def of_k(self, array: torch.Tensor) -> torch.Tensor:
        return array[self.rows, self.k]

    def of_j(self, array: torch.Tensor) -> torch.Tensor:
        return array[self.rows, self.j]

    def differences(self, rows: _Rows) -> torch.Tensor:
        """s_j - s_k, shape (rows, k, j)."""
        return self.of_j(rows.j_scores).unsqueeze(1) - self.of_k(rows.k_scores).unsqueeze(2)

    def sum_over_j(self, rows: _Rows, values: torch.Tensor) -> torch.Tensor:
        """The weighted sum over j of values of pairs, which are overwritten."""
        weights = self.of_j(rows.weights)
        if self.even:
            return values.sum(2) * weights[:, :1]
        return values.mul_(weights.unsqueeze(1)).sum(2)


def _rows(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor) -> Iterator[_Rows]:
    """All pairs that have a weight, from coarse levels of k to fine ones."""
    n_query, n_items = scores.shape
    n_levels = weights.shape[1] - 1
    device = scores.device
    sorted_levels, order = levels.to(torch.int8).sort(dim=1, stable=True)
    bounds = torch.arange(-1, n_levels + 2, dtype=torch.int8, device=device).expand(n_query, -1).contiguous()
    begins = torch.searchsorted(sorted_levels, bounds)
    on_cpu, weighs = begins.cpu(), (weights != 0).any(0).cpu()
    same = (weights[:, :, 1:] == weights[:, :, :-1]).all(0).cpu()
    weights = weights.expand(n_query, -1, -1)
    for level in range(1, n_levels + 1):
        others = weighs[level].nonzero().view(-1).tolist()
        if not others:
            continue
        first, last = others[0], others[-1]
        n_k = on_cpu[:, level + 2] - on_cpu[:, level + 1]
        n_j = on_cpu[:, last + 2] - on_cpu[:, first + 1]
        by_size = (n_j * (n_items + 1) + n_k).argsort()
        by_size = by_size[(n_j * n_k)[by_size] > 0]
        if not len(by_size):
            continue
        n_k, n_j, queries = n_k[by_size], n_j[by_size], by_size.to(device)
        k, is_k = _padded(order, begins[:, level + 1], queries, n_k)
        j, is_j = _padded(order, begins[:, first + 1], queries, n_j)
        levels_of_j = levels[queries].gather(1, j).clamp_(min=0)
        base = queries.unsqueeze(1) * n_items
        k, j = k + base, j + base
        yield _Rows(
            k,
            is_k.to(scores.dtype),
            scores.reshape(-1)[k],
            j,
            scores.reshape(-1)[j],
            weights[queries, level].gather(1, levels_of_j) * is_j,
            weights[queries, level, level].unsqueeze(1),
            list(_blocks(n_k.tolist(), n_j.tolist(), bool(same[level, first:last].all()), BLOCK_PAIRS[device.type])),
        )


def _padded(
    order: torch.Tensor, begins: torch.Tensor, queries: torch.Tensor, sizes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The items from ``begins`` on for each of the queries, and which of them are no padding."""
    at = torch.arange(int(sizes.max()), device=order.device)
    places = (begins[queries].unsqueeze(1) + at).clamp_(max=order.shape[1] - 1)
    return order[queries].gather(1, places), at < sizes.to(order.device).unsqueeze(1)


def _blocks(n_k: list[int], n_j: list[int], even: bool, most: int) -> Iterator[_Block]:
    """Rectangles of at most ``most`` pairs, or one item k, for rows of these many items, ``n_j`` ascending."""
    begin = 0
    while begin < len(n_k):
        end, width = begin + 1, n_k[begin]
        while end < len(n_k) and (end + 1 - begin) * max(width, n_k[end]) * n_j[end] <= most:
            width = max(width, n_k[end])
            end += 1
        height = n_j[end - 1]
        at_once = max(1, most // ((end - begin) * height))
        for first in range(0, width, at_once):
            k = slice(first, min(first + at_once, width))
            yield _Block(slice(begin, end), k, slice(0, height), even and n_j[begin] == height)
        begin = end

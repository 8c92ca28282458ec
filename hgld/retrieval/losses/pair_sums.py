"""Sums of any step, pair by pair, in blocks that fit into a cache; nothing of a block is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hgld.retrieval.losses.steps import Step

#: Pairs of one block: what stays in the second-level cache of a CPU core, and what keeps a GPU busy.
BLOCK_PAIRS = {"cpu": 2**18, "cuda": 2**25}


def pair_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    """:func:`~hgld.retrieval.losses.step_sums.step_sums` of any step, over all pairs whose weight is not zero."""
    return _PairSums.apply(scores, levels, weights, step)  # type: ignore[no-any-return]


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step
    ) -> torch.Tensor:
        ctx.save_for_backward(scores, levels, weights)
        ctx.step = step
        items = _by_level(scores, levels, weights)
        sums = torch.zeros_like(scores)
        for block in _blocks(items):
            values = step.value(block.differences())
            sums.view(-1).index_add_(0, block.k.view(-1), (values @ block.weights).view(-1) * block.is_k.view(-1))
        own = weights.diagonal(dim1=1, dim2=2).expand(len(scores), -1).gather(1, items.levels.clamp(min=0))
        at_0 = step.value(scores.new_zeros(()))
        sums -= own * at_0 * (items.levels > 0)
        return torch.zeros_like(sums).scatter_(1, items.order, sums)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scores, levels, weights = ctx.saved_tensors
        items = _by_level(scores, levels, weights)
        upstream = upstream.gather(1, items.order).view(-1)
        gradient = torch.zeros_like(scores)
        flat = gradient.view(-1)
        for block in _blocks(items):
            slopes = ctx.step.slope(block.differences())
            from_above = (upstream[block.k] * block.is_k).unsqueeze(1)
            flat.index_add_(
                0, block.k.view(-1), -((slopes @ block.weights).squeeze(2) * from_above.squeeze(1)).view(-1)
            )
            flat.index_add_(
                0, block.j.view(-1), ((from_above @ slopes).squeeze(1) * block.weights.squeeze(2)).view(-1)
            )
        return torch.zeros_like(gradient).scatter_(1, items.order, gradient), None, None, None


@dataclass(frozen=True, eq=False)
class _Items:
    """The items of each query in the order of their levels, coarsest first."""

    order: torch.Tensor
    scores: torch.Tensor
    levels: torch.Tensor
    weights: torch.Tensor
    #: on the CPU, shape (n_query, L + 3): where each level from -1 on begins, and the number of items.
    begins: torch.Tensor


def _by_level(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor) -> _Items:
    sorted_levels, order = levels.sort(dim=1, stable=True)
    bounds = torch.arange(-1, weights.shape[1] + 1, device=levels.device).expand(len(levels), -1).contiguous()
    begins = torch.searchsorted(sorted_levels, bounds).cpu()
    return _Items(order, scores.gather(1, order), sorted_levels, weights, begins)


@dataclass(frozen=True, eq=False)
class _Block:
    """Items k of one level against the items j of other levels, for some queries; padded to rectangles."""

    k: torch.Tensor  #: int64, shape (n, P): where they are in the flattened, sorted items
    is_k: torch.Tensor  #: shape (n, P): 1, or 0 for padding
    j: torch.Tensor  #: int64, shape (n, M)
    weights: torch.Tensor  #: shape (n, M, 1): of the items j; 0 for padding
    scores: torch.Tensor

    def differences(self) -> torch.Tensor:
        """s_j - s_k, shape (n, P, M)."""
        flat = self.scores.view(-1)
        return flat[self.j].unsqueeze(1) - flat[self.k].unsqueeze(2)


def _blocks(items: _Items) -> Iterator[_Block]:
    n_query, n_items = items.scores.shape
    device = items.scores.device
    most = BLOCK_PAIRS[device.type]
    weighs = (items.weights != 0).any(0).cpu()
    for level in range(1, items.weights.shape[1]):
        others = weighs[level].nonzero().view(-1)
        if not len(others):
            continue
        k_begin, k_end = items.begins[:, level + 1], items.begins[:, level + 2]
        j_begin, j_end = items.begins[:, others[0] + 1], items.begins[:, others[-1] + 2]
        n_k, n_j = k_end - k_begin, j_end - j_begin
        # queries with alike numbers of items share a block, so that little of it is padding
        by_size = (n_j * (n_items + 1) + n_k).argsort()
        by_size = by_size[(n_k * n_j)[by_size] > 0]
        first = 0
        while first < len(by_size):
            widest_k, widest_j, last = 0, 0, first
            while last < len(by_size):
                wide_k, wide_j = max(widest_k, int(n_k[by_size[last]])), max(widest_j, int(n_j[by_size[last]]))
                if last > first and (last - first + 1) * wide_k * wide_j > most:
                    break
                widest_k, widest_j, last = wide_k, wide_j, last + 1
            queries = by_size[first:last]
            first = last
            rows = max(1, most // widest_j) if len(queries) == 1 else widest_k
            base = (queries * n_items)[:, None]
            j_at = torch.arange(widest_j)
            is_j = j_at < n_j[queries, None]
            j = (base + (j_begin[queries, None] + j_at).clamp(max=n_items - 1)).to(device)
            of_j = items.weights.expand(n_query, -1, -1)[queries.to(device), level].gather(
                1, items.levels.view(-1)[j].clamp(min=0)
            ) * is_j.to(device)
            for begin in range(0, widest_k, rows):
                k_at = torch.arange(begin, min(begin + rows, widest_k))
                is_k = (k_at < n_k[queries, None]).to(device, items.scores.dtype)
                k = (base + (k_begin[queries, None] + k_at).clamp(max=n_items - 1)).to(device)
                yield _Block(k, is_k, j, of_j.unsqueeze(2), items.scores)

"""Sums of any step over all pairs, in blocks that fit into a cache and are not stored.

The common steps, which are made of a sigmoid and a line, are summed by compiled loops where those work, and other
steps, or on a GPU, by torch. The loops are for large sets of references: a step of Smooth-AP with 256 queries and
100,000 references takes 4.0 s of a core with them and 7.5 s without, and one of Sup-H-AP with a batch of 512 takes
0.08 s and 0.35 s. A training with small batches gains less than a tenth.

In the loops, the sigmoid of a score difference needs no exponential of its own, because

::

    sigma((s_j - s_k) / tau) = 1 / (1 + x_k / x_j),    x = exp(s / tau)

so a pair takes a product and a division. The x are float64 and relative to the middle of all scores: they and their
quotients are within its range where scores span at most 700 tau. For float32, the 1 / x_j are taken relative to an
item k, and limited where the sigmoid is 0 or 1 up to 1e-19, as long as the next items k are near it. Pairs with one
part of the items j are added up in the precision of the scores, and the sums of parts in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hgld.arrays import AnyFloats, Integers
from hgld.compute.compiled import REORDER_SUMS, compiled, is_compiled
from hgld.losses.kernels.batches import first_derivative_only
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import Sigmoid, Step, SupRankStep, as_line_step

#: Pairs of one block: as many as the caches of a CPU hold, or as keep a GPU busy.
BLOCK_PAIRS = {"cpu": 2**18, "cuda": 2**25}
#: Range of scores in units of tau for which float64 has exp((s - middle) / tau) and its quotients.
MAX_RANGE = 700
#: Items j that are paired with all items k before the next ones are: their arrays fit into the smallest cache.
ITEMS_AT_ONCE = 1024
#: Distance of two items k in units of tau up to which they share quotients, and the limit of these.
NEAR, LARGEST = 20, 1e28


def pair_sums(ranking: Ranking, weights: Tensor, step: Step) -> Tensor:
    """Return S_k of every positive item k (:mod:`~hgld.losses.kernels.rank_loss`) over the pairs that have a weight.

    Memory is O(n_query x n_items + block); the backward pass recomputes the blocks.

    Args:
        weights: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1) and the dtype of
            the scores.
    """
    return _PairSums.apply(ranking.scores, ranking, weights, step)  # type: ignore[no-any-return]


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, ranking: Ranking, weights: Tensor, step: Step) -> Tensor:
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
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
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

    k: Tensor  #: int64, shape (n, P): indices into the flattened scores
    is_k: Tensor  #: Boolean, shape (n, P): False for padding
    j: Tensor  #: int64, shape (n, M)
    weights: Tensor  #: shape (n, M): weights of the items j, 0 for padding
    own: Tensor  #: shape (n, 1): weight of a pair of two items k


def block_sums(k_scores: Tensor, j_scores: Tensor, weights: Tensor, step: Step) -> Tensor:
    """Return the weighted sums over j of a step of s_j - s_k, shape (rows, k).

    This function and :func:`block_slopes` have no control flow that depends on data, so ``torch.compile`` can trace
    them as a whole.
    """
    return step.value(j_scores.unsqueeze(1) - k_scores.unsqueeze(2)).mul_(weights.unsqueeze(1)).sum(2)


def block_slopes(
    k_scores: Tensor, j_scores: Tensor, weights: Tensor, upstream: Tensor, step: Step
) -> tuple[Tensor, Tensor]:
    """Return the sums of slopes over j with their weights, and over k with upstream gradients of shape (rows, k)."""
    slopes = step.slope(j_scores.unsqueeze(1) - k_scores.unsqueeze(2))
    over_k = (upstream.unsqueeze(1) @ slopes).squeeze(1)
    return slopes.mul_(weights.unsqueeze(1)).sum(2), over_k


def _blocks(scores: Tensor, levels: Tensor, order: Tensor, starts: Tensor, weights: Tensor) -> Iterator[_Block]:
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


def _padded(order: Tensor, starts: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``sizes`` items from ``starts`` on for each query, padded, and the mask of real items."""
    offsets = torch.arange(int(sizes.max()), device=order.device)
    positions = (starts.unsqueeze(1) + offsets).clamp_(max=order.shape[1] - 1)
    return order.gather(1, positions), offsets < sizes.unsqueeze(1)


def has_loop(scores: Tensor, step: Step) -> bool:
    """Return whether a step can be summed by the loops: not for subclasses, nor for scores that are not finite."""
    if not isinstance(step, (Sigmoid, SupRankStep)) or type(step) not in (Sigmoid, SupRankStep) or not scores.numel():
        return False
    lowest, highest = torch.aminmax(scores)
    return bool((highest - lowest) / step.tau <= MAX_RANGE)


def loop_sums(
    scores: Tensor,
    order: Tensor,
    starts: Tensor,
    weights: Tensor,
    step: Sigmoid | SupRankStep,
    upstream: Tensor | None = None,
) -> Tensor:
    """Return the sums over pairs, or their gradient by the scores.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items).
        order: int64 tensor of the same shape, the items of each query by level.
        starts: int64 tensor of shape (n_query, L + 2): place of the first item of each level, and the number of all.
        weights: Weights by level, shape (n_query or 1, L + 1, L + 1).
        upstream: Gradient of the sums, for the gradient by the scores.
    """
    line, middle = as_line_step(step), torch.stack(torch.aminmax(scores)).double().mean().item()
    limit = math.exp(-line.delta / line.tau)
    numbers = [line.delta, limit, line.start, line.rho, line.jump, line.rho * line.tau, 1.0, 0.0]
    constants, quotients = scores.new_tensor(numbers), scores.new_empty(ITEMS_AT_ONCE)
    result = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    gradient = scores[:0] if upstream is None else upstream
    arrays = (scores, order, starts, weights, gradient, constants, quotients, result)
    _sum_pairs(line.tau, middle, *(array.contiguous().numpy() for array in arrays))
    return result if upstream is None else result.div_(line.tau)


@compiled()
def _sum_pairs(
    tau: float,
    middle: float,
    scores: AnyFloats,
    order: Integers,
    starts: Integers,
    weights: AnyFloats,
    upstream: AnyFloats,
    constants: AnyFloats,
    quotients: AnyFloats,
    result: AnyFloats,
) -> None:
    """Add the sums to ``result``, or tau times the gradient if ``upstream`` has rows; ``quotients`` is scratch."""
    n_levels, n_items = weights.shape[1] - 1, scores.shape[1]
    is_gradient = upstream.shape[0] > 0
    items, factors, slopes = np.empty_like(scores[0]), np.empty_like(scores[0]), np.empty_like(scores[0])
    x, reciprocal, totals = np.empty(n_items), np.empty(n_items), np.empty(n_items)
    for query in range(len(scores)):
        items_by_level, query_starts = order[query], starts[query]
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        for place in range(query_starts[0 if query_weights[1:, 0].any() else 1], n_items):
            items[place] = scores[query, items_by_level[place]]
            x[place] = math.exp((items[place] - middle) / tau)
            reciprocal[place] = 1 / x[place]
        for level in range(1, n_levels + 1):
            first, last = 0, n_levels
            while first <= last and query_weights[level, first] == 0:
                first += 1
            while last > first and query_weights[level, last] == 0:
                last -= 1
            begin_k, end_k = query_starts[level], query_starts[level + 1]
            if first > last or begin_k == end_k:
                continue
            begin_j, end_j = query_starts[first], query_starts[last + 1]
            for other in range(first, last + 1):
                factors[query_starts[other] : query_starts[other + 1]] = query_weights[level, other]
            slopes[begin_j:end_j] = 0
            totals[begin_k:end_k] = 0
            for begin in range(begin_j, end_j, len(quotients)):
                part = slice(begin, min(begin + len(quotients), end_j))
                n_part = part.stop - begin
                # Views are made once for all items k, as numba counts references to each.
                items_j, quotients_j = items[part], quotients[:n_part]
                factors_j, slopes_j = factors[part], slopes[part]
                centre = -1
                for k in range(begin_k, end_k):
                    if centre < 0 or abs(items[k] - items[centre]) > NEAR * tau:
                        centre = k
                        for j in range(n_part):
                            quotients[j] = min(x[centre] * reciprocal[begin + j], LARGEST)
                    factor = quotients.dtype.type(x[k] * reciprocal[centre])
                    if is_gradient:
                        grad_k = upstream[query, items_by_level[k]]
                        totals[k] -= grad_k * _slopes_of_item(
                            items[k], factor, items_j, quotients_j, factors_j, constants, grad_k, slopes_j
                        )
                    else:
                        totals[k] += _sum_of_item(items[k], factor, items_j, quotients_j, factors_j, constants)
            own = 0.0 if is_gradient else query_weights[level, level] * (0.5 + constants[2])
            for k in range(begin_k, end_k):
                result[query, items_by_level[k]] += totals[k] - own
            if is_gradient:
                for j in range(begin_j, end_j):
                    result[query, items_by_level[j]] += factors[j] * slopes[j]


@compiled(fastmath=REORDER_SUMS)
def _sum_of_item(
    item: float, factor: float, items: AnyFloats, quotients: AnyFloats, factors: AnyFloats, constants: AnyFloats
) -> float:
    """Return the weighted sum of sigma(min(t, delta) / tau) + start [t >= 0] + [t > delta] (rho (t - delta) + jump).

    ``limit`` is exp(-delta / tau).
    """
    delta, limit, start, rho, jump, _, one, zero = constants
    total: float = zero
    for j in range(len(items)):
        t = items[j] - item
        ratio = factor * quotients[j]
        ratio = ratio if ratio > limit else limit
        value = one / (one + ratio)
        value += start if t >= zero else zero
        value += rho * (t - delta) + jump if t > delta else zero
        total += factors[j] * value
    return total


@compiled(fastmath=REORDER_SUMS)
def _slopes_of_item(
    item: float,
    factor: float,
    items: AnyFloats,
    quotients: AnyFloats,
    factors: AnyFloats,
    constants: AnyFloats,
    upstream: float,
    slopes: AnyFloats,
) -> float:
    """Return the weighted sum of tau times the slopes of :func:`_sum_of_item`, and add these to ``slopes``."""
    delta, _, _, _, _, line_slope, one, zero = constants
    total: float = zero
    for j in range(len(items)):
        t = items[j] - item
        ratio = factor * quotients[j]
        value = one / (one + ratio)
        slope = line_slope if t > delta else value * (ratio * value)
        total += factors[j] * slope
        slopes[j] += upstream * slope
    return total

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
from typing import Any

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
        ctx.ranking, ctx.weights, ctx.step = ranking, weights, step
        ctx.save_for_backward(scores)
        ctx.by_loop = is_compiled(scores.device) and has_loop(scores, step)
        if ctx.by_loop:
            return loop_sums(scores, ranking, weights, step)  # type: ignore[arg-type]  # has_loop
        sums = torch.zeros_like(scores)
        for queries, items, pair_weights in _blocks(ranking.levels, weights):
            differences = scores[queries] - scores[queries, items].unsqueeze(1)
            sums[queries, items] = (step.value(differences) * pair_weights).sum(1)
        return sums

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        if ctx.by_loop:
            return loop_sums(scores, ctx.ranking, ctx.weights, ctx.step, upstream), None, None, None
        grad_scores = torch.zeros_like(scores)
        for queries, items, pair_weights in _blocks(ctx.ranking.levels, ctx.weights):
            differences = scores[queries] - scores[queries, items].unsqueeze(1)
            slopes = (
                ctx.step.slope(differences) * pair_weights * upstream[queries, items].unsqueeze(1)
            )
            grad_scores.index_add_(0, queries, slopes)
            grad_scores[queries, items] -= slopes.sum(1)
        return grad_scores, None, None, None


def _blocks(levels: Tensor, weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield positive items k in blocks: queries and places, int64 of shape (n,), and weights of their pairs.

    The weights have shape (n, n_items); the pair of an item with itself and pairs with excluded items have weight 0.
    """
    n_queries, n_items = levels.shape
    n_levels = weights.shape[1] - 1
    weights = torch.nn.functional.pad(weights, (0, 1)).expand(n_queries, -1, -1)
    columns = torch.where(levels < 0, n_levels + 1, levels)
    size = max(1, BLOCK_PAIRS[levels.device.type] // max(1, n_items))
    for block in torch.split((levels > 0).nonzero(), size):
        queries, items = block.unbind(1)
        pair_weights = weights[queries, levels[queries, items]].gather(1, columns[queries])
        yield queries, items, pair_weights.scatter_(1, items.unsqueeze(1), 0)


def has_loop(scores: Tensor, step: Step) -> bool:
    """Return whether a step can be summed by the loops: not for subclasses, nor for scores that are not finite."""
    if (
        not isinstance(step, (Sigmoid, SupRankStep))
        or type(step) not in (Sigmoid, SupRankStep)
        or not scores.numel()
    ):
        return False
    lowest, highest = torch.aminmax(scores)
    return bool((highest - lowest) / step.tau <= MAX_RANGE)


def loop_sums(
    scores: Tensor,
    ranking: Ranking,
    weights: Tensor,
    step: Sigmoid | SupRankStep,
    upstream: Tensor | None = None,
) -> Tensor:
    """Return the sums over pairs, or their gradient by the scores.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items), those of the ranking.
        weights: Weights by level, shape (n_query or 1, L + 1, L + 1).
        upstream: Gradient of the sums, for the gradient by the scores.
    """
    line, middle = as_line_step(step), torch.stack(torch.aminmax(scores)).double().mean().item()
    limit = math.exp(-line.delta / line.tau)
    numbers = [line.delta, limit, line.start, line.rho, line.jump, line.rho * line.tau, 1.0, 0.0]
    constants, quotients = scores.new_tensor(numbers), scores.new_empty(ITEMS_AT_ONCE)
    result = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    gradient = scores[:0] if upstream is None else upstream
    order, starts = ranking.by_level
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
    items, factors, slopes = (
        np.empty_like(scores[0]),
        np.empty_like(scores[0]),
        np.empty_like(scores[0]),
    )
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
                            items[k],
                            factor,
                            items_j,
                            quotients_j,
                            factors_j,
                            constants,
                            grad_k,
                            slopes_j,
                        )
                    else:
                        totals[k] += _sum_of_item(
                            items[k], factor, items_j, quotients_j, factors_j, constants
                        )
            own = 0.0 if is_gradient else query_weights[level, level] * (0.5 + constants[2])
            for k in range(begin_k, end_k):
                result[query, items_by_level[k]] += totals[k] - own
            if is_gradient:
                for j in range(begin_j, end_j):
                    result[query, items_by_level[j]] += factors[j] * slopes[j]


@compiled(fastmath=REORDER_SUMS)
def _sum_of_item(
    item: float,
    factor: float,
    items: AnyFloats,
    quotients: AnyFloats,
    factors: AnyFloats,
    constants: AnyFloats,
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

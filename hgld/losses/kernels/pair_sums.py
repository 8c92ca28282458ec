"""Sums of any step over all pairs, in blocks that fit into a cache and are not stored.

On a CPU with numba, compiled loops sum the common steps, which consist of a sigmoid and a line.
Torch sums other steps, and all steps on a GPU. The loops are for large sets of references: a
training step of Smooth-AP with 256 queries and 100,000 references takes 4.0 s of a core with the
loops and 7.5 s without, and a training step of Sup-H-AP with a batch of 512 takes 0.08 s and 0.35
s. Training with small batches gains less than 10 %.

In the loops, pairs share exponentials, because

::

    sigma((s_j - s_k) / tau) = 1 / (1 + x_k / x_j),    x = exp(s / tau)

so a pair takes a product and a division. The x are float64, relative to the middle of all scores: x
and its quotients do not overflow if scores span at most 700 tau. For float32 scores, quotients x_k
/ x_j are computed for an item k, limited where the sigmoid is 0 or 1 up to 1e-19, and reused for
the next items k while they are near the first. Pairs with one block of the items j are added up in
the precision of the scores, and the sums of blocks in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hgld.arrays import AnyFloats, Integers
from hgld.compute.compiled import REORDER_SUMS, compiled, is_compiled
from hgld.losses.kernels.batches import first_derivative_only
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import Sigmoid, Step, SupRankStep, as_line_step

#: Number of pairs of a block: it fits into the caches of a CPU, or keeps a GPU busy.
BLOCK_PAIRS = {"cpu": 2**18, "cuda": 2**25}
#: Largest range of scores in units of tau: exp((s - middle) / tau) and its quotients fit into
#: float64.
MAX_RANGE = 700
#: Number of items j in a block of the loops, whose arrays fit into the smallest cache.
ITEMS_AT_ONCE = 1024
#: Distance of two items k in units of tau up to which they share quotients.
NEAR = 20
#: Largest shared quotient.
LARGEST = 1e28


def pair_sums(ranking: Ranking, weights: Tensor, step: Step) -> Tensor:
    """Return S_k of every positive item k, see :mod:`~hgld.losses.kernels.rank_loss`.

    Memory is O(n_query x n_items + block); the backward pass recomputes the blocks.

    Args:
        weights: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1)
            and the dtype of the scores.
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
            item_upstream = upstream[queries, items].unsqueeze(1)
            slopes = ctx.step.slope(differences) * pair_weights * item_upstream
            grad_scores.index_add_(0, queries, slopes)
            grad_scores[queries, items] -= slopes.sum(1)
        return grad_scores, None, None, None


def _blocks(levels: Tensor, weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield blocks of n positive items k.

    Yields:
        Queries and places of the items, int64 tensors of shape (n,), and weights of their pairs,
        shape (n, n_items): 0 for the pair of an item with itself and for pairs with excluded items.
    """
    n_queries, n_items = levels.shape
    n_levels = weights.shape[1] - 1
    weights = functional.pad(weights, (0, 1)).expand(n_queries, -1, -1)
    columns = torch.where(levels < 0, n_levels + 1, levels)
    size = max(1, BLOCK_PAIRS[levels.device.type] // max(1, n_items))
    for block in torch.split((levels > 0).nonzero(), size):
        queries, items = block.unbind(1)
        pair_weights = weights[queries, levels[queries, items]].gather(1, columns[queries])
        yield queries, items, pair_weights.scatter_(1, items.unsqueeze(1), 0)


def has_loop(scores: Tensor, step: Step) -> bool:
    """Return whether the loops can sum a step: not for subclasses or infinite scores."""
    if not isinstance(step, (Sigmoid, SupRankStep)) or not scores.numel():
        return False
    if type(step) not in (Sigmoid, SupRankStep):
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
        scores: float32 or float64 tensor of shape (n_query, n_items), the scores of the ranking.
        weights: Weights by level, shape (n_query or 1, L + 1, L + 1).
        upstream: Gradient of the sums. Default: return the sums.
    """
    line = as_line_step(step)
    middle = torch.stack(torch.aminmax(scores)).double().mean().item()
    limit = math.exp(-line.delta / line.tau)
    constants = [line.delta, limit, line.start, line.rho, line.jump, line.rho * line.tau, 1.0, 0.0]
    result = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    gradient = scores[:0] if upstream is None else upstream
    order, starts = ranking.by_level
    _sum_pairs(
        line.tau,
        middle,
        scores.contiguous().numpy(),
        order.numpy(),
        starts.numpy(),
        weights.contiguous().numpy(),
        gradient.contiguous().numpy(),
        scores.new_tensor(constants).numpy(),
        scores.new_empty(ITEMS_AT_ONCE).numpy(),
        result.numpy(),
    )
    if upstream is not None:
        result.div_(line.tau)
    return result


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
    """Add the sums to ``result``, or tau times the gradient if ``upstream`` has rows.

    Args:
        constants: Numbers of the step, see :func:`_sum_of_item`.
        quotients: Scratch space.
    """
    n_levels = weights.shape[1] - 1
    n_items = scores.shape[1]
    is_gradient = upstream.shape[0] > 0
    items = np.empty_like(scores[0])
    factors = np.empty_like(scores[0])
    slopes = np.empty_like(scores[0])
    x = np.empty(n_items)
    reciprocal = np.empty(n_items)
    totals = np.empty(n_items)
    for query in range(len(scores)):
        items_by_level = order[query]
        query_starts = starts[query]
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        lowest_level = 0 if query_weights[1:, 0].any() else 1
        for place in range(query_starts[lowest_level], n_items):
            items[place] = scores[query, items_by_level[place]]
            x[place] = math.exp((items[place] - middle) / tau)
            reciprocal[place] = 1 / x[place]
        for level in range(1, n_levels + 1):
            first, last = 0, n_levels
            while first <= last and query_weights[level, first] == 0:
                first += 1
            while last > first and query_weights[level, last] == 0:
                last -= 1
            begin_k = query_starts[level]
            end_k = query_starts[level + 1]
            if first > last or begin_k == end_k:
                continue
            begin_j = query_starts[first]
            end_j = query_starts[last + 1]
            for other in range(first, last + 1):
                factors[query_starts[other] : query_starts[other + 1]] = query_weights[level, other]
            slopes[begin_j:end_j] = 0
            totals[begin_k:end_k] = 0
            for begin in range(begin_j, end_j, len(quotients)):
                part = slice(begin, min(begin + len(quotients), end_j))
                n_part = part.stop - begin
                # All items k share these views, because numba counts references to each view.
                items_j = items[part]
                quotients_j = quotients[:n_part]
                factors_j = factors[part]
                slopes_j = slopes[part]
                centre = -1
                for k in range(begin_k, end_k):
                    if centre < 0 or abs(items[k] - items[centre]) > NEAR * tau:
                        centre = k
                        for j in range(n_part):
                            quotients[j] = min(x[centre] * reciprocal[begin + j], LARGEST)
                    factor = quotients.dtype.type(x[k] * reciprocal[centre])
                    if is_gradient:
                        grad_k = upstream[query, items_by_level[k]]
                        slope_k = _slopes_of_item(
                            items[k],
                            factor,
                            items_j,
                            quotients_j,
                            factors_j,
                            constants,
                            grad_k,
                            slopes_j,
                        )
                        totals[k] -= grad_k * slope_k
                    else:
                        totals[k] += _sum_of_item(
                            items[k], factor, items_j, quotients_j, factors_j, constants
                        )
            self_term = 0.0  # the pair of k with itself
            if not is_gradient:
                self_term = query_weights[level, level] * (0.5 + constants[2])
            for k in range(begin_k, end_k):
                result[query, items_by_level[k]] += totals[k] - self_term
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
    """Return the weighted sum of the step h(t) over items j for one item k, with t = s_j - s_k.

    ::

        h(t) = sigma(min(t, delta) / tau) + start [t >= 0] + [t > delta] (rho (t - delta) + jump)

    Args:
        constants: delta, exp(-delta / tau), start, rho, jump, rho tau, 1 and 0 in the precision of
            the scores.
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
    """Return the weighted sum of tau h'(t), and add ``upstream`` tau h'(t) to ``slopes``."""
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

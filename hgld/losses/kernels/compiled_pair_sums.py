"""Compiled sums over all pairs, of steps that are made of a sigmoid and lines.

The sigmoid of a score difference needs no exponential of its own, because

::

    sigma((s_j - s_k) / tau) = 1 / (1 + x_k y_j),    x_k = exp(s_k / tau),    y_j = exp(-s_j / tau)

so a pair takes a product and a division. x and y may leave the range of floats, so they are kept as mantissas and
exponents of 2. Items k of nearby exponents are processed together; the exponents of the y_j are taken relative to
theirs, and limited where the sigmoid is 0 or 1 up to 1e-27. Mantissas and exponents are computed in float64, so x y
has a relative error of three roundings, where exp(t / tau) has |t / tau| of them for a rounded difference t.

Pairs with up to :data:`ITEMS_AT_ONCE` items j are added up in the precision of the scores, and these sums in float64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.compute.compiled import REORDER_SUMS, compiled
from hgld.losses.kernels.steps import LeakyStep, Sigmoid, Step, SupRankStep

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

#: Items j that are paired with all items k before the next ones are: their arrays fit into the smallest cache.
ITEMS_AT_ONCE = 1024
#: Exponents of the items k that are processed together.
EXPONENTS_AT_ONCE = 16
#: Exponents that scores may span: a range of 454 with a tau of 0.01. A table by exponents is of this size.
MAX_EXPONENTS = 2**16


class PairKernel(NamedTuple):
    """A step as the compiled loops evaluate it."""

    is_leaky: bool  #: whether it is a :class:`~hgld.losses.LeakyStep`; else it is a sigmoid and a line
    per_score: float  #: exponents of 2 per unit of score
    lowest: float  #: score of exponent 0
    at_0: float  #: h(0)
    scale: float  #: factor of the slopes that the loops compute
    numbers: Floats  #: constants of the loops, in the precision of the scores


def pair_kernel(scores: torch.Tensor, step: Step) -> PairKernel | None:
    """Return the kernel of a step, or None where no loop is compiled for it.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items). There is no kernel for scores that span more
            than ``MAX_EXPONENTS``, or that are not finite.
        step: Step of the sums. There is no kernel for subclasses, which may redefine it.
    """
    if type(step) not in (Sigmoid, SupRankStep, LeakyStep) or not scores.numel():
        return None
    lowest, highest = (bound.item() for bound in torch.aminmax(scores.detach()))
    at_0 = step.value(torch.zeros((), dtype=torch.float64)).item()
    dtype = np.float32 if scores.dtype == torch.float32 else np.float64
    if isinstance(step, LeakyStep):
        per_score, scale = 0.0, 1.0
        numbers = [step.beta, step.gamma, step.leak, 1.0, 0.0]
    else:
        assert isinstance(step, (Sigmoid, SupRankStep))
        per_score, scale = 1 / (step.tau * math.log(2)), 1 / step.tau
        numbers = _sigmoid_numbers(step)
    if not (math.isfinite(highest - lowest) and (highest - lowest) * per_score < MAX_EXPONENTS):
        return None
    return PairKernel(isinstance(step, LeakyStep), per_score, lowest, at_0, scale, np.array(numbers, dtype))


def _sigmoid_numbers(step: Sigmoid | SupRankStep) -> list[float]:
    """Return the numbers of :func:`_sigmoid_values`. A sigmoid is a step whose line never begins."""
    if isinstance(step, Sigmoid):
        return [math.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    limit = math.exp(-step.delta / step.tau)
    return [step.delta, limit, step.start, step.rho, step.jump, step.rho * step.tau, 1.0, 0.0]


class CompiledPairSums(torch.autograd.Function):
    """The sums of :func:`~hgld.losses.kernels.pair_sums.pair_sums`; the backward pass evaluates the pairs again."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, kernel: PairKernel
    ) -> torch.Tensor:
        """Return the sums.

        Args:
            ctx: Context of autograd.
            scores: See :func:`~hgld.losses.kernels.step_sums.step_sums`.
            levels: See there.
            weights: See there.
            kernel: Kernel for these scores.
        """
        ctx.save_for_backward(scores, levels, weights)
        ctx.kernel = kernel
        return _evaluate(scores, levels, weights, scores.new_empty(0, 0), kernel)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient by the scores."""
        scores, levels, weights = ctx.saved_tensors
        return _evaluate(scores, levels, weights, upstream, ctx.kernel), None, None, None


def _evaluate(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, upstream: torch.Tensor, kernel: PairKernel
) -> torch.Tensor:
    """Return the sums, or the gradient where ``upstream`` has elements."""
    result = torch.zeros(scores.shape, dtype=scores.dtype)
    bits = np.empty(ITEMS_AT_ONCE, np.int32 if scores.dtype == torch.float32 else np.int64)
    _pair_sums(
        _array(scores),
        _array(levels),
        _array(weights),
        _array(upstream),
        *kernel,
        bits,
        bits.view(kernel.numbers.dtype),
        result.numpy(),
    )
    return result


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


@compiled()
def _pair_sums(
    scores: Floats,
    levels: Ints,
    weights: Floats,
    upstream: Floats,
    is_leaky: bool,
    per_score: float,
    lowest: float,
    at_0: float,
    scale: float,
    numbers: Floats,
    bits: Ints,
    powers: Floats,
    result: Floats,
) -> None:
    """Write the sums to ``result``, or with ``upstream`` of the same shape, add the gradient.

    ``bits`` and ``powers`` are the same memory, as integers and as floats: powers of 2 are made of their bits.
    """
    n_query, n_items = scores.shape
    n_levels = weights.shape[1] - 1
    is_gradient = upstream.shape[0] > 0
    order = np.empty(n_items, np.int64)
    exponents = np.empty(n_items, bits.dtype)
    mantissas, items, upstream_k = np.empty_like(scores[0]), np.empty_like(scores[0]), np.empty_like(scores[0])
    totals = np.empty(n_items, np.float64)
    factors, grad_j = np.empty_like(powers), np.empty_like(powers)
    for query in range(n_query):
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        starts = _group_by_level(
            scores[query], levels[query], n_levels, per_score, lowest, order, exponents, mantissas, items
        )
        for level in range(1, n_levels + 1):
            first, last = 0, n_levels
            while first <= last and query_weights[level, first] == 0:
                first += 1
            while last > first and query_weights[level, last] == 0:
                last -= 1
            begin, end = starts[level], starts[level + 1]
            if first > last or begin == end or starts[first] == starts[last + 1]:
                continue
            for k in range(begin, end):
                totals[k] = 0
                if is_gradient:
                    upstream_k[k] = upstream[query, order[k]]
            for begin_j in range(starts[first], starts[last + 1], len(factors)):
                n_j = min(len(factors), starts[last + 1] - begin_j)
                for j in range(n_j):
                    factors[j] = query_weights[level, levels[query, order[begin_j + j]]]
                    grad_j[j] = 0
                _pairs_of_level(
                    items, exponents, mantissas, upstream_k, begin, end, begin_j, n_j,
                    factors, is_gradient, is_leaky, numbers, bits, powers, totals, grad_j,
                )  # fmt: skip
                if is_gradient:
                    for j in range(n_j):
                        result[query, order[begin_j + j]] += scale * factors[j] * grad_j[j]
            for k in range(begin, end):
                if is_gradient:
                    result[query, order[k]] -= scale * upstream_k[k] * totals[k]
                else:
                    result[query, order[k]] = totals[k] - query_weights[level, level] * at_0


@compiled()
def _group_by_level(
    scores: Floats,
    levels: Ints,
    n_levels: int,
    per_score: float,
    lowest: float,
    order: Ints,
    exponents: Ints,
    mantissas: Floats,
    items: Floats,
) -> Ints:
    """Sort the items of a query by level, and those of a level by groups of exponents; return the levels' starts.

    ``order`` gets the indices of the items, and the other arrays their scores and exp(-s / tau) in this order.
    """
    greatest, n_used = lowest, 0
    for item in range(len(scores)):
        if levels[item] >= 0:
            n_used += 1
            greatest = max(greatest, scores[item])
    n_groups = int((greatest - lowest) * per_score) // EXPONENTS_AT_ONCE + 1
    places = np.zeros(n_groups + 1, np.int64)
    starts = np.zeros(n_levels + 2, np.int64)
    for item in range(len(scores)):
        if levels[item] >= 0:
            places[int((scores[item] - lowest) * per_score) // EXPONENTS_AT_ONCE + 1] += 1
            starts[levels[item] + 1] += 1
    for group in range(n_groups):
        places[group + 1] += places[group]
    for level in range(n_levels + 1):
        starts[level + 1] += starts[level]
    by_group = np.empty(n_used, np.int64)
    for item in range(len(scores)):
        if levels[item] >= 0:
            group = int((scores[item] - lowest) * per_score) // EXPONENTS_AT_ONCE
            by_group[places[group]] = item
            places[group] += 1
    place_of_level = starts.copy()
    for index in range(n_used):
        item = int(by_group[index])
        place = place_of_level[levels[item]]
        place_of_level[levels[item]] += 1
        exponent = (scores[item] - lowest) * per_score
        order[place], items[place], exponents[place] = item, scores[item], int(exponent)
        mantissas[place] = np.exp2(int(exponent) - exponent)
    return starts


@compiled()
def _pairs_of_level(
    items: Floats,
    exponents: Ints,
    mantissas: Floats,
    upstream: Floats,
    begin: int,
    end: int,
    begin_j: int,
    n_j: int,
    factors: Floats,
    is_gradient: bool,
    is_leaky: bool,
    numbers: Floats,
    bits: Ints,
    powers: Floats,
    totals: Floats,
    grad_j: Floats,
) -> None:
    """Add to ``totals`` and ``grad_j`` the pairs of items k from ``begin`` to ``end`` and of ``n_j`` items j."""
    bias, shift, greatest = (127, 23, 100) if bits.itemsize == 4 else (1023, 52, 1000)
    items_j, factors_j, y, grad_j = items[begin_j : begin_j + n_j], factors[:n_j], powers[:n_j], grad_j[:n_j]
    k = begin
    while k < end:
        group = exponents[k] // EXPONENTS_AT_ONCE
        middle = group * EXPONENTS_AT_ONCE + EXPONENTS_AT_ONCE // 2
        for j in range(n_j):
            exponent = min(max(middle - exponents[begin_j + j], -greatest), greatest)
            bits[j] = (exponent + bias) << shift
        for j in range(n_j):
            y[j] *= mantissas[begin_j + j]
        while k < end and exponents[k] // EXPONENTS_AT_ONCE == group:
            x = y.dtype.type(math.ldexp(1 / mantissas[k], exponents[k] - middle))
            if is_leaky:
                if is_gradient:
                    totals[k] += _leaky_slopes(items[k], upstream[k], items_j, factors_j, numbers, grad_j)
                else:
                    totals[k] += _leaky_values(items[k], items_j, factors_j, numbers)
            elif is_gradient:
                totals[k] += _sigmoid_slopes(items[k], x, upstream[k], items_j, y, factors_j, numbers, grad_j)
            else:
                totals[k] += _sigmoid_values(items[k], x, items_j, y, factors_j, numbers)
            k += 1


@compiled(fastmath=REORDER_SUMS)
def _sigmoid_values(item: float, x: float, items: Floats, y: Floats, factors: Floats, numbers: Floats) -> float:
    """Return the weighted sum of sigma(min(t, delta) / tau) + start [t >= 0] + [t > delta] (rho (t - delta) + jump).

    ``limit`` is exp(-delta / tau).
    """
    delta, limit, start, rho, jump, _, one, zero = numbers
    total: float = zero
    for j in range(len(items)):
        t = items[j] - item
        ratio = x * y[j]
        ratio = ratio if ratio > limit else limit
        value = one / (one + ratio)
        value += start if t >= zero else zero
        value += rho * (t - delta) + jump if t > delta else zero
        total += factors[j] * value
    return total


@compiled(fastmath=REORDER_SUMS)
def _sigmoid_slopes(
    item: float, x: float, upstream: float, items: Floats, y: Floats, factors: Floats, numbers: Floats, grad_j: Floats
) -> float:
    """Return the weighted sum of the slopes of :func:`_sigmoid_values`, times tau, and add them to ``grad_j``."""
    delta, _, _, _, _, line_slope, one, zero = numbers
    total: float = zero
    for j in range(len(items)):
        t = items[j] - item
        ratio = x * y[j]
        value = one / (one + ratio)
        slope = line_slope if t > delta else value * (ratio * value)
        total += factors[j] * slope
        grad_j[j] += upstream * slope
    return total


@compiled(fastmath=REORDER_SUMS)
def _leaky_values(item: float, items: Floats, factors: Floats, numbers: Floats) -> float:
    """Return the weighted sum of leak t where t <= 0 and min(beta t + gamma, 1) above."""
    beta, gamma, leak, one, zero = numbers
    total: float = zero
    for j in range(len(items)):
        t = items[j] - item
        above = beta * t + gamma
        above = above if above < one else one
        total += factors[j] * (above if t > zero else leak * t)
    return total


@compiled(fastmath=REORDER_SUMS)
def _leaky_slopes(
    item: float, upstream: float, items: Floats, factors: Floats, numbers: Floats, grad_j: Floats
) -> float:
    """Return the weighted sum of the slopes of :func:`_leaky_values`, and add them to ``grad_j``."""
    beta, gamma, leak, one, zero = numbers
    total: float = zero
    for j in range(len(items)):
        t = items[j] - item
        above = beta if beta * t + gamma <= one else zero
        slope = above if t > zero else leak
        total += factors[j] * slope
        grad_j[j] += upstream * slope
    return total

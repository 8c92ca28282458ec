"""Compiled loops over pairs of items, for steps that are made of a sigmoid and lines.

The sigmoid of a score difference needs no exponential of its own, because

::

    sigma((s_j - s_k) / tau) = 1 / (1 + x_k y_j),    x_k = exp(s_k / tau),    y_j = exp(-s_j / tau)

so a pair takes a product and a division. x and y may leave the range of floats, so they are kept as mantissas and
exponents of 2. Items k of nearby exponents are processed together; the exponents of the y_j are taken relative to
theirs, and limited where the sigmoid is 0 or 1 up to 1e-25. Mantissas and exponents are computed in float64, so x y
has a relative error of three roundings, where exp(t / tau) has |t / tau| of them for a rounded difference t.

Pairs with one chunk of items j are added up in the precision of the scores, and the sums of chunks in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgld.compute.compiled import REORDER_SUMS, compiled

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

#: Exponents of the items k that are processed together.
EXPONENTS_AT_ONCE = 32


@compiled()
def group_items(
    scores: Floats,
    levels: Ints,
    per_score: float,
    lowest: float,
    highest: float,
    order: Ints,
    items: Floats,
    exponents: Floats,
    mantissas: Floats,
    starts: Ints,
) -> None:
    """Sort the items of each query by level, and those of a level by groups of exponents.

    Args:
        scores: Shape (n_query, n_items).
        levels: Integers of the same shape; negative for items to leave out.
        per_score: Exponents of 2 per unit of score.
        lowest: Least score.
        highest: Greatest score.
        order: Gets the indices of the items in this order.
        items: Gets their scores.
        exponents: Gets their exponents, as floats.
        mantissas: Gets their mantissas, in (1/2, 1].
        starts: Gets the place of the first item of each level, and the number of all, shape (n_query, L + 2).
    """
    n_levels = starts.shape[1] - 2
    n_groups = int((highest - lowest) * per_score) // EXPONENTS_AT_ONCE + 1
    # One place more than there are groups, so that each becomes the start of its group.
    places = np.empty((n_levels + 1) * n_groups + 1, np.int64)
    for query in range(len(scores)):
        places[:] = 0
        for item in range(scores.shape[1]):
            if levels[query, item] >= 0:
                group = int((scores[query, item] - lowest) * per_score) // EXPONENTS_AT_ONCE
                places[levels[query, item] * n_groups + group + 1] += 1
        for index in range(1, len(places)):
            places[index] += places[index - 1]
        for level in range(n_levels + 2):
            starts[query, level] = places[level * n_groups]
        for item in range(scores.shape[1]):
            if levels[query, item] >= 0:
                exponent = (scores[query, item] - lowest) * per_score
                whole = int(exponent)
                index = levels[query, item] * n_groups + whole // EXPONENTS_AT_ONCE
                place = places[index]
                places[index] += 1
                order[query, place], items[query, place] = item, scores[query, item]
                exponents[query, place], mantissas[query, place] = whole, np.exp2(whole - exponent)


@compiled()
def sum_pairs(
    order: Ints,
    items: Floats,
    exponents: Floats,
    mantissas: Floats,
    starts: Ints,
    weights: Floats,
    upstream: Floats,
    is_leaky: bool,
    at_0: float,
    scale: float,
    numbers: Floats,
    bits: Ints,
    powers: Floats,
    result: Floats,
) -> None:
    """Write the sums, or add the gradient where ``upstream`` has rows.

    Args:
        order: See :func:`group_items`.
        items: See there.
        exponents: See there.
        mantissas: See there.
        starts: See there.
        weights: Weights by level, shape (n_query or 1, L + 1, L + 1).
        upstream: Gradients of the sums, shape (n_query or 0, n_items).
        is_leaky: Whether the step is a :class:`~hgld.losses.LeakyStep`.
        at_0: Value of the step at 0.
        scale: Factor of the slopes.
        numbers: Constants of the step.
        bits: Workspace, which holds a chunk of items j. Powers of 2 are made of their bits.
        powers: The same memory as floats.
        result: Shape (n_query, n_items), of zeros.
    """
    n_levels = weights.shape[1] - 1
    is_gradient = upstream.shape[0] > 0
    upstream_k, totals = np.empty_like(items[0]), np.empty(items.shape[1], np.float64)
    factors, grad_j = np.empty_like(powers), np.empty_like(powers)
    for query in range(len(items)):
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        for level in range(1, n_levels + 1):
            first, last = 0, n_levels
            while first <= last and query_weights[level, first] == 0:
                first += 1
            while last > first and query_weights[level, last] == 0:
                last -= 1
            begin, end = starts[query, level], starts[query, level + 1]
            if first > last or begin == end:
                continue
            totals[begin:end] = 0
            if is_gradient:
                for k in range(begin, end):
                    upstream_k[k] = upstream[query, order[query, k]]
            end_j = starts[query, last + 1]
            for begin_j in range(starts[query, first], end_j, len(factors)):
                n_j = min(len(factors), end_j - begin_j)
                for other in range(first, last + 1):
                    begin_other, end_other = starts[query, other] - begin_j, starts[query, other + 1] - begin_j
                    factors[max(begin_other, 0) : max(min(end_other, n_j), 0)] = query_weights[level, other]
                grad_j[:n_j] = 0
                _pairs_of_level(
                    items[query], exponents[query], mantissas[query], upstream_k, begin, end, begin_j, n_j,
                    factors, is_gradient, is_leaky, numbers, bits, powers, totals, grad_j,
                )  # fmt: skip
                if is_gradient:
                    for j in range(n_j):
                        result[query, order[query, begin_j + j]] += scale * factors[j] * grad_j[j]
            for k in range(begin, end):
                if is_gradient:
                    result[query, order[query, k]] -= scale * upstream_k[k] * totals[k]
                else:
                    result[query, order[query, k]] = totals[k] - query_weights[level, level] * at_0


@compiled()
def _pairs_of_level(
    items: Floats,
    exponents: Floats,
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
    bias, shift, limit = (127, 23, 100) if bits.itemsize == 4 else (1023, 52, 1000)
    greatest, int_type = items.dtype.type(limit), bits.dtype.type
    items_j, exponents_j = items[begin_j : begin_j + n_j], exponents[begin_j : begin_j + n_j]
    factors_j, y, grad_j = factors[:n_j], powers[:n_j], grad_j[:n_j]
    k = begin
    while k < end:
        group = int(exponents[k]) // EXPONENTS_AT_ONCE
        middle = items.dtype.type(group * EXPONENTS_AT_ONCE + EXPONENTS_AT_ONCE // 2)
        for j in range(n_j):
            exponent = middle - exponents_j[j]
            exponent = exponent if exponent < greatest else greatest
            exponent = exponent if exponent > -greatest else -greatest
            bits[j] = (int_type(exponent) + bias) << shift
        for j in range(n_j):
            y[j] *= mantissas[begin_j + j]
        while k < end and int(exponents[k]) // EXPONENTS_AT_ONCE == group:
            x = y.dtype.type(math.ldexp(1 / mantissas[k], int(exponents[k] - middle)))
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

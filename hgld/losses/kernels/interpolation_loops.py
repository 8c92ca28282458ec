"""Compiled loops of :mod:`~hgld.losses.kernels.interpolated_sums`: the same sums, query by query.

Both passes walk over the items of a query by score, forward from the highest to the lowest and backward in the other
direction, and keep counts and sums of the items beyond the edge of a step. The smooth part g goes by way of the grid:

- Cubic weights are polynomials of the position u within a cell. So an item adds the powers 1, u, u^2 and u^3 to its
  cell and class, and the four points around a cell get theirs from these sums; likewise, a function that is known at
  points becomes a polynomial for each cell that has a target.
- g is a line beyond c, and 1 up to exp(-REACH) beyond ``REACH`` temperatures. Far below 0, with r = 1/10 as above, it
  is a series of exponentials::

      sigma(n r) = exp(n r) - exp(2 n r) + exp(3 n r) - ...

  So the convolution is a sum over the hundred points in between and running sums over the rest, evaluated only where
  there are targets. This takes the place of the FFT, whose length depends on the whole range of scores.

Per pair, sums differ by exp(-REACH) = 4e-11 and gradients by a few times that over tau, far below the errors of
interpolation. Everything is added up in float64, and rounded to the precision of the scores at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgld.compute.compiled import REORDER_SUMS, compiled

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

#: Temperatures beyond which a sigmoid is 1.
REACH = 24
#: Temperatures below 0 from which on a sigmoid is this many terms of a series; it leaves out exp(-4 (6 + 1)).
FAR, FAR_TERMS = 4, 6


class GridKernels(NamedTuple):
    """The grid, h and h' as the loops take them; cells are the unit of length."""

    lowest: float  #: score at position 0
    width: float  #: score difference of two points
    n_points: int
    first_tap: int  #: difference y - x of the first tap
    taps: Floats  #: shape (2, n_taps): g(y - x) of h and of h'
    tails: Floats  #: shape (2, 2): values just after the last tap, and increments per cell from there on
    far: Floats  #: shape (4, FAR_TERMS): decays per cell, values just before the first tap, factors in h and in h'
    cut: float  #: difference c where the line begins, infinity for none
    numbers: Floats  #: shape (2, 4): own contribution, start, height and slope of the line, of h and of h'
    cubic: Floats  #: shape (4, 4): coefficients of 1, u, u^2 and u^3 of the points around a cell


@compiled()
def forward_rows(
    ascending: Floats,
    order: Ints,
    levels: Ints,
    weights: Floats,
    kernels: GridKernels,
    values: Floats,
    slopes: Floats,
) -> None:
    """Write the sums of h and of h' of every item of level 1 or more.

    Args:
        ascending: Scores of each query in ascending order, shape (n_query, n_items).
        order: Indices of their items, of the same shape.
        levels: int8 levels of these items, of the same shape.
        weights: float64, shape (n_query or 1, L + 1, L + 1).
        kernels: The grid and the kernels.
        values: Sums of h, shape (n_query, n_items), items in their original order, zero where the level is below 1.
        slopes: Likewise sums of h', float64, items in ascending order.
    """
    n_query, n_items = ascending.shape
    n_classes, n_points = weights.shape[1], kernels.n_points
    position = np.empty(n_items, np.float64)
    moments = np.empty((n_classes, 4, n_points), np.float64)
    points = np.empty((n_classes, n_points), np.float64)
    weighted = np.empty(n_points, np.float64)
    functions = np.empty((2, n_points), np.float64)
    polynomials = np.empty((n_classes, 2, 4, n_points), np.float64)
    ones = np.ones(1, np.float64)
    for query in range(n_query):
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        _place(ascending[query], kernels, position)
        moments[:] = 0
        _add_powers(position, levels[query], ones, 0, moments)
        for level in range(n_classes):
            _to_points(moments[level], kernels.cubic, points[level])
        for level in range(1, n_classes):
            _add_classes(points, query_weights[level], weighted)
            _convolve_at_targets(weighted, moments[level, 0], kernels, functions)
            for kernel in range(2):
                _to_polynomials(functions[kernel], kernels.cubic, polynomials[level, kernel])
        _read_sums(
            ascending[query], order[query], position, levels[query], query_weights, polynomials, kernels,
            values[query], slopes[query],
        )  # fmt: skip


@compiled()
def backward_rows(
    ascending: Floats,
    order: Ints,
    levels: Ints,
    weights: Floats,
    kernels: GridKernels,
    upstream: Floats,
    slopes: Floats,
    gradient: Floats,
) -> None:
    """Write the gradient by the scores.

    Args:
        ascending: See :func:`forward_rows`, as for the next ones.
        order: See there.
        levels: See there.
        weights: See there.
        kernels: See there.
        upstream: Gradients of the sums, shape (n_query, n_items).
        slopes: Result of :func:`forward_rows`.
        gradient: Result, of the same shape.
    """
    n_query, n_items = ascending.shape
    n_classes, n_points = weights.shape[1], kernels.n_points
    position = np.empty(n_items, np.float64)
    sorted_upstream = np.empty(n_items, np.float64)
    moments = np.empty((n_classes, 4, n_points), np.float64)
    points = np.empty((n_classes, n_points), np.float64)
    functions = np.empty((n_classes, n_points), np.float64)
    combined = np.empty(n_points, np.float64)
    polynomials = np.empty((n_classes, 4, n_points), np.float64)
    for query in range(n_query):
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        _place(ascending[query], kernels, position)
        for place in range(n_items):
            sorted_upstream[place] = upstream[query, order[query, place]]
        moments[:] = 0
        _add_powers(position, levels[query], sorted_upstream, 1, moments)
        for level in range(1, n_classes):
            _to_points(moments[level], kernels.cubic, points[level])
            _convolve_from_targets(points[level], kernels, functions[level])
        functions[0] = 0
        for level in range(n_classes):
            _add_classes(functions, query_weights[:, level], combined)
            _to_polynomials(combined, kernels.cubic, polynomials[level])
        _read_gradient(
            order[query], position, levels[query], sorted_upstream, query_weights, polynomials, kernels,
            slopes[query], gradient[query],
        )  # fmt: skip


@compiled()
def _place(ascending: Floats, kernels: GridKernels, position: Floats) -> None:
    """Write the positions of the sorted items on the grid, in cells."""
    for place in range(len(ascending)):
        position[place] = (np.float64(ascending[place]) - kernels.lowest) / kernels.width


@compiled()
def _add_powers(position: Floats, levels: Ints, values: Floats, least: int, moments: Floats) -> None:
    """Add a value times 1, u, u^2 and u^3 to the cell of each item of at least some level; one value is for all."""
    for place in range(len(position)):
        level = levels[place]
        if level >= least:
            value = values[place if len(values) > 1 else 0]
            cell = np.int64(position[place])
            u = position[place] - cell
            moments[level, 0, cell] += value
            moments[level, 1, cell] += value * u
            moments[level, 2, cell] += value * u * u
            moments[level, 3, cell] += value * u * u * u


@compiled(fastmath=REORDER_SUMS)
def _to_points(moments: Floats, cubic: Floats, points: Floats) -> None:
    """Spread the powers of cells to the four points around each."""
    ones, linear, square, cube = moments[0], moments[1], moments[2], moments[3]
    n_cells = len(points) - 3
    points[:] = 0
    for shift in range(4):
        c = cubic[shift]
        shifted = points[shift:]
        for cell in range(n_cells):
            shifted[cell] += c[0] * ones[cell] + c[1] * linear[cell] + c[2] * square[cell] + c[3] * cube[cell]


@compiled(fastmath=REORDER_SUMS)
def _add_classes(points: Floats, weights: Floats, result: Floats) -> None:
    """Write the weighted sum of the rows of ``points``."""
    result[:] = 0
    for row in range(len(weights)):
        weight = weights[row]
        if weight != 0:
            row_points = points[row]
            for point in range(len(result)):
                result[point] += weight * row_points[point]


@compiled(fastmath=REORDER_SUMS)
def _convolve_at_targets(values: Floats, n_targets: Floats, kernels: GridKernels, functions: Floats) -> None:
    """Write the sum over points y of g(y - x) times their values to the points x around cells that have targets."""
    first_tap, taps, tails, far = kernels.first_tap, kernels.taps, kernels.tails, kernels.far
    n_points, end_tap = len(values), first_tap + taps.shape[1]
    beyond, distances = 0.0, 0.0  # sums of the values beyond the taps, and of values times the cells beyond
    for x in range(n_points - 1, -1, -1):
        distances += beyond
        if x + end_tap < n_points:
            beyond += values[x + end_tap]
        functions[0, x] = tails[0, 0] * beyond + tails[0, 1] * distances
        functions[1, x] = tails[1, 0] * beyond + tails[1, 1] * distances
    below = np.zeros(far.shape[1], np.float64)  # sums of values times exponentials, before the taps
    for x in range(n_points):
        if x + first_tap > 0:
            value = values[x + first_tap - 1]
            for term in range(len(below)):
                below[term] = far[0, term] * below[term] + far[1, term] * value
        needed = False
        for cell in range(max(0, x - 3), x + 1):
            needed |= n_targets[cell] != 0
        if not needed:
            continue
        sum_h, sum_slope = 0.0, 0.0
        for term in range(len(below)):
            sum_h += far[2, term] * below[term]
            sum_slope += far[3, term] * below[term]
        low, high = max(0, x + first_tap), min(n_points, x + end_tap)
        near = values[low:high]
        taps_h = taps[0, low - x - first_tap : high - x - first_tap]
        taps_slope = taps[1, low - x - first_tap : high - x - first_tap]
        for i in range(len(near)):
            sum_h += near[i] * taps_h[i]
            sum_slope += near[i] * taps_slope[i]
        functions[0, x] += sum_h
        functions[1, x] += sum_slope


@compiled(fastmath=REORDER_SUMS)
def _convolve_from_targets(values: Floats, kernels: GridKernels, result: Floats) -> None:
    """Write the sum over points x of the derivative's g(y - x) times their values to all points y."""
    first_tap, taps, tail, far = kernels.first_tap, kernels.taps[1], kernels.tails[1], kernels.far
    n_points, end_tap = len(values), first_tap + len(taps)
    beyond, distances = 0.0, 0.0
    for y in range(n_points):
        distances += beyond
        if y - end_tap >= 0:
            beyond += values[y - end_tap]
        result[y] = tail[0] * beyond + tail[1] * distances
    below = np.zeros(far.shape[1], np.float64)
    for y in range(n_points - 1, -1, -1):
        if y - first_tap < n_points - 1:
            value = values[y - first_tap + 1]
            for term in range(len(below)):
                below[term] = far[0, term] * below[term] + far[1, term] * value
        total = 0.0
        for term in range(len(below)):
            total += far[3, term] * below[term]
        result[y] += total
    for x in range(n_points):
        value = values[x]
        if value != 0:
            low, high = max(0, x + first_tap), min(n_points, x + end_tap)
            near = result[low:high]
            near_taps = taps[low - x - first_tap : high - x - first_tap]
            for i in range(len(near)):
                near[i] += value * near_taps[i]


@compiled(fastmath=REORDER_SUMS)
def _to_polynomials(function: Floats, cubic: Floats, polynomials: Floats) -> None:
    """Write the coefficients of 1, u, u^2 and u^3 of a function within each cell."""
    n_cells = len(function) - 3
    before, first, second, after = function, function[1:], function[2:], function[3:]
    for power in range(4):
        c = cubic[:, power]
        result = polynomials[power]
        for cell in range(n_cells):
            result[cell] = c[0] * before[cell] + c[1] * first[cell] + c[2] * second[cell] + c[3] * after[cell]


@compiled()
def _read_sums(
    ascending: Floats,
    order: Ints,
    position: Floats,
    levels: Ints,
    weights: Floats,
    polynomials: Floats,
    kernels: GridKernels,
    values: Floats,
    slopes: Floats,
) -> None:
    """Write the sums of the targets of a query, from the highest score to the lowest."""
    n_classes, cut = len(weights), kernels.cut
    own, start, height, line = kernels.numbers[0]
    height_of_slope, line_of_slope = kernels.numbers[1, 2], kernels.numbers[1, 3]
    line, line_of_slope = line * kernels.width, line_of_slope * kernels.width
    not_below = np.zeros(n_classes, np.float64)
    # weights of the items above the edge, for each level of the target, and sums of weights times positions
    above, positions_above = np.zeros(n_classes, np.float64), np.zeros(n_classes, np.float64)
    first_above = end = len(order)
    while end > 0:
        begin = end - 1
        while start != 0 and begin > 0 and ascending[begin - 1] == ascending[end - 1]:
            begin -= 1
        for place in range(begin, end):
            if levels[place] >= 0:
                not_below[levels[place]] += 1
        edge = position[begin] + cut
        while position[first_above - 1] > edge:
            first_above -= 1
            other = levels[first_above]
            if other >= 0:
                for level in range(1, n_classes):
                    above[level] += weights[level, other]
                    positions_above[level] += weights[level, other] * position[first_above]
        for place in range(begin, end):
            level = levels[place]
            if level < 1:
                continue
            cell = np.int64(position[place])
            u = position[place] - cell
            p, q = polynomials[level, 0], polynomials[level, 1]
            value = p[0, cell] + u * (p[1, cell] + u * (p[2, cell] + u * p[3, cell])) - own * weights[level, level]
            slope = q[0, cell] + u * (q[1, cell] + u * (q[2, cell] + u * q[3, cell]))
            if start != 0:
                for other in range(n_classes):
                    value += start * weights[level, other] * not_below[other]
            if first_above < len(order):
                excess = positions_above[level] - above[level] * edge
                value += height * above[level] + line * excess
                slope += height_of_slope * above[level] + line_of_slope * excess
            values[order[place]] = value
            slopes[place] = slope
        end = begin


@compiled()
def _read_gradient(
    order: Ints,
    position: Floats,
    levels: Ints,
    upstream: Floats,
    weights: Floats,
    polynomials: Floats,
    kernels: GridKernels,
    slopes: Floats,
    gradient: Floats,
) -> None:
    """Write the gradient of a query's items, from the lowest score to the highest."""
    n_classes, cut = len(weights), kernels.cut
    height, line = kernels.numbers[1, 2], kernels.numbers[1, 3] * kernels.width
    # weighted gradients of the targets below the edge, for each level of the source, and these times the edges
    below, edges_below = np.zeros(n_classes, np.float64), np.zeros(n_classes, np.float64)
    n_below = 0
    for place in range(len(order)):
        level = levels[place]
        if level < 0:
            gradient[order[place]] = 0
            continue
        here = position[place]
        while here > position[n_below] + cut:
            target = levels[n_below]
            if target > 0:
                for source in range(n_classes):
                    weighted = weights[target, source] * upstream[n_below]
                    below[source] += weighted
                    edges_below[source] += weighted * (position[n_below] + cut)
            n_below += 1
        cell = np.int64(here)
        u = here - cell
        p = polynomials[level]
        total = p[0, cell] + u * (p[1, cell] + u * (p[2, cell] + u * p[3, cell]))
        total += height * below[level] + line * (here * below[level] - edges_below[level])
        if level > 0:
            total -= upstream[place] * slopes[place]
        gradient[order[place]] = total

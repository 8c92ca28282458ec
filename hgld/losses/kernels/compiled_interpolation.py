"""Compiled loops of :mod:`~hgld.losses.kernels.interpolated_sums`: the same sums, query by query.

Both passes walk over the items of a query by score, forward from the highest to the lowest and backward in the other
direction, and keep counts and sums of the items beyond the edge of a step. The smooth part g goes by way of the grid:

- Cubic weights are polynomials of the position u within a cell. So an item adds the powers 1, u, u^2 and u^3 to its
  cell and class, and the four points around a cell get theirs from these sums; likewise, a function that is known at
  points becomes a polynomial for each cell that has a target.
- g is 0 or 1 up to exp(-REACH) beyond ``REACH`` temperatures, and a line beyond c. So the convolution is a sum over a
  few hundred points and a running sum over the rest, evaluated only where there are targets. This takes the place of
  the FFT, whose length depends on the whole range of scores.

Per pair, sums differ by exp(-REACH) = 4e-11 and gradients by that over tau, far below the errors of interpolation.
Everything is added up in float64, and rounded to the precision of the scores at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgld.compute.compiled import REORDER_SUMS, compiled

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

#: Temperatures beyond which a sigmoid is 0 or 1.
REACH = 24


class GridKernels(NamedTuple):
    """The grid, h and h' as the loops take them; cells are the unit of length."""

    lowest: float  #: score at position 0
    width: float  #: score difference of two points
    n_points: int
    first_tap: int  #: difference y - x of the first tap
    taps: Floats  #: shape (2, n_taps): g(y - x) of h and of h'
    tails: Floats  #: shape (2, 2): values just after the last tap, and increments per cell from there on
    cut: float  #: difference c where the line begins, infinity for none
    numbers: Floats  #: shape (2, 4): own contribution, start, height and slope of the line, of h and of h'
    cubic: Floats  #: shape (4, 4): coefficients of 1, u, u^2 and u^3 of the points around a cell


@compiled()
def forward_rows(
    ascending: Floats,
    order: Ints,
    levels: Ints,
    weights: Floats,
    lowest: float,
    width: float,
    n_points: int,
    first_tap: int,
    taps: Floats,
    tails: Floats,
    cut: float,
    numbers: Floats,
    cubic: Floats,
    values: Floats,
    slopes: Floats,
) -> None:
    """Write the sums of h and of h' of every item of level 1 or more.

    Args:
        ascending: Scores of each query in ascending order, shape (n_query, n_items).
        order: Indices of their items, of the same shape.
        levels: int8 levels of these items, of the same shape.
        weights: float64, shape (n_query or 1, L + 1, L + 1).
        lowest: See :class:`GridKernels`, as for the next ones.
        width: See there.
        n_points: See there.
        first_tap: See there.
        taps: See there.
        tails: See there.
        cut: See there.
        numbers: See there.
        cubic: See there.
        values: Sums of h, shape (n_query, n_items), items in their original order, zero where the level is below 1.
        slopes: Likewise sums of h', float64, items in ascending order.
    """
    n_query, n_items = ascending.shape
    n_classes = weights.shape[1]
    position = np.empty(n_items, np.float64)
    moments = np.empty((n_classes, n_points, 4), np.float64)
    points = np.empty((n_classes, n_points), np.float64)
    weighted = np.empty(n_points, np.float64)
    functions = np.empty((2, n_points), np.float64)
    polynomials = np.empty((n_classes, n_points, 8), np.float64)
    ones = np.ones(1, np.float64)
    for query in range(n_query):
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        _place(ascending[query], lowest, width, position)
        moments[:] = 0
        _add_powers(position, levels[query], ones, 0, moments)
        for level in range(n_classes):
            _to_points(moments[level], cubic, points[level])
        for level in range(1, n_classes):
            _add_classes(points, query_weights[level], weighted)
            _convolve_at_targets(weighted, moments[level], first_tap, taps, tails, functions)
            _to_polynomials(functions, moments[level], cubic, polynomials[level])
        _read_sums(
            ascending[query], order[query], position, levels[query], query_weights, polynomials, width, cut, numbers,
            values[query], slopes[query],
        )  # fmt: skip


@compiled()
def backward_rows(
    ascending: Floats,
    order: Ints,
    levels: Ints,
    weights: Floats,
    lowest: float,
    width: float,
    n_points: int,
    first_tap: int,
    taps: Floats,
    tails: Floats,
    cut: float,
    numbers: Floats,
    cubic: Floats,
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
        lowest: See there.
        width: See there.
        n_points: See there.
        first_tap: See there.
        taps: See there.
        tails: See there.
        cut: See there.
        numbers: See there.
        cubic: See there.
        upstream: Gradients of the sums, shape (n_query, n_items).
        slopes: Result of :func:`forward_rows`.
        gradient: Result, of the same shape.
    """
    n_query, n_items = ascending.shape
    n_classes = weights.shape[1]
    position = np.empty(n_items, np.float64)
    sorted_upstream = np.empty(n_items, np.float64)
    moments = np.empty((n_classes, n_points, 4), np.float64)
    points = np.empty((n_classes, n_points), np.float64)
    functions = np.empty((n_classes, n_points), np.float64)
    combined = np.empty((1, n_points), np.float64)
    everywhere = np.ones((n_points, 1), np.float64)
    polynomials = np.empty((n_classes, n_points, 4), np.float64)
    for query in range(n_query):
        query_weights = weights[query if weights.shape[0] > 1 else 0]
        _place(ascending[query], lowest, width, position)
        for place in range(n_items):
            sorted_upstream[place] = upstream[query, order[query, place]]
        moments[:] = 0
        _add_powers(position, levels[query], sorted_upstream, 1, moments)
        for level in range(1, n_classes):
            _to_points(moments[level], cubic, points[level])
            _convolve_from_targets(points[level], first_tap, taps[1], tails[1], functions[level])
        functions[0] = 0
        for level in range(n_classes):
            _add_classes(functions, query_weights[:, level], combined[0])
            _to_polynomials(combined, everywhere, cubic, polynomials[level])
        _read_gradient(
            order[query], position, levels[query], sorted_upstream, query_weights, polynomials, width, cut,
            numbers[1], slopes[query], gradient[query],
        )  # fmt: skip


@compiled()
def _place(ascending: Floats, lowest: float, width: float, position: Floats) -> None:
    """Write the positions of the sorted items on the grid, in cells."""
    for place in range(len(ascending)):
        position[place] = (np.float64(ascending[place]) - lowest) / width


@compiled()
def _add_powers(position: Floats, levels: Ints, values: Floats, least: int, moments: Floats) -> None:
    """Add a value times 1, u, u^2 and u^3 to the cell of each item of at least some level; one value is for all."""
    for place in range(len(position)):
        level = levels[place]
        if level >= least:
            value = values[place if len(values) > 1 else 0]
            cell = np.int64(position[place])
            u = position[place] - cell
            sums = moments[level, cell]
            sums[0] += value
            sums[1] += value * u
            sums[2] += value * u * u
            sums[3] += value * u * u * u


@compiled(fastmath=REORDER_SUMS)
def _to_points(moments: Floats, cubic: Floats, points: Floats) -> None:
    """Spread the powers of cells to the four points around each."""
    points[:] = 0
    for cell in range(len(points) - 3):
        m = moments[cell]
        if m[0] != 0 or m[1] != 0 or m[2] != 0 or m[3] != 0:
            for shift in range(4):
                c = cubic[shift]
                points[cell + shift] += c[0] * m[0] + c[1] * m[1] + c[2] * m[2] + c[3] * m[3]


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
def _convolve_at_targets(
    values: Floats, moments: Floats, first_tap: int, taps: Floats, tails: Floats, functions: Floats
) -> None:
    """Write the sum over points y of g(y - x) times their values to the points x around cells that have items."""
    n_points, n_taps = len(values), taps.shape[1]
    begin, end = 0, n_points
    while begin < end and values[begin] == 0:
        begin += 1
    while end > begin and values[end - 1] == 0:
        end -= 1
    beyond, distances = 0.0, 0.0  # sums of the values beyond the taps, and of values times the cells beyond
    for x in range(n_points - 1, -1, -1):
        distances += beyond
        if x + first_tap + n_taps < n_points:
            beyond += values[x + first_tap + n_taps]
        needed = False
        for cell in range(max(0, x - 3), x + 1):
            needed |= moments[cell, 0] != 0
        if not needed:
            continue
        sum_h, sum_slope = (
            tails[0, 0] * beyond + tails[0, 1] * distances,
            tails[1, 0] * beyond + tails[1, 1] * distances,
        )
        low, high = max(begin, x + first_tap), min(end, x + first_tap + n_taps)
        if low < high:
            near = values[low:high]
            taps_h = taps[0, low - x - first_tap : high - x - first_tap]
            taps_slope = taps[1, low - x - first_tap : high - x - first_tap]
            for i in range(len(near)):
                sum_h += near[i] * taps_h[i]
                sum_slope += near[i] * taps_slope[i]
        functions[0, x] = sum_h
        functions[1, x] = sum_slope


@compiled(fastmath=REORDER_SUMS)
def _convolve_from_targets(values: Floats, first_tap: int, taps: Floats, tail: Floats, result: Floats) -> None:
    """Write the sum over points x of g(y - x) times their values to all points y."""
    n_points, n_taps = len(values), len(taps)
    beyond, distances = 0.0, 0.0
    for y in range(n_points):
        distances += beyond
        if 0 <= y - first_tap - n_taps < n_points:
            beyond += values[y - first_tap - n_taps]
        result[y] = tail[0] * beyond + tail[1] * distances
    for x in range(n_points):
        value = values[x]
        if value != 0:
            low, high = max(0, x + first_tap), min(n_points, x + first_tap + n_taps)
            near = result[low:high]
            near_taps = taps[low - x - first_tap : high - x - first_tap]
            for i in range(len(near)):
                near[i] += value * near_taps[i]


@compiled(fastmath=REORDER_SUMS)
def _to_polynomials(functions: Floats, moments: Floats, cubic: Floats, polynomials: Floats) -> None:
    """Write the coefficients of functions within each cell that has items, those of one function after the other."""
    for cell in range(functions.shape[1] - 3):
        if moments[cell, 0] != 0:
            for row in range(len(functions)):
                f = functions[row, cell : cell + 4]
                for power in range(4):
                    polynomials[cell, 4 * row + power] = (
                        cubic[0, power] * f[0]
                        + cubic[1, power] * f[1]
                        + cubic[2, power] * f[2]
                        + cubic[3, power] * f[3]
                    )


@compiled()
def _read_sums(
    ascending: Floats,
    order: Ints,
    position: Floats,
    levels: Ints,
    weights: Floats,
    polynomials: Floats,
    width: float,
    cut: float,
    numbers: Floats,
    values: Floats,
    slopes: Floats,
) -> None:
    """Write the sums of the targets of a query, from the highest score to the lowest."""
    n_classes = len(weights)
    own, start, height, line = numbers[0]
    height_of_slope, line_of_slope = numbers[1, 2], numbers[1, 3]
    line, line_of_slope = line * width, line_of_slope * width
    not_below, above = np.zeros(n_classes, np.float64), np.zeros(n_classes, np.float64)
    positions_above = np.zeros(n_classes, np.float64)
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
            if levels[first_above] >= 0:
                above[levels[first_above]] += 1
                positions_above[levels[first_above]] += position[first_above]
        for place in range(begin, end):
            level = levels[place]
            if level < 1:
                continue
            cell = np.int64(position[place])
            u = position[place] - cell
            p = polynomials[level, cell]
            value = p[0] + u * (p[1] + u * (p[2] + u * p[3])) - own * weights[level, level]
            slope = p[4] + u * (p[5] + u * (p[6] + u * p[7]))
            if start != 0:
                for other in range(n_classes):
                    value += start * weights[level, other] * not_below[other]
            if first_above < len(order):
                n_above, excess = 0.0, 0.0
                for other in range(n_classes):
                    n_above += weights[level, other] * above[other]
                    excess += weights[level, other] * (positions_above[other] - above[other] * edge)
                value += height * n_above + line * excess
                slope += height_of_slope * n_above + line_of_slope * excess
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
    width: float,
    cut: float,
    numbers: Floats,
    slopes: Floats,
    gradient: Floats,
) -> None:
    """Write the gradient of a query's items, from the lowest score to the highest."""
    n_classes = len(weights)
    height, line = numbers[2], numbers[3] * width
    below, edges_below = np.zeros(n_classes, np.float64), np.zeros(n_classes, np.float64)
    n_below = 0
    for place in range(len(order)):
        level = levels[place]
        if level < 0:
            gradient[order[place]] = 0
            continue
        here = position[place]
        while here > position[n_below] + cut:
            if levels[n_below] > 0:
                below[levels[n_below]] += upstream[n_below]
                edges_below[levels[n_below]] += upstream[n_below] * (position[n_below] + cut)
            n_below += 1
        cell = np.int64(here)
        u = here - cell
        p = polynomials[level, cell]
        total = p[0] + u * (p[1] + u * (p[2] + u * p[3]))
        if n_below > 0:
            for other in range(1, n_classes):
                beyond = height * below[other] + line * (here * below[other] - edges_below[other])
                total += weights[other, level] * beyond
        if level > 0:
            total -= upstream[place] * slopes[place]
        gradient[order[place]] = total

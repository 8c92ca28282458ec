"""The gradient of t-SNE by the algorithm of Barnes and Hut, compiled: scikit-learn's, to the last bit, in less time.

The repulsion between all pairs of n points is approximated by a quadtree, as in van der Maaten, "Accelerating t-SNE
using Tree-Based Algorithms" (JMLR 2014), section 4: a cell that is small for its distance stands for its points.

scikit-learn walks its tree by recursion. Here the cells are copied into the order in which that walk meets them, each
with the number of the cell that comes after all cells within it. The walk is then one loop over small arrays, forward
only. Every operation is that of scikit-learn (version 1.9) in its order and precision, float32 with float64 in the
same places, so that the results are equal to the last bit. Points are taken one after the other, on one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgld.compute.compiled import compiled

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

#: Coordinates that differ by no more are those of one point.
_EPSILON = np.float32(1e-6)
_TINY = np.float32(np.finfo(np.float32).tiny)
_EPSILON_64 = np.float32(np.finfo(np.float64).eps)
#: A cell stands for its points if its width is less than half its distance; squared.
_SQUARED_ANGLE = np.float32(0.25)
#: Room for cells that is enough for most trees.
_CELLS_PER_POINT = 4
#: First child of a cell without children.
_LEAF = -2
_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1), np.float32(0)


def barnes_hut_gradient(
    similarities: Floats, neighbours: Integers, first: Integers, points: Floats, with_error: bool
) -> tuple[Floats, float]:
    """Return a quarter of the gradient of the divergence between similarities and points, and the divergence.

    Args:
        similarities: Joint probabilities p_ij of neighbours, float32, shape (n_pairs,): the values of a CSR matrix.
        neighbours: Index j of each, int64, shape (n_pairs,).
        first: Place of the first neighbour of each point, int64, shape (n + 1,).
        points: Positions, float32, shape (n, 2).
        with_error: Whether the divergence is needed; it is 0 otherwise.

    Returns:
        Array of float32, shape (n, 2), and the Kullback-Leibler divergence.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    high = np.maximum(high * (1.0 + 1e-3 * np.sign(high)), high + 1e-3)
    repulsion = np.empty_like(points)
    capacity = _CELLS_PER_POINT * len(points) + 10
    while not len((tree := _build_tree(points, low, high, capacity))[0]):
        capacity *= 2
    total = _repel(points, *tree, repulsion)
    gradient = np.empty_like(points)
    error = _attract(similarities, neighbours, first, points, repulsion, total, with_error, gradient)
    return gradient, error


@compiled()
def _build_tree(points: Floats, low: Floats, high: Floats, capacity: int) -> tuple[Floats, Integers]:
    """Return the quadtree of points in the order of a depth-first walk.

    Args:
        points: float32, shape (n, 2).
        low: Lowest coordinates, float32, shape (2,).
        high: Coordinates above the highest, float32, shape (2,).
        capacity: Maximum number of cells.

    Returns:
        Centre of mass, squared width (-1 for a leaf) and number of points of each cell (float32, shape (n_cells, 4)),
        and the number of the first cell that is not within each (int64, shape (n_cells,)); no cells if there are
        more than ``capacity``.
    """
    box = np.empty((capacity, 6), np.float32)  # low, high, and middle of both coordinates
    mass = np.empty((capacity, 2), np.float32)
    width = np.zeros(capacity, np.float32)
    size = np.zeros(capacity, np.int64)
    children = np.full((capacity, 4), -1, np.int64)  # the first is -2 in a leaf
    for axis in range(2):
        box[0, axis], box[0, 2 + axis] = low[axis], high[axis]
        box[0, 4 + axis] = (high[axis] + low[axis]) * _HALF
        extent = high[axis] - low[axis]
        width[0] = max(width[0], extent * extent)
    mass[0, 0], mass[0, 1], size[0], children[0, 0] = points[0, 0], points[0, 1], 1, _LEAF
    n_cells = 1
    for row in range(1, len(points)):
        x, y = points[row, 0], points[row, 1]
        cell = 0
        while True:
            if n_cells + 2 > capacity:
                return np.empty((0, 4), np.float32), np.empty(0, np.int64)
            if children[cell, 0] == _LEAF:
                if abs(x - mass[cell, 0]) <= _EPSILON and abs(y - mass[cell, 1]) <= _EPSILON:
                    size[cell] += 1
                    break
                # Split the leaf; again, as long as both points are in the same quarter.
                children[cell, 0] = -1
                _add_child(box, mass, width, size, children, cell, n_cells, mass[cell, 0], mass[cell, 1], size[cell])
                n_cells += 1
            before, after = np.float32(size[cell]), np.float32(size[cell] + 1)
            mass[cell, 0] = (before * mass[cell, 0] + x) / after
            mass[cell, 1] = (before * mass[cell, 1] + y) / after
            size[cell] += 1
            child = children[cell, 2 * (x >= box[cell, 4]) + (y >= box[cell, 5])]
            if child == -1:
                _add_child(box, mass, width, size, children, cell, n_cells, x, y, 1)
                n_cells += 1
                break
            cell = child
    return _in_walking_order(n_cells, mass, width, size, children)


@compiled()
def _add_child(
    box: Floats,
    mass: Floats,
    width: Floats,
    size: Integers,
    children: Integers,
    cell: int,
    child: int,
    x: np.float32,
    y: np.float32,
    n_points: int | np.int64,
) -> None:
    """Make ``child`` the quarter of ``cell`` that holds (x, y)."""
    quarter = 0
    for axis in range(2):
        coordinate = x if axis == 0 else y
        quarter *= 2
        if coordinate >= box[cell, 4 + axis]:
            quarter += 1
            box[child, axis], box[child, 2 + axis] = box[cell, 4 + axis], box[cell, 2 + axis]
        else:
            box[child, axis], box[child, 2 + axis] = box[cell, axis], box[cell, 4 + axis]
        box[child, 4 + axis] = (box[child, axis] + box[child, 2 + axis]) * _HALF
        extent = box[child, 2 + axis] - box[child, axis]
        width[child] = max(width[child], extent * extent)
        mass[child, axis] = coordinate
    size[child] = n_points
    children[cell, quarter] = child
    children[child, 0] = _LEAF


@compiled()
def _in_walking_order(
    n_cells: int, mass: Floats, width: Floats, size: Integers, children: Integers
) -> tuple[Floats, Integers]:
    """Copy the cells into the order of a depth-first walk; see :func:`_build_tree`."""
    cells = np.empty((n_cells, 4), np.float32)
    beyond = np.empty(n_cells, np.int64)
    waiting = np.empty(n_cells + 1, np.int64)
    opened = np.empty(n_cells + 1, np.int64)
    waiting[0], n_waiting, n_opened = 0, 1, 0
    place = 0
    while n_waiting:
        n_waiting -= 1
        cell = waiting[n_waiting]
        if cell < 0:  # all cells within the cell that was opened last have their places
            n_opened -= 1
            beyond[opened[n_opened]] = place
            continue
        cells[place, 0], cells[place, 1], cells[place, 3] = mass[cell, 0], mass[cell, 1], np.float32(size[cell])
        if children[cell, 0] == _LEAF:
            cells[place, 2] = -_ONE
            beyond[place] = place + 1
        else:
            cells[place, 2] = width[cell]
            opened[n_opened] = place
            n_opened += 1
            waiting[n_waiting] = -1
            n_waiting += 1
            for quarter in range(3, -1, -1):
                if children[cell, quarter] != -1:
                    waiting[n_waiting] = children[cell, quarter]
                    n_waiting += 1
        place += 1
    return cells, beyond


@compiled()
def _repel(points: Floats, cells: Floats, beyond: Integers, repulsion: Floats) -> float:
    """Write the repulsive force on each point; return the sum over pairs of 1 / (1 + distance²), its normaliser."""
    total: float = 0.0
    n_cells = len(cells)
    for row in range(len(points)):
        x, y = points[row, 0], points[row, 1]
        force_x, force_y = _ZERO, _ZERO
        cell = 0
        while cell < n_cells:
            dx, dy = x - cells[cell, 0], y - cells[cell, 1]
            squared = dx * dx + dy * dy
            width = cells[cell, 2]
            # The angle is a power of two, so this is the same as width / squared < angle, which takes longer.
            if width >= _SQUARED_ANGLE * squared:
                cell += 1
                continue
            if width >= _ZERO or abs(dx) > _EPSILON or abs(dy) > _EPSILON:  # not the point itself
                kernel = np.float64(_ONE / (_ONE + squared))
                weighted = np.float64(cells[cell, 3]) * kernel
                total += weighted
                factor = np.float32(weighted * kernel)
                force_x += factor * dx
                force_y += factor * dy
            cell = beyond[cell]
        repulsion[row, 0], repulsion[row, 1] = force_x, force_y
    smallest: float = np.float64(_EPSILON_64)
    return max(total, smallest)


@compiled()
def _attract(
    similarities: Floats,
    neighbours: Integers,
    first: Integers,
    points: Floats,
    repulsion: Floats,
    total: float,
    with_error: bool,
    gradient: Floats,
) -> float:
    """Write the gradient: the attraction by neighbours less the normalised repulsion; return the divergence."""
    error: Any = _ZERO
    for row in range(len(points)):
        force_x, force_y = _ZERO, _ZERO
        for pair in range(first[row], first[row + 1]):
            other, similarity = neighbours[pair], similarities[pair]
            dx, dy = points[row, 0] - points[other, 0], points[row, 1] - points[other, 1]
            kernel = _ONE / (_ONE + (dx * dx + dy * dy))
            if with_error:
                share = np.float32(np.float64(kernel) / total)
                ratio = max(similarity, _TINY) / max(share, _TINY)
                error = np.float32(np.float64(error) + np.float64(similarity) * math.log(np.float64(ratio)))
            factor = similarity * kernel
            force_x += factor * dx
            force_y += factor * dy
        gradient[row, 0] = np.float32(np.float64(force_x) - np.float64(repulsion[row, 0]) / total)
        gradient[row, 1] = np.float32(np.float64(force_y) - np.float64(repulsion[row, 1]) / total)
    divergence: float = error
    return divergence

"""Interpolated sums by operations of torch, on any device; see :mod:`~hgld.losses.kernels.interpolated_sums`.

Weights of points are in the precision of the scores, as their rounding is relative to each pair; functions on the
grid and cumulative sums are in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.compute.compiled import compiled, is_compiled
from hgld.compute.threads import parallel_map
from hgld.losses.kernels.derivatives import first_derivative_only
from hgld.losses.kernels.interpolation_grid import Grid, Kernel, kernels_of
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.steps import Sigmoid, SupRankStep

#: Items and cells that are processed at once.
_BLOCK = {"cpu": 2**17, "cuda": 2**25}


class Interpolation(torch.autograd.Function):
    """The sums of :func:`~hgld.losses.kernels.interpolated_sums.interpolated_sums`, some queries at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        ranking: Ranking,
        weights: torch.Tensor,
        step: Sigmoid | SupRankStep,
        grid: Grid,
    ) -> torch.Tensor:
        """Return the sums.

        Args:
            ctx: Context of autograd.
            scores: float32 or float64 tensor of shape (n_query, n_items).
            ranking: Ranking of these scores and their levels.
            weights: See :func:`~hgld.losses.kernels.step_sums.step_sums`.
            step: Step of the sums.
            grid: Grid over the range of the scores.
        """
        n_queries, n_items = scores.shape
        size = max(1, _BLOCK[scores.device.type] // (n_items + grid.n_points))
        weights = weights.to(torch.float64).expand(n_queries, -1, -1)
        kernels = kernels_of(step)[: 1 + ctx.needs_input_grad[0]]
        spectra = [grid.spectrum(kernel.smooth) for kernel in kernels]
        results = scores.new_empty(len(kernels), n_queries, n_items)

        def work(begin: int) -> _Items:
            block = slice(begin, begin + size)
            parts = (ranking.ascending[block], ranking.order[block], ranking.levels[block])
            items = _Items(*parts, weights[block], kernels[0].cut, grid)
            for result, sums in zip(results, items.sums(kernels, spectra), strict=True):
                result[block] = sums
            return items

        items = parallel_map(work, range(0, n_queries, size), scores.device)
        if ctx.needs_input_grad[0]:
            ctx.items, ctx.size, ctx.kernel, ctx.spectrum, ctx.slopes = (
                items,
                size,
                kernels[1],
                spectra[1],
                results[1],
            )
        return results[0]

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient by the scores."""
        grad_scores = -upstream * ctx.slopes

        def work(block: tuple[_Items, torch.Tensor, torch.Tensor]) -> None:
            items, grad_block, upstream_block = block
            grad_block += items.gradient(upstream_block, ctx.kernel, ctx.spectrum)

        blocks = zip(ctx.items, torch.split(grad_scores, ctx.size), torch.split(upstream, ctx.size), strict=True)
        parallel_map(work, blocks, upstream.device)
        return grad_scores, None, None, None, None


def _cubic(u: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the weights of the points -1, 0, 1 and 2 for cubic interpolation at ``u``."""
    square = u * u
    last = (square - 1).mul_(u).div_(6)
    first = (square - u).div_(2).sub_(last)
    third = (square + u).div_(2).sub_(last, alpha=3)
    return first, square.neg_().add_(1).add_(last, alpha=3), third, last


def _to_points(cells: torch.Tensor, weights: Sequence[torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    """Spread values at items to the four points around them.

    Args:
        cells: int64 tensor: the first of the four points around each item.
        weights: What each item adds to each of its points, four tensors of the same shape.
        shape: Shape of the points, whose index in this order is that of the cells.

    Returns:
        float64 tensor of this shape.
    """
    points = weights[0].new_zeros(shape)
    for shift, values in enumerate(weights):
        points.view(-1)[shift:].index_add_(0, cells.view(-1), values.view(-1))
    return points.to(torch.float64)


def _from_points(cells: torch.Tensor, weights: Sequence[torch.Tensor], points: torch.Tensor) -> torch.Tensor:
    """Interpolate values at points to items: the transpose of :func:`_to_points`."""
    values, points = torch.zeros_like(weights[0]), points.to(weights[0].dtype).reshape(-1)
    for shift, weight in enumerate(weights):
        values.view(-1).addcmul_(weight.view(-1), points[shift:].index_select(0, cells.view(-1)))
    return values


class _Items:
    """The items of some queries by ascending score, on a grid of points for each query and class.

    Classes are levels plus 1: class 0 is excluded from the retrieval set and has no weight.

    Args:
        ascending: Float tensor of shape (R, N).
        order: int64 tensor of shape (R, N).
        levels: int16 tensor of shape (R, N).
        weights: float64 tensor of shape (R, L + 1, L + 1).
        cut: Difference c where the line of the kernels begins.
        grid: Grid of each query.
    """

    def __init__(
        self,
        ascending: torch.Tensor,
        order: torch.Tensor,
        levels: torch.Tensor,
        weights: torch.Tensor,
        cut: float,
        grid: Grid,
    ) -> None:
        self._order, self._grid, self._cut = order, grid, cut / grid.width
        self._position = (ascending.to(torch.float64) - grid.lowest).div_(grid.width)
        self._classes = levels.long().add_(1)
        self._dtype = ascending.dtype
        #: w[a, b] by level a from 1 on, query and class b: (L, R, L + 2).
        self._weights = torch.nn.functional.pad(weights[:, 1:], (1, 0)).transpose(0, 1)
        self._above = None if math.isinf(cut) else _first_above(self._position, self._cut)

    def sums(self, kernels: Sequence[Kernel], spectra: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return S_k with each kernel as h: tensors of shape (R, N), items in their original order.

        Args:
            kernels: Kernels.
            spectra: Spectrum of the smooth part of each, see :class:`Grid`.
        """
        cells, weights = self._cells()
        points = _to_points(cells, weights, self._grid_shape(first_class=0))
        points = torch.einsum("arb,brp->arp", self._weights, points)
        functions = self._grid.convolve(points, [spectrum.conj() for spectrum in spectra])
        is_target, level = self._targets()
        own = self._weights[:, :, 2:].diagonal(dim1=0, dim2=2).gather(1, level)
        if self._above is not None:
            place, item_weights = self._places(level), self._item_weights()
            n_above = _sums_from(item_weights, place)
            distance = _sums_from(item_weights.mul_(self._position), place)
            distance -= n_above * (self._position + self._cut)
        results = []
        target_cells = self._target_cells(cells)
        for kernel, function in zip(kernels, functions, strict=True):
            sums = _from_points(target_cells, weights, function)
            sums.sub_(own, alpha=kernel.own)
            if self._above is not None:
                sums.add_(n_above, alpha=kernel.height).add_(distance, alpha=kernel.slope * self._grid.width)
            results.append(self._unsorted(sums.mul_(is_target)))
        return results

    def gradient(self, upstream: torch.Tensor, kernel: Kernel, spectrum: torch.Tensor) -> torch.Tensor:
        """Return the gradient by the score of each item as a source j of the sums: :meth:`sums` transposed.

        Args:
            upstream: Gradients of the S_k, shape (R, N).
            kernel: Kernel of h'.
            spectrum: Spectrum of its smooth part.

        Returns:
            Tensor of shape (R, N), items in their original order.
        """
        is_target, level = self._targets()
        sorted_upstream = upstream.gather(1, self._order).mul_(is_target)
        upstream = sorted_upstream.to(torch.float64)
        cells, weights = self._cells()
        points = _to_points(
            self._target_cells(cells),
            [weight * sorted_upstream for weight in weights],
            self._grid_shape(first_class=2),
        )
        (functions,) = self._grid.convolve(points, [spectrum])
        gradient = _from_points(cells, weights, torch.einsum("arb,arp->brp", self._weights, functions))
        if self._above is not None:
            place, slope = self._places(level), kernel.slope * self._grid.width
            below = self._sums_up_to(place, slope * upstream).mul_(self._position)
            offsets = (self._position + self._cut).mul_(-slope).add_(kernel.height)
            below += self._sums_up_to(place, offsets.mul_(upstream))
            gradient += below.mul_(self._item_weights()).sum(0)
        return self._unsorted(gradient)

    def _grid_shape(self, first_class: int) -> tuple[int, int, int]:
        """Return the shape of the points of all classes, or of those from a class on."""
        return len(self._weights) + 2 - first_class, len(self._order), self._grid.n_points

    def _cells(self) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the cell of each item on the grid of its class, and the weights of the points around it."""
        cells = self._position.long()
        weights = _cubic((self._position - cells).to(self._dtype))
        rows = torch.arange(len(cells), device=cells.device).mul_(self._grid.n_points)[:, None]
        return cells.add_(rows).add_(self._classes, alpha=len(cells) * self._grid.n_points), weights

    def _target_cells(self, cells: torch.Tensor) -> torch.Tensor:
        """Return the cells on grids that begin with the class of level 1; other items are anywhere."""
        return (cells - 2 * len(cells) * self._grid.n_points).clamp_(min=0)

    def _targets(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which items have a level of 1 or more, and levels from 0 for level 1, 0 for other items."""
        return self._classes > 1, (self._classes - 2).clamp_(min=0)

    def _places(self, level: torch.Tensor) -> torch.Tensor:
        """Return the first item above the line of each, as index of (L, R, N + 1)."""
        assert self._above is not None
        n_rows, n_items = level.shape
        rows = torch.arange(n_rows, device=level.device)[:, None]
        return (level * n_rows).add_(rows).mul_(n_items + 1).add_(self._above)

    def _item_weights(self) -> torch.Tensor:
        """Return w[a, lv_j] of all items by level a from 1 on: (L, R, N)."""
        return self._weights.gather(2, self._classes.expand(len(self._weights), -1, -1))

    def _sums_up_to(self, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return for each item the sum of values at places up to its own: :func:`_sums_from` transposed."""
        n_rows, n_items = self._order.shape
        at_places = values.new_zeros(len(self._weights), n_rows, n_items + 1)
        at_places.view(-1).index_add_(0, places.view(-1), values.view(-1))
        return at_places.cumsum_(2)[:, :, :-1]

    def _unsorted(self, values: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(self._order, dtype=values.dtype).scatter_(1, self._order, values)


def _sums_from(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return sums of values, of shape (L, R, N), from a place (l, r, n) of (L, R, N + 1) to the end of row (l, r)."""
    sums = torch.nn.functional.pad(values, (1, 0)).cumsum_(2)
    sums = sums[:, :, -1:] - sums
    return sums.view(-1).index_select(0, places.view(-1)).view_as(places)


def _first_above(position: torch.Tensor, cut: float) -> torch.Tensor:
    """Return for each item of sorted rows the place of the first item that is more than ``cut`` above it."""
    if not is_compiled(position.device):
        return torch.searchsorted(position, position + cut, right=True)
    places = torch.empty_like(position, dtype=torch.int64)
    _find_first_above(position.numpy(), cut, places.numpy())
    return places


@compiled()
def _find_first_above(position: NDArray[np.float64], cut: float, places: NDArray[np.int64]) -> None:
    """Write the places of :func:`_first_above`."""
    n_rows, n_items = position.shape
    for row in range(n_rows):
        place = 0
        for item in range(n_items):
            while place < n_items and position[row, place] <= position[row, item] + cut:
                place += 1
            places[row, item] = place

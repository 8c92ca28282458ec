"""Interpolated sums by operations of torch, on any device; see :mod:`~hgld.losses.kernels.interpolated_sums`.

They take the place of compiled loops on GPUs and where numba is missing, and tests compare both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hgld.compute.threads import parallel_map
from hgld.losses.kernels.derivatives import first_derivative_only
from hgld.losses.kernels.interpolation_grid import CUBIC, Grid, Kernel, kernels_of
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.steps import Sigmoid, SupRankStep

#: Items and cells that are processed at once.
_BLOCK = {"cpu": 2**18, "cuda": 2**25}


class TorchInterpolation(torch.autograd.Function):
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


def _cubic(u: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the weights of the points -1, 0, 1 and 2 for cubic interpolation at ``u``."""
    for constant, linear, square, cube in CUBIC:
        yield u.mul(cube).add_(square).mul_(u).add_(linear).mul_(u).add_(constant)


def _to_points(cells: torch.Tensor, u: torch.Tensor, values: torch.Tensor, n_points: int) -> torch.Tensor:
    """Spread values at items to the points around them.

    Args:
        cells: int64 tensor of shape (n,): the first of the four points around each item.
        u: float64 tensor of shape (n,): distance of the item from the second of these points, in cells.
        values: float64 tensor of shape (n,).
        n_points: Number of all points.

    Returns:
        float64 tensor of shape (n_points,).
    """
    points = values.new_zeros(n_points)
    for shift, weights in enumerate(_cubic(u)):
        points[shift:].index_add_(0, cells, weights.mul_(values))
    return points


def _from_points(cells: torch.Tensor, u: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Interpolate values at points to items: the transpose of :func:`_to_points`."""
    values = torch.zeros_like(u)
    for shift, weights in enumerate(_cubic(u)):
        values.addcmul_(weights, points[shift:].index_select(0, cells))
    return values


@dataclass(frozen=True, eq=False)
class _Targets:
    """The positives k of one level, all int64 tensors of shape (P,).

    Indices count the sorted items of all queries; places count one more at the end of each query.
    """

    index: torch.Tensor  #: index of item k
    tied: torch.Tensor  #: place of the first item j with s_j >= s_k
    above: torch.Tensor | None  #: place of the first item j with s_j > s_k + c; None for kernels without a line


class _Items:
    """The items of some queries by ascending score, on grids of points that lie end to end.

    Args:
        ascending: Float tensor of shape (R, N).
        order: int64 tensor of shape (R, N).
        levels: int8 tensor of shape (R, N).
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
        self._grid, self._cut = grid, cut / grid.width
        self._order = order
        self._rows = torch.arange(len(order), device=order.device)[:, None]
        # Levels plus 1: class 0 is excluded from the retrieval set and has no weight.
        self._classes = levels.long().add_(1)
        self._weights = torch.nn.functional.pad(weights, (1, 0, 1, 0)).permute(1, 2, 0)
        position = (ascending.to(torch.float64) - grid.lowest).div_(grid.width)
        self._position = position.add_(self._rows * grid.n_points).view(-1)
        is_first = torch.nn.functional.pad(ascending[:, 1:] > ascending[:, :-1], (1, 0), value=True).view(-1)
        tied = torch.where(is_first, torch.arange(len(is_first), device=order.device), 0).cummax(0).values
        self._targets = [self._level_targets(level, tied) for level in range(1, weights.shape[1])]

    def _level_targets(self, level: int, tied: torch.Tensor) -> _Targets:
        n_items = self._order.shape[1]
        index = (self._classes.view(-1) == level + 1).nonzero().squeeze(1)
        row = index.div(n_items, rounding_mode="floor")
        above = None
        if self._cut < math.inf:
            above = torch.searchsorted(self._position, self._position.index_select(0, index) + self._cut, right=True)
            above = above.minimum((row + 1) * n_items).add_(row)
        return _Targets(index, tied.index_select(0, index).add_(row), above)

    def sums(self, kernels: Sequence[Kernel], spectra: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return S_k with each kernel as h: float64 tensors of shape (R, N), items in their original order.

        Args:
            kernels: Kernels.
            spectra: Spectrum of the smooth part of each, see :class:`Grid`.
        """
        n_classes, _, n_rows = self._weights.shape
        cells, class_cells, u = self._cells()
        n_points = n_classes * n_rows * self._grid.n_points
        points = _to_points(class_cells, u, torch.ones_like(u), n_points).view(n_classes, n_rows, -1)
        points = torch.einsum("abr,brp->arp", self._weights[2:], points)
        functions = self._grid.convolve(points, [spectrum.conj() for spectrum in spectra])
        results = [torch.zeros_like(u) for _ in kernels]
        for level, targets in enumerate(self._targets, 1):
            index = targets.index
            weights = self._item_weights(level)
            count = _sums_from(weights.view_as(self._order))
            not_below, own = count.index_select(0, targets.tied), weights.index_select(0, index)
            if targets.above is not None:
                n_above = count.index_select(0, targets.above)
                above = _sums_from((weights * self._position).view_as(self._order)).index_select(0, targets.above)
                above -= n_above * (self._position.index_select(0, index) + self._cut)
            target_cells = cells.index_select(0, index), u.index_select(0, index)
            for result, kernel, function in zip(results, kernels, functions, strict=True):
                sums = _from_points(*target_cells, function[level - 1].reshape(-1))
                sums += kernel.start * not_below - kernel.own * own
                if targets.above is not None:
                    sums += kernel.height * n_above + kernel.slope * self._grid.width * above
                result.index_copy_(0, index, sums)
        return [self._unsorted(sums) for sums in results]

    def gradient(self, upstream: torch.Tensor, kernel: Kernel, spectrum: torch.Tensor) -> torch.Tensor:
        """Return the gradient by the score of each item as a source j of the sums: :meth:`sums` transposed.

        Args:
            upstream: Gradients of the S_k, shape (R, N).
            kernel: Kernel of h'.
            spectrum: Spectrum of its smooth part.

        Returns:
            float64 tensor of shape (R, N).
        """
        cells, class_cells, u = self._cells()
        upstream = upstream.to(torch.float64).gather(1, self._order).view(-1)
        n_rows, n_points = len(self._order), self._grid.n_points
        lines, edges = [], torch.zeros_like(u)
        for level, targets in enumerate(self._targets, 1):
            index = targets.index
            values = upstream.index_select(0, index)
            target_cells = cells.index_select(0, index), u.index_select(0, index)
            lines.append(_to_points(*target_cells, values, n_rows * n_points).view(n_rows, n_points))
            if targets.above is not None:
                count = self._sums_up_to(targets.above, values)
                below = self._position * count
                below -= self._sums_up_to(targets.above, values * (self._position.index_select(0, index) + self._cut))
                below.mul_(kernel.slope * self._grid.width).add_(count, alpha=kernel.height)
                edges.addcmul_(below, self._item_weights(level))
        points = torch.einsum("abr,arp->brp", self._weights[2:], torch.stack(lines))
        (functions,) = self._grid.convolve(points, [spectrum])
        return self._unsorted(_from_points(class_cells, u, functions.reshape(-1)).add_(edges))

    def _cells(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the cell of each item on one grid and on one grid per class, and its position within the cell."""
        cells = self._position.long()
        class_cells = (self._classes * (len(self._order) * self._grid.n_points)).view(-1).add_(cells)
        return cells, class_cells, self._position - cells

    def _item_weights(self, level: int) -> torch.Tensor:
        """Return w[level, lv_j] of all items."""
        by_class = self._weights[level + 1].reshape(-1)
        return by_class.index_select(0, (self._classes * len(self._order)).add_(self._rows).view(-1))

    def _sums_up_to(self, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return for each item the sum of values at places up to its own: :func:`_sums_from` transposed."""
        n_rows, n_items = self._order.shape
        at_places = values.new_zeros(n_rows * (n_items + 1)).index_add_(0, places, values)
        return at_places.view(n_rows, -1).cumsum(1)[:, :-1].reshape(-1)

    def _unsorted(self, values: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(self._order, dtype=values.dtype).scatter_(1, self._order, values.view_as(self._order))


def _sums_from(values: torch.Tensor) -> torch.Tensor:
    """Return the sum of each row's values from each of its places on: shape (R, N) to (R * (N + 1),)."""
    sums = torch.nn.functional.pad(values, (1, 0)).cumsum_(1)
    return (sums[:, -1:] - sums).view(-1)

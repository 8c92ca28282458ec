"""Sums of smooth steps without pairs: O(N log N) for each query, where pairs take O(N^2).

The sum S_k (see :mod:`~hgld.losses.kernels.step_sums`) depends on k only by its level a and its score: it is the
value at s_k of one of L functions, F_a(x) = sum over j of w[a, lv_j] h(s_j - x). A step, whose line begins at c, is

::

    h(t) = g(t) + start [t >= 0] + [t > c] (height + slope (t - c))

where g is sigma(t / tau) up to c and its tangent beyond. The edges of h are in the other two terms, which are exact:
counts and sums of the scores above x and above x + c, from cumulative sums over the sorted scores. g is smooth, and
interpolated on a grid of points tau / 10 apart: items are spread to the four points around them with the weights of
cubic interpolation, the points are convolved with g by FFT, and F_a is read from the result, again by cubic
interpolation.

The derivative of F_a is computed in the same way with h' for h. So is the gradient: S_k depends on the score of item
j by h'(s_j - s_k), so upstream gradients u_k give it

    sum over k of u_k w[lv_k, lv_j] h'(s_j - s_k)

which is a sum of the same kind, with sources and targets exchanged. Each operation becomes its transpose.

**Error bounds.** For one pair, this is cubic interpolation of g(y - x) in both x and y. In units of tau, with
d = c / tau and points r = 1/10 apart, its error is at most

::

    K4 r^4 max |g''''| + K2 r^2 |jump of g'' at d| + K3 r^3 |jump of g''' at d|

where K4 = (1 + 5/4) 3/128 (the remainder of Lagrange's formula for one variable, plus that for the other times the
Lebesgue constant), and K2 = 0.0467 and K3 = 0.0353 are the largest errors for (t - d)_+^2 / 2 and (t - d)_+^3 / 6 on
a grid of width 1. As g is a tangent beyond d, its derivatives jump by those of sigma at d: sigma'' and sigma'''. For
h', sigma' takes the place of sigma, and sigma''' and sigma'''' jump. Hence, with sums over all items, k included,

::

    |error of S_k| <= e_value (sum over j of |w_kj|)
    |error of the gradient of item j| <= e_slope / tau (sum over k of |u_k w_kj| + |u_j| sum over k of |w_jk|)

============================  =======  =======
step                          e_value  e_slope
============================  =======  =======
sigmoid                       6.8e-7   1.4e-6
d = 5, as in the paper        4.0e-6   4.6e-6
d = 0                         5.1e-6   6.0e-5
any other d                   4.6e-5   6.1e-5
============================  =======  =======

Errors of pairs differ in sign and mostly cancel: with the settings of the papers, ranks have relative errors of about
1e-6. They have the same sign where most scores lie within a few cells: then an error is up to its bound, and that of
the gradient, 6e-6 of its terms. These are large there, 1 / (4 tau) for each pair: for thousands of items, 4e-6 of
them are 1e-1. So where all scores of a call span few cells, cells are narrower (``MIN_CELLS``), and only rounding is
left, for float32 a few times 6e-8 of the terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hgld.compute.compiled import is_compiled
from hgld.compute.threads import parallel_map, thread_count
from hgld.errors import InputError
from hgld.losses.kernels.compiled_interpolation import (
    FAR,
    FAR_TERMS,
    REACH,
    GridKernels,
    backward_rows,
    forward_rows,
)
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.steps import Sigmoid, SupRankStep

#: Grid cells per tau, at least.
CELLS_PER_TAU = 10
#: Least number of cells that the scores of one call span, unless cells are narrower than tau / 10^5 then.
MIN_CELLS = 256
#: Largest number of cells that the scores of one call may span: a range of 1,048 with a tau of 0.01, where cosines
#: span 2,000 cells.
MAX_CELLS = 2**20
#: Items and cells that are processed at once.
_BLOCK = {"cpu": 2**18, "cuda": 2**25}

#: Cubic interpolation at u between the points -1, 0, 1 and 2: coefficients of 1, u, u^2 and u^3 for each point.
_CUBIC = (
    (0.0, -1 / 3, 1 / 2, -1 / 6),
    (1.0, -1 / 2, -1.0, 1 / 2),
    (0.0, 1.0, 1 / 2, -1 / 2),
    (0.0, -1 / 6, 0.0, 1 / 6),
)


def interpolated_sums(
    scores: torch.Tensor,
    levels: torch.Tensor,
    weights: torch.Tensor,
    step: Sigmoid | SupRankStep,
    ranking: Ranking | None = None,
) -> torch.Tensor:
    """Return the :func:`~hgld.losses.kernels.step_sums.step_sums` of smooth steps, for many items.

    Arguments and result are the same, up to the error bounds in the module docstring. Between the passes each score
    takes some 25 bytes, without compiled loops 40.

    Raises:
        InputError: The scores span more than ``MAX_CELLS`` cells.
    """
    lowest, highest = (bound.item() for bound in torch.aminmax(scores.detach()))
    if not math.isfinite(highest - lowest):
        return torch.where(levels > 0, scores * math.nan, 0.0)
    width = min(step.tau / CELLS_PER_TAU, max((highest - lowest) / MIN_CELLS, step.tau / 1e5))
    grid = _Grid(lowest, highest, width, scores.device)
    if grid.n_points > MAX_CELLS:
        raise InputError(
            f"scores from {lowest:g} to {highest:g} span too many temperatures of {step.tau:g} for sums by "
            "interpolation; normalise the embeddings, so that scores are cosines"
        )
    ranking = ranking or Ranking(scores, levels)
    if is_compiled(scores.device):
        return _CompiledSums.apply(scores, ranking, weights, step, grid)  # type: ignore[no-any-return]
    return _InterpolatedSums.apply(scores, ranking, weights, step, grid)  # type: ignore[no-any-return]


class _CompiledSums(torch.autograd.Function):
    """The sums by compiled loops, in threads that each take as many queries."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        ranking: Ranking,
        weights: torch.Tensor,
        step: Sigmoid | SupRankStep,
        grid: _Grid,
    ) -> torch.Tensor:
        values = torch.zeros(scores.shape, dtype=scores.dtype)
        slopes = torch.zeros(scores.shape, dtype=torch.float64)
        ctx.kernels = _compiled_kernels(step, grid)
        ctx.saved = ranking.ascending, ranking.order, ranking.levels, weights.to(torch.float64)

        def work(block: slice) -> None:
            arrays = (tensor[block].numpy() for tensor in (values, slopes))
            forward_rows(*_rows(ctx.saved, block), *ctx.kernels, *arrays)

        parallel_map(work, _thread_blocks(scores), scores.device)
        ctx.slopes = slopes
        return values

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        upstream, slopes = upstream.contiguous(), ctx.slopes
        gradient = torch.empty_like(upstream)

        def work(block: slice) -> None:
            arrays = (tensor[block].numpy() for tensor in (upstream, slopes, gradient))
            backward_rows(*_rows(ctx.saved, block), *ctx.kernels, *arrays)

        parallel_map(work, _thread_blocks(upstream), upstream.device)
        return gradient, None, None, None, None


def _rows(tensors: tuple[torch.Tensor, ...], block: slice) -> list[Any]:
    """Return contiguous arrays of some queries: sorted scores, their order, levels and weights."""
    return [(tensor[block] if len(tensor) > 1 else tensor).contiguous().numpy() for tensor in tensors]


def _thread_blocks(scores: torch.Tensor) -> list[slice]:
    size = max(1, -(-len(scores) // thread_count(scores.device)))
    return [slice(begin, begin + size) for begin in range(0, len(scores), size)]


class _InterpolatedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        ranking: Ranking,
        weights: torch.Tensor,
        step: Sigmoid | SupRankStep,
        grid: _Grid,
    ) -> torch.Tensor:
        n_queries, n_items = scores.shape
        size = max(1, _BLOCK[scores.device.type] // (n_items + grid.n_points))
        weights = weights.to(torch.float64).expand(n_queries, -1, -1)
        kernels = _kernels(step)[: 1 + ctx.needs_input_grad[0]]
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
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad_scores = -upstream * ctx.slopes

        def work(block: tuple[_Items, torch.Tensor, torch.Tensor]) -> None:
            items, grad_block, upstream_block = block
            grad_block += items.gradient(upstream_block, ctx.kernel, ctx.spectrum)

        blocks = zip(ctx.items, torch.split(grad_scores, ctx.size), torch.split(upstream, ctx.size), strict=True)
        parallel_map(work, blocks, upstream.device)
        return grad_scores, None, None, None, None


@dataclass(frozen=True, eq=False)
class _Kernel:
    """h or h' in the form of the module docstring, and the contribution of an item k to its own sum."""

    smooth: Callable[[torch.Tensor], torch.Tensor]  #: g, a function of score differences
    smooth_slope: float  #: slope of g beyond c
    own: float
    start: float
    cut: float
    height: float
    slope: float


def _kernels(step: Sigmoid | SupRankStep) -> tuple[_Kernel, _Kernel]:
    """Return the kernels of a step and of its derivative. A sigmoid is a step whose line never begins."""
    if isinstance(step, Sigmoid):
        step = SupRankStep(step.tau, rho=0.0, delta=math.inf, start=0.0)
    near, cut = Sigmoid(step.tau), step.delta
    at_cut = torch.tensor(cut, dtype=torch.float64)
    value, slope = near.value(at_cut).item(), near.slope(at_cut).item()
    bend = slope * (1 - 2 * value) / step.tau  # the second derivative
    height = step.line_start - step.start - value

    def smooth_value(t: torch.Tensor) -> torch.Tensor:
        return near.value(t.clamp(max=cut)) + slope * (t - cut).clamp(min=0)

    def smooth_slope(t: torch.Tensor) -> torch.Tensor:
        return near.slope(t.clamp(max=cut)) + bend * (t - cut).clamp(min=0)

    return (
        _Kernel(smooth_value, slope, 0.5 + step.start, step.start, cut, height, step.rho - slope),
        # The own contribution of k to the derivative cancels: s_k is both the source and the target.
        _Kernel(smooth_slope, bend, 0.0, 0.0, cut, step.rho - slope, -bend),
    )


def _compiled_kernels(step: Sigmoid | SupRankStep, grid: _Grid) -> GridKernels:
    """Return the kernels of a step and of its derivative for the compiled loops."""
    kernels = _kernels(step)
    cut, reach, far = kernels[0].cut / grid.width, REACH * step.tau / grid.width, FAR * step.tau / grid.width
    # Beyond the taps, g is a line, or as good as constant where the line begins later.
    first, last = -min(int(far), grid.n_points), min(int(min(cut, reach)) + 1, grid.n_points)
    differences = torch.arange(first, last + 1, dtype=torch.float64) * grid.width
    values = torch.stack([kernel.smooth(differences) for kernel in kernels])
    increments = [kernel.smooth_slope * grid.width if cut < reach else 0.0 for kernel in kernels]
    terms = np.arange(1, FAR_TERMS + 1)
    per_cell, signs = terms * (grid.width / step.tau), (-1.0) ** (terms + 1)
    return GridKernels(
        grid.lowest,
        grid.width,
        grid.n_points,
        first,
        values[:, :-1].contiguous().numpy(),
        np.stack([values[:, -1].numpy(), increments], 1),
        np.stack([np.exp(-per_cell), np.exp(per_cell * (first - 1)), signs, signs * terms / step.tau]),
        cut,
        np.array([[kernel.own, kernel.start, kernel.height, kernel.slope] for kernel in kernels]),
        np.array(_CUBIC),
    )


class _Grid:
    """Equally spaced points over the range of the scores, one before it and two after it.

    Args:
        lowest: Least score.
        highest: Greatest score.
        width: Width of a cell, the distance of two points.
        device: Device of the values at points.
    """

    def __init__(self, lowest: float, highest: float, width: float, device: torch.device) -> None:
        self.lowest, self.width, self._device = lowest, width, device
        # Rounding may move the greatest score to the next cell.
        self.n_points = int((highest - lowest) / width) + 5
        # The least length whose convolution does not wrap around, rounded up to one with a fast FFT.
        least = 2 * self.n_points - 1
        self._length = min(factor << (-(-least // factor) - 1).bit_length() for factor in (1, 3, 5))

    def spectrum(self, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Return the spectrum of a function of score differences, for :meth:`convolve`."""
        differences = torch.fft.fftfreq(self._length, 1 / self._length, dtype=torch.float64, device=self._device)
        spectrum: torch.Tensor = torch.fft.rfft(function(differences * self.width))
        return spectrum

    def convolve(self, points: torch.Tensor, spectra: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return at each point x the sum over points y of f(x - y) times their values; f(y - x) if conjugate."""
        points_spectrum = torch.fft.rfft(points, n=self._length)
        products = (points_spectrum * spectrum for spectrum in spectra)
        return [torch.fft.irfft(product, n=self._length)[..., : self.n_points] for product in products]


def _cubic(u: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the weights of the points -1, 0, 1 and 2 for cubic interpolation at ``u``."""
    for constant, linear, square, cube in _CUBIC:
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
        grid: _Grid,
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

    def sums(self, kernels: Sequence[_Kernel], spectra: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return S_k with each kernel as h: float64 tensors of shape (R, N), items in their original order.

        Args:
            kernels: Kernels.
            spectra: Spectrum of the smooth part of each, see :class:`_Grid`.
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

    def gradient(self, upstream: torch.Tensor, kernel: _Kernel, spectrum: torch.Tensor) -> torch.Tensor:
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

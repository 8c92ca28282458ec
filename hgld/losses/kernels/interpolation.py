"""Sums of smooth steps by interpolation: O(N log N) for each query in place of O(N^2).

The sum S_k (:mod:`~hgld.losses.kernels.rank_loss`) depends on k only by its level a and its score:
it is the value at s_k of one of L functions, F_a(x) = sum over j of w[a, lv_j] h(s_j - x). A step,
whose line begins at c, is

::

    h(t) = g(t) + [t > c] (height + slope (t - c))

where g is sigma(t / tau) up to c and its tangent beyond. The edge of h is in the other term, which
is exact: counts and sums of the scores above x + c, from cumulative sums over the sorted scores. g
is smooth, and interpolated on a grid of points tau / 10 apart: items are spread to the four points
around them with the weights of cubic interpolation, the points are convolved with g by FFT, and F_a
is read from the result, again by cubic interpolation.

The derivative of F_a is computed in the same way with h' for h. So is the gradient: S_k depends on
the score of item j by h'(s_j - s_k), so upstream gradients u_k give it

    sum over k of u_k w[lv_k, lv_j] h'(s_j - s_k)

which is a sum of the same kind, with sources and targets exchanged. Each operation becomes its
transpose.

**Error bounds.** For one pair, this is cubic interpolation of g(y - x) in both x and y. In units of
tau, with d = c / tau and points r = 1/10 apart, its error is at most

::

    K4 r^4 max |g''''| + K2 r^2 |jump of g'' at d| + K3 r^3 |jump of g''' at d|

where K4 = (1 + 5/4) 3/128 (the remainder of Lagrange's formula for one variable, plus that for the
other times the Lebesgue constant), and K2 = 0.0467 and K3 = 0.0353 are the largest errors for (t -
d)_+^2 / 2 and (t - d)_+^3 / 6 on a grid of width 1. As g is a tangent beyond d, its derivatives
jump by those of sigma at d: sigma'' and sigma'''. For h', sigma' takes the place of sigma, and
sigma''' and sigma'''' jump. Hence, with sums over all items, k included,

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

Errors of pairs differ in sign and mostly cancel: with the settings of the papers, ranks have
relative errors of about 1e-6. Errors have the same sign where most scores lie within a few cells.
They then reach their bounds, for the gradient 6e-6 of its terms, which are large, 1 / (4 tau) for
each pair: for thousands of items, 4e-6 of the terms add up to 1e-1. So where all scores of a call
span few cells, cells are narrower (``MIN_CELLS``), and only rounding errors remain, for float32 a
few times 6e-8 of the terms.

Weights of points are in the precision of the scores, as their rounding is relative to each pair;
functions on the grid and cumulative sums are in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hgld.losses.kernels.batches import first_derivative_only
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import Sigmoid, SupRankStep, as_line_step

#: Smallest number of grid cells per tau.
CELLS_PER_TAU = 10
#: Smallest number of cells that the scores of one call span, except that cells are never narrower
#: than tau / 10^5.
MIN_CELLS = 256
#: Largest number of cells, which bounds the memory: cosines span 2,000 with a tau of 0.01.
MAX_CELLS = 2**20
#: Items and cells that are processed at once.
_BLOCK = {"cpu": 2**17, "cuda": 2**25}


def interpolated_sums(
    ranking: Ranking, weights: Tensor, step: Sigmoid | SupRankStep, grid: Grid
) -> Tensor:
    """Return approximate sums over pairs, see the error bounds of this module.

    Between the forward and the backward pass, each score takes some 40 bytes.

    Args:
        weights: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1).
        step: Step without a jump at 0, see :meth:`Step.split()
            <hgld.losses.kernels.steps.Step.split>`.
    """
    return _Interpolation.apply(ranking.scores, ranking, weights, step, grid)  # type: ignore[no-any-return]


def grid_over(scores: Tensor, step: Sigmoid | SupRankStep) -> Grid | None:
    """Return the grid for a step over the range of the scores, or None if it has too many cells.

    Args:
        scores: Float tensor with at least one element; scores that are not finite have no grid.
    """
    bounds = torch.aminmax(scores.detach())
    lowest = bounds.min.item()
    highest = bounds.max.item()
    span = highest - lowest
    if not span * CELLS_PER_TAU / step.tau <= MAX_CELLS:  # also for NaN
        return None
    width = min(step.tau / CELLS_PER_TAU, max(span / MIN_CELLS, step.tau / 1e5))
    return Grid(lowest, highest, width, scores.device)


class Grid:
    """Equally spaced points over the range of the scores, one before it and two after it.

    Args:
        width: Width of a cell, the distance of two points.
    """

    def __init__(self, lowest: float, highest: float, width: float, device: torch.device) -> None:
        self.lowest = lowest
        self.width = width
        self._device = device
        # Rounding may move the greatest score to the next cell.
        self.n_points = int((highest - lowest) / width) + 5
        # The convolution must not wrap around.
        self._length = _fast_fft_length(2 * self.n_points - 1)

    def spectrum(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the spectrum of a function of score differences, for :meth:`convolve`."""
        differences = torch.fft.fftfreq(
            self._length, 1 / self._length, dtype=torch.float64, device=self._device
        )
        spectrum: Tensor = torch.fft.rfft(function(differences * self.width))
        return spectrum

    def convolve(self, points: Tensor, spectra: Sequence[Tensor]) -> list[Tensor]:
        """Convolve values at the points with functions f given by their spectra.

        Returns:
            For each spectrum and each point x, the sum over points y of f(x - y) times the value at
            y; f(y - x) for the conjugate spectrum.
        """
        points_spectrum = torch.fft.rfft(points, n=self._length)
        convolved = []
        for spectrum in spectra:
            values = torch.fft.irfft(points_spectrum * spectrum, n=self._length)
            convolved.append(values[..., : self.n_points])
        return convolved


def _fast_fft_length(least: int) -> int:
    """Return the smallest 2^n, 3 2^n or 5 2^n from ``least`` on, the length of a fast FFT."""
    lengths = []
    for factor in (1, 3, 5):
        multiple = math.ceil(least / factor)
        lengths.append(factor << (multiple - 1).bit_length())
    return min(lengths)


class _Kernel(NamedTuple):
    """h or h' as g(t) + [t > cut] (height + slope (t - cut)), see the module.

    Args:
        smooth: The function g of score differences.
        self_term: Contribution of an item k to its own sum, which sums exclude.
        cut: Score difference where the line begins.
        height: Height of the line at ``cut`` above g.
        slope: Slope of the line minus the slope of g.
    """

    smooth: Callable[[Tensor], Tensor]
    self_term: float
    cut: float
    height: float
    slope: float


def _kernels(step: Sigmoid | SupRankStep) -> tuple[_Kernel, _Kernel]:
    """Return the kernels of a step and of its derivative."""
    step = as_line_step(step)
    sigmoid = Sigmoid(step.tau)
    cut = step.delta
    cut_tensor = torch.tensor(cut, dtype=torch.float64)
    value = sigmoid.value(cut_tensor).item()
    slope = sigmoid.slope(cut_tensor).item()
    bend = slope * (1 - 2 * value) / step.tau  # the second derivative

    def smooth_value(t: Tensor) -> Tensor:
        return sigmoid.value(t.clamp(max=cut)) + slope * (t - cut).clamp(min=0)

    def smooth_slope(t: Tensor) -> Tensor:
        return sigmoid.slope(t.clamp(max=cut)) + bend * (t - cut).clamp(min=0)

    extra_slope = step.rho - slope
    value_kernel = _Kernel(smooth_value, 0.5, cut, step.line_start - value, extra_slope)
    # The self term of the derivative cancels: s_k is both the source and the target.
    slope_kernel = _Kernel(smooth_slope, 0.0, cut, extra_slope, -bend)
    return value_kernel, slope_kernel


class _Interpolation(torch.autograd.Function):
    """The interpolated sums, computed for blocks of queries."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        ranking: Ranking,
        weights: Tensor,
        step: Sigmoid | SupRankStep,
        grid: Grid,
    ) -> Tensor:
        n_queries, n_items = scores.shape
        size = max(1, _BLOCK[scores.device.type] // (n_items + grid.n_points))
        weights = weights.to(torch.float64).expand(n_queries, -1, -1)
        needs_gradient = ctx.needs_input_grad[0]
        value_kernel, slope_kernel = _kernels(step)
        kernels = [value_kernel, slope_kernel] if needs_gradient else [value_kernel]
        spectra = [grid.spectrum(kernel.smooth) for kernel in kernels]
        results = scores.new_empty(len(kernels), n_queries, n_items)
        blocks = []
        for begin in range(0, n_queries, size):
            block = slice(begin, begin + size)
            items = _Items(ranking, block, weights[block], value_kernel.cut, grid)
            for result, sums in zip(results, items.sums(kernels, spectra), strict=True):
                result[block] = sums
            blocks.append((block, items))
        if needs_gradient:
            ctx.blocks = blocks
            ctx.kernel = slope_kernel
            ctx.spectrum = spectra[1]
            ctx.slopes = results[1]
        return results[0]

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad_scores = -upstream * ctx.slopes
        for block, items in ctx.blocks:
            grad_scores[block] += items.gradient(upstream[block], ctx.kernel, ctx.spectrum)
        return grad_scores, None, None, None, None


def _cubic(u: Tensor) -> tuple[Tensor, ...]:
    """Return the weights of the points -1, 0, 1 and 2 for cubic interpolation at ``u``."""
    square = u * u
    last = (square - 1).mul_(u).div_(6)
    first = (square - u).div_(2).sub_(last)
    third = (square + u).div_(2).sub_(last, alpha=3)
    return first, square.neg_().add_(1).add_(last, alpha=3), third, last


def _to_points(cells: Tensor, weights: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    """Add the four weights of each item to the points around it.

    Returns:
        float64 points of the given shape.
    """
    points = weights[0].new_zeros(shape)
    for shift, values in enumerate(weights):
        points.view(-1)[shift:].index_add_(0, cells.view(-1), values.view(-1))
    return points.to(torch.float64)


def _from_points(cells: Tensor, weights: Sequence[Tensor], points: Tensor) -> Tensor:
    """Interpolate values at points to items: the transpose of :func:`_to_points`."""
    values = torch.zeros_like(weights[0])
    points = points.to(values.dtype).reshape(-1)
    for shift, weight in enumerate(weights):
        values.view(-1).addcmul_(weight.view(-1), points[shift:].index_select(0, cells.view(-1)))
    return values


class _Items:
    """The items of R queries by ascending score, on a grid of points for each query and class.

    Classes are levels plus 1: items of class 0 are excluded from the retrieval set and have no
    weight.

    Args:
        block: The R queries.
        weights: float64 tensor of shape (R, L + 1, L + 1).
        cut: Score difference where the line of the step begins.
    """

    def __init__(
        self, ranking: Ranking, block: slice, weights: Tensor, cut: float, grid: Grid
    ) -> None:
        self._grid = grid
        self._cut = cut / grid.width
        self._order = ranking.order[block]
        self._position = (ranking.ascending[block].to(torch.float64) - grid.lowest).div_(grid.width)
        self._classes = ranking.sorted_levels[block] + 1
        self._dtype = ranking.ascending.dtype
        #: w[a, b] by level a from 1 on, query and class b: (L, R, L + 2).
        self._weights = functional.pad(weights[:, 1:], (1, 0)).transpose(0, 1)
        #: For each item, the place of the first item that is more than the cut above it.
        self._above = None
        if not math.isinf(cut):
            self._above = torch.searchsorted(self._position, self._position + self._cut, right=True)

    def sums(self, kernels: Sequence[_Kernel], spectra: Sequence[Tensor]) -> list[Tensor]:
        """Return S_k for each kernel as h: tensors of shape (R, N), items in original order."""
        cells, weights = self._cells()
        points = _to_points(cells, weights, self._grid_shape(first_class=0))
        points = torch.einsum("arb,brp->arp", self._weights, points)
        functions = self._grid.convolve(points, [spectrum.conj() for spectrum in spectra])
        is_target, level = self._targets()
        self_weights = self._weights[:, :, 2:].diagonal(dim1=0, dim2=2).gather(1, level)
        if self._above is not None:
            place = self._places(level)
            item_weights = self._item_weights()
            n_above = _sums_from(item_weights, place)
            distance = _sums_from(item_weights.mul_(self._position), place)
            distance -= n_above * (self._position + self._cut)
        results = []
        target_cells = self._target_cells(cells)
        for kernel, function in zip(kernels, functions, strict=True):
            sums = _from_points(target_cells, weights, function)
            sums.sub_(self_weights, alpha=kernel.self_term)
            if self._above is not None:
                sums.add_(n_above, alpha=kernel.height)
                sums.add_(distance, alpha=kernel.slope * self._grid.width)
            results.append(self._unsorted(sums.mul_(is_target)))
        return results

    def gradient(self, upstream: Tensor, kernel: _Kernel, spectrum: Tensor) -> Tensor:
        """Return the gradient by the score of each item as a source: :meth:`sums` transposed.

        Args:
            upstream: Gradient of the sums, shape (R, N), items in their original order.
            kernel: Kernel of h'.
            spectrum: Spectrum of the kernel.

        Returns:
            Tensor of shape (R, N), items in their original order.
        """
        is_target, level = self._targets()
        sorted_upstream = upstream.gather(1, self._order).mul_(is_target)
        upstream = sorted_upstream.to(torch.float64)
        cells, weights = self._cells()
        target_weights = [weight * sorted_upstream for weight in weights]
        grid_shape = self._grid_shape(first_class=2)
        points = _to_points(self._target_cells(cells), target_weights, grid_shape)
        (functions,) = self._grid.convolve(points, [spectrum])
        source_points = torch.einsum("arb,arp->brp", self._weights, functions)
        gradient = _from_points(cells, weights, source_points)
        if self._above is not None:
            place = self._places(level)
            slope = kernel.slope * self._grid.width
            below = self._sums_up_to(place, slope * upstream).mul_(self._position)
            offsets = (self._position + self._cut).mul_(-slope).add_(kernel.height)
            below += self._sums_up_to(place, offsets.mul_(upstream))
            gradient += below.mul_(self._item_weights()).sum(0)
        return self._unsorted(gradient)

    def _grid_shape(self, first_class: int) -> tuple[int, int, int]:
        """Return the shape of the points of all classes from ``first_class`` on."""
        return len(self._weights) + 2 - first_class, len(self._order), self._grid.n_points

    def _cells(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return each item's cell on the grid of its class, and weights of the points around."""
        cells = self._position.long()
        weights = _cubic((self._position - cells).to(self._dtype))
        rows = torch.arange(len(cells), device=cells.device).mul_(self._grid.n_points)[:, None]
        return cells.add_(rows).add_(self._classes, alpha=len(cells) * self._grid.n_points), weights

    def _target_cells(self, cells: Tensor) -> Tensor:
        """Return cells on grids that begin with level 1; items of lower levels get any cell."""
        return (cells - 2 * len(cells) * self._grid.n_points).clamp_(min=0)

    def _targets(self) -> tuple[Tensor, Tensor]:
        """Return which items have a level of 1 or more, and max(level - 1, 0) of all items."""
        return self._classes > 1, (self._classes - 2).clamp_(min=0)

    def _places(self, level: Tensor) -> Tensor:
        """Return ``_above`` as flat indices of a tensor of shape (L, R, N + 1)."""
        assert self._above is not None
        n_rows, n_items = level.shape
        rows = torch.arange(n_rows, device=level.device)[:, None]
        return (level * n_rows).add_(rows).mul_(n_items + 1).add_(self._above)

    def _item_weights(self) -> Tensor:
        """Return w[a, lv_j] of all items by level a from 1 on: (L, R, N)."""
        return self._weights.gather(2, self._classes.expand(len(self._weights), -1, -1))

    def _sums_up_to(self, places: Tensor, values: Tensor) -> Tensor:
        """Return each item's sum of values at places up to it: :func:`_sums_from` transposed."""
        n_rows, n_items = self._order.shape
        at_places = values.new_zeros(len(self._weights), n_rows, n_items + 1)
        at_places.view(-1).index_add_(0, places.view(-1), values.view(-1))
        return at_places.cumsum_(2)[:, :, :-1]

    def _unsorted(self, values: Tensor) -> Tensor:
        return torch.empty_like(self._order, dtype=values.dtype).scatter_(1, self._order, values)


def _sums_from(values: Tensor, places: Tensor) -> Tensor:
    """Return the sum of the values from each place to the end of its row.

    Args:
        values: Tensor of shape (L, R, N).
        places: Flat indices of a tensor of shape (L, R, N + 1).
    """
    sums = functional.pad(values, (1, 0)).cumsum_(2)
    sums = sums[:, :, -1:] - sums
    return sums.view(-1).index_select(0, places.view(-1)).view_as(places)

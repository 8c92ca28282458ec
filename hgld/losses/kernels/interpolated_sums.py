"""Sums of smooth steps without pairs: O(N log N) for each query, where pairs take O(N^2).

The sum S_k (see :mod:`~hgld.losses.kernels.step_sums`) depends on k by its level a and its score alone: it is the
value at s_k of one of L functions, F_a(x) = sum over j of w[a, lv_j] h(s_j - x). A step, whose line begins at c, is

::

    h(t) = g(t) + start [t >= 0] + [t > c] (height + slope (t - c))

where g is sigma(t / tau) up to c and its tangent from there on. The edges of h are in the other two terms, and these
are exact: counts and sums of the scores above x and above x + c, from cumulative sums over the sorted scores. g is
smooth, and interpolated on a grid of points tau / 10 apart: items are spread to the four points around them with the
weights of cubic interpolation, the points are convolved with g by FFT, and F_a is read from what that gives, by cubic
interpolation, too.

The derivative of F_a takes the same path with h' for h. And so does the gradient: S_k depends on the score of item j
by h'(s_j - s_k), so for upstream gradients u_k it has

    sum over k of u_k w[lv_k, lv_j] h'(s_j - s_k)

which is a sum of the same kind; only, what was a source is a target. Each operation becomes its transpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hgld.compute.threads import parallel_map
from hgld.errors import InputError
from hgld.losses.kernels.sorting import sort_scores
from hgld.losses.kernels.steps import Sigmoid, SupRankStep

#: Cells of the grid in a width of tau. Errors shrink with the fourth power of a cell's width.
CELLS_PER_TAU = 10
#: The most cells that the scores of one call may span: a range of 1,048 with a tau of 0.01. Cosines span 2,000.
MOST_CELLS = 2**20
#: Items and cells that are worked on at once.
_BLOCK = {"cpu": 2**18, "cuda": 2**25}

#: Cubic interpolation at u between the points -1, 0, 1 and 2: for each point, the factors of 1, u, u^2 and u^3.
_CUBIC = (
    (0.0, -1 / 3, 1 / 2, -1 / 6),
    (1.0, -1 / 2, -1.0, 1 / 2),
    (0.0, 1.0, 1 / 2, -1 / 2),
    (0.0, -1 / 6, 0.0, 1 / 6),
)


def interpolated_sums(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Sigmoid | SupRankStep
) -> torch.Tensor:
    """:func:`~hgld.losses.kernels.step_sums.step_sums` without pairs, for many items.

    Arguments and result are the same. With the settings of the papers, the relative error of a rank is below 1e-6,
    and that of a gradient below 1e-5 of what it adds up; where delta is less than 2 tau, errors are ten times as
    large. Between the passes each score takes some 40 bytes.

    Raises:
        InputError: the scores span more than ``MOST_CELLS`` cells.
    """
    lowest, highest = (bound.item() for bound in torch.aminmax(scores.detach()))
    if not math.isfinite(highest - lowest):
        return torch.where(levels > 0, scores * math.nan, 0.0)
    grid = _Grid(lowest, highest, step.tau / CELLS_PER_TAU, scores.device)
    if grid.n_points > MOST_CELLS:
        raise InputError(
            f"scores from {lowest:g} to {highest:g} span too many temperatures of {step.tau:g} for sums by "
            "interpolation; normalise the embeddings, so that scores are cosines"
        )
    return _InterpolatedSums.apply(scores, levels, weights, step, grid)  # type: ignore[no-any-return]


class _InterpolatedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        levels: torch.Tensor,
        weights: torch.Tensor,
        step: Sigmoid | SupRankStep,
        grid: _Grid,
    ) -> torch.Tensor:
        n_queries, n_items = scores.shape
        size = max(1, _BLOCK[scores.device.type] // (n_items + grid.n_points))
        scores, weights = scores.detach(), weights.to(torch.float64).expand(n_queries, -1, -1)
        kernels = _kernels(step, grid)[: 1 + ctx.needs_input_grad[0]]
        found = scores.new_empty(len(kernels), n_queries, n_items)

        def work(begin: int) -> _Items:
            block = slice(begin, begin + size)
            items = _Items(scores[block], levels[block], weights[block], kernels[0].cut, grid)
            for result, sums in zip(found, items.sums(kernels), strict=True):
                result[block] = sums
            return items

        items = parallel_map(work, range(0, n_queries, size), scores.device)
        if ctx.needs_input_grad[0]:
            ctx.items, ctx.size, ctx.kernel, ctx.slopes = items, size, kernels[1], found[1]
        return found[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient = -upstream * ctx.slopes

        def work(block: tuple[_Items, torch.Tensor, torch.Tensor]) -> None:
            items, of_items, of_sums = block
            of_items += items.gradient(of_sums, ctx.kernel)

        blocks = zip(ctx.items, torch.split(gradient, ctx.size), torch.split(upstream, ctx.size), strict=True)
        parallel_map(work, blocks, upstream.device)
        return gradient, None, None, None, None


@dataclass(frozen=True, eq=False)
class _Kernel:
    """h or h' in the form that the module gives, with what an item k has of itself, to be taken off."""

    spectrum: torch.Tensor  #: of g, see :class:`_Grid`
    own: float
    start: float
    cut: float
    height: float
    slope: float


def _kernels(step: Sigmoid | SupRankStep, grid: _Grid) -> tuple[_Kernel, _Kernel]:
    """A step and its derivative. A sigmoid is a step whose line never begins."""
    if isinstance(step, Sigmoid):
        step = SupRankStep(step.tau, rho=0.0, delta=math.inf, start=0.0)
    near, cut = Sigmoid(step.tau), step.delta
    at_cut = torch.tensor(cut, dtype=torch.float64)
    value, slope = near.value(at_cut).item(), near.slope(at_cut).item()
    bend = slope * (1 - 2 * value) / step.tau  # the second derivative
    of_value = grid.spectrum(lambda t: near.value(t.clamp(max=cut)) + slope * (t - cut).clamp(min=0))
    of_slope = grid.spectrum(lambda t: near.slope(t.clamp(max=cut)) + bend * (t - cut).clamp(min=0))
    height = step.line_start - step.start - value
    return (
        _Kernel(of_value, 0.5 + step.start, step.start, cut, height, step.rho - slope),
        # S_k rises and falls with the score of k by the same: what k has of itself goes away in the gradient.
        _Kernel(of_slope, 0.0, 0.0, cut, step.rho - slope, -bend),
    )


class _Grid:
    """Points at equal distances over the range of the scores of a query, and one before and two after it.

    Args:
        lowest: the least score.
        highest: the greatest.
        width: between two points, a cell.
        device: where values at points are.
    """

    def __init__(self, lowest: float, highest: float, width: float, device: torch.device) -> None:
        self.lowest, self.width, self._device = lowest, width, device
        # Rounding may carry the greatest score into one cell more.
        self.n_points = int((highest - lowest) / width) + 5
        # FFTs of such lengths are fast; from this one on, the ends of a convolution do not meet.
        least = 2 * self.n_points - 1
        self._length = min(factor << (-(-least // factor) - 1).bit_length() for factor in (1, 3, 5))

    def spectrum(self, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Of a function of score differences, for :meth:`convolve`."""
        differences = torch.fft.fftfreq(self._length, 1 / self._length, dtype=torch.float64, device=self._device)
        spectrum: torch.Tensor = torch.fft.rfft(function(differences * self.width))
        return spectrum

    def convolve(self, points: torch.Tensor, spectra: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """At each point x the sum over points y of f(x - y) times their values, or f(y - x) of conjugate spectra."""
        of_points = torch.fft.rfft(points, n=self._length)
        products = (of_points * spectrum for spectrum in spectra)
        return [torch.fft.irfft(product, n=self._length)[..., : self.n_points] for product in products]


def _cubic(u: torch.Tensor) -> Iterator[torch.Tensor]:
    """The weights of the points -1, 0, 1 and 2 for cubic interpolation at ``u``."""
    for constant, linear, square, cube in _CUBIC:
        yield u.mul(cube).add_(square).mul_(u).add_(linear).mul_(u).add_(constant)


def _to_points(cells: torch.Tensor, u: torch.Tensor, values: torch.Tensor, n_points: int) -> torch.Tensor:
    """Spread values at items to the points around them.

    Args:
        cells: int64, shape (n,); the first of the four points around each item.
        u: float64, shape (n,); how far the item is from the second of them, in cells.
        values: float64, shape (n,).
        n_points: how many there are in all.

    Returns:
        float64, shape (n_points,).
    """
    points = values.new_zeros(n_points)
    for shift, weights in enumerate(_cubic(u)):
        points[shift:].index_add_(0, cells, weights.mul_(values))
    return points


def _from_points(cells: torch.Tensor, u: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """The transpose of :func:`_to_points`: values at items from values at points, by interpolation."""
    values = torch.zeros_like(u)
    for shift, weights in enumerate(_cubic(u)):
        values.addcmul_(weights, points[shift:].index_select(0, cells))
    return values


@dataclass(frozen=True, eq=False)
class _Targets:
    """The positives k of one level.

    Sorted items are numbered on through the queries. So are places, of which each query has one more, at
    the end.
    """

    at: torch.Tensor  #: int64, shape (P,), like the others: the item k
    tied: torch.Tensor  #: the place of the first item j with s_j >= s_k
    above: torch.Tensor | None  #: of the first item j with s_j > s_k + c; None for kernels without a line


class _Items:
    """The items of some queries by ascending score, on lines of points that lie end to end.

    Args:
        scores: float, shape (R, N).
        levels: int64, shape (R, N).
        weights: float64, shape (R, L + 1, L + 1).
        cut: c of the kernels.
        grid: that of each query.
    """

    def __init__(
        self, scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, cut: float, grid: _Grid
    ) -> None:
        self._grid, self._cut = grid, cut / grid.width
        ascending, self._order = sort_scores(scores)
        self._rows = torch.arange(len(scores), device=scores.device)[:, None]
        # Levels plus 1: class 0 is in no retrieval set, and has no weight.
        self._classes = levels.gather(1, self._order).add_(1)
        self._weights = torch.nn.functional.pad(weights, (1, 0, 1, 0)).permute(1, 2, 0)
        position = (ascending.to(torch.float64) - grid.lowest).div_(grid.width)
        self._position = position.add_(self._rows * grid.n_points).view(-1)
        is_first = torch.nn.functional.pad(ascending[:, 1:] > ascending[:, :-1], (1, 0), value=True).view(-1)
        tied = torch.where(is_first, torch.arange(len(is_first), device=scores.device), 0).cummax(0).values
        self._targets = [self._targets_of(level, tied) for level in range(1, weights.shape[1])]

    def _targets_of(self, level: int, tied: torch.Tensor) -> _Targets:
        n_items = self._order.shape[1]
        at = (self._classes.view(-1) == level + 1).nonzero().squeeze(1)
        row = at.div(n_items, rounding_mode="floor")
        above = None
        if self._cut < math.inf:
            above = torch.searchsorted(self._position, self._position.index_select(0, at) + self._cut, right=True)
            above = above.minimum((row + 1) * n_items).add_(row)
        return _Targets(at, tied.index_select(0, at).add_(row), above)

    def sums(self, kernels: Sequence[_Kernel]) -> list[torch.Tensor]:
        """S_k with each of the kernels for h: float64, shape (R, N), in the order in which the items came."""
        n_classes, _, n_rows = self._weights.shape
        cells, cells_of_class, u = self._cells()
        n_points = n_classes * n_rows * self._grid.n_points
        points = _to_points(cells_of_class, u, torch.ones_like(u), n_points).view(n_classes, n_rows, -1)
        points = torch.einsum("abr,brp->arp", self._weights[2:], points)
        functions = self._grid.convolve(points, [kernel.spectrum.conj() for kernel in kernels])
        found = [torch.zeros_like(u) for _ in kernels]
        for level, targets in enumerate(self._targets, 1):
            at = targets.at
            weights = self._weights_of_items(level)
            count = _sums_from(weights.view_as(self._order))
            not_below, own = count.index_select(0, targets.tied), weights.index_select(0, at)
            if targets.above is not None:
                n_above = count.index_select(0, targets.above)
                above = _sums_from((weights * self._position).view_as(self._order)).index_select(0, targets.above)
                above -= n_above * (self._position.index_select(0, at) + self._cut)
            around = cells.index_select(0, at), u.index_select(0, at)
            for of_all, kernel, function in zip(found, kernels, functions, strict=True):
                sums = _from_points(*around, function[level - 1].reshape(-1))
                sums += kernel.start * not_below - kernel.own * own
                if targets.above is not None:
                    sums += kernel.height * n_above + kernel.slope * self._grid.width * above
                of_all.index_copy_(0, at, sums)
        return [self._unsorted(sums) for sums in found]

    def gradient(self, upstream: torch.Tensor, kernel: _Kernel) -> torch.Tensor:
        """What the score of each item has of the S_k that it is part of; :meth:`sums` transposed.

        Args:
            upstream: the gradients of the S_k, shape (R, N).
            kernel: h'.

        Returns:
            float64, shape (R, N).
        """
        cells, cells_of_class, u = self._cells()
        upstream = upstream.to(torch.float64).gather(1, self._order).view(-1)
        n_rows, n_points = len(self._order), self._grid.n_points
        lines, edges = [], torch.zeros_like(u)
        for level, targets in enumerate(self._targets, 1):
            at = targets.at
            values = upstream.index_select(0, at)
            around = cells.index_select(0, at), u.index_select(0, at)
            lines.append(_to_points(*around, values, n_rows * n_points).view(n_rows, n_points))
            if targets.above is not None:
                count = self._sums_up_to(targets.above, values)
                below = self._position * count
                below -= self._sums_up_to(targets.above, values * (self._position.index_select(0, at) + self._cut))
                below.mul_(kernel.slope * self._grid.width).add_(count, alpha=kernel.height)
                edges.addcmul_(below, self._weights_of_items(level))
        points = torch.einsum("abr,arp->brp", self._weights[2:], torch.stack(lines))
        (functions,) = self._grid.convolve(points, [kernel.spectrum])
        return self._unsorted(_from_points(cells_of_class, u, functions.reshape(-1)).add_(edges))

    def _cells(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The cell of each item, the same if every class has lines of its own, and where it is in the cell."""
        cells = self._position.long()
        of_class = (self._classes * (len(self._order) * self._grid.n_points)).view(-1).add_(cells)
        return cells, of_class, self._position - cells

    def _weights_of_items(self, level: int) -> torch.Tensor:
        """w[level, lv_j] of all items."""
        by_class = self._weights[level + 1].reshape(-1)
        return by_class.index_select(0, (self._classes * len(self._order)).add_(self._rows).view(-1))

    def _sums_up_to(self, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """For each item the sum of its query's values at places up to its own; :func:`_sums_from` transposed."""
        n_rows, n_items = self._order.shape
        at_places = values.new_zeros(n_rows * (n_items + 1)).index_add_(0, places, values)
        return at_places.view(n_rows, -1).cumsum(1)[:, :-1].reshape(-1)

    def _unsorted(self, values: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(self._order, dtype=values.dtype).scatter_(1, self._order, values.view_as(self._order))


def _sums_from(values: torch.Tensor) -> torch.Tensor:
    """The sum of each row's values from each of its places on: shape (R, N) to (R * (N + 1),)."""
    sums = torch.nn.functional.pad(values, (1, 0)).cumsum_(1)
    return (sums[:, -1:] - sums).view(-1)

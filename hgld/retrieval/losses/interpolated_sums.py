"""Sums of smooth steps without pairs: O(N log N) for each query, where pairs take O(N^2).

The sum S_k (see :mod:`~hgld.retrieval.losses.step_sums`) depends on k by its level a and its score alone: it is the
value at s_k of one of L functions, F_a(x) = sum over j of w[a, lv_j] h(s_j - x). A step, whose line begins at c, is

::

    h(t) = g(t) + start [t >= 0] + [t > c] (height + slope (t - c))

where g is sigma(t / tau) up to c and its tangent from there on. The edges of h are in the other two terms, and these
are exact: counts and sums of the scores above x and above x + c, from cumulative sums over the sorted scores. g is
smooth, and interpolated on a grid of points tau / 16 apart: items are spread to the four points around them with the
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

from hgld.errors import InputError
from hgld.retrieval.losses.sorting import sort_scores
from hgld.retrieval.losses.steps import Sigmoid, SupRankStep
from hgld.retrieval.threads import spread

#: Cells of the grid in a width of tau. Errors shrink with the fourth power of a cell's width.
CELLS_PER_TAU = 16
#: The most cells that the scores of one call may span: a range of 655 with a tau of 0.01. Cosines span 3,200.
MOST_CELLS = 2**20
#: Items and cells that are worked on at once.
_BLOCK = {"cpu": 2**18, "cuda": 2**25}

#: Cubic interpolation at u between the points -1, 0, 1 and 2: a row for each, the factors of 1, u, u^2 and u^3.
_CUBIC = (
    (0.0, -1 / 3, 1 / 2, -1 / 6),
    (1.0, -1 / 2, -1.0, 1 / 2),
    (0.0, 1.0, 1 / 2, -1 / 2),
    (0.0, -1 / 6, 0.0, 1 / 6),
)


def interpolated_sums(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Sigmoid | SupRankStep
) -> torch.Tensor:
    """:func:`~hgld.retrieval.losses.step_sums.step_sums` without pairs, for many items.

    Arguments and result are the same. Of a rank the relative error is about 1e-6, of a gradient 1e-5 of the largest
    that a pair has. Until the backward pass each score holds about 40 bytes.

    Raises:
        InputError: the scores span more than ``MOST_CELLS`` cells.
    """
    lowest, highest = (bound.item() for bound in torch.aminmax(scores.detach()))
    if not math.isfinite(highest - lowest):
        return torch.where(levels > 0, scores * math.nan, 0.0)
    grid = _Grid(lowest, highest, step.tau / CELLS_PER_TAU, scores.device)
    if grid.n_cells > MOST_CELLS:
        raise InputError(
            f"scores from {lowest:g} to {highest:g} span too many temperatures of {step.tau:g} for sums by "
            "interpolation; normalise the embeddings, so that scores are cosines"
        )
    return _InterpolatedSums.apply(scores, levels, weights, step, grid)  # type: ignore[no-any-return, no-untyped-call]


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
        size = max(1, _BLOCK[scores.device.type] // (n_items + grid.n_cells))
        scores, weights = scores.detach(), weights.to(torch.float64).expand(n_queries, -1, -1)
        kernels = _kernels(step, grid)[: 1 + ctx.needs_input_grad[0]]
        found = scores.new_empty(len(kernels), n_queries, n_items)

        def work(begin: int) -> _Items:
            block = slice(begin, begin + size)
            items = _Items(scores[block], levels[block], weights[block], kernels[0].cut, grid)
            for result, sums in zip(found, items.sums(kernels), strict=True):
                result[block] = sums
            return items

        items = spread(work, range(0, n_queries, size), scores.device)
        if ctx.needs_input_grad[0]:
            ctx.items, ctx.size, ctx.kernel, ctx.slopes = items, size, kernels[1], found[1]
        return found[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        gradient = -upstream * ctx.slopes

        def work(block: tuple[_Items, torch.Tensor, torch.Tensor]) -> None:
            items, of_items, of_sums = block
            of_items += items.gradient(of_sums, ctx.kernel)

        blocks = zip(ctx.items, gradient.split(ctx.size), upstream.split(ctx.size), strict=True)
        spread(work, blocks, upstream.device)
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
    """Equal cells over the range of the scores, and points at their borders, one more before and after.

    Args:
        lowest: the least score.
        highest: the greatest.
        width: of a cell.
        device: where points are.
    """

    def __init__(self, lowest: float, highest: float, width: float, device: torch.device) -> None:
        self.lowest, self.width = lowest, width
        self.n_cells = int((highest - lowest) / width) + 2  # one to spare, for rounding
        self._n_points = self.n_cells + 3
        # FFT is fast for lengths like these; the convolution must not reach around
        least = 2 * self._n_points - 1
        self._length = min(factor << (-(-least // factor) - 1).bit_length() for factor in (1, 3, 5))
        self._cubic = torch.tensor(_CUBIC, dtype=torch.float64, device=device)

    def spectrum(self, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Of a function of score differences, for :meth:`convolve`."""
        steps = torch.fft.fftfreq(self._length, 1 / self._length, dtype=torch.float64, device=self._cubic.device)
        return torch.fft.rfft(function(steps * self.width))

    def spread(self, cell: torch.Tensor, u: torch.Tensor, values: torch.Tensor, n_lines: int) -> torch.Tensor:
        """Values at the points from values at items.

        Args:
            cell: int64, shape (n,); of each item, cells being numbered on through the lines.
            u: float64, shape (n,); where in its cell, 0 to 1.
            values: float64, shape (n,).
            n_lines: how many ranges of scores there are.

        Returns:
            float64, shape (n_lines, n_points).
        """
        moments = values.new_zeros(4, n_lines * self.n_cells)
        for power in range(4):
            moments[power].index_add_(0, cell, values)
            values = values * u
        weights = (self._cubic @ moments).view(4, n_lines, self.n_cells)
        points = values.new_zeros(n_lines, self._n_points)
        for first in range(4):
            points[:, first : first + self.n_cells] += weights[first]
        return points

    def read(self, points: torch.Tensor, cell: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """The transpose of :meth:`spread`: values at items, float64 of the shape (n,), from values at the points."""
        around = points.unfold(1, self.n_cells, 1).transpose(0, 1).reshape(4, -1)
        cubic, square, linear, constant = (self._cubic.T @ around).flip(0)
        values = cubic.index_select(0, cell)
        for factor in (square, linear, constant):
            values.mul_(u).add_(factor.index_select(0, cell))
        return values

    def convolve(self, points: torch.Tensor, spectra: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The sum over points y of f(x - y) times their values, at all points x, for each function's spectrum."""
        transformed = torch.fft.rfft(points, n=self._length)
        return [
            torch.fft.irfft(transformed * spectrum, n=self._length)[..., : self._n_points] for spectrum in spectra
        ]


@dataclass(frozen=True, eq=False)
class _Targets:
    """The positives k of one level; sorted items are numbered on through the queries."""

    row: torch.Tensor  #: int64, shape (P,), like all: the query
    at: torch.Tensor  #: the item k
    tied: torch.Tensor  #: the first item j with s_j >= s_k
    above: torch.Tensor  #: the first item j with s_j > s_k + c; if there is none, the place behind the query's last


class _Items:
    """Some queries' items by ascending score; the queries' grids lie end to end on one line.

    Args:
        scores: float, shape (R, N).
        levels: int64, shape (R, N).
        weights: float64, shape (R, L + 1, L + 1).
        cut: c of the kernels.
        grid: that of one query.
    """

    def __init__(
        self, scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, cut: float, grid: _Grid
    ) -> None:
        self._grid, self._cut = grid, cut / grid.width
        self._n_rows, self._n_items = scores.shape
        ascending, self._order = sort_scores(scores)
        # One more than the level: class 0 has no weight.
        self._classes = levels.gather(1, self._order).add_(1)
        self._weights = torch.nn.functional.pad(weights, (1, 0, 1, 0)).permute(1, 2, 0)
        self._rows = torch.arange(self._n_rows, device=scores.device)[:, None]
        position = (ascending.to(torch.float64) - grid.lowest) / grid.width
        self._position = position.add_(self._rows * grid.n_cells)
        first = torch.ones_like(ascending, dtype=torch.bool)
        torch.gt(ascending[:, 1:], ascending[:, :-1], out=first[:, 1:])
        tied = torch.where(first.view(-1), torch.arange(first.numel(), device=scores.device), 0).cummax(0).values
        self._targets = [self._targets_of(level, tied) for level in range(1, weights.shape[1])]

    def _targets_of(self, level: int, tied: torch.Tensor) -> _Targets:
        at = (self._classes.view(-1) == level + 1).nonzero().squeeze(1)
        row = at.div(self._n_items, rounding_mode="floor")
        above = at
        if math.isfinite(self._cut):
            position = self._position.view(-1)
            above = torch.searchsorted(position, position.index_select(0, at).add_(self._cut), right=True)
            above = above.minimum((row + 1) * self._n_items)
        return _Targets(row, at, tied.index_select(0, at), above)

    def sums(self, kernels: Sequence[_Kernel]) -> list[torch.Tensor]:
        """S_k with each of the kernels for h: float64, shape (R, N), the items in the order in which they came."""
        cell, cell_of_class, u = self._cells()
        points = self._grid.spread(cell_of_class, u, torch.ones_like(u), len(self._weights) * self._n_rows)
        points = points.view(len(self._weights), self._n_rows, -1)
        mixed = torch.einsum("abr,brp->arp", self._weights[2:], points)
        convolved = self._grid.convolve(mixed, [kernel.spectrum.conj() for kernel in kernels])
        found = [torch.zeros_like(u) for _ in kernels]
        for level, targets in enumerate(self._targets, 1):
            at = targets.at
            weights = self._weights_of_items(level)
            count = _sums_from(weights)
            not_below = count.index_select(0, targets.tied + targets.row)
            if math.isfinite(self._cut):
                above = targets.above + targets.row
                n_above = count.index_select(0, above)
                distance = _sums_from(weights * self._position).index_select(0, above)
                distance -= n_above * (self._position.view(-1).index_select(0, at) + self._cut)
            own = self._weights[level + 1, level + 1].index_select(0, targets.row)
            for sums, kernel, points in zip(found, kernels, convolved, strict=True):
                of_level = self._grid.read(points[level - 1], cell.index_select(0, at), u.index_select(0, at))
                of_level += kernel.start * not_below - kernel.own * own
                if math.isfinite(self._cut):
                    of_level += kernel.height * n_above + kernel.slope * self._grid.width * distance
                sums.index_copy_(0, at, of_level)
        return [self._unsorted(sums) for sums in found]

    def gradient(self, upstream: torch.Tensor, kernel: _Kernel) -> torch.Tensor:
        """What the items' scores have from the S_k that they are part of, those of the items themselves aside.

        Args:
            upstream: of the S_k, shape (R, N).
            kernel: h'.

        Returns:
            float64, shape (R, N).
        """
        cell, cell_of_class, u = self._cells()
        upstream = upstream.gather(1, self._order).view(-1).to(torch.float64)
        points = torch.stack(
            [
                self._grid.spread(
                    cell.index_select(0, targets.at),
                    u.index_select(0, targets.at),
                    upstream.index_select(0, targets.at),
                    self._n_rows,
                )
                for targets in self._targets
            ]
        )
        mixed = torch.einsum("abr,arp->brp", self._weights[2:], points)
        (convolved,) = self._grid.convolve(mixed, [kernel.spectrum])
        gradient = self._grid.read(convolved.flatten(0, 1), cell_of_class, u).view(self._n_rows, -1)
        if math.isfinite(self._cut):
            for level, targets in enumerate(self._targets, 1):
                weights = self._weights_of_items(level)
                above = targets.above + targets.row
                of_targets = upstream.index_select(0, targets.at)
                count = self._sums_up_to(above, of_targets)
                of_targets *= self._position.view(-1).index_select(0, targets.at) + self._cut
                distance = self._position * count - self._sums_up_to(above, of_targets)
                gradient += weights * (kernel.height * count + kernel.slope * self._grid.width * distance)
        return self._unsorted(gradient)

    def _cells(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The cell of each item, the same if each class has a line of its own, and where it is in its cell."""
        position = self._position.view(-1)
        cell = position.long()
        of_class = (self._classes * (self._n_rows * self._grid.n_cells)).view(-1).add_(cell)
        return cell, of_class, position - cell

    def _weights_of_items(self, level: int) -> torch.Tensor:
        """w[level, lv_j] of all items: shape (R, N)."""
        at = self._classes * self._n_rows + self._rows
        return self._weights[level + 1].flatten().index_select(0, at.view(-1)).view_as(at)

    def _sums_up_to(self, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """For each item the sum of the values at its place and those before, of its query: shape (R, N)."""
        sums = values.new_zeros(self._n_rows * (self._n_items + 1)).index_add_(0, places, values)
        return sums.view(self._n_rows, -1).cumsum(1)[:, :-1]

    def _unsorted(self, values: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(self._position).scatter_(1, self._order, values.view_as(self._order))


def _sums_from(values: torch.Tensor) -> torch.Tensor:
    """The sums of each row from each place to the end, and 0 behind it: shape (R * (N + 1),)."""
    sums = values.new_zeros(len(values), values.shape[1] + 1)
    torch.cumsum(values, 1, out=sums[:, 1:])
    return (sums[:, -1:] - sums).view(-1)

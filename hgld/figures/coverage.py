"""Figures of scores that decide which answers are accepted.

Rejection scores decide on answers to queries: their figures show risk over coverage, and how well
each score detects near and far images. Scores of proposals decide on groups of landmarks: their
figures show accuracy over coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.resampling import wilson
from hgld.figures.style import (
    FAINT,
    INK,
    LINES,
    legend_below,
    make_axes,
    make_figure,
    open_axes,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The low and the high end of a confidence interval.
_Interval = tuple[float, float]

#: Number of points of a curve that are drawn.
_MAX_POINTS = 1000
#: Risks among fewer images are not drawn.
_MIN_IMAGES = 10
#: Colours and markers of the series of a panel, such as near and far images.
_SERIES = (("#3e3bff", "o"), ("#9e712a", "D"), ("#275e13", "s"), ("#ff3876", "^"))
# Sizes in inches.
_PANEL_WIDTH = 2.9
_ROW_HEIGHT = 0.24
_LEGEND_ROW_HEIGHT = 0.17


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Risk over coverage of one score.

    Args:
        title: Title of the score.
        coverage: Share of images accepted at each threshold, ascending, float64, shape (m,).
        risk: Share of wrong answers among the accepted images, float64, shape (m,).
        n_images: Number of images, accepted or not.
        area: Area under the curve (AURC), 0 to 1.
    """

    title: str
    coverage: Floats
    risk: Floats
    n_images: int
    area: float


@dataclass(frozen=True)
class Estimate:
    """A value from 0 to 1, not drawn if it is NaN, and its confidence interval, or None without one."""

    value: float
    interval: _Interval | None = None


@dataclass(frozen=True, eq=False)
class MetricPanel:
    """One metric of several scores, on kinds of images such as ``near`` and ``far``.

    Args:
        title: Name of the metric with its convention.
        series: An estimate for each score, by kind of images.
        lower_is_better: Whether lower values are better.
    """

    title: str
    series: Mapping[str, Sequence[Estimate]]
    lower_is_better: bool = False


def draw_risk_coverage(
    path: Path, curves: Sequence[RiskCoverageCurve], *, title: str | None = None
) -> None:
    """Draw risk over coverage, one curve per score, with areas in the legend, the lowest area first.

    If all scores have the same share of right answers, the lowest risk that an order of the images can
    have at each coverage is drawn, too.
    """
    from matplotlib.ticker import PercentFormatter

    height = max(4.6, 0.8 + _LEGEND_ROW_HEIGHT * len(curves))
    figure = make_figure(8.2, height, layout="constrained")
    axes = figure.subplots()
    styles = {curve.title: _line_style(position) for position, curve in enumerate(curves)}
    for curve in sorted(curves, key=lambda curve: curve.area):
        drawn = _points_to_draw(curve)
        colour, dashes = styles[curve.title]
        axes.step(
            curve.coverage[drawn],
            curve.risk[drawn],
            dashes,
            where="pre",  # up to the coverage of a threshold, the risk is that of the threshold
            color=colour,
            linewidth=1.4,
            label=f"{curve.title}: {curve.area:.3f}",
        )
    if np.ptp([curve.risk[-1] for curve in curves]) < 1e-9:
        coverage = np.linspace(0, 1, _MAX_POINTS)[1:]
        best = np.maximum(0, 1 - (1 - curves[0].risk[-1]) / coverage)
        axes.plot(coverage, best, color=FAINT, linewidth=1, label="best possible order")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="share of images accepted (coverage)")
    axes.set_ylabel("share of wrong answers among them (risk)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1))
    open_axes(axes)
    if title is not None:
        axes.set_title(title, fontsize=11, color=INK)
    figure.legend(
        loc="outside right upper",
        frameon=False,
        fontsize=8,
        title="area under the curve",
        title_fontsize=8,
    )
    save(figure, path)


def draw_detection(path: Path, scores: Sequence[str], panels: Sequence[MetricPanel]) -> None:
    """Draw a row per score and a panel per metric, with an interval for each kind of images.

    It has the content of Table 5.5 of E. Ramzi's thesis (see :mod:`hgld.rejection.residual_energy`):
    which scores detect near images, and which scores detect far images.
    """
    width = 1.9 + _PANEL_WIDTH * len(panels)
    height = 1.2 + _ROW_HEIGHT * len(scores)
    figure = make_figure(width, height, layout="constrained")
    panel_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    kinds: list[str] = []
    for panel in panels:
        kinds += [kind for kind in panel.series if kind not in kinds]
    for axes, panel in zip(panel_axes, panels, strict=True):
        _draw_panel(axes, panel, kinds, len(scores))
    panel_axes[0].set_yticks(range(len(scores)), scores)
    panel_axes[0].set_ylim(len(scores) - 0.5, -0.5)
    legend_below(figure, panel_axes, len(kinds))
    save(figure, path)


def _draw_panel(axes: Axes, panel: MetricPanel, kinds: Sequence[str], n_scores: int) -> None:
    """Draw the estimates of a metric, a row per score.

    Args:
        axes: Axes of the panel.
        panel: The metric.
        kinds: Kinds of images in all panels, which have the same colours everywhere.
        n_scores: Number of scores.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for row in range(0, n_scores, 2):
        axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.08, linewidth=0)
    for position, (kind, estimates) in enumerate(panel.series.items()):
        colour, marker = _SERIES[kinds.index(kind) % len(_SERIES)]
        rows = np.arange(n_scores) + 0.22 * (position - (len(panel.series) - 1) / 2)
        ends = []
        for estimate in estimates:
            ends.append(estimate.interval or (estimate.value, estimate.value))
        low, high = np.array(ends).T
        axes.hlines(rows, low, high, color=colour, linewidth=1.6, alpha=0.6)
        axes.plot(
            [estimate.value for estimate in estimates],
            rows,
            marker,
            color=colour,
            markersize=4.5,
            label=kind,
        )
    direction = "← better" if panel.lower_is_better else "better →"
    axes.set_title(panel.title, fontsize=10, color=INK)
    axes.set_xlabel(direction, fontsize=9, color=FAINT)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.tick_params(axis="y", length=0)
    open_axes(axes)
    axes.grid(visible=False, axis="y")


def _line_style(position: int) -> tuple[str, str]:
    """Return colour and dashes, which differ for the first forty curves."""
    dashes = ("-", "--", ":", "-.")
    return LINES[position % len(LINES)], dashes[position // len(LINES) % len(dashes)]


def _points_to_draw(curve: RiskCoverageCurve) -> NDArray[np.intp]:
    """Return the positions of the points that are drawn.

    They are evenly spread over coverage, from ``_MIN_IMAGES`` accepted images to the last point.
    """
    lowest_coverage = min(_MIN_IMAGES / curve.n_images, 1)
    wanted = np.linspace(lowest_coverage, 1, _MAX_POINTS)
    positions = np.searchsorted(curve.coverage, wanted)
    return np.unique(np.minimum(positions, len(curve.coverage) - 1))


#: Accuracies of fewer proposals are not drawn.
_MIN_PROPOSALS = 10
#: Scores marked on the curves.
_MARKS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, eq=False)
class CoverageCurve:
    """Proposals for n landmarks.

    Args:
        title: Kind of the proposals, such as ``group``.
        score: Score of each proposal, float64, shape (n,).
        right: Whether each proposal is right, shape (n,).
        baseline: Share of landmarks for which the most frequent answer is right.
    """

    title: str
    score: Floats
    right: Booleans
    baseline: float

    def points(self) -> tuple[Integers, Floats, Floats]:
        """Return the points of the curve, highest score first.

        Scores that fewer than ``_MIN_PROPOSALS`` proposals reach are omitted, unless there are fewer
        proposals.

        Returns:
            For each distinct score: the number of proposals with at least this score, their accuracy,
            and the score.
        """
        negated_scores, counts = np.unique(-self.score, return_counts=True)
        order = np.argsort(-self.score, kind="stable")
        n = counts.cumsum()
        accuracy = self.right[order].cumsum()[n - 1] / n
        is_drawn = n >= min(_MIN_PROPOSALS, n[-1])
        return n[is_drawn], accuracy[is_drawn], -negated_scores[is_drawn]


def draw_coverage(path: Path, curves: Sequence[CoverageCurve]) -> None:
    """Draw accuracy over coverage, a panel per curve, with 95 % Wilson intervals and marked scores."""
    figure, panels = make_axes(len(curves), 3.6)
    for axes, curve in zip(panels, curves, strict=True):
        _draw_curve(axes, curve)
    panels[0].set_ylabel("share that is right")
    legend_below(figure, panels[:1], 2, fontsize=9)
    save(figure, path)


def _draw_curve(axes: Axes, curve: CoverageCurve) -> None:
    """Draw the accuracy of proposals over coverage."""
    from matplotlib.patheffects import withStroke

    n, accuracy, scores = curve.points()
    coverage = n / len(curve.score)
    low, high = wilson(accuracy, n)
    axes.fill_between(coverage, low, high, color=LINES[0], alpha=0.15, linewidth=0)
    axes.plot(coverage, accuracy, color=LINES[0], label="proposals by score, highest first")
    axes.axhline(curve.baseline, color=FAINT, linestyle="--", label="always the most frequent")
    for mark in _MARKS:
        reached = np.flatnonzero(scores >= mark)
        if len(reached):
            x = coverage[reached[-1]]
            y = accuracy[reached[-1]]
            axes.plot(x, y, "o", color=LINES[0], markersize=4)
            text = axes.annotate(
                f"{mark:g}",
                (x, y),
                (0, 7),
                textcoords="offset points",
                fontsize=8,
                color=INK,
                ha="center",
            )
            text.set_path_effects([withStroke(linewidth=2.5, foreground="white", alpha=0.85)])
    axes.set_title(curve.title, fontsize=11, color=INK)
    axes.set_xlabel("share of landmarks with a proposal of at least this score")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.03)
    open_axes(axes)

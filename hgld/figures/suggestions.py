"""Figures of suggested groups: calibration of their scores, accuracy over coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.compute.resampling import wilson
from hgld.figures.style import FAINT, INK, LIGHT, LINES, legend_below, make_axes, open_axes, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_BINS = 10
_RIGHT, _WRONG, _DROPPED = LIGHT[4], LIGHT[2], "#c4cad0"


@dataclass(frozen=True)
class SuggestionOutcomes:
    """First suggestions compared with the decisions on n labels.

    Args:
        title: Name of these suggestions.
        score: float64, shape (n,); score of the first suggestion.
        right: bool, shape (n,); whether annotators chose this group.
        dropped: bool, shape (n,); whether annotators dropped the label.
    """

    title: str
    score: NDArray[np.float64]
    right: NDArray[np.bool_]
    dropped: NDArray[np.bool_]

    def bins(self) -> NDArray[np.int64]:
        """Return the bin of each score, of ``N_BINS`` bins of equal width."""
        return np.minimum((self.score * N_BINS).astype(np.int64), N_BINS - 1)

    def calibration_error(self) -> float:
        """Return the expected calibration error: the gap between mean score and accuracy, averaged over the bins."""
        bins = self.bins()
        sums = np.zeros((2, N_BINS))
        for row, values in zip(sums, (self.score, self.right), strict=True):
            np.add.at(row, bins, values)
        return float(np.abs(sums[0] - sums[1]).sum() / len(bins))


def draw_reliability(path: Path, runs: Sequence[SuggestionOutcomes]) -> None:
    """Draw reliability diagrams and histograms of scores side by side.

    Calibrated scores lie on the diagonal; bars are 95 % Wilson intervals.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(runs), 6), layout="constrained")
    axes = figure.subplots(2, len(runs), sharex=True, sharey="row", squeeze=False, height_ratios=(5, 3))
    for (upper, lower), run in zip(axes.T, runs, strict=True):
        upper.set_title(f"{run.title}: calibration error {run.calibration_error():.3f}", fontsize=10, color=INK)
        _draw_accuracy(upper, run)
        _draw_counts(lower, run)
    axes[0, 0].set_ylabel("chosen by annotators")
    axes[1, 0].set_ylabel("labels")
    axes[1, 0].legend(frameon=False, fontsize=9, loc="upper center")
    for lower in axes[1]:
        lower.set_xlabel("score of the top suggestion")
    for panel in axes.flat:
        open_axes(panel)
    save(figure, path)


def _draw_accuracy(axes: Axes, run: SuggestionOutcomes) -> None:
    bins = run.bins()
    filled = np.unique(bins)
    count = np.array([np.sum(bins == number) for number in filled])
    accuracy = np.array([run.right[bins == number].mean() for number in filled])
    score = np.array([run.score[bins == number].mean() for number in filled])
    low, high = wilson(accuracy, count)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--")
    axes.errorbar(
        score,
        accuracy,
        yerr=np.stack([accuracy - low, high - accuracy]),
        fmt="o",
        color=LIGHT[0],
        markersize=5,
        capsize=2,
    )
    for x, y, labels in zip(score, accuracy, count, strict=True):
        offset = (6, 4) if y < 0.5 else (6, -11)
        axes.annotate(f"{labels:,}", (x, y), offset, textcoords="offset points", fontsize=8, color=FAINT)
    axes.set_xlim(0, 1.06)
    axes.set_ylim(-0.03, 1.03)


def _draw_counts(axes: Axes, run: SuggestionOutcomes) -> None:
    wrong = ~run.right & ~run.dropped
    outcomes = {"right": (run.right, _RIGHT), "wrong": (wrong, _WRONG), "dropped": (run.dropped, _DROPPED)}
    axes.hist(
        [run.score[selected] for selected, _ in outcomes.values()],
        bins=np.linspace(0, 1, N_BINS + 1).tolist(),
        stacked=True,
        color=[colour for _, colour in outcomes.values()],
        label=list(outcomes),
        rwidth=0.9,
    )


#: Accuracies of fewer proposals are not drawn.
_MIN_PROPOSALS = 10
#: Scores marked on the curves.
_MARKS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, eq=False)
class CoverageCurve:
    """Proposals for n landmarks, of a title such as ``group``: float64 scores, and whether each is right.

    ``baseline`` is the share of landmarks for which the most frequent answer is right.
    """

    title: str
    score: NDArray[np.float64]
    right: NDArray[np.bool_]
    baseline: float

    def points(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the number of proposals of at least each score, their accuracy, and the scores, highest first.

        Scores that few reach are left out, unless all are such.
        """
        scores, counts = np.unique(-self.score, return_counts=True)
        order = np.argsort(-self.score, kind="stable")
        n = counts.cumsum()
        accuracy = self.right[order].cumsum()[n - 1] / n
        kept = n >= min(_MIN_PROPOSALS, n[-1])
        return n[kept], accuracy[kept], -scores[kept]


def draw_coverage(path: Path, curves: Sequence[CoverageCurve]) -> None:
    """Draw accuracy over coverage, side by side, with 95 % Wilson intervals and scores as marks."""
    figure, panels = make_axes(len(curves), 3.6)
    for axes, curve in zip(panels, curves, strict=True):
        _draw_curve(axes, curve)
    panels[0].set_ylabel("share that is right")
    legend_below(figure, panels[:1], 2, fontsize=9)
    save(figure, path)


def _draw_curve(axes: Axes, curve: CoverageCurve) -> None:
    n, accuracy, scores = curve.points()
    coverage = n / len(curve.score)
    low, high = wilson(accuracy, n)
    axes.fill_between(coverage, low, high, color=LINES[0], alpha=0.15, linewidth=0)
    axes.plot(coverage, accuracy, color=LINES[0], label="proposals by score, highest first")
    axes.axhline(curve.baseline, color=FAINT, linestyle="--", label="always the most frequent")
    for mark in _MARKS:
        reached = np.flatnonzero(scores >= mark)
        if len(reached):
            x, y = coverage[reached[-1]], accuracy[reached[-1]]
            axes.plot(x, y, "o", color=LINES[0], markersize=4)
            axes.annotate(f"{mark:g}", (x, y), (0, 6), textcoords="offset points", fontsize=8, color=INK, ha="center")
    axes.set_title(curve.title, fontsize=11, color=INK)
    axes.set_xlabel("share of landmarks with a proposal of at least this score")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.03)
    open_axes(axes)

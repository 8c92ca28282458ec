"""Accuracy of the proposals that are taken, over the share of landmarks that get one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import FAINT, INK, LINES, make_axes, open_axes, save
from hgld.figures.suggestions import wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Accuracies of fewer proposals are not drawn.
_MIN_PROPOSALS = 10
#: Scores marked on the curves.
_MARKS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, eq=False)
class CoverageCurve:
    """Proposals for n landmarks.

    Args:
        title: What they are right about, such as ``group``.
        score: float64, shape (n,); score of each proposal.
        right: bool, shape (n,); whether it is right.
        baseline: Share of landmarks for which the most frequent answer is right.
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
    """Draw accuracy over coverage, side by side, with 95 % Wilson intervals and scores as marks.

    Args:
        path: Picture to write.
        curves: One curve for each panel.
    """
    figure, panels = make_axes(len(curves), 3.6)
    for axes, curve in zip(panels, curves, strict=True):
        _draw_curve(axes, curve)
    panels[0].set_ylabel("share that is right")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=9, ncols=2, loc="outside lower center")
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

"""Curves in panels: precision over recall, metrics over steps or over the values of a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import INK, make_axes, open_axes, save

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_ROW_HEIGHT = 2.9  # inches
#: Curves with at most this number of points have markers.
_MAX_MARKERS = 20


@dataclass(frozen=True)
class LineStyle:
    """Style of a curve; thick curves are emphasised."""

    colour: str
    dashed: bool = False
    thick: bool = False


@dataclass(frozen=True, eq=False)
class Line:
    """A curve of one or several runs.

    Args:
        title: Title in the legend, the same in all panels.
        style: Style, the same in all panels.
        x: float64, shape (n,).
        y: float64, shape (n_runs, n); NaN where a run has no value, but another has. The mean is drawn over a band
            from the minimum to the maximum.
    """

    title: str
    style: LineStyle
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Panel:
    """A plot of several curves.

    Args:
        title: Title above the plot.
        lines: Curves in the order of the legend.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        scale: Scale of the x axis.
        ticks: Tick labels by position on the x axis; None for those of matplotlib.
    """

    title: str
    lines: Sequence[Line]
    x_label: str = ""
    y_label: str = ""
    scale: Literal["linear", "log"] = "linear"
    ticks: Mapping[float, str] | None = None


def draw_panels(
    path: Path, panels: Sequence[Panel], *, title: str | None = None, n_columns: int | None = None
) -> None:
    """Draw panels in rows, with one legend below.

    Args:
        path: Picture to write.
        panels: Panels, row by row.
        title: Title above all panels.
        n_columns: Number of panels in a row; two or three by default.
    """
    figure, panel_axes = make_axes(len(panels), _ROW_HEIGHT, n_columns=n_columns)
    if title is not None:
        figure.suptitle(title, fontsize=11, color=INK)
    legend: dict[str, Artist] = {}
    for axes, panel in zip(panel_axes, panels, strict=True):
        _draw_panel(axes, panel)
        handles, titles = axes.get_legend_handles_labels()
        legend |= dict(zip(map(str, titles), handles, strict=True))
    figure.legend(
        list(legend.values()), list(legend), loc="outside lower center", ncols=5, frameon=False, handlelength=2.6
    )
    save(figure, path)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        axes.plot(
            line.x,
            np.nanmean(line.y, axis=0),
            "--" if line.style.dashed else "-",
            color=line.style.colour,
            linewidth=2.0 if line.style.thick else 1.2,
            marker="o" if len(line.x) <= _MAX_MARKERS else "",
            markersize=4 if line.style.thick else 3,
            label=line.title,
        )
        if len(line.y) > 1:
            axes.fill_between(
                line.x,
                np.nanmin(line.y, axis=0),
                np.nanmax(line.y, axis=0),
                color=line.style.colour,
                alpha=0.15,
                linewidth=0,
            )
    axes.set_xscale(panel.scale)
    if panel.ticks is not None:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
        axes.set_xticks([], minor=True)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel("\n".join(filter(None, (panel.y_label, _range_without_zero(axes)))), fontsize=9)
    axes.set_title(panel.title, fontsize=10, color=INK)
    open_axes(axes)


def _range_without_zero(axes: Axes) -> str:
    """Return the range of the y axis if 0 is not in it, as differences look larger then than they are."""
    low, high = axes.get_ylim()
    if low <= 0 <= high:
        return ""
    digits = 0 if high - low > 10 else 1 if high - low > 0.5 else 2
    return f"axis from {low:.{digits}f} to {high:.{digits}f}"

"""Curves in panels: precision over recall, a metric over steps, a metric over the values of a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import INK, arrange, open_axes, save

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Inches of a row.
_HEIGHT = 2.9
#: So many points are shown as such.
_MOST_MARKED = 20


@dataclass(frozen=True)
class LineStyle:
    """How a curve is drawn; thick if it is to be seen first."""

    colour: str
    dashed: bool = False
    thick: bool = False


@dataclass(frozen=True, eq=False)
class Line:
    """A curve, of one or several runs.

    Args:
        title: the same in all panels.
        style: likewise.
        x: float64, shape (n,).
        y: float64, shape (n_runs, n); the curve is their mean, in a band from the lowest to the highest. NaN where a
            run has no value, and another has.
    """

    title: str
    style: LineStyle
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Panel:
    """A part of a picture.

    Args:
        title: above it.
        lines: in the order of the legend.
        x_label: of the axis.
        y_label: likewise.
        scale: of the x axis.
        ticks: names of places on the x axis; those that matplotlib finds fit unless given.
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
    """Draw panels in rows, of two or three unless given, with one legend below, and a title above if there is one."""
    figure, places = arrange(len(panels), _HEIGHT, n_columns=n_columns)
    if title is not None:
        figure.suptitle(title, fontsize=11, color=INK)
    legend: dict[str, Artist] = {}
    for axes, panel in zip(places, panels, strict=True):
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
            marker="o" if len(line.x) <= _MOST_MARKED else "",
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
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_title(panel.title, fontsize=10, color=INK)
    open_axes(axes)

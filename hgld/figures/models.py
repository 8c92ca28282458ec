"""Figures that compare models: intervals of metrics, and one metric against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hgld.figures.style import INK, LINES, make_axes, open_axes, save


class Interval(NamedTuple):
    """The value of a model, and the ends of its interval."""

    name: str
    value: float
    low: float
    high: float


class Scatter(NamedTuple):
    """Two quantities of models: labels of the axes, and the name and position of each model."""

    x_label: str
    y_label: str
    points: Sequence[tuple[str, float, float]]
    log: bool = False


def draw_intervals(path: Path, panels: Mapping[str, Sequence[Interval]]) -> None:
    """Draw the value of each model as a dot on its interval, a panel per metric, models in the order of the first."""
    n_models = max(map(len, panels.values()))
    figure, all_axes = make_axes(len(panels), 1.1 + 0.24 * n_models)
    for axes, (label, models) in zip(all_axes, panels.items(), strict=True):
        places = range(len(models))
        values = [model.value for model in models]
        errors = [[model.value - model.low for model in models], [model.high - model.value for model in models]]
        axes.errorbar(values, places, xerr=errors, fmt="o", color=LINES[0], markersize=4, linewidth=1.4)
        place = axes.get_subplotspec()
        assert place is not None
        names = [model.name if place.is_first_col() else "" for model in models]
        axes.set_yticks(places, names, fontsize=8, parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel(label, fontsize=9)
        open_axes(axes)
    save(figure, path)


def draw_scatters(path: Path, scatters: Sequence[Scatter]) -> None:
    """Draw models as points with their names, a panel for each pair of quantities."""
    figure, all_axes = make_axes(len(scatters), 4.2)
    for axes, scatter in zip(all_axes, scatters, strict=True):
        for number, (name, x, y) in enumerate(scatter.points):
            colour = LINES[number % len(LINES)]
            axes.plot(x, y, "o", color=colour, markersize=5)
            axes.annotate(
                name, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=7, color=INK, parse_math=False
            )
        if scatter.log:
            axes.set_xscale("log")
        axes.margins(x=0.25)
        axes.set_xlabel(scatter.x_label, fontsize=9)
        axes.set_ylabel(scatter.y_label, fontsize=9)
        open_axes(axes)
    save(figure, path)

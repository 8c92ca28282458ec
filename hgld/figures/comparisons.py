"""Figures of comparisons: curves, scores, class means, intervals and scatter plots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hgld.arrays import Floats
from hgld.compute.machine import one_thread
from hgld.figures.style import (
    INK,
    LIGHT,
    LINES,
    legend_below,
    level_colours,
    make_axes,
    open_axes,
    save,
)

if TYPE_CHECKING:
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
    """A curve of one or several runs: the mean over a band from the minimum to the maximum.

    Args:
        title: Title in the legend, the same in all panels, like the style.
        style: Style of the curve.
        x: float64, shape (n,).
        y: float64, shape (n_runs, n); NaN for a run without a value where another run has a value.
    """

    title: str
    style: LineStyle
    x: Floats
    y: Floats


@dataclass(frozen=True, eq=False)
class Panel:
    """A plot of several curves, in the order of the legend.

    Args:
        title: Title of the plot.
        lines: Curves.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        scale: Scale of the x axis.
        ticks: Labels by position on the x axis. Default: numbers.
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
    """Draw panels in rows, of two or three by default, with one legend below."""
    figure, panel_axes = make_axes(len(panels), _ROW_HEIGHT, n_columns=n_columns)
    if title is not None:
        figure.suptitle(title, fontsize=11, color=INK)
    for axes, panel in zip(panel_axes, panels, strict=True):
        _draw_panel(axes, panel)
    legend_below(figure, panel_axes, 5, handlelength=2.6)
    save(figure, path)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw the curves of a panel."""
    for line in panel.lines:
        style = line.style
        axes.plot(
            line.x,
            np.nanmean(line.y, axis=0),
            "--" if style.dashed else "-",
            color=style.colour,
            linewidth=2.0 if style.thick else 1.2,
            marker="o" if len(line.x) <= _MAX_MARKERS else "",
            markersize=4 if style.thick else 3,
            label=line.title,
        )
        if len(line.y) > 1:
            axes.fill_between(
                line.x,
                np.nanmin(line.y, axis=0),
                np.nanmax(line.y, axis=0),
                color=style.colour,
                alpha=0.15,
                linewidth=0,
            )
    axes.set_xscale(panel.scale)
    if panel.ticks is not None:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
        axes.set_xticks([], minor=True)
    axes.set_xlabel(panel.x_label)
    y_labels = [label for label in (panel.y_label, _range_without_zero(axes)) if label]
    axes.set_ylabel("\n".join(y_labels), fontsize=9)
    axes.set_title(panel.title, fontsize=10, color=INK)
    open_axes(axes)


def _range_without_zero(axes: Axes) -> str:
    """Return the range of the y axis if it does not include 0, since differences then look larger."""
    low, high = axes.get_ylim()
    if low <= 0 <= high:
        return ""
    digits = 2
    if high - low > 10:
        digits = 0
    elif high - low > 0.5:
        digits = 1
    return f"axis from {low:.{digits}f} to {high:.{digits}f}"


#: Thresholds of the decomposability loss for positives and negatives (paper, Eq. 7).
_ALPHA = 0.9
_BETA = 0.6


@dataclass(frozen=True, eq=False)
class ScoreDensities:
    """Distributions of the cosine similarities of one method.

    Args:
        title: Title of the method.
        separation: Probability that a pair of the finest level scores higher than another pair (ROC
            AUC), 0 to 1.
        edges: Edges of the bins, float64, shape (n_bins + 1,).
        densities: Densities by shared level, 0 for no shared level, float64, shape (L + 1, n_bins);
            NaN for a level without pairs.
    """

    title: str
    separation: float
    edges: Floats
    densities: Floats


def draw_scores(path: Path, methods: Sequence[ScoreDensities], level_titles: Sequence[str]) -> None:
    """Draw densities, one panel per method.

    Args:
        path: File of the figure.
        methods: Distributions of each method.
        level_titles: Titles of the L + 1 levels, level 0 first.
    """
    n_levels = len(level_titles) - 1
    colours = level_colours(n_levels)[::-1]
    figure, panels = make_axes(len(methods), 2.6)
    limits = _x_limits(methods)
    for axes, scores in zip(panels, methods, strict=True):
        for level in range(n_levels, -1, -1):
            density = scores.densities[level]
            axes.stairs(
                density,
                scores.edges,
                color=colours[level],
                linewidth=1.4,
                label=level_titles[level],
            )
            axes.stairs(density, scores.edges, color=colours[level], alpha=0.18, fill=True)
        for score, style, name in ((_BETA, ":", "β = 0.6"), (_ALPHA, "--", "α = 0.9")):
            axes.axvline(score, color=INK, linestyle=style, linewidth=1, label=f"{name} (Eq. 7)")
        title = f"{scores.title}: AUC {100 * scores.separation:.1f} %"
        axes.set_title(title, fontsize=10, color=INK)
        axes.set_ylim(bottom=0)
        axes.set_xlim(limits)
        axes.set_yticks([])
        axes.set_xlabel("cosine similarity")
        open_axes(axes)
        axes.spines["left"].set_visible(False)
    meaning = (
        f"AUC: probability that a pair of the {level_titles[-1]} scores higher than another pair"
    )
    legend_below(figure, panels[:1], 3, title=meaning)
    save(figure, path)


def _x_limits(methods: Sequence[ScoreDensities]) -> tuple[float, float]:
    """Return the range of scores that occur."""
    bins = np.flatnonzero(np.nansum([scores.densities for scores in methods], axis=(0, 1)))
    edges = methods[0].edges
    return edges[bins[0]], edges[bins[-1] + 1]


#: Number of vectors up to which t-SNE has scikit-learn's 1,000 iterations; more vectors have 500. With
#: 5,685 embeddings of labels these take half the time, and neighbours stay together as well:
#: trustworthiness 0.990 of ten neighbours for both.
_FEW = 2000


def tsne_2d(vectors: Floats, seed: int = 0) -> Floats:
    """Project vectors to two dimensions by t-SNE (van der Maaten and Hinton, 2008).

    The perplexity is 30, or a third of the number of other vectors if that is less. There are 1,000
    iterations, or 500 for more than 2,000 vectors. Fewer than four vectors are placed side by side.

    Args:
        vectors: float64, shape (n, d).
        seed: Seed of the projection.

    Returns:
        float64, shape (n, 2).
    """
    from sklearn.manifold import TSNE

    n = len(vectors)
    if n < 4:
        return np.array([[float(row), 0.0] for row in range(n)])
    with one_thread():
        method = TSNE(
            perplexity=min(30.0, (n - 1) / 3),
            init="pca",
            random_state=seed,
            max_iter=1000 if n <= _FEW else 500,
        )
        return np.asarray(method.fit_transform(vectors), np.float64)


#: Colour of the categories without a colour.
_OTHERS = "#c9ced4"


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Positions of n classes in the embedding space of one method.

    Args:
        title: Title of the method.
        positions: float64, shape (n, 2).
        categories: Category of each class.
        roots: Root of each class; four roots at most.
    """

    title: str
    positions: Floats
    categories: Sequence[str]
    roots: Sequence[str]


def draw_class_means(path: Path, methods: Sequence[ClassMeans]) -> None:
    """Draw the class means of methods side by side; the most frequent categories are coloured."""
    from matplotlib.lines import Line2D

    counts = Counter(methods[0].categories)
    roots = sorted(set(methods[0].roots))
    # Ties are broken by name, so that the picture is reproducible.
    frequent = sorted(counts, key=lambda name: (-counts[name], name))[: len(LIGHT)]
    colours = dict.fromkeys(counts, _OTHERS)
    colours.update(zip(frequent, LIGHT, strict=False))
    markers = dict(zip(roots, "o^sD", strict=False))
    figure, panels = make_axes(len(methods), 4.2)
    size = float(np.clip(6000 / counts.total(), 4, 50))
    for axes, method in zip(panels, methods, strict=True):
        positions = _rotate_to_width(method.positions)
        class_colours = np.array([colours[name] for name in method.categories])
        for root in roots:
            in_root = np.array([class_root == root for class_root in method.roots])
            axes.scatter(
                positions[in_root, 0],
                positions[in_root, 1],
                s=size,
                c=class_colours[in_root].tolist(),
                marker=markers[root],
                edgecolor="white",
                linewidth=0.5,
            )
        axes.set_title(method.title, fontsize=10, color=INK)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", "datalim")
        axes.spines[:].set_color(_OTHERS)
    root_by_category = dict(zip(methods[0].categories, methods[0].roots, strict=True))
    titles = []
    handles = []

    def add_entry(title: str, colour: str, marker: str) -> None:
        titles.append(title)
        handles.append(Line2D([], [], linestyle="", color=colour, marker=marker))

    for name in frequent:
        marker = markers[root_by_category[name]]
        add_entry(f"{name} ({counts[name]})", colours[name], marker)
    if len(frequent) < len(counts):
        add_entry("others", _OTHERS, "o")
    if len(roots) > 1:
        for root in roots:
            add_entry(root, INK, markers[root])
    figure.legend(
        handles,
        titles,
        loc="outside lower center",
        ncols=5,
        frameon=False,
        handletextpad=0.1,
    )
    save(figure, path)


def _rotate_to_width(positions: Floats) -> Floats:
    """Rotate positions so that their variance is largest from left to right; t-SNE has no direction."""
    centred = positions - positions.mean(axis=0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2].T)


class Interval(NamedTuple):
    """The value of a model, and the ends of its interval, which are not finite without an interval."""

    name: str
    value: float
    low: float
    high: float


class Scatter(NamedTuple):
    """Two quantities of models.

    Args:
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        points: Name and position of each model.
        log: Whether the x axis may be logarithmic.
    """

    x_label: str
    y_label: str
    points: Sequence[tuple[str, float, float]]
    log: bool = False


def draw_intervals(path: Path, panels: Mapping[str, Sequence[Interval]]) -> None:
    """Draw the value of each model as a dot on its interval.

    There is a panel per metric, and models are in the order of the first panel.
    """
    n_models = max(map(len, panels.values()))
    figure, all_axes = make_axes(len(panels), 1.1 + 0.24 * n_models)
    for axes, (label, models) in zip(all_axes, panels.items(), strict=True):
        places = range(len(models))
        values = [model.value for model in models]
        below = []
        above = []
        for model in models:
            if math.isfinite(model.low) and math.isfinite(model.high):
                below.append(model.value - model.low)
                above.append(model.high - model.value)
            else:
                below.append(0.0)
                above.append(0.0)
        axes.errorbar(
            values,
            places,
            xerr=[below, above],
            fmt="o",
            color=LINES[0],
            markersize=4,
            linewidth=1.4,
        )
        place = axes.get_subplotspec()
        assert place is not None
        names = [""] * len(models)
        if place.is_first_col():
            names = [model.name for model in models]
        axes.set_yticks(places, names, fontsize=8, parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel(label, fontsize=9)
        open_axes(axes)
    save(figure, path)


#: Shapes of points, which distinguish models beyond the number of colours.
_MARKERS = "os^Dv"
#: Number of characters of a legend that fit into an inch.
_CHARACTERS_PER_INCH = 13
#: Width of a marker with its gap, in characters.
_MARKER_WIDTH = 5
#: Ratio of the largest to the smallest value from which an axis is logarithmic; with a smaller ratio,
#: few numbers would label it.
_LOGARITHMIC = 10


def draw_scatters(path: Path, scatters: Sequence[Scatter]) -> None:
    """Draw models as points, a panel for each pair of quantities, with one legend of all models."""
    from matplotlib.lines import Line2D

    figure, all_axes = make_axes(len(scatters), 4.2)
    names_by_scatter = [[name for name, _, _ in scatter.points] for scatter in scatters]
    names = list(dict.fromkeys(chain.from_iterable(names_by_scatter)))
    styles: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        styles[name] = {
            "color": LINES[number % len(LINES)],
            "marker": _MARKERS[number // len(LINES) % len(_MARKERS)],
        }
    for axes, scatter in zip(all_axes, scatters, strict=True):
        for name, x, y in scatter.points:
            axes.plot(x, y, linestyle="", markersize=6, alpha=0.85, **styles[name])
        axes.margins(0.08)
        if scatter.log:
            _use_plain_numbers(axes, [x for _, x, _ in scatter.points])
        axes.set_xlabel(scatter.x_label, fontsize=9)
        axes.set_ylabel(scatter.y_label, fontsize=9)
        open_axes(axes)
    width = figure.get_figwidth() * _CHARACTERS_PER_INCH
    n_columns = int(width // (_MARKER_WIDTH + max(map(len, names))))
    legend = figure.legend(
        handles=[Line2D([], [], linestyle="", **styles[name]) for name in names],
        labels=["name"] * len(names),
        loc="outside lower center",
        ncols=min(max(1, n_columns), 5),
        frameon=False,
        fontsize=8,
        handletextpad=0.1,
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        # Set afterwards: legends leave out labels that begin with an underscore.
        text.set_text(name)
        text.set_parse_math(False)
    save(figure, path)


def _use_plain_numbers(axes: Axes, values: Sequence[float]) -> None:
    """Label the x axis with plain numbers, and make it logarithmic if the positive values span enough."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if max(values) >= _LOGARITHMIC * min(values):
        axes.set_xscale("log")
        # With many decades, the numbers 2 and 5 of each decade would overlap.
        steps = [1.0]
        if max(values) < 100 * min(values):
            steps = [1.0, 2.0, 5.0]
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))

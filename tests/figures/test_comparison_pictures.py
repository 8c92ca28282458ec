"""Figures of comparisons: elements drawn for given data."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

from hgld.figures import comparisons, style
from hgld.figures.comparisons import (
    ClassMeans,
    Line,
    LineStyle,
    Panel,
    Scatter,
    ScoreDensities,
    draw_class_means,
    draw_panels,
    draw_scatters,
    draw_scores,
    tsne_2d,
)

Draw = Callable[[Path], None]


def a_line(title: str, colour: str = "#3e3bff") -> Line:
    y = np.array([[1.0, 2.0, np.nan], [3.0, 2.0, 5.0]])
    return Line(title, LineStyle(colour, dashed=True), np.array([1.0, 10.0, 100.0]), y)


def some_panels(path: Path) -> None:
    ticks = {1.0: "one", 100.0: "a hundred"}
    panels = [
        Panel("first", [a_line("a"), a_line("b")], "x", scale="log", ticks=ticks),
        Panel("second", [a_line("a")]),
    ]
    draw_panels(path, panels, title="all")


def some_scores(path: Path) -> None:
    densities = np.array([[0.0, 2.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [np.nan] * 4])
    draw_scores(
        path, [ScoreDensities("a", 0.5, np.linspace(-1, 1, 5), densities)] * 4, ["nothing", "same root", "same place"]
    )


def some_means(path: Path) -> None:
    rng = np.random.default_rng(0)
    categories = [f"c{n % 14 if n < 40 else 0:02d}" for n in range(50)]
    roots = ["r0" if name < "c07" else "r1" for name in categories]
    draw_class_means(path, [ClassMeans(title, rng.normal(size=(50, 2)), categories, roots) for title in "ab"])


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Keep figures instead of saving them."""
    figures: list[Figure] = []
    monkeypatch.setattr(comparisons, "save", lambda figure, path: figures.append(figure))
    return figures


def legend_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(
    "draw", [some_panels, *(pytest.param(draw, marks=pytest.mark.slow) for draw in (some_scores, some_means))]
)
def test_figures_are_reproducible(draw: Draw, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw(tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_curves_are_means_in_a_band_from_minimum_to_maximum(drawn: list[Figure], tmp_path: Path) -> None:
    some_panels(tmp_path / "a.png")
    (figure,) = drawn
    first, second = figure.axes
    assert legend_of(figure) == ["a", "b"]
    assert (first.get_title(), second.get_title(), figure.get_suptitle()) == ("first", "second", "all")
    assert (first.get_xscale(), second.get_xscale()) == ("log", "linear")
    assert [text.get_text() for text in first.get_xticklabels()] == ["one", "a hundred"]
    np.testing.assert_array_equal(second.lines[0].get_ydata(), [2, 2, 5])
    (band,) = second.collections
    assert isinstance(band, PolyCollection)
    corners = {tuple(corner) for corner in np.asarray(band.get_paths()[0].vertices).tolist()}
    assert {(1.0, 1.0), (1.0, 3.0), (10.0, 2.0), (100.0, 5.0)} <= corners


def test_a_single_run_has_no_band(drawn: list[Figure], tmp_path: Path) -> None:
    line = Line("a", LineStyle("#3e3bff"), np.arange(3.0), np.ones((1, 3)))
    draw_panels(tmp_path / "a.png", [Panel("only", [line])])
    (axes,) = drawn[0].axes
    assert not axes.collections


def test_score_axis_is_limited_to_occurring_scores(drawn: list[Figure], tmp_path: Path) -> None:
    some_scores(tmp_path / "a.png")
    (figure,) = drawn
    assert len(figure.axes) == 4
    assert figure.axes[0].get_title() == "a: AUC 50.0 %"
    assert figure.axes[0].get_xlim() == (-0.5, 0.5)
    assert legend_of(figure) == ["same place", "same root", "nothing", "β = 0.6 (Eq. 7)", "α = 0.9 (Eq. 7)"]


def test_frequent_categories_have_colours_and_roots_have_markers(drawn: list[Figure], tmp_path: Path) -> None:
    some_means(tmp_path / "a.png")
    (figure,) = drawn
    names = legend_of(figure)
    assert names[0] == "c00 (13)"
    assert names[1:12] == [f"c{n:02d} (3)" for n in range(1, 12)]
    assert names[12:] == ["others", "r0", "r1"]
    for axes in figure.axes:
        clouds = [cloud for cloud in axes.collections if isinstance(cloud, PathCollection)]
        assert [len(np.asarray(cloud.get_offsets())) for cloud in clouds] == [13 + 6 * 3, 50 - 13 - 6 * 3]
        assert len({tuple(colour) for cloud in clouds for colour in np.asarray(cloud.get_facecolor()).tolist()}) == 13
        width, height = np.ptp(np.concatenate([cloud.get_offsets() for cloud in clouds]), axis=0)
        assert width > 0
        assert height > 0


def test_make_axes_returns_one_axes_per_plot() -> None:
    for n, rows, columns in ((1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 2), (7, 3, 3)):
        figure, axes = style.make_axes(n, 2.0)
        assert len(figure.axes) == len(axes) == n
        spec = axes[0].get_gridspec()
        assert spec is not None
        assert (spec.nrows, spec.ncols) == (rows, columns)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 13])
def test_positions_of_few_vectors_are_finite(n: int) -> None:
    positions = tsne_2d(np.random.default_rng(0).normal(size=(n, 8)))
    assert positions.shape == (n, 2)
    assert np.isfinite(positions).all()


def scatter(values: list[float], *, log: bool = True) -> Scatter:
    return Scatter("images per second", "H-AP (%)", [(f"m{n}", x, float(n)) for n, x in enumerate(values)], log=log)


def shown_ticks(figure: Figure, panel: int = 0) -> list[str]:
    """Return the labels of the ticks of the x axis that are within its limits."""
    figure.draw_without_rendering()
    axis = figure.axes[panel].xaxis
    low, high = axis.get_view_interval()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high and tick.label1.get_text()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([384.0, 512.0, 768.0, 1024.0, 2048.0], None),
        ([36.1, 36.9, 37.4], None),  # a range within which logarithmic axes have no tick
        ([512.0, 512.0], None),
        ([0.5, 1500.0, 12345.0], ["1", "10", "100", "1,000", "10,000"]),
        ([30.0, 1000.0], ["50", "100", "200", "500", "1,000"]),
        ([0.02, 0.4], ["0.02", "0.05", "0.1", "0.2"]),
    ],
)
def test_axes_of_costs_have_ticks_in_plain_numbers(
    drawn: list[Figure], tmp_path: Path, values: list[float], expected: list[str] | None
) -> None:
    draw_scatters(tmp_path / "costs.png", [scatter(values)])
    labels = shown_ticks(drawn[0])
    assert len(labels) >= 2
    assert all(re.fullmatch(r"[\d,]+(\.\d+)?", label) for label in labels), labels
    if expected is not None:
        assert {*expected} <= {*labels}


def test_names_of_models_are_in_one_legend(drawn: list[Figure], tmp_path: Path) -> None:
    """Points may lie upon each other, and a model may lack a value; each has its own style in all panels."""
    values = [1.0 + n % 3 for n in range(24)]
    named = scatter(values)._replace(points=[("_x", 1.0, 1.0), ("$a$", 1.0, 1.0), *scatter(values).points])
    draw_scatters(tmp_path / "metrics.png", [named, named._replace(points=named.points[5:])])
    (figure,) = drawn
    assert legend_of(figure) == ["_x", "$a$", *(f"m{n}" for n in range(24))]
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert figure.bbox.contains(*legend.get_window_extent().min)
    assert figure.bbox.contains(*legend.get_window_extent().max)
    styles = [
        [(line.get_color(), line.get_marker()) for line in axes.lines if len(line.get_xdata())]  # type: ignore[arg-type]
        for axes in figure.axes
    ]
    assert len(set(styles[0])) == 26
    assert styles[1] == styles[0][5:]
    assert not any(axes.texts for axes in figure.axes)

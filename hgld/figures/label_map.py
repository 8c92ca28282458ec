"""Map of labels in two dimensions, as a picture and a page; curves over the number of clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hgld.arrays import Floats, Integers
from hgld.errors import counted
from hgld.figures.style import (
    DARK,
    DPI,
    FAINT,
    INK,
    LIGHT,
    Nouns,
    make_figure,
    open_axes,
    save,
    without_glyph_warnings,
)
from hgld.io.files import write_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Box = tuple[float, float, float, float]  # left, low, right, high

_PAGE = Path(__file__).parents[1] / "templates" / "label_map.html"

#: Number of labels whose names are drawn.
_MAX_NAMES = 60
#: Number of characters of the name of a cluster.
_LONGEST_NAME = 46
#: Size of the drawing on the page, its margin and its font, in SVG units.
_WIDTH = 1000.0
_HEIGHT = 760.0
_MARGIN = 24.0
_FONT = 13.0


@dataclass(frozen=True)
class MapPhotograph:
    """A photograph on the page: the name of its landmark, and the picture as a ``data:`` URL."""

    name: str
    url: str


@dataclass(frozen=True)
class LabelMap:
    """Positions, numbers of landmarks and clusters of n labels.

    Args:
        positions: float64, shape (n, 2).
        labels: Names of the labels.
        landmarks: Number of landmarks of each label.
        cluster: Number of each label's cluster, from 1.
        subcluster: Number of each label's sub-cluster, from 1 within its cluster.
        names: Names of the clusters by number.
        nouns: Singular and plural of landmarks, which are other things in other lists.
    """

    positions: Floats
    labels: Sequence[str]
    landmarks: Integers
    cluster: NDArray[np.int32]
    subcluster: NDArray[np.int32]
    names: dict[int, str]
    nouns: Nouns = ("landmark", "landmarks")

    def largest_first(self) -> list[int]:
        """Return the rows in descending order of landmarks, so that large circles hide no small ones."""
        return [int(row) for row in np.argsort(-self.landmarks, kind="stable")]

    def radii(self, largest: float) -> Floats:
        """Return radii that grow with the square root of the landmarks, up to ``largest``."""
        root = np.sqrt(self.landmarks / max(int(self.landmarks.max()), 1))
        return np.asarray(largest * (0.15 + 0.85 * root))

    def legend(self) -> list[tuple[int, str, str]]:
        """Return the number, the name, and the numbers of labels and landmarks of each cluster."""
        entries = []
        for number, name in self.names.items():
            in_cluster = self.cluster == number
            labels = counted(int(np.sum(in_cluster)), "label")
            landmarks = self.counted_landmarks(int(np.sum(self.landmarks[in_cluster])))
            entries.append((number, name, f"{labels}, {landmarks}"))
        return entries

    def counted_landmarks(self, count: int) -> str:
        """Return a number of landmarks with the word for them."""
        return f"{count:,} {self.nouns[count != 1]}"


@dataclass(frozen=True)
class SweepPoint:
    """Quality of K clusters: inertia (lower is tighter) and silhouette (higher is better separated)."""

    n_clusters: int
    inertia: float
    silhouette: float


def draw_label_map(path: Path, label_map: LabelMap) -> None:
    """Draw labels as circles, coloured by cluster and sized by landmarks; name the largest labels."""
    figure = make_figure(13, 8, dpi=DPI)
    axes = figure.add_axes((0.01, 0.01, 0.70, 0.98))
    legend = figure.add_axes((0.72, 0.01, 0.27, 0.98))
    axes.set_axis_off()
    legend.set_axis_off()
    rows = label_map.largest_first()
    # Radii in points; a scatter wants the squares of diameters.
    radii = label_map.radii(largest=_largest_radius(len(rows), 15.0))
    axes.scatter(
        label_map.positions[rows, 0],
        label_map.positions[rows, 1],
        s=(2 * radii[rows]) ** 2,
        c=[LIGHT[(label_map.cluster[row] - 1) % len(LIGHT)] for row in rows],
        alpha=0.8,
        linewidths=0.6,
        edgecolors="white",
    )
    axes.margins(0.04)
    axes.autoscale_view()  # now, because names are placed in pixels
    with without_glyph_warnings():
        _write_names(axes, label_map, rows, radii)
        _write_legend(legend, label_map)
        save(figure, path)


def draw_sweep(path: Path, points: Sequence[SweepPoint]) -> None:
    """Draw inertia and silhouette over the number of clusters, one above the other."""
    from matplotlib.ticker import MaxNLocator

    figure = make_figure(8, 6, layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    ks = [point.n_clusters for point in points]
    inertias = [point.inertia for point in points]
    upper.plot(ks, inertias, marker="o", markersize=4, color=LIGHT[0])
    upper.set_ylabel("inertia (lower is tighter)")
    open_axes(upper)
    silhouettes = [point.silhouette for point in points]
    lower.plot(ks, silhouettes, marker="o", markersize=4, color=LIGHT[2])
    lower.set_ylabel("silhouette, cosine (higher is better)")
    open_axes(lower)
    lower.set_xlabel("clusters (K)")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    save(figure, path)


def write_label_page(
    path: Path,
    label_map: LabelMap,
    photographs: Mapping[int, Sequence[MapPhotograph]] | None = None,
) -> None:
    """Write the labels as a self-contained page with tooltips, search, and light and dark colours.

    Args:
        path: File of the page.
        label_map: The labels.
        photographs: Photographs of labels, by row, shown with a label, a cluster or a search.
    """
    rows = label_map.largest_first()
    points = _positions_on_page(label_map.positions)
    radii = label_map.radii(largest=_largest_radius(len(rows), 18.0))
    circles = []
    for row in rows:
        number = label_map.cluster[row]
        landmarks = label_map.counted_landmarks(int(label_map.landmarks[row]))
        circles.append(
            f'<circle class="c{number}" cx="{points[row, 0]:.1f}" cy="{points[row, 1]:.1f}" r="{radii[row]:.1f}" '
            f'data-cluster="{number}" data-subcluster="{label_map.subcluster[row]}" '
            f'data-counted="{escape(landmarks)}" data-label="{escape(label_map.labels[row])}"/>'
        )
    names = [label_map.labels[row] for row in rows[:_MAX_NAMES]]
    # The browser's font is unknown; characters of sans-serif fonts are about 0.56 em wide.
    sizes = np.array([(0.56 * _FONT * len(name), 1.15 * _FONT) for name in names])
    frame = (0.0, 0.0, _WIDTH, _HEIGHT)
    texts = []
    for number, (x, y) in place_names(points[rows], radii[rows], sizes, frame).items():
        name = escape(names[number])
        texts.append(f'<text data-label="{name}" x="{x:.1f}" y="{y:.1f}">{name}</text>')
    legend = []
    for number, cluster_name, counts in label_map.legend():
        legend.append(
            f'<li><button type="button" data-cluster="{number}"><i class="c{number}"></i><b>{number}</b>'
            f"<span>{escape(cluster_name)}<small>{escape(counts)}</small></span></button>"
            f'<div class="pictures" data-cluster="{number}"></div></li>'
        )
    page = Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=f"{len(rows):,} labels in {len(label_map.names)} clusters",
        width=f"{_WIDTH:g}",
        height=f"{_HEIGHT:g}",
        light=_colour_rules(label_map.names, LIGHT),
        dark=_colour_rules(label_map.names, DARK),
        circles="\n".join(circles),
        texts="\n".join(texts),
        legend="\n".join(legend),
        photographs=_photographs_by_circle(rows, photographs or {}),
    )
    write_page(path, page)


def place_names(
    points: Floats,
    radii: Floats,
    sizes: Floats,
    frame: _Box,
) -> dict[int, tuple[float, float]]:
    """Place names beside their circles so that they neither overlap nor leave the frame.

    Names are placed one after another: to the right of the circle, to the left, above, below or across
    it, where they cover the fewest circles; names that fit nowhere are omitted.

    Args:
        points: Centres of the circles, float64, shape (n, 2).
        radii: Radii of the circles, float64, shape (n,).
        sizes: Widths and heights of the names of the first m circles, float64, shape (m, 2).
        frame: Lowest x, lowest y, highest x and highest y.

    Returns:
        The centre of each placed name by row.
    """
    lows = points - radii[:, None]
    highs = points + radii[:, None]
    placed: dict[int, tuple[float, float]] = {}
    boxes: list[_Box] = []
    for row, (width, height) in enumerate(sizes):
        dx = radii[row] + width / 2 + 2
        dy = radii[row] + height / 2 + 1
        fewest_covered = len(points) + 1
        for shift in ((dx, 0.0), (-dx, 0.0), (0.0, dy), (0.0, -dy), (0.0, 0.0)):
            x = float(points[row, 0] + shift[0])
            y = float(points[row, 1] + shift[1])
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            if _is_inside(box, frame) and not any(_overlap(box, other) for other in boxes):
                is_covered = np.all((lows < box[2:]) & (highs > box[:2]), axis=1)
                n_covered = int(np.sum(is_covered))
                if n_covered < fewest_covered:
                    fewest_covered = n_covered
                    best_box = box
                    placed[row] = (x, y)
        if row in placed:
            boxes.append(best_box)
    return placed


def _is_inside(box: _Box, frame: _Box) -> bool:
    """Return whether a box is inside a frame."""
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _overlap(box: _Box, other: _Box) -> bool:
    """Return whether two boxes overlap."""
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _largest_radius(n: int, largest: float) -> float:
    """Return the largest radius, which is smaller for many circles, so that they stay distinguishable."""
    return largest * min(1.0, float(np.sqrt(300 / n)) + 0.25)


def _write_names(axes: Axes, label_map: LabelMap, rows: Sequence[int], radii: Floats) -> None:
    """Write the names of the largest labels beside their circles."""
    from matplotlib.patheffects import withStroke

    style: dict[str, Any] = {
        "fontsize": 8.5,
        "ha": "center",
        "va": "center",
        "color": INK,
        "parse_math": False,
    }
    texts = [axes.text(0, 0, label_map.labels[row], **style) for row in rows[:_MAX_NAMES]]
    extents = [text.get_window_extent() for text in texts]
    sizes = np.array([(extent.width, extent.height) for extent in extents])
    points = axes.transData.transform(label_map.positions[rows])
    pixels_per_point = DPI / 72
    frame = axes.get_window_extent()
    places = place_names(
        points, radii[rows] * pixels_per_point, sizes, (frame.x0, frame.y0, frame.x1, frame.y1)
    )
    for number, text in enumerate(texts):
        if number in places:
            x, y = axes.transData.inverted().transform(places[number])
            text.set_position((x, y))
            text.set_path_effects([withStroke(linewidth=2.5, foreground="white", alpha=0.85)])
        else:
            text.remove()


def _write_legend(axes: Axes, label_map: LabelMap) -> None:
    """Write the clusters with their colours, names and sizes."""
    entries = label_map.legend()
    step = min(1 / (len(entries) + 1), 0.075)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    title = f"{len(label_map.labels):,} labels in {len(entries)} clusters"
    axes.text(0, 1 - step / 2, title, fontsize=12, fontweight="bold", va="center", color=INK)
    size = min(9.0, 120 * step)
    for place, (number, name, counts) in enumerate(entries, 1):
        y = 1 - step * (place + 0.5)
        colour = LIGHT[(number - 1) % len(LIGHT)]
        axes.scatter([0.025], [y], s=90, color=colour, edgecolors="white", clip_on=False)
        text: dict[str, Any] = {"va": "center", "parse_math": False}
        name = f"{number}  {_shorten(name)}"
        axes.text(0.07, y + step * 0.16, name, fontsize=size, color=INK, **text)
        axes.text(0.07, y - step * 0.24, counts, fontsize=0.8 * size, color=FAINT, **text)


def _shorten(name: str) -> str:
    """Shorten the name of a cluster by omitting its last labels."""
    while len(name) > _LONGEST_NAME and " / " in name:
        name = name.rpartition(" / ")[0]
    if len(name) > _LONGEST_NAME:
        return name[: _LONGEST_NAME - 1].rstrip() + "…"
    return name


def _positions_on_page(positions: Floats) -> Floats:
    """Return positions in SVG units, where y points down."""
    low = positions.min(axis=0)
    high = positions.max(axis=0)
    extent = np.where(high > low, high - low, 1.0)
    scaled = (positions - low) / extent
    scaled[:, 1] = 1 - scaled[:, 1]
    return np.asarray(_MARGIN + scaled * (np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN))


def _photographs_by_circle(
    rows: Sequence[int], photographs: Mapping[int, Sequence[MapPhotograph]]
) -> str:
    """Return JSON for a script element: names and URLs of photographs by the number of the circle."""
    by_circle = {}
    for number, row in enumerate(rows):
        if row in photographs:
            by_circle[number] = [[photo.name, photo.url] for photo in photographs[row]]
    return json.dumps(by_circle, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _colour_rules(names: dict[int, str], palette: Sequence[str]) -> str:
    """Return the style rules of the colours of clusters."""
    rules = []
    for number in names:
        colour = palette[(number - 1) % len(palette)]
        rules.append(f".c{number} {{ color: {colour}; }}")
    return " ".join(rules)

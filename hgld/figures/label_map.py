"""Map of labels in two dimensions, as a picture and as a page; curves over the number of clusters."""

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

#: Number of labels whose names are drawn, and of characters of the name of a cluster.
_MAX_NAMES, _LONGEST = 60, 46
#: Size of the drawing on the page, its margin and its font, in SVG units.
_WIDTH, _HEIGHT, _MARGIN, _FONT = 1000.0, 760.0, 24.0, 13.0


@dataclass(frozen=True)
class MapPhotograph:
    """A photograph on the page: the name of its landmark, and the picture as a ``data:`` URL."""

    name: str
    url: str


@dataclass(frozen=True)
class LabelMap:
    """Positions, numbers of landmarks and clusters of n labels; names are those of the clusters by number.

    ``nouns`` are the words for one landmark and for several, which are others for other lists.

    Positions are float64, shape (n, 2); clusters are numbered from 1, and sub-clusters from 1 within their cluster.
    """

    positions: NDArray[np.float64]
    labels: Sequence[str]
    landmarks: NDArray[np.int64]
    cluster: NDArray[np.int32]
    subcluster: NDArray[np.int32]
    names: dict[int, str]
    nouns: Nouns = ("landmark", "landmarks")

    def largest_first(self) -> list[int]:
        """Return the rows in descending order of landmarks: drawn in this order, large circles hide no small ones."""
        return [int(row) for row in np.argsort(-self.landmarks, kind="stable")]

    def radii(self, largest: float) -> NDArray[np.float64]:
        """Return radii that grow with the square root of the landmarks, from a visible minimum to ``largest``."""
        root = np.sqrt(self.landmarks / max(int(self.landmarks.max()), 1))
        return np.asarray(largest * (0.15 + 0.85 * root))

    def legend(self) -> list[tuple[int, str, str]]:
        """Return the number and the name of each cluster, and how many labels and landmarks it has."""
        entries = []
        for number, name in self.names.items():
            in_cluster = self.cluster == number
            labels = counted(int(np.sum(in_cluster)), "label")
            entries.append(
                (
                    number,
                    name,
                    f"{labels}, {self.counted_landmarks(int(np.sum(self.landmarks[in_cluster])))}",
                )
            )
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
    """Draw labels as circles, coloured by cluster and sized by landmarks, with the names of the largest."""
    figure = make_figure(13, 8, dpi=DPI)
    axes, legend = (
        figure.add_axes((left, 0.01, width, 0.98)) for left, width in ((0.01, 0.70), (0.72, 0.27))
    )
    for panel in (axes, legend):
        panel.set_axis_off()
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
    for axes, values, title, colour in (
        (upper, [point.inertia for point in points], "inertia (lower is tighter)", LIGHT[0]),
        (
            lower,
            [point.silhouette for point in points],
            "silhouette, cosine (higher is better)",
            LIGHT[2],
        ),
    ):
        axes.plot(ks, values, marker="o", markersize=4, color=colour)
        axes.set_ylabel(title)
        open_axes(axes)
    lower.set_xlabel("clusters (K)")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    save(figure, path)


def write_label_page(
    path: Path,
    label_map: LabelMap,
    photographs: Mapping[int, Sequence[MapPhotograph]] | None = None,
) -> None:
    """Write the labels as a self-contained page with tooltips, search, and light and dark colours.

    Photographs of labels, by row, are shown with a label, and with a cluster or a search.
    """
    rows = label_map.largest_first()
    points = _on_page(label_map.positions)
    radii = label_map.radii(largest=_largest_radius(len(rows), 18.0))
    circles = [
        f'<circle class="c{number}" cx="{points[row, 0]:.1f}" cy="{points[row, 1]:.1f}" r="{radii[row]:.1f}" '
        f'data-cluster="{number}" data-subcluster="{label_map.subcluster[row]}" '
        f'data-counted="{escape(label_map.counted_landmarks(int(label_map.landmarks[row])))}" '
        f'data-label="{escape(label_map.labels[row])}"/>'
        for row, number in zip(rows, label_map.cluster[rows], strict=True)
    ]
    named = rows[:_MAX_NAMES]
    # The browser's font is unknown; characters of sans-serif fonts are about 0.56 em wide.
    sizes = np.array([(0.56 * _FONT * len(label_map.labels[row]), 1.15 * _FONT) for row in named])
    frame = (0.0, 0.0, _WIDTH, _HEIGHT)
    texts = [
        f'<text data-label="{escape(label_map.labels[named[n]])}" x="{x:.1f}" y="{y:.1f}">'
        f"{escape(label_map.labels[named[n]])}</text>"
        for n, (x, y) in place_names(points[rows], radii[rows], sizes, frame).items()
    ]
    legend = [
        f'<li><button type="button" data-cluster="{number}"><i class="c{number}"></i><b>{number}</b>'
        f"<span>{escape(name)}<small>{escape(counts)}</small></span></button>"
        f'<div class="pictures" data-cluster="{number}"></div></li>'
        for number, name, counts in label_map.legend()
    ]
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
    points: NDArray[np.float64],
    radii: NDArray[np.float64],
    sizes: NDArray[np.float64],
    frame: _Box,
) -> dict[int, tuple[float, float]]:
    """Place names beside their circles so that they neither overlap nor leave the frame.

    Greedy, in the given order: each name is placed to the right of its circle, to the left, above, below or across
    it, where it covers the fewest circles; names that fit nowhere are omitted.

    Args:
        points: Centres of the circles, float64, shape (n, 2).
        radii: Radii of the circles, float64, shape (n,).
        sizes: Widths and heights of the names of the first m circles, float64, shape (m, 2).
        frame: Lowest x, lowest y, highest x and highest y.

    Returns:
        The centre of each placed name by row.
    """
    low, high = points - radii[:, None], points + radii[:, None]
    placed: dict[int, tuple[float, float]] = {}
    boxes: list[_Box] = []
    for row, (width, height) in enumerate(sizes):
        (x, y), radius = points[row], radii[row]
        dx, dy = radius + width / 2 + 2, radius + height / 2 + 1
        free = []
        for centre in ((x + dx, y), (x - dx, y), (x, y + dy), (x, y - dy), (x, y)):
            (left, right), (bottom, top) = (
                (at - length / 2, at + length / 2)
                for at, length in zip(centre, (width, height), strict=True)
            )
            box = (left, bottom, right, top)
            is_inside = (
                left >= frame[0] and bottom >= frame[1] and right <= frame[2] and top <= frame[3]
            )
            if is_inside and not any(
                left < other[2] and other[0] < right and bottom < other[3] and other[1] < top
                for other in boxes
            ):
                covered = np.sum(np.all((low < box[2:]) & (high > box[:2]), axis=1))
                free.append((int(covered), centre, box))
        if free:
            _, centre, box = min(free, key=lambda candidate: candidate[0])
            boxes.append(box)
            placed[row] = (float(centre[0]), float(centre[1]))
    return placed


def _largest_radius(n: int, largest: float) -> float:
    """Return a smaller radius for many circles, so that they stay distinguishable."""
    return largest * min(1.0, float(np.sqrt(300 / n)) + 0.25)


def _write_names(
    axes: Axes, label_map: LabelMap, rows: Sequence[int], radii: NDArray[np.float64]
) -> None:
    from matplotlib.patheffects import withStroke

    style: dict[str, Any] = {
        "fontsize": 8.5,
        "ha": "center",
        "va": "center",
        "color": INK,
        "parse_math": False,
    }
    drawn = [axes.text(0, 0, label_map.labels[row], **style) for row in rows[:_MAX_NAMES]]
    extents = [text.get_window_extent() for text in drawn]
    sizes = np.array([(extent.width, extent.height) for extent in extents])
    points = axes.transData.transform(label_map.positions[rows])
    pixels_per_point = DPI / 72
    box = axes.get_window_extent()
    places = place_names(
        points, radii[rows] * pixels_per_point, sizes, (box.x0, box.y0, box.x1, box.y1)
    )
    for n, text in enumerate(drawn):
        if n in places:
            x, y = axes.transData.inverted().transform(places[n])
            text.set_position((x, y))
            text.set_path_effects([withStroke(linewidth=2.5, foreground="white", alpha=0.85)])
        else:
            text.remove()


def _write_legend(axes: Axes, label_map: LabelMap) -> None:
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
        axes.text(
            0.07, y + step * 0.16, f"{number}  {_shorten(name)}", fontsize=size, color=INK, **text
        )
        axes.text(0.07, y - step * 0.24, counts, fontsize=0.8 * size, color=FAINT, **text)


def _shorten(name: str) -> str:
    """Shorten the name of a cluster by omitting its last labels."""
    while len(name) > _LONGEST and " / " in name:
        name = name.rpartition(" / ")[0]
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1].rstrip() + "…"


def _on_page(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return positions in SVG units, where y points down."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    extent = np.where(high > low, high - low, 1.0)
    scaled = (positions - low) / extent
    scaled[:, 1] = 1 - scaled[:, 1]
    return np.asarray(_MARGIN + scaled * (np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN))


def _photographs_by_circle(
    rows: Sequence[int], photographs: Mapping[int, Sequence[MapPhotograph]]
) -> str:
    """Return JSON for a script element: names and URLs of photographs by the number of the circle."""
    by_circle = {
        number: [[photograph.name, photograph.url] for photograph in photographs[row]]
        for number, row in enumerate(rows)
        if row in photographs
    }
    return json.dumps(by_circle, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _colour_rules(names: dict[int, str], palette: Sequence[str]) -> str:
    return " ".join(
        f".c{number} {{ color: {palette[(number - 1) % len(palette)]}; }}" for number in names
    )

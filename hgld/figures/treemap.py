"""Treemap of a hierarchy, as a picture and as a page on which every tile tells its name."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hgld.figures.style import INK, Nouns, make_canvas, root_colours, save, without_glyph_warnings
from hgld.io.files import write_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

#: Left, top, width and height.
Box = tuple[float, float, float, float]

#: Inches.
_WIDTH, _HEIGHT, _HEADING, _GAP = 13.0, 8.2, 0.34, 0.09
#: Number of roots that are drawn side by side.
_MOST_COLUMNS = 6
#: Points: largest and smallest size of group names, and size of labels.
_GROUP_FONT, _SMALL_GROUP_FONT, _LABEL_FONT = 11.0, 5.5, 6.5


@dataclass(frozen=True)
class Node:
    """A node of the hierarchy: its name, its number of landmarks, and its children."""

    name: str
    landmarks: int
    children: tuple[Node, ...] = ()


def build_nodes(paths: Iterable[tuple[Any, ...]]) -> tuple[Node, ...]:
    """Build trees, largest children first, of a tuple per leaf: the names from its root on, and its landmarks.

    >>> build_nodes([("natural", "lake", 2), ("natural", "sea", 3)])[0].children[0]
    Node(name='sea', landmarks=3, children=())
    """
    below: dict[str, list[tuple[Any, ...]]] = {}
    for name, *rest in paths:
        below.setdefault(name, []).append(tuple(rest))
    nodes = [
        Node(name, sum(rest[-1] for rest in rests), build_nodes(rests) if len(rests[0]) > 1 else ())
        for name, rests in below.items()
    ]
    return tuple(sorted(nodes, key=lambda node: (-node.landmarks, node.name)))


def draw_tree(path: Path, roots: Sequence[Node], nouns: Nouns) -> None:
    """Draw a few roots side by side, or many as a treemap; areas are counts, and names are drawn where they fit.

    Roots have groups as children, and these labels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure, axes = make_canvas((_WIDTH, _HEIGHT))
    FigureCanvasAgg(figure)  # keeps one renderer for all text measurements
    colours = root_colours(root.name for root in roots)
    with without_glyph_warnings():  # texts are measured before they are drawn
        for root, (left, top, width, height) in zip(
            roots, _root_boxes(roots, _WIDTH, _HEIGHT, _GAP), strict=True
        ):
            heading = (left, top, width, min(_HEADING, height / 4))
            text = f"{root.name}  {root.landmarks:,} {nouns[1]}, {len(root.children)} groups"
            style = {"color": INK, "fontweight": "bold"}
            _write(axes, text, heading, 12.0, 7.0, **style) or _write(
                axes, root.name, heading, 12.0, 5.0, **style
            )
            _draw_root(
                axes, root, (left, top + heading[3], width, height - heading[3]), colours[root.name]
            )
    save(figure, path)


def _root_boxes(roots: Sequence[Node], width: float, height: float, gap: float) -> list[Box]:
    """Divide a page among roots: side by side, or as a treemap where columns would be too narrow for names."""
    sizes = [root.landmarks for root in roots]
    if len(roots) > _MOST_COLUMNS:
        boxes = squarify(sizes, (gap / 2, 0, width - gap, height - gap / 2))
        return [
            (left + gap / 2, top, wide - gap, high - gap / 2) for left, top, wide, high in boxes
        ]
    left, free, total = gap, width - gap * (len(roots) + 1), sum(sizes)
    boxes = []
    for size in sizes:
        boxes.append((left, 0.0, free * size / total, height - gap))
        left += boxes[-1][2] + gap
    return boxes


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Divide a box (left, top, width, height) into nearly square boxes, in order, with areas proportional to sizes.

    The squarified treemap of Bruls, Huizing and van Wijk (2000): boxes are laid out in rows along the shorter side of
    the remaining area; a row ends where another box would make its worst aspect ratio worse. Sizes are positive, and
    have good shapes in descending order.
    """
    left, top, width, height = box
    scale = width * height / sum(sizes) if sizes else 0.0
    areas = [size * scale for size in sizes]
    boxes: list[Box] = []
    while areas:
        side = min(width, height)
        n = 1
        while n < len(areas) and _worst_ratio(areas[: n + 1], side) <= _worst_ratio(
            areas[:n], side
        ):
            n += 1
        row, areas = areas[:n], areas[n:]
        depth = sum(row) / side
        offset = 0.0
        for area in row:
            length = area / depth
            boxes.append(
                (left, top + offset, depth, length)
                if width >= height
                else (left + offset, top, length, depth)
            )
            offset += length
        if width >= height:
            left, width = left + depth, width - depth
        else:
            top, height = top + depth, height - depth
    return boxes


def _worst_ratio(row: Sequence[float], side: float) -> float:
    """Return the worst aspect ratio in a row of boxes with these areas along a side."""
    depth = sum(row) / side
    return max(max(area / depth**2, depth**2 / area) for area in row)


def _draw_root(axes: Axes, root: Node, box: Box, root_colour: str) -> None:
    from matplotlib.patches import Rectangle

    groups = squarify([group.landmarks for group in root.children], box)
    for n, (group, (left, top, width, height)) in enumerate(
        zip(root.children, groups, strict=True)
    ):
        colour = shade(root_colour, n)
        axes.add_artist(
            Rectangle(
                (left, top), width, height, facecolor=colour, edgecolor="white", linewidth=1.4
            )
        )
        has_labels = any(label.name != group.name for label in group.children)
        heading = min(0.24, 0.4 * height)
        if has_labels and _write_group(axes, group, (left, top, width, heading)):
            _draw_labels(
                axes, group, (left + 0.03, top + heading, width - 0.06, height - heading - 0.03)
            )
        else:
            _write_group(axes, group, (left, top, width, height))


def _write_group(axes: Axes, group: Node, box: Box) -> bool:
    style = {"color": "white", "fontweight": "bold"}
    texts = (f"{group.name}  {group.landmarks:,}", group.name)
    return any(_write(axes, text, box, _GROUP_FONT, _SMALL_GROUP_FONT, **style) for text in texts)


def _draw_labels(axes: Axes, group: Node, box: Box) -> None:
    from matplotlib.patches import Rectangle

    for label, label_box in zip(
        group.children, squarify([label.landmarks for label in group.children], box), strict=True
    ):
        left, top, width, height = label_box
        axes.add_artist(
            Rectangle(
                (left, top),
                width,
                height,
                facecolor=("white", 0.16),
                edgecolor=("white", 0.55),
                linewidth=0.5,
            )
        )
        _write(axes, label.name, label_box, _LABEL_FONT + 1.5, _LABEL_FONT - 1.5, color="white")


def _write(axes: Axes, text: str, box: Box, largest: float, smallest: float, **style: Any) -> bool:
    """Write a text in the middle of a box, on one line or with a line per word; return False if it does not fit."""
    left, top, width, height = box
    best: tuple[float, Text | None] = (smallest, None)
    # Letters are at least a third as wide as high, so that most labels of a large tree need not be measured.
    if 72 * height < smallest or 72 * width < smallest * max(map(len, text.split())) / 3:
        return False
    for form in (text, "\n".join(text.split())):
        drawn = axes.text(
            left + width / 2,
            top + height / 2,
            form,
            ha="center",
            va="center",
            fontsize=largest,
            parse_math=False,
            **style,
        )
        extent = drawn.get_window_extent()
        inches = (extent.width / axes.figure.dpi, extent.height / axes.figure.dpi)
        size = largest * min(1.0, 0.86 * width / inches[0], 0.86 * height / inches[1])
        if size > best[0]:
            if best[1] is not None:
                best[1].remove()
            drawn.set_fontsize(size)
            best = (size, drawn)
        else:
            drawn.remove()
    return best[1] is not None


def shade(colour: str, n: int) -> str:
    """Return a lighter or darker tone of a colour, to distinguish neighbours."""
    from matplotlib.colors import to_hex, to_rgb

    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    return to_hex(
        colorsys.hls_to_rgb(
            hue, lightness + (0.0, -0.09, 0.05, -0.05, 0.02)[n % 5], 0.85 * saturation
        )
    )


_TEMPLATE = Path(__file__).parents[1] / "templates" / "tree.html"

#: SVG units; the browser scales the drawing to the width of its window.
_PAGE_WIDTH, _PAGE_HEIGHT, _PAGE_HEADING, _GROUP_HEADING, _PAGE_GAP = (
    1300.0,
    820.0,
    34.0,
    22.0,
    9.0,
)
#: Largest and smallest size of names, and the width of a character in em; the browser's font is unknown, and few bold
#: sans-serif fonts have names that are wider.
_FONT, _SMALL_FONT, _CHARACTER = 15.0, 7.0, 0.7


def write_tree_page(path: Path, roots: Sequence[Node], nouns: Nouns) -> None:
    """Write the tree of :func:`draw_tree` as a self-contained page with tooltips and a search."""
    total = sum(root.landmarks for root in roots)
    colours = root_colours(root.name for root in roots)
    boxes = _root_boxes(roots, _PAGE_WIDTH, _PAGE_HEIGHT, _PAGE_GAP)
    tiles = [
        tile
        for root, box in zip(roots, boxes, strict=True)
        for tile in _root(root, box, colours[root.name], nouns)
    ]
    page = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=f"{total:,} {nouns[1]} in {sum(len(root.children) for root in roots):,} groups",
        width=f"{_PAGE_WIDTH:g}",
        height=f"{_PAGE_HEIGHT:g}",
        tiles="\n".join(tiles),
    )
    write_page(path, page)


def _root(root: Node, box: Box, root_colour: str, nouns: Nouns) -> Iterator[str]:
    left, top, width, height = box
    heading = min(_PAGE_HEADING, height / 4)
    title = (left, top, width, heading)
    yield '<g class="root">'
    yield _name(f"{root.name}: {root.landmarks:,} {nouns[1]}", title, bold=True) or _name(
        root.name, title, bold=True
    )
    groups = squarify(
        [group.landmarks for group in root.children], (left, top + heading, width, height - heading)
    )
    for n, (group, group_box) in enumerate(zip(root.children, groups, strict=True)):
        yield from _group((root.name,), group, group_box, shade(root_colour, n), nouns)
    yield "</g>"


def _group(
    above: tuple[str, ...], group: Node, box: Box, colour: str, nouns: Nouns
) -> Iterator[str]:
    left, top, width, height = box
    path = (*above, group.name)
    yield '<g class="group">'
    yield _tile("group", path, f"{group.landmarks:,} {nouns[group.landmarks != 1]}", box, colour)
    if all(label.name == group.name for label in group.children):
        yield _name(group.name, box, bold=True)
    else:
        # Without room for a heading and a margin, labels fill the box, so that every one has an area to point at.
        heading, margin = (
            (_GROUP_HEADING, 3.0) if width > 30 and height > 2 * _GROUP_HEADING else (0.0, 0.0)
        )
        yield _name(group.name, (left, top, width, heading), bold=True)
        area = (left + margin, top + heading, width - 2 * margin, height - heading - margin)
        labels = squarify([label.landmarks for label in group.children], area)
        for label, label_box in zip(group.children, labels, strict=True):
            yield _tile(
                "label",
                (*path, label.name),
                f"{label.landmarks:,} {nouns[label.landmarks != 1]}",
                label_box,
            )
            yield _name(label.name, label_box)
    yield "</g>"


def _tile(kind: str, path: tuple[str, ...], size: str, box: Box, colour: str | None = None) -> str:
    """Return a rectangle with its path in the tree and its size as a tooltip."""
    left, top, width, height = box
    title = f"{' › '.join(path)}: {size}"
    fill = f' fill="{colour}"' if colour else ""
    return (
        f'<g class="tile {kind}" data-name="{escape(path[-1])}"><title>{escape(title)}</title>'
        f'<rect x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{height:.2f}"{fill}/></g>'
    )


def _name(name: str, box: Box, *, bold: bool = False) -> str:
    """Return a name in the middle of a box, or nothing where it does not fit."""
    left, top, width, height = box
    size = min(_FONT, 0.94 * width / (_CHARACTER * len(name)), 0.8 * height)
    if size < _SMALL_FONT:
        return ""
    kind = ' class="bold"' if bold else ""
    return (
        f'<text{kind} x="{left + width / 2:.1f}" y="{top + height / 2:.1f}" font-size="{size:.1f}">'
        f"{escape(name)}</text>"
    )

"""Treemap of a hierarchy, as a picture, and as a page on which every tile shows its name."""

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

#: Size of the picture, height of the headings of roots, and distance between roots, in inches.
_WIDTH = 13.0
_HEIGHT = 8.2
_HEADING = 0.34
_GAP = 0.09
#: Largest number of roots that are drawn side by side.
_MOST_COLUMNS = 6
#: Largest and smallest size of group names, and size of labels, in points.
_GROUP_FONT = 11.0
_SMALL_GROUP_FONT = 5.5
_LABEL_FONT = 6.5


@dataclass(frozen=True)
class Node:
    """A node of the hierarchy: its name, its number of landmarks, and its children."""

    name: str
    landmarks: int
    children: tuple[Node, ...] = ()


def build_nodes(paths: Iterable[tuple[Any, ...]]) -> tuple[Node, ...]:
    """Build trees from paths of names, largest children first.

    Args:
        paths: For each leaf, the names from its root on, and its number of landmarks.

    >>> build_nodes([("natural", "lake", 2), ("natural", "sea", 3)])[0].children[0]
    Node(name='sea', landmarks=3, children=())
    """
    rests_by_name: dict[str, list[tuple[Any, ...]]] = {}
    for path in paths:
        rests_by_name.setdefault(path[0], []).append(path[1:])
    nodes = []
    for name, rests in rests_by_name.items():
        landmarks = sum(rest[-1] for rest in rests)
        is_leaf = len(rests[0]) == 1
        nodes.append(Node(name, landmarks, () if is_leaf else build_nodes(rests)))
    return tuple(sorted(nodes, key=lambda node: (-node.landmarks, node.name)))


def draw_tree(path: Path, roots: Sequence[Node], nouns: Nouns) -> None:
    """Draw a few roots side by side, or many as a treemap; areas are counts.

    Names are drawn if they fit.

    Children of roots are groups, and children of groups are labels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure, axes = make_canvas((_WIDTH, _HEIGHT))
    FigureCanvasAgg(figure)  # keeps one renderer for all text measurements
    colours = root_colours(root.name for root in roots)
    boxes = _root_boxes(roots, _WIDTH, _HEIGHT, _GAP)
    style = {"color": INK, "fontweight": "bold"}
    with without_glyph_warnings():  # texts are measured before they are drawn
        for root, (left, top, width, height) in zip(roots, boxes, strict=True):
            heading_height = min(_HEADING, height / 4)
            heading = (left, top, width, heading_height)
            text = f"{root.name}  {root.landmarks:,} {nouns[1]}, {len(root.children)} groups"
            if not _write(axes, text, heading, 12.0, 7.0, **style):
                _write(axes, root.name, heading, 12.0, 5.0, **style)
            area = (left, top + heading_height, width, height - heading_height)
            _draw_root(axes, root, area, colours[root.name])
    save(figure, path)


def _root_boxes(roots: Sequence[Node], width: float, height: float, gap: float) -> list[Box]:
    """Divide a page among roots: side by side, or as a treemap if columns would be too narrow."""
    sizes = [root.landmarks for root in roots]
    boxes: list[Box] = []
    if len(roots) > _MOST_COLUMNS:
        page = (gap / 2, 0.0, width - gap, height - gap / 2)
        for left, top, box_width, box_height in squarify(sizes, page):
            boxes.append((left + gap / 2, top, box_width - gap, box_height - gap / 2))
        return boxes
    left = gap
    total_width = width - gap * (len(roots) + 1)
    for size in sizes:
        box_width = total_width * size / sum(sizes)
        boxes.append((left, 0.0, box_width, height - gap))
        left += box_width + gap
    return boxes


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Divide a box into nearly square boxes, in order, with areas proportional to sizes.

    The squarified treemap of Bruls, Huizing and van Wijk (2000): boxes are laid out in rows along the
    shorter side of the remaining area; a row ends if another box would make its worst aspect ratio
    worse. Sizes are positive, and give good shapes in descending order.
    """
    left, top, width, height = box
    scale = width * height / sum(sizes) if sizes else 0.0
    areas = [size * scale for size in sizes]
    boxes: list[Box] = []
    while areas:
        side = min(width, height)
        row = areas[:1]
        ratio = _worst_ratio(row, side)
        for n in range(2, len(areas) + 1):
            longer_ratio = _worst_ratio(areas[:n], side)
            if longer_ratio > ratio:
                break
            row = areas[:n]
            ratio = longer_ratio
        areas = areas[len(row) :]
        depth = sum(row) / side
        offset = 0.0
        for area in row:
            length = area / depth
            if width >= height:
                boxes.append((left, top + offset, depth, length))
            else:
                boxes.append((left + offset, top, length, depth))
            offset += length
        if width >= height:
            left += depth
            width -= depth
        else:
            top += depth
            height -= depth
    return boxes


def _worst_ratio(row: Sequence[float], side: float) -> float:
    """Return the worst aspect ratio in a row of boxes with these areas along a side."""
    depth = sum(row) / side
    return max(max(area / depth**2, depth**2 / area) for area in row)


def _draw_root(axes: Axes, root: Node, box: Box, root_colour: str) -> None:
    """Draw the groups and labels of a root in a box."""
    from matplotlib.patches import Rectangle

    boxes = squarify([group.landmarks for group in root.children], box)
    for number, (group, group_box) in enumerate(zip(root.children, boxes, strict=True)):
        left, top, width, height = group_box
        colour = shade(root_colour, number)
        axes.add_artist(
            Rectangle(
                (left, top), width, height, facecolor=colour, edgecolor="white", linewidth=1.4
            )
        )
        has_labels = any(label.name != group.name for label in group.children)
        heading = min(0.24, 0.4 * height)
        if has_labels and _write_group(axes, group, (left, top, width, heading)):
            area = (left + 0.03, top + heading, width - 0.06, height - heading - 0.03)
            _draw_labels(axes, group, area)
        else:
            _write_group(axes, group, group_box)


def _write_group(axes: Axes, group: Node, box: Box) -> bool:
    """Write the name of a group, with its size if both fit; return False if the name does not fit."""
    style = {"color": "white", "fontweight": "bold"}
    text = f"{group.name}  {group.landmarks:,}"
    return _write(axes, text, box, _GROUP_FONT, _SMALL_GROUP_FONT, **style) or _write(
        axes, group.name, box, _GROUP_FONT, _SMALL_GROUP_FONT, **style
    )


def _draw_labels(axes: Axes, group: Node, box: Box) -> None:
    """Draw the labels of a group in a box."""
    from matplotlib.patches import Rectangle

    boxes = squarify([label.landmarks for label in group.children], box)
    for label, label_box in zip(group.children, boxes, strict=True):
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
    """Write a text in a box, on one line or with a line per word, in the larger of both sizes.

    Args:
        axes: Axes to draw on.
        text: The text.
        box: The box.
        largest: Largest size of the font in points.
        smallest: Smallest size of the font in points.
        **style: Style of the text.

    Returns:
        Whether the text fits into the box.
    """
    left, top, width, height = box
    words = text.split()
    # Letters are at least a third as wide as high, so most labels of a large tree need not be measured.
    least_width = smallest * max(len(word) for word in words) / 3
    if 72 * height < smallest or 72 * width < least_width:
        return False
    best: Text | None = None
    best_size = smallest
    for form in (text, "\n".join(words)):
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
        width_inches = extent.width / axes.figure.dpi
        height_inches = extent.height / axes.figure.dpi
        size = largest * min(1.0, 0.86 * width / width_inches, 0.86 * height / height_inches)
        if size > best_size:
            if best is not None:
                best.remove()
            drawn.set_fontsize(size)
            best = drawn
            best_size = size
        else:
            drawn.remove()
    return best is not None


def shade(colour: str, n: int) -> str:
    """Return a lighter or darker tone of a colour, to distinguish neighbours."""
    from matplotlib.colors import to_hex, to_rgb

    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    lightness += (0.0, -0.09, 0.05, -0.05, 0.02)[n % 5]
    return to_hex(colorsys.hls_to_rgb(hue, lightness, 0.85 * saturation))


_TEMPLATE = Path(__file__).parents[1] / "templates" / "tree.html"

#: Lengths in SVG units; the browser scales the drawing to the width of its window.
_PAGE_WIDTH = 1300.0
_PAGE_HEIGHT = 820.0
_PAGE_HEADING = 34.0
_GROUP_HEADING = 22.0
_PAGE_GAP = 9.0
#: Largest and smallest size of names, and the width of a character in em. The browser's font is
#: unknown; few bold sans-serif fonts have wider names.
_FONT = 15.0
_SMALL_FONT = 7.0
_CHARACTER = 0.7


def write_tree_page(path: Path, roots: Sequence[Node], nouns: Nouns) -> None:
    """Write the tree of :func:`draw_tree` as a self-contained page with tooltips and a search."""
    total = sum(root.landmarks for root in roots)
    colours = root_colours(root.name for root in roots)
    boxes = _root_boxes(roots, _PAGE_WIDTH, _PAGE_HEIGHT, _PAGE_GAP)
    tiles: list[str] = []
    for root, box in zip(roots, boxes, strict=True):
        tiles.extend(_root_elements(root, box, colours[root.name], nouns))
    n_groups = sum(len(root.children) for root in roots)
    page = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=f"{total:,} {nouns[1]} in {n_groups:,} groups",
        width=f"{_PAGE_WIDTH:g}",
        height=f"{_PAGE_HEIGHT:g}",
        tiles="\n".join(tiles),
    )
    write_page(path, page)


def _root_elements(root: Node, box: Box, root_colour: str, nouns: Nouns) -> Iterator[str]:
    """Yield the SVG elements of a root."""
    left, top, width, height = box
    heading = min(_PAGE_HEADING, height / 4)
    heading_box = (left, top, width, heading)
    title = _name(f"{root.name}: {root.landmarks:,} {nouns[1]}", heading_box, bold=True)
    yield '<g class="root">'
    yield title or _name(root.name, heading_box, bold=True)
    area = (left, top + heading, width, height - heading)
    boxes = squarify([group.landmarks for group in root.children], area)
    for number, (group, group_box) in enumerate(zip(root.children, boxes, strict=True)):
        colour = shade(root_colour, number)
        yield from _group_elements((root.name,), group, group_box, colour, nouns)
    yield "</g>"


def _group_elements(
    above: tuple[str, ...], group: Node, box: Box, colour: str, nouns: Nouns
) -> Iterator[str]:
    """Yield the SVG elements of a group, below the names in ``above``."""
    left, top, width, height = box
    path = (*above, group.name)
    yield '<g class="group">'
    yield _tile("group", path, _size_text(group, nouns), box, colour)
    if all(label.name == group.name for label in group.children):
        yield _name(group.name, box, bold=True)
    else:
        # Without room for a heading and a margin, labels fill the box, so that each has a visible area.
        heading = 0.0
        margin = 0.0
        if width > 30 and height > 2 * _GROUP_HEADING:
            heading = _GROUP_HEADING
            margin = 3.0
        yield _name(group.name, (left, top, width, heading), bold=True)
        area = (left + margin, top + heading, width - 2 * margin, height - heading - margin)
        boxes = squarify([label.landmarks for label in group.children], area)
        for label, label_box in zip(group.children, boxes, strict=True):
            yield _tile("label", (*path, label.name), _size_text(label, nouns), label_box)
            yield _name(label.name, label_box)
    yield "</g>"


def _size_text(node: Node, nouns: Nouns) -> str:
    """Return the number of landmarks of a node in words."""
    return f"{node.landmarks:,} {nouns[node.landmarks != 1]}"


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
    """Return a name in the middle of a box, or an empty text if it does not fit."""
    left, top, width, height = box
    size = min(_FONT, 0.94 * width / (_CHARACTER * len(name)), 0.8 * height)
    if size < _SMALL_FONT:
        return ""
    kind = ' class="bold"' if bold else ""
    return (
        f'<text{kind} x="{left + width / 2:.1f}" y="{top + height / 2:.1f}" font-size="{size:.1f}">'
        f"{escape(name)}</text>"
    )

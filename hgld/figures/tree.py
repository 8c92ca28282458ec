"""A hierarchy as nested areas: roots, the groups in them, the labels in these."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgld.figures.style import FAINT, INK, ROOT_COLOURS, any_script, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_Box = tuple[float, float, float, float]  # left, top, width, height

#: Inches.
_WIDTH, _HEIGHT, _HEADING, _GAP = 13.0, 8.2, 0.34, 0.09
#: Points: group names shrink from the first to the second, labels are of the third or left out.
_GROUP_FONT, _SMALL_GROUP_FONT, _LABEL_FONT = 11.0, 5.5, 6.5


@dataclass(frozen=True)
class Node:
    """A part of the hierarchy: its name, its landmarks, and what it consists of."""

    name: str
    landmarks: int
    parts: tuple[Node, ...] = ()


def nodes_of(paths: Iterable[tuple[Any, ...]]) -> tuple[Node, ...]:
    """A tree, largest parts first, from the names from the root down to a leaf and the landmarks of that leaf.

    >>> nodes_of([("natural", "lake", 2), ("natural", "sea", 3)])[0].parts[0]
    Node(name='sea', landmarks=3, parts=())
    """
    below: dict[str, list[tuple[Any, ...]]] = {}
    for name, *rest in paths:
        below.setdefault(name, []).append(tuple(rest))
    nodes = [
        Node(name, sum(rest[-1] for rest in found), nodes_of(found) if len(found[0]) > 1 else ())
        for name, found in below.items()
    ]
    return tuple(sorted(nodes, key=lambda node: (-node.landmarks, node.name)))


def draw_tree(path: Path, roots: Sequence[Node]) -> None:
    """Draw roots side by side, as wide as they have landmarks; what has room for its name shows it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT))
    FigureCanvasAgg(figure)  # keeps one renderer for all texts that are measured
    # In inches, y down.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(_HEIGHT, 0))
    axes.set_axis_off()
    left = _GAP
    wide = _WIDTH - _GAP * (len(roots) + 1)
    total = sum(root.landmarks for root in roots)
    with any_script():  # texts are measured before they are drawn
        for root in roots:
            width = wide * root.landmarks / total
            heading = f"{root.name}  {root.landmarks:,} landmarks, {len(root.parts)} groups"
            _write(axes, heading, (left, 0, width, _HEADING), 12.0, 7.0, color=INK, fontweight="bold")
            _draw_root(axes, root, (left, _HEADING, width, _HEIGHT - _HEADING - _GAP))
            left += width + _GAP
    save(figure, path)


def squarify(sizes: Sequence[float], box: _Box) -> list[_Box]:
    """Divide a box into boxes of given sizes, as square as a greedy choice gets them.

    The squarified treemap of Bruls, Huizing and van Wijk (2000): boxes are laid in rows along the shorter side of
    what is left, and a row ends where one more box would make its worst box longer.

    Args:
        sizes: positive, largest first for good shapes.
        box: left, top, width and height of what is to be divided.

    Returns:
        Boxes with areas proportional to ``sizes``, in their order; they fill the box and do not overlap.
    """
    left, top, width, height = box
    scale = width * height / sum(sizes) if sizes else 0.0
    areas = [size * scale for size in sizes]
    boxes: list[_Box] = []
    while areas:
        side = min(width, height)
        n = 1
        while n < len(areas) and _worst(areas[: n + 1], side) <= _worst(areas[:n], side):
            n += 1
        row, areas = areas[:n], areas[n:]
        depth = sum(row) / side
        at = 0.0
        for area in row:
            along = area / depth
            boxes.append((left, top + at, depth, along) if width >= height else (left + at, top, along, depth))
            at += along
        if width >= height:
            left, width = left + depth, width - depth
        else:
            top, height = top + depth, height - depth
    return boxes


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of sides in a row of these areas along a side."""
    depth = sum(row) / side
    return max(max(area / depth**2, depth**2 / area) for area in row)


def _draw_root(axes: Axes, root: Node, box: _Box) -> None:
    from matplotlib.patches import Rectangle

    groups = squarify([group.landmarks for group in root.parts], box)
    for n, (group, (left, top, width, height)) in enumerate(zip(root.parts, groups, strict=True)):
        colour = _shade(ROOT_COLOURS.get(root.name, FAINT), n)
        axes.add_artist(Rectangle((left, top), width, height, facecolor=colour, edgecolor="white", linewidth=1.4))
        labelled = any(part.name != group.name for part in group.parts)
        heading = min(0.24, 0.4 * height)
        if labelled and _write_group(axes, group, (left, top, width, heading)):
            _draw_labels(axes, group, (left + 0.03, top + heading, width - 0.06, height - heading - 0.03))
        else:
            _write_group(axes, group, (left, top, width, height))


def _write_group(axes: Axes, group: Node, box: _Box) -> bool:
    style = {"color": "white", "fontweight": "bold"}
    forms = (f"{group.name}  {group.landmarks:,}", group.name)
    return any(_write(axes, form, box, _GROUP_FONT, _SMALL_GROUP_FONT, **style) for form in forms)


def _draw_labels(axes: Axes, group: Node, box: _Box) -> None:
    from matplotlib.patches import Rectangle

    for label, part in zip(group.parts, squarify([label.landmarks for label in group.parts], box), strict=True):
        left, top, width, height = part
        axes.add_artist(
            Rectangle((left, top), width, height, facecolor=("white", 0.16), edgecolor=("white", 0.55), linewidth=0.5)
        )
        _write(axes, label.name, part, _LABEL_FONT + 1.5, _LABEL_FONT - 1.5, color="white")


def _write(axes: Axes, text: str, box: _Box, largest: float, smallest: float, **style: Any) -> bool:
    """Write a text into the middle of a box, on one line or a line a word; False if it has no room."""
    left, top, width, height = box
    best: tuple[float, Text | None] = (smallest, None)
    # Letters are a third as wide as high at least: most labels of a large tree need not be measured.
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


def _shade(colour: str, n: int) -> str:
    """A lighter or darker tone of a colour, so that neighbours can be told apart."""
    from matplotlib.colors import to_hex, to_rgb

    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    return to_hex(colorsys.hls_to_rgb(hue, lightness + (0.0, -0.09, 0.05, -0.05, 0.02)[n % 5], 0.85 * saturation))

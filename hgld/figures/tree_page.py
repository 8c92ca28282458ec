"""Treemap of a hierarchy as a page, on which every tile tells its name, however small it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from hgld.figures.style import FAINT, ROOT_COLOURS
from hgld.figures.tree import Box, Node, shade, squarify
from hgld.io.files import atomic_write

_PAGE = Path(__file__).parents[1] / "templates" / "tree.html"

#: SVG units; the browser scales the drawing to the width of its window.
_WIDTH, _HEIGHT, _HEADING, _GROUP_HEADING, _GAP = 1300.0, 820.0, 34.0, 22.0, 9.0
#: Largest and smallest size of names, and the width of a character in em; the browser's font is unknown, and few bold
#: sans-serif fonts have names that are wider.
_FONT, _SMALL_FONT, _CHARACTER = 15.0, 7.0, 0.7


def write_tree_page(path: Path, roots: Sequence[Node]) -> None:
    """Write the tree of :func:`~hgld.figures.tree.draw_tree` as a self-contained page with tooltips and a search.

    Args:
        path: HTML file to write or replace.
        roots: Roots, with groups as children and labels as children of these.
    """
    total = sum(root.landmarks for root in roots)
    tiles: list[str] = []
    left, width_of_all = _GAP, _WIDTH - _GAP * (len(roots) + 1)
    for root in roots:
        width = width_of_all * root.landmarks / total
        tiles += _root(root, (left, 0.0, width, _HEIGHT - _GAP))
        left += width + _GAP
    page = Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=f"{total:,} landmarks in {sum(len(root.children) for root in roots):,} groups",
        width=f"{_WIDTH:g}",
        height=f"{_HEIGHT:g}",
        tiles="\n".join(tiles),
    )
    with atomic_write(path) as draft:
        draft.write_text(page, encoding="utf-8")


def _root(root: Node, box: Box) -> Iterator[str]:
    left, top, width, height = box
    yield '<g class="root">'
    yield _name(f"{root.name}: {root.landmarks:,} landmarks", (left, top, width, _HEADING), bold=True)
    area = (left, top + _HEADING, width, height - _HEADING)
    groups = squarify([group.landmarks for group in root.children], area)
    for n, (group, group_box) in enumerate(zip(root.children, groups, strict=True)):
        yield from _group((root.name,), group, group_box, shade(ROOT_COLOURS.get(root.name, FAINT), n))
    yield "</g>"


def _group(above: tuple[str, ...], group: Node, box: Box, colour: str) -> Iterator[str]:
    left, top, width, height = box
    path = (*above, group.name)
    yield '<g class="group">'
    yield _tile("group", path, group.landmarks, box, colour)
    if all(label.name == group.name for label in group.children):
        yield _name(group.name, box, bold=True)
    else:
        # Without room for a heading and a margin, labels fill the box, so that every one has an area to point at.
        heading, margin = (_GROUP_HEADING, 3.0) if width > 30 and height > 2 * _GROUP_HEADING else (0.0, 0.0)
        yield _name(group.name, (left, top, width, heading), bold=True)
        area = (left + margin, top + heading, width - 2 * margin, height - heading - margin)
        labels = squarify([label.landmarks for label in group.children], area)
        for label, label_box in zip(group.children, labels, strict=True):
            yield _tile("label", (*path, label.name), label.landmarks, label_box)
            yield _name(label.name, label_box)
    yield "</g>"


def _tile(kind: str, path: tuple[str, ...], landmarks: int, box: Box, colour: str | None = None) -> str:
    """Return a rectangle with its path in the tree and its size as a tooltip."""
    left, top, width, height = box
    title = f"{' › '.join(path)}: {landmarks:,} {'landmark' if landmarks == 1 else 'landmarks'}"
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

"""Retrieval strips: queries beside the top results of several methods, framed by level of relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from hgld.figures.style import FAINT, INK, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

_Square = tuple[float, float, float]  # left, top, side

#: Lengths in the picture are in sides of a result's photograph.
_GAP, _LINE, _NAMES, _FRAME = 0.06, 0.3, 1.4, 0.045
_QUERY = 2 + _GAP
_FIRST_RESULT = _QUERY + _NAMES + 2 * _GAP
_WIDTH_INCHES = 9.5
_LONGEST_TITLE = 110
_FONT_SIZE = 7.5


@dataclass(frozen=True)
class LevelColour:
    """A level of relevance in the legend.

    Args:
        level: Number of the level, 0 for nothing shared.
        label: Meaning of the level.
        colour: Colour of its frames, ``#rrggbb``.
    """

    level: int
    label: str
    colour: str


@dataclass(frozen=True, eq=False)
class StripPhoto:
    """A photograph.

    Args:
        id: Image id, drawn where there is no photograph.
        image: Photograph, or None where it is not available.
    """

    id: str
    image: Image | None


@dataclass(frozen=True, eq=False)
class Strip:
    """Top results of one method for one query.

    Args:
        method: Name of the method.
        score: Score of the query, as text.
        results: Photographs and their levels of relevance, rank 1 first.
    """

    method: str
    score: str
    results: Sequence[tuple[StripPhoto, int]]


@dataclass(frozen=True, eq=False)
class StripQuery:
    """A query with one strip per method.

    Args:
        title: Names of what the query shows; shortened to one line.
        note: Text after the title, e.g. the difference between the methods.
        photo: Photograph of the query.
        strips: Two strips, drawn one above the other.
    """

    title: str
    note: str
    photo: StripPhoto
    strips: tuple[Strip, Strip]


def draw_strips(path: Path, sections: dict[str, Sequence[StripQuery]], levels: Sequence[LevelColour]) -> None:
    """Draw queries, each beside its two strips of results.

    Args:
        path: Picture to write.
        sections: Queries by the heading above them; sections without queries are omitted.
        levels: Legend, in the order in which it is drawn; contains the level of every result.
    """
    from matplotlib.figure import Figure

    sections = {heading: queries for heading, queries in sections.items() if queries}
    n_results = max(
        len(strip.results) for queries in sections.values() for query in queries for strip in query.strips
    )
    width = _FIRST_RESULT + n_results * (1 + _GAP)
    height = _LINE + sum(2 * _LINE + len(queries) * (_QUERY + 1.5 * _LINE) for queries in sections.values())
    figure = Figure(figsize=(_WIDTH_INCHES, _WIDTH_INCHES * height / width))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.set_axis_off()
    _draw_legend(axes, levels)
    colours = {level.level: level.colour for level in levels}

    top = _LINE
    for heading, queries in sections.items():
        _draw_text(axes, 0, top + 1.2 * _LINE, heading, weight="bold", size=9.5)
        top += 2 * _LINE
        for query in queries:
            title = shorten(query.title, _LONGEST_TITLE, placeholder=" …")
            _draw_text(axes, 0, top + _LINE / 2, f"{title}: {query.note}")
            top += _LINE
            _draw_photo(axes, query.photo, (0, top, _QUERY))
            for n, strip in enumerate(query.strips):
                _draw_strip(axes, strip, top + n * (1 + _GAP), colours)
            top += _QUERY + _LINE / 2
    save(figure, path)


def _draw_legend(axes: Axes, levels: Sequence[LevelColour]) -> None:
    from matplotlib.patches import Patch

    axes.legend(
        handles=[Patch(color=level.colour, label=f"{level.level}: {level.label}") for level in levels],
        ncols=len(levels),
        loc="upper left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0,
        frameon=False,
        fontsize=_FONT_SIZE,
        handlelength=1,
        handleheight=1,
    )


def _draw_strip(axes: Axes, strip: Strip, top: float, colours: dict[int, str]) -> None:
    left = _QUERY + 2 * _GAP
    _draw_text(axes, left, top + 0.35, strip.method, weight="bold")
    _draw_text(axes, left, top + 0.65, strip.score)
    for column, (photo, level) in enumerate(strip.results):
        inside = _draw_frame(axes, _FIRST_RESULT + column * (1 + _GAP), top, colours[level], level)
        _draw_photo(axes, photo, inside)


def _draw_photo(axes: Axes, photo: StripPhoto, square: _Square) -> None:
    """Centre the whole photograph in a square, or write its id there."""
    left, top, side = square
    if photo.image is None:
        _draw_text(axes, left + side / 2, top + side / 2, photo.id, size=5, color=FAINT, ha="center")
        return
    longest = max(photo.image.size)
    width, height = (side * length / longest for length in photo.image.size)
    left, top = left + (side - width) / 2, top + (side - height) / 2
    extent = (left, left + width, top + height, top)
    axes.imshow(photo.image, extent=extent, interpolation="antialiased", zorder=2)


def _draw_frame(axes: Axes, left: float, top: float, colour: str, level: int) -> _Square:
    """Draw the frame of a result and return the square inside it.

    The number of the level stands in the corner, for readers who cannot distinguish the colours.
    """
    from matplotlib.patches import Rectangle

    inside = left + _FRAME, top + _FRAME, 1 - 2 * _FRAME
    axes.add_patch(Rectangle((left, top), 1, 1, facecolor=colour))
    axes.add_patch(Rectangle(inside[:2], inside[2], inside[2], facecolor="white"))
    axes.add_patch(Rectangle((left, top + 0.8), 0.16, 0.2, facecolor=colour, zorder=3))
    _draw_text(axes, left + 0.08, top + 0.9, str(level), size=6, ha="center")
    return inside


def _draw_text(axes: Axes, left: float, middle: float, text: str, **style: Any) -> None:
    defaults: dict[str, Any] = {"size": _FONT_SIZE, "color": INK, "va": "center", "parse_math": False, "zorder": 4}
    axes.text(left, middle, text, **defaults | style)

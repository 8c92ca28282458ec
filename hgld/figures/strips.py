"""Queries that two methods rank most differently: what stands first for them with each, in coloured frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from hgld.figures.style import FAINT, INK, save
from hgld.inspection.method_differences import Differing, Side, points
from hgld.inspection.photo_page import Level, Photo, levels_shown
from hgld.inspection.thumbnails import FindImage, small

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

#: The left and the top of a square, and its side.
Square = tuple[float, float, float]

#: Lengths in the picture are in sides of a photograph.
_GAP, _LINE, _NAMES, _FRAME = 0.06, 0.3, 1.4, 0.045
_QUERY = 2 + _GAP
_FIRST = _QUERY + _NAMES + 2 * _GAP
_WIDTH_INCHES = 9.5
_PIXELS = 240
_LONGEST_NAME = 110
_SIZE = 7.5


def draw_differing(
    path: Path,
    differing: Differing,
    *,
    query: Callable[[int], Photo],
    gallery: Callable[[int], Photo],
    image: FindImage,
    per_part: int = 3,
) -> None:
    """Draw queries, each beside two strips of what stands first for it: the baseline's above, the method's below.

    Args:
        path: the picture to write.
        differing: the queries.
        query: what to tell of the query at a position.
        gallery: what to tell of the gallery item at a position.
        image: finds photographs; in place of one that is not at hand stands its id.
        per_part: how many of the queries that the method ranks better are shown, and of those that it ranks worse.
    """
    from matplotlib.figure import Figure

    parts = {heading: rows for heading, rows in differing.parts(per_part).items() if rows}
    n_items = differing.method.found.positions.shape[1]
    width = _FIRST + n_items * (1 + _GAP)
    height = _LINE + sum(2 * _LINE + len(rows) * (_QUERY + 1.5 * _LINE) for rows in parts.values())
    figure = Figure(figsize=(_WIDTH_INCHES, _WIDTH_INCHES * height / width))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.set_axis_off()
    levels = levels_shown(differing.n_levels, differing.level_names)
    colours = {level.number: level.colour for level in levels}
    _legend(axes, levels)

    top = _LINE
    for heading, rows in parts.items():
        _text(axes, 0, top + 1.2 * _LINE, heading, weight="bold", size=9.5)
        top += 2 * _LINE
        for row in rows:
            asked = query(int(differing.queries[row]))
            names = shorten(" · ".join(asked.names) or asked.id, _LONGEST_NAME, placeholder=" …")
            _text(axes, 0, top + _LINE / 2, f"{names}: {differing.metric} {points(differing.differences[row])}")
            top += _LINE
            _draw(axes, small(image(asked.id), _PIXELS), asked, (0, top, _QUERY))
            for strip, side in enumerate((differing.baseline, differing.method)):
                above = top + strip * (1 + _GAP)
                _name(axes, side, differing.metric, row, above)
                for column, item in enumerate(side.found.positions[row].tolist()):
                    if item >= 0:
                        photo, level = gallery(item), int(side.found.levels[row, column])
                        inside = _frame(axes, _FIRST + column * (1 + _GAP), above, colours[level], level)
                        _draw(axes, small(image(photo.id), _PIXELS), photo, inside)
            top += _QUERY + _LINE / 2
    save(figure, path)


def _legend(axes: Axes, levels: list[Level]) -> None:
    """The levels in a row at the top."""
    from matplotlib.patches import Patch

    meanings = [f"same {level.meaning}" if level.number else level.meaning for level in levels]
    patches = [
        Patch(color=level.colour, label=f"{level.number}: {meaning}")
        for level, meaning in zip(levels, meanings, strict=True)
    ]
    axes.legend(
        handles=patches,
        ncols=len(patches),
        loc="upper left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0,
        frameon=False,
        fontsize=_SIZE,
        handlelength=1,
        handleheight=1,
    )


def _name(axes: Axes, side: Side, metric: str, row: int, top: float) -> None:
    """The method of a strip, and its value."""
    _text(axes, _QUERY + 2 * _GAP, top + 0.35, side.name, weight="bold")
    _text(axes, _QUERY + 2 * _GAP, top + 0.65, f"{metric} {100 * side.per_query[metric].iloc[row]:.1f}")


def _draw(axes: Axes, image: Image | None, photo: Photo, square: Square) -> None:
    """A photograph, all of it, in the middle of a square, or its id."""
    left, top, side = square
    if image is None:
        _text(axes, left + side / 2, top + side / 2, photo.id, size=5, color=FAINT, ha="center")
        return
    longest = max(image.size)
    width, height = (side * length / longest for length in image.size)
    left, top = left + (side - width) / 2, top + (side - height) / 2
    extent = (left, left + width, top + height, top)
    axes.imshow(image, extent=extent, interpolation="antialiased", zorder=2)


def _frame(axes: Axes, left: float, top: float, colour: str, level: int) -> Square:
    """A frame in the colour of a level, its number in the corner for those who see colours alike; its inside."""
    from matplotlib.patches import Rectangle

    inside = left + _FRAME, top + _FRAME, 1 - 2 * _FRAME
    axes.add_patch(Rectangle((left, top), 1, 1, facecolor=colour))
    axes.add_patch(Rectangle(inside[:2], inside[2], inside[2], facecolor="white"))
    axes.add_patch(Rectangle((left, top + 0.8), 0.16, 0.2, facecolor=colour, zorder=3))
    _text(axes, left + 0.08, top + 0.9, str(level), size=6, ha="center")
    return inside


def _text(axes: Axes, left: float, middle: float, text: str, **how: Any) -> None:
    usual: dict[str, Any] = {"size": _SIZE, "color": INK, "va": "center", "parse_math": False, "zorder": 4}
    axes.text(left, middle, text, **usual | how)

"""Pictures made of photographs: retrieval strips, thumbnails."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageOps

from hgld.figures.style import FAINT, INK, LevelStyle, make_canvas, save
from hgld.io.images import UnreadableImageError, open_image, upright_rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Photographs with more pixels are not shown: decoding them would take gigabytes and seconds.
MAX_PIXELS = 64_000_000


def make_thumbnail(
    data: bytes, width: int, height: int, *, crop: bool = False, quality: int = 80
) -> bytes:
    """Return a small JPEG of a photograph, of at most a width and a height in pixels.

    With ``crop`` it fills the whole area, and parts at the longer side are cut off; else it is shown completely, and
    never enlarged. The quality is that of JPEG, 1 to 95.

    Raises:
        UnreadableImageError: The content is no image, damaged, or has more than ``MAX_PIXELS`` pixels.
    """
    image = upright_copy(open_image(data), max(width, height))
    if crop:
        # Towers and summits are above the centre.
        image = ImageOps.fit(image, (width, height), centering=(0.5, 0.4))
    else:
        image.thumbnail((width, height))
    return encode_jpeg(image, quality)


def encode_jpeg(image: Image.Image, quality: int) -> bytes:
    """Return an image as a JPEG file of a quality from 1 to 95."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()


def data_url(jpeg: bytes) -> str:
    """Return a JPEG as a URL that pages contain."""
    return f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"


def upright_copy(image: Image.Image, size: int) -> Image.Image:
    """Return an upright RGB copy of an opened photograph, for a thumbnail of a size in pixels; it may be larger.

    Raises:
        UnreadableImageError: The photograph is damaged, or has more than ``MAX_PIXELS`` pixels.
    """
    if (pixels := image.width * image.height) > MAX_PIXELS:
        raise UnreadableImageError(f"too large ({pixels / 1e6:,.0f} megapixels)")
    return upright_rgb(image, size)


_Square = tuple[float, float, float]  # left, top, side

#: Lengths in the picture are in sides of a result's photograph.
_GAP, _LINE, _NAMES, _FRAME = 0.06, 0.3, 1.4, 0.045
_QUERY = 2 + _GAP
_FIRST_RESULT = _QUERY + _NAMES + 2 * _GAP
_WIDTH_INCHES = 9.5
_LONGEST_TITLE = 110
_FONT_SIZE = 7.5


@dataclass(frozen=True, eq=False)
class StripPhoto:
    """A photograph, or None where it is not available; the id is drawn in its place."""

    id: str
    image: Image.Image | None


@dataclass(frozen=True, eq=False)
class Strip:
    """Top results of one method for one query: photographs and their levels of relevance, rank 1 first."""

    method: str
    score: str
    results: Sequence[tuple[StripPhoto, int]]


@dataclass(frozen=True, eq=False)
class StripQuery:
    """A query with two strips, drawn one above the other; its title, what it shows, is shortened to one line."""

    title: str
    note: str
    photo: StripPhoto
    strips: tuple[Strip, Strip]


def draw_strips(
    path: Path, sections: dict[str, Sequence[StripQuery]], levels: Sequence[LevelStyle]
) -> None:
    """Draw queries below their headings, each beside its two strips of results, and a legend of all levels."""
    sections = {heading: queries for heading, queries in sections.items() if queries}
    n_results = max(
        len(strip.results)
        for queries in sections.values()
        for query in queries
        for strip in query.strips
    )
    width = _FIRST_RESULT + n_results * (1 + _GAP)
    height = _LINE + sum(
        2 * _LINE + len(queries) * (_QUERY + 1.5 * _LINE) for queries in sections.values()
    )
    figure, axes = make_canvas((width, height), _WIDTH_INCHES, margin=0.01)
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


def _draw_legend(axes: Axes, levels: Sequence[LevelStyle]) -> None:
    from matplotlib.patches import Patch

    axes.legend(
        handles=[
            Patch(
                color=level.colour,
                label=f"{level.level}: {'same ' if level.level else ''}{level.meaning}",
            )
            for level in levels
        ],
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
        _draw_text(
            axes, left + side / 2, top + side / 2, photo.id, size=5, color=FAINT, ha="center"
        )
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
    defaults: dict[str, Any] = {
        "size": _FONT_SIZE,
        "color": INK,
        "va": "center",
        "parse_math": False,
        "zorder": 4,
    }
    axes.text(left, middle, text, **defaults | style)

"""Pictures made of photographs: strips of retrieval results, and thumbnails."""

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
    """Return a photograph as a small JPEG file.

    Args:
        data: Content of the photograph's file.
        width: Largest width of the thumbnail in pixels.
        height: Largest height of the thumbnail in pixels.
        crop: Whether the photograph fills the whole area: it is enlarged if necessary, and its edges are
            cropped to the proportions of the area. By default it is shown completely, and never
            enlarged.
        quality: Quality of JPEG, 1 to 95.

    Raises:
        UnreadableImageError: The file is not an image, is damaged, or has more than ``MAX_PIXELS``
            pixels.
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
    """Return a JPEG file as a URL that contains it, for pages."""
    return f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"


def upright_copy(image: Image.Image, size: int) -> Image.Image:
    """Return an upright RGB copy of an opened photograph, for a thumbnail of a size in pixels.

    The copy may be larger than the thumbnail.

    Raises:
        UnreadableImageError: The photograph is damaged, or has more than ``MAX_PIXELS`` pixels.
    """
    n_pixels = image.width * image.height
    if n_pixels > MAX_PIXELS:
        raise UnreadableImageError(f"too large ({n_pixels / 1e6:,.0f} megapixels)")
    return upright_rgb(image, size)


#: Left edge, top edge and side.
_Square = tuple[float, float, float]

# Lengths in the picture, in sides of a result's photograph.
#: Distance between photographs.
_GAP = 0.06
#: Height of a line of text.
_LINE_HEIGHT = 0.3
#: Width of the names of methods.
_NAMES_WIDTH = 1.4
#: Width of the frame of a result.
_FRAME_WIDTH = 0.045
#: Side of the query's photograph, which stands beside two strips.
_QUERY_SIDE = 2 + _GAP
_FIRST_RESULT = _QUERY_SIDE + _NAMES_WIDTH + 2 * _GAP
_WIDTH_INCHES = 9.5
_LONGEST_TITLE = 110
_FONT_SIZE = 7.5


@dataclass(frozen=True, eq=False)
class StripPhoto:
    """A photograph, or None if it is not available; its id is drawn instead."""

    id: str
    image: Image.Image | None


@dataclass(frozen=True, eq=False)
class Strip:
    """Top results of one method for one query: photographs and their levels, rank 1 first."""

    method: str
    score: str
    results: Sequence[tuple[StripPhoto, int]]


@dataclass(frozen=True, eq=False)
class StripQuery:
    """A query with two strips, one above the other.

    Args:
        title: Title of the query, shortened to one line.
        note: Further words after the title.
        photo: Photograph of the query.
        strips: Results of two methods.
    """

    title: str
    note: str
    photo: StripPhoto
    strips: tuple[Strip, Strip]


def draw_strips(
    path: Path, sections: dict[str, Sequence[StripQuery]], levels: Sequence[LevelStyle]
) -> None:
    """Draw queries below their headings, each beside its two strips of results.

    Args:
        path: File of the figure.
        sections: Queries by heading; headings without queries are omitted.
        levels: Styles of the levels of relevance.
    """
    sections = {heading: queries for heading, queries in sections.items() if queries}
    n_results = 0
    height_of_sections = 0.0
    for queries in sections.values():
        height_of_sections += 2 * _LINE_HEIGHT + len(queries) * (_QUERY_SIDE + 1.5 * _LINE_HEIGHT)
        for query in queries:
            n_results = max(n_results, *[len(strip.results) for strip in query.strips])
    width = _FIRST_RESULT + n_results * (1 + _GAP)
    figure, axes = make_canvas(
        (width, _LINE_HEIGHT + height_of_sections), _WIDTH_INCHES, margin=0.01
    )
    _draw_legend(axes, levels)
    colours = {level.level: level.colour for level in levels}

    top = _LINE_HEIGHT
    for heading, queries in sections.items():
        _draw_text(axes, 0, top + 1.2 * _LINE_HEIGHT, heading, weight="bold", size=9.5)
        top += 2 * _LINE_HEIGHT
        for query in queries:
            title = shorten(query.title, _LONGEST_TITLE, placeholder=" …")
            _draw_text(axes, 0, top + _LINE_HEIGHT / 2, f"{title}: {query.note}")
            top += _LINE_HEIGHT
            _draw_photo(axes, query.photo, (0, top, _QUERY_SIDE))
            for n, strip in enumerate(query.strips):
                _draw_strip(axes, strip, top + n * (1 + _GAP), colours)
            top += _QUERY_SIDE + _LINE_HEIGHT / 2
    save(figure, path)


def _draw_legend(axes: Axes, levels: Sequence[LevelStyle]) -> None:
    """Draw the colours of the levels of relevance."""
    from matplotlib.patches import Patch

    handles = []
    for level in levels:
        meaning = f"same {level.meaning}" if level.level else level.meaning
        handles.append(Patch(color=level.colour, label=f"{level.level}: {meaning}"))
    axes.legend(
        handles=handles,
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
    """Draw the name, the score and the results of a method."""
    left = _QUERY_SIDE + 2 * _GAP
    _draw_text(axes, left, top + 0.35, strip.method, weight="bold")
    _draw_text(axes, left, top + 0.65, strip.score)
    for column, (photo, level) in enumerate(strip.results):
        inside = _draw_frame(axes, _FIRST_RESULT + column * (1 + _GAP), top, colours[level], level)
        _draw_photo(axes, photo, inside)


def _draw_photo(axes: Axes, photo: StripPhoto, square: _Square) -> None:
    """Draw the whole photograph in the centre of a square, or write its id there."""
    left, top, side = square
    if photo.image is None:
        middle = (left + side / 2, top + side / 2)
        _draw_text(axes, *middle, photo.id, size=5, color=FAINT, ha="center")
        return
    longest = max(photo.image.size)
    width = side * photo.image.width / longest
    height = side * photo.image.height / longest
    left += (side - width) / 2
    top += (side - height) / 2
    extent = (left, left + width, top + height, top)
    axes.imshow(photo.image, extent=extent, interpolation="antialiased", zorder=2)


def _draw_frame(axes: Axes, left: float, top: float, colour: str, level: int) -> _Square:
    """Draw the frame of a result and return the square inside it.

    The number of the level stands in the corner, for readers who cannot distinguish the colours.
    """
    from matplotlib.patches import Rectangle

    inside = left + _FRAME_WIDTH, top + _FRAME_WIDTH, 1 - 2 * _FRAME_WIDTH
    axes.add_patch(Rectangle((left, top), 1, 1, facecolor=colour))
    axes.add_patch(Rectangle(inside[:2], inside[2], inside[2], facecolor="white"))
    axes.add_patch(Rectangle((left, top + 0.8), 0.16, 0.2, facecolor=colour, zorder=3))
    _draw_text(axes, left + 0.08, top + 0.9, str(level), size=6, ha="center")
    return inside


def _draw_text(axes: Axes, x: float, middle: float, text: str, **style: Any) -> None:
    """Write a line of text, vertically centred; x is its left edge unless the style has another alignment."""
    defaults: dict[str, Any] = {
        "size": _FONT_SIZE,
        "color": INK,
        "va": "center",
        "parse_math": False,
        "zorder": 4,
    }
    axes.text(x, middle, text, **defaults | style)

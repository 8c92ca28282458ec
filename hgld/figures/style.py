"""Colours, layout and output format shared by all figures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgld.errors import ConfigurationError
from hgld.io.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Palettes of twelve colours on white and on near-black, found by search: the smallest OKLab distance
#: between two colours is above 0.14 in normal vision and 0.09 in simulated protanopia, deuteranopia
#: and tritanopia; common palettes of twelve colours reach a third of these distances. Adjacent
#: colours are far apart; longer series repeat the list.
LIGHT = (
    "#3e3bff",
    "#7dd024",
    "#ff3876",
    "#541e12",
    "#359cad",
    "#dfadcc",
    "#3d0982",
    "#275e13",
    "#9e712a",
    "#ad7afd",
    "#aa1f69",
    "#7e0bba",
)
DARK = (
    "#30bdfe",
    "#4dff94",
    "#d77602",
    "#814e53",
    "#a4b58b",
    "#ecd2fd",
    "#385a9d",
    "#1d917a",
    "#fdb512",
    "#ac77c3",
    "#c30807",
    "#8e1dff",
)
#: Colours of ``LIGHT`` that are dark enough for thin lines on white.
LINES = tuple(colour for colour in LIGHT if colour not in ("#7dd024", "#dfadcc"))
INK = "#1b1f24"
FAINT = "#6a737d"
#: Colours of the roots of H-GLDv2 in figures that compare them.
_ROOT_COLOURS = {"natural": "#2f8f4e", "human-made": "#3147c8"}

#: Colours of the levels that two images share, from the finest to the coarsest, and of no shared
#: level: for lines on white, and for backgrounds of dark text. Levels between are interpolated. Blue
#: to yellow, because many readers cannot distinguish green and red.
_LEVEL_LINES = ("#1b3fd6", "#12a3a3", "#f0c419"), "#a61e4d"
_LEVEL_GROUNDS = ("#5b9bff", "#4fd1b8", "#f7e35a"), "#ef6a5a"

#: Settings that make figures fit for papers: PDF files with TrueType fonts, which publishers require,
#: instead of Type 3; and reproducible names inside SVG files.
_RC: Any = {"pdf.fonttype": 42, "svg.hashsalt": "hgld"}
_SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".eps")
#: Formats in which figures are written besides their own.
_formats: ContextVar[tuple[str, ...]] = ContextVar("_formats", default=())

#: Resolution in dots per inch.
DPI = 150
_WIDTH = 9.6  # inches


#: The singular and the plural of the things that a figure counts, see :func:`hgld.tables.nouns`.
Nouns = tuple[str, str]


def root_colours(roots: Iterable[str]) -> dict[str, str]:
    """Return a colour for each root; the same set of roots always has the same colours."""
    colours = {}
    for number, name in enumerate(sorted(set(roots))):
        colours[name] = _ROOT_COLOURS.get(name, LIGHT[number % len(LIGHT)])
    return colours


@contextmanager
def without_glyph_warnings() -> Iterator[None]:
    """Suppress warnings about scripts that the font lacks; their letters are drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def level_colours(n_levels: int, *, background: bool = False) -> list[str]:
    """Return a colour for each level that images can share, finest first, then for no shared level.

    Args:
        n_levels: Number of levels.
        background: Whether the colours are backgrounds of dark text, and not lines on white.

    >>> level_colours(2)
    ['#1b3fd6', '#f0c419', '#a61e4d']
    """
    import numpy as np

    levels, nothing = _LEVEL_GROUNDS if background else _LEVEL_LINES
    given_colours = np.array([list(bytes.fromhex(colour[1:])) for colour in levels])
    given_positions = np.arange(len(levels))
    positions = np.linspace(0, len(levels) - 1, n_levels)
    mixed = np.empty((n_levels, 3), np.uint8)
    for channel in range(3):
        values = np.interp(positions, given_positions, given_colours[:, channel])
        mixed[:, channel] = np.rint(values)
    colours = [f"#{colour.tobytes().hex()}" for colour in mixed]
    colours.append(nothing)
    return colours


@dataclass(frozen=True)
class LevelStyle:
    """Style of a level that two images share, in frames or below dark text.

    Args:
        level: Number of the level; 0 for no shared level.
        meaning: Name of the level.
        colour: Colour ``#rrggbb``.
    """

    level: int
    meaning: str
    colour: str


def level_styles(n_levels: int, names: Sequence[str] | None) -> list[LevelStyle]:
    """Return the styles of all levels, finest first: blue to yellow, and red for no shared level.

    >>> [(style.level, style.meaning, style.colour) for style in level_styles(2, ["landmark", "root"])]
    [(2, 'landmark', '#5b9bff'), (1, 'root', '#f7e35a'), (0, 'nothing shared', '#ef6a5a')]
    """
    meanings = [f"of {n_levels}"] * n_levels
    if names:
        meanings = [name.replace("_", " ") for name in names]
    meanings.append("nothing shared")
    colours = level_colours(n_levels, background=True)
    styles = []
    for number, (meaning, colour) in enumerate(zip(meanings, colours, strict=True)):
        styles.append(LevelStyle(n_levels - number, meaning, colour))
    return styles


def make_axes(
    n: int, row_height: float, *, n_columns: int | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure with n plots in rows, and room for a legend below.

    Args:
        n: Number of plots.
        row_height: Height of a row in inches.
        n_columns: Number of plots in a row. Default: two for two or four plots, three for more.
    """
    n_columns = n_columns or {1: 1, 2: 2, 4: 2}.get(n, 3)
    n_rows = math.ceil(n / n_columns)
    width = _WIDTH if n > 1 else 0.65 * _WIDTH
    figure = make_figure(width, n_rows * row_height + 0.5, layout="constrained")
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for unused in axes[n:]:
        unused.remove()
    return figure, axes[:n]


def make_figure(width: float, height: float, **layout: Any) -> Figure:
    """Return an empty figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), **layout)


def make_canvas(
    size: tuple[float, float], inches: float | None = None, margin: float = 0.0
) -> tuple[Figure, Axes]:
    """Return a figure and axes in any unit, with the origin at the upper left corner and y downwards.

    Args:
        size: Width and height in units.
        inches: Width of the figure. Default: units are inches.
        margin: Share of width and height that stays empty on each side.
    """
    width, height = size
    scale = 1.0 if inches is None else inches / width
    figure = make_figure(width * scale, height * scale)
    rectangle = (margin, margin, 1 - 2 * margin, 1 - 2 * margin)
    axes = figure.add_axes(rectangle, xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return figure, axes


def legend_below(figure: Figure, panels: Iterable[Axes], n_columns: int, **style: Any) -> None:
    """Draw one legend of all plots below them, with an entry per title."""
    entries: dict[str, Any] = {}
    for axes in panels:
        handles, titles = axes.get_legend_handles_labels()
        for handle, title in zip(handles, titles, strict=True):
            entries[str(title)] = handle
    style |= {"ncols": n_columns, "frameon": False}
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", **style)


def open_axes(axes: Axes) -> None:
    """Draw a faint grid, and no frame at the top and the right."""
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


@contextmanager
def also_written_as(formats: Iterable[str]) -> Iterator[None]:
    """Write PNG figures that are saved in this context in further formats, such as ``("pdf", "svg")``."""
    token = _formats.set(tuple(dict.fromkeys(formats)))
    try:
        yield
    finally:
        _formats.reset(token)


def check_figure_format(path: Path) -> None:
    """Check that figures can be written in the format of a file name.

    Raises:
        ConfigurationError: The name has another suffix.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigurationError(
            f"{path}: expected the name of a figure, which ends with {', '.join(_SUFFIXES)}"
        )


def figure_files(path: Path) -> list[Path]:
    """Return the files that :func:`save` writes: the path itself and, beside PNG, further formats.

    >>> with also_written_as(["pdf", "png"]):
    ...     [str(file) for file in figure_files(Path("clusters.png"))]
    ['clusters.png', 'clusters.pdf']
    """
    files = [path]
    if path.suffix == ".png":
        files += [path.with_suffix(f".{suffix}") for suffix in _formats.get()]
    return list(dict.fromkeys(files))


def save(figure: Figure, path: Path) -> None:
    """Write a figure atomically in the format of its suffix.

    In the context of :func:`also_written_as`, write further formats, too.

    The bytes are reproducible.

    Raises:
        ConfigurationError: The suffix is not a format of figures.
    """
    from matplotlib import rc_context

    check_figure_format(path)
    for file in figure_files(path):
        # matplotlib would write the current time into PDF and SVG files.
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(file.suffix.lower())
        with rc_context(_RC), without_glyph_warnings(), atomic_write(file) as draft:
            figure.savefig(draft, dpi=DPI, facecolor="white", metadata=metadata)

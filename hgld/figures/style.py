"""What all pictures share: colours, and how a figure becomes a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.io.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Twelve colours on white and twelve on near-black, found by search: the smallest OKLab distance between two
#: of them is above 0.14 to normal sight and 0.09 to simulated protanopia, deuteranopia and tritanopia; the
#: usual lists of twelve come to a third of that. Neighbours in the list are far apart; after it, it repeats.
LIGHT = (
    *("#3e3bff", "#7dd024", "#ff3876", "#541e12", "#359cad", "#dfadcc"),
    *("#3d0982", "#275e13", "#9e712a", "#ad7afd", "#aa1f69", "#7e0bba"),
)
DARK = (
    *("#30bdfe", "#4dff94", "#d77602", "#814e53", "#a4b58b", "#ecd2fd"),
    *("#385a9d", "#1d917a", "#fdb512", "#ac77c3", "#c30807", "#8e1dff"),
)
#: Those of them that are dark enough for thin lines on white.
LINES = tuple(colour for colour in LIGHT if colour not in ("#7dd024", "#dfadcc"))
INK, FAINT = "#1b1f24", "#6a737d"
#: The colour of each root, wherever the two stand side by side.
ROOT_COLOURS = {"natural": "#2f8f4e", "human-made": "#3b5bdb"}

DPI = 150
_WIDTH = 9.6  # inches


@contextmanager
def any_script() -> Iterator[None]:
    """Draw labels in scripts that the font has not without a warning each: boxes in an image, right on a page."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def arrange(n: int, row_height: float, *, n_columns: int | None = None) -> tuple[Figure, list[Axes]]:
    """A picture of n plots in rows of so many inches, by two or three unless given, with room for a legend below."""
    from matplotlib.figure import Figure

    n_columns = n_columns or {1: 1, 2: 2, 4: 2}.get(n, 3)
    n_rows = -(-n // n_columns)
    width = _WIDTH if n > 1 else 0.65 * _WIDTH
    figure = Figure(figsize=(width, n_rows * row_height + 0.5), layout="constrained")
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for spare in axes[n:]:
        spare.remove()
    return figure, axes[:n]


def open_axes(axes: Axes) -> None:
    """A plot without a frame, upon a faint grid."""
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the suffix, atomically and the same bytes every time."""
    # matplotlib puts the time of drawing into PDF and SVG files unless told not to.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with any_script(), atomic_write(path) as draft:
        figure.savefig(draft, dpi=DPI, facecolor="white", metadata=metadata)

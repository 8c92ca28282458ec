"""What all pictures share: colours, and how a figure becomes a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.tables import replacing

if TYPE_CHECKING:
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
INK, FAINT = "#1b1f24", "#6a737d"
#: The colour of each root, wherever the two stand side by side.
ROOT_COLOURS = {"natural": "#2f8f4e", "human-made": "#3b5bdb"}

DPI = 150


@contextmanager
def any_script() -> Iterator[None]:
    """Draw labels in scripts that the font has not without a warning each: boxes in an image, right on a page."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the suffix, atomically and the same bytes every time."""
    # matplotlib puts the time of drawing into PDF and SVG files unless told not to.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with any_script(), replacing(path) as draft:
        figure.savefig(draft, dpi=DPI, facecolor="white", metadata=metadata)

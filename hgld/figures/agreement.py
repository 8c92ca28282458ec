"""Which groups two annotators took for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import FAINT, INK, LIGHT, ROOT_COLOURS, any_script, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AGREED, _DIFFERED = ROOT_COLOURS["natural"], LIGHT[2]
_CELL, _CHARACTER, _NOTE = 0.34, 0.068, 0.85  # inches


@dataclass(frozen=True)
class Confusion:
    """How often two annotators chose which groups.

    Args:
        first: the annotator of the rows.
        second: the annotator of the columns.
        names: the groups that were taken for another at least once.
        counts: int64, shape (n, n).
        elsewhere: count of what both put into groups that are not among these.
        unit: what is counted, e.g. landmarks.
    """

    first: str
    second: str
    names: Sequence[str]
    counts: NDArray[np.int64]
    elsewhere: int
    unit: str


def draw_confusion(path: Path, confusion: Confusion) -> None:
    """Draw a matrix of the groups that were mixed up; where both agree is on the diagonal."""
    from matplotlib.figure import Figure

    n = len(confusion.names)
    around = 0.6 + _CHARACTER * max(map(len, confusion.names), default=0)  # names and a title
    width, height = max(n * _CELL + around + 0.2, 5.0), n * _CELL + around + _NOTE
    figure = Figure(figsize=(width, height))
    note = (
        f"Counted are {confusion.unit}. Green: both agree. Red: they do not.\n"
        f"Left out: {confusion.elsewhere:,} in groups that were never mixed up."
        if n
        else f"{confusion.first} and {confusion.second} agree on all {confusion.elsewhere:,} {confusion.unit}."
    )
    figure.text(0.2 / width, 0.2 / height, note, fontsize=8, color=FAINT, va="bottom", linespacing=1.5)
    if n:
        axes = figure.add_axes((around / width, _NOTE / height, n * _CELL / width, n * _CELL / height))
        _fill(axes, confusion)
    with any_script():
        save(figure, path)


def _fill(axes: Axes, confusion: Confusion) -> None:
    from matplotlib.colors import to_rgb

    n = len(confusion.names)
    counts, diagonal = confusion.counts, np.eye(n, dtype=bool)
    # Roots, so that one label of many landmarks leaves the others visible.
    shade = np.sqrt(counts)
    for part in (diagonal, ~diagonal):
        shade[part] /= max(shade[part].max(initial=0), 1)
    shade[counts > 0] = 0.15 + 0.85 * shade[counts > 0]
    colours = np.where(diagonal[..., None], to_rgb(_AGREED), to_rgb(_DIFFERED))
    axes.imshow(1 - shade[..., None] * (1 - colours), interpolation="nearest")
    for row, column in zip(*np.nonzero(counts), strict=True):
        axes.text(column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=7, color=INK)
    axes.set_xticks(range(n), confusion.names, rotation=90, fontsize=9)
    axes.set_yticks(range(n), confusion.names, fontsize=9)
    axes.set_xticks(np.arange(n + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(n + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e5e8eb", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(f"chosen by {confusion.second}", fontsize=10, fontweight="bold", labelpad=8)
    axes.set_ylabel(f"chosen by {confusion.first}", fontsize=10, fontweight="bold", labelpad=8)
    axes.spines[:].set_color(FAINT)

"""Confusion matrix of the groups that two annotators chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import FAINT, INK, LIGHT, save, without_glyph_warnings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AGREED, _DIFFERED = LIGHT[0], LIGHT[2]
_CELL, _CHARACTER, _NOTE = 0.34, 0.068, 0.85  # inches


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of two annotators.

    Args:
        first: Name of the annotator of the rows.
        second: Name of the annotator of the columns.
        names: Groups that were confused with another one at least once.
        counts: Confusion matrix, int64, shape (n, n).
        elsewhere: Number of units that both annotators put into groups other than ``names``.
        unit: Plural of what is counted, e.g. landmarks.
    """

    first: str
    second: str
    names: Sequence[str]
    counts: NDArray[np.int64]
    elsewhere: int
    unit: str


def draw_confusion(path: Path, confusion: Confusion) -> None:
    """Draw the confusion matrix of the confused groups; agreement is on the diagonal.

    Args:
        path: Picture to write.
        confusion: Confusion matrix; may be empty.
    """
    from matplotlib.figure import Figure

    n = len(confusion.names)
    label_size = 0.6 + _CHARACTER * max(map(len, confusion.names), default=0)
    width, height = max(n * _CELL + label_size + 0.2, 5.0), n * _CELL + label_size + _NOTE
    figure = Figure(figsize=(width, height))
    note = (
        f"Numbers are {confusion.unit}. Blue: agreement. Red: disagreement.\n"
        f"Not shown: {confusion.elsewhere:,} in groups that were never confused."
        if n
        else f"{confusion.first} and {confusion.second} agree on all {confusion.elsewhere:,} {confusion.unit}."
    )
    figure.text(0.2 / width, 0.2 / height, note, fontsize=8, color=FAINT, va="bottom", linespacing=1.5)
    if n:
        axes = figure.add_axes((label_size / width, _NOTE / height, n * _CELL / width, n * _CELL / height))
        _draw_matrix(axes, confusion)
    with without_glyph_warnings():
        save(figure, path)


def _draw_matrix(axes: Axes, confusion: Confusion) -> None:
    from matplotlib.colors import to_rgb

    n = len(confusion.names)
    counts, diagonal = confusion.counts, np.eye(n, dtype=bool)
    # Square roots, so that one label with many landmarks does not hide the others.
    shade = np.sqrt(counts)
    for cells in (diagonal, ~diagonal):
        shade[cells] /= max(shade[cells].max(initial=0), 1)
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

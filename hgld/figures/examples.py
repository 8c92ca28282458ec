"""Example photographs of groups, side by side for each root (paper, Fig. 5; thesis, Fig. 4.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.figures.style import FAINT, INK, save

if TYPE_CHECKING:
    from PIL.Image import Image

#: Lengths in the picture are in sides of a photograph.
_GAP, _TITLE, _HEADING, _BETWEEN = 0.05, 0.28, 0.5, 0.35
_WIDTH_INCHES = 11.0


@dataclass(frozen=True, eq=False)
class ExampleGroup:
    """A group with examples.

    Args:
        title: Name of the group.
        note: Text after the title, such as the number of landmarks.
        photographs: Square photographs.
    """

    title: str
    note: str
    photographs: Sequence[Image]


def draw_examples(path: Path, columns: Mapping[str, Sequence[ExampleGroup]]) -> None:
    """Draw groups below each other, each with a row of photographs.

    Args:
        path: Picture to write.
        columns: Groups of each column by its heading, which is empty where there is only one; every column has one
            or more.
    """
    from matplotlib.figure import Figure

    n_photographs = max(len(group.photographs) for groups in columns.values() for group in groups)
    width = n_photographs * (1 + _GAP) - _GAP
    heading = _HEADING if any(columns) else 0
    height = heading + max(map(len, columns.values())) * (1 + _TITLE + _GAP)
    total = len(columns) * (width + _BETWEEN) - _BETWEEN
    figure = Figure(figsize=(_WIDTH_INCHES, _WIDTH_INCHES * height / total))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, total), ylim=(height, 0), aspect="equal")
    axes.set_axis_off()
    for number, (title, groups) in enumerate(columns.items()):
        left = number * (width + _BETWEEN)
        axes.text(left, heading / 2, title, weight="bold", size=12, color=INK, va="center", parse_math=False)
        for row, group in enumerate(groups):
            top = heading + row * (1 + _TITLE + _GAP)
            text = axes.text(left, top + _TITLE / 2, group.title, size=9, color=INK, va="center", parse_math=False)
            axes.annotate(
                f"  {group.note}", (1, 0), xycoords=text, size=7.5, color=FAINT, va="bottom", parse_math=False
            )
            for column, photograph in enumerate(group.photographs):
                start, upper = left + column * (1 + _GAP), top + _TITLE
                axes.imshow(photograph, extent=(start, start + 1, upper + 1, upper), interpolation="antialiased")
    axes.set(xlim=(0, total), ylim=(height, 0))
    save(figure, path)

"""Figures of groups: their sizes, and disagreements of annotators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hgld.arrays import Floats, Integers
from hgld.figures.style import (
    FAINT,
    INK,
    LIGHT,
    Nouns,
    make_figure,
    open_axes,
    root_colours,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of groups drawn for each root.
_N_LARGEST = 7
#: Number of roots drawn separately.
_N_ROOTS = 4
#: Number of groups drawn by size.
_N_RANKED = 100
_IMAGES = "#f08c00"
#: Name of the roots that are not drawn separately.
_OTHER = "other groups"


@dataclass(frozen=True)
class GroupCount:
    """Size of a group below a root; ``images`` is None if images were not counted."""

    group: str
    root: str
    landmarks: int
    images: int | None


def draw_groups(path: Path, groups: Sequence[GroupCount], nouns: Nouns) -> None:
    """Draw the hundred largest groups by size, and below them the largest groups of the largest roots.

    Groups are in descending order of landmarks; either all groups have image counts, or no group has.
    """
    figure = make_figure(12, 8.6, layout="constrained")
    subfigures = figure.subfigures(2, 1, height_ratios=(1.45, 1), hspace=0.04, squeeze=False)
    upper, lower = subfigures[:, 0]
    axes = upper.subplots()
    roots = _largest_roots(groups)
    colours = root_colours(group.root for group in groups)
    _draw_ranks(axes, groups, {root: colours[root] for root in roots}, nouns)
    gap = " " if len(roots) < 3 else "\n"
    panels = lower.subplots(1, len(roots), squeeze=False)[0]
    for panel, root in zip(panels, roots, strict=True):
        groups_of_root = [group for group in groups if group.root == root]
        _draw_largest(panel, groups_of_root, f"{root}:{gap}", colours[root], nouns)
    save(figure, path)


def _draw_ranks(
    axes: Axes, groups: Sequence[GroupCount], colours: Mapping[str, str], nouns: Nouns
) -> None:
    """Draw the share of landmarks of each large group as a bar, and the share of images as a point.

    Args:
        axes: Axes to draw on.
        groups: All groups, largest first.
        colours: Colours of the roots that are drawn separately.
        nouns: Singular and plural of landmarks.
    """
    shares = _percentages([group.landmarks for group in groups])
    drawn = groups[:_N_RANKED]
    places = np.arange(len(drawn))
    series = [group.root if group.root in colours else _OTHER for group in drawn]
    colours = dict(colours)
    if _OTHER in series:
        colours[_OTHER] = FAINT
    for name, colour in colours.items():
        in_series = np.array([group_series == name for group_series in series])
        axes.bar(
            places[in_series],
            shares[: len(drawn)][in_series],
            width=0.78,
            color=colour,
            label=f"{nouns[1]}, {name}",
        )
    images = [group.images for group in groups if group.images is not None]
    if images:
        points = _percentages(images)[: len(drawn)]
        axes.plot(places, points, "o", ms=4, color=_IMAGES, mec="white", mew=0.5, label="images")
    names = [group.group for group in drawn]
    axes.set_xticks(places, names, rotation=90, fontsize=8, parse_math=False)
    axes.set_xlim(-0.8, len(drawn) - 0.2)
    axes.set_ylabel("share (%)")
    axes.legend(frameon=False)
    open_axes(axes)
    axes.grid(visible=False, axis="x")


def _draw_largest(
    axes: Axes, groups: Sequence[GroupCount], heading: str, colour: str, nouns: Nouns
) -> None:
    """Draw the largest groups of a root as bars with their counts."""
    largest = groups[:_N_LARGEST]
    total = sum(group.landmarks for group in groups)
    places = range(len(largest))
    axes.barh(places, [group.landmarks for group in largest], color=colour)
    for place, group in zip(places, largest, strict=True):
        text = f" {group.landmarks:,}"
        if group.images is not None:
            text += f"  ({group.images:,} images)"
        axes.text(group.landmarks, place, text, va="center", fontsize=9, color=INK)
    axes.set_yticks(places, [group.group for group in largest], parse_math=False)
    axes.set_ylim(_N_LARGEST - 0.4, -0.6)
    axes.margins(x=0.45)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(nouns[1])
    axes.set_title(f"{heading}{total:,} {nouns[1]}, {len(groups)} groups", fontsize=10.5)
    axes.spines[["top", "right"]].set_visible(False)


def _largest_roots(groups: Sequence[GroupCount]) -> list[str]:
    """Return the largest roots, natural before human-made."""
    sizes: Counter[str] = Counter()
    for group in groups:
        sizes[group.root] += group.landmarks
    largest = [root for root, _ in sizes.most_common(_N_ROOTS)]
    return sorted(largest, reverse=True)


def _percentages(counts: Sequence[int]) -> Floats:
    """Return counts in percent of their sum."""
    return np.asarray(100 * np.asarray(counts, np.float64) / max(sum(counts), 1))


#: Colours of agreement and of disagreement.
_AGREED = LIGHT[0]
_DIFFERED = LIGHT[2]
#: Side of a cell, width of a character, and height of the note below the matrix, in inches.
_CELL = 0.34
_CHARACTER = 0.068
_NOTE = 0.85


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of two annotators.

    Args:
        first: Name of the annotator of the rows.
        second: Name of the annotator of the columns.
        names: Groups that were confused with another group at least once; may be empty.
        counts: int64, shape (n, n).
        elsewhere: Number of units that both annotators put into groups other than ``names``.
        unit: Plural of the counted things, e.g. landmarks.
    """

    first: str
    second: str
    names: Sequence[str]
    counts: Integers
    elsewhere: int
    unit: str


def draw_confusion(path: Path, confusion: Confusion) -> None:
    """Draw the confusion matrix of the confused groups; agreement is on the diagonal."""
    n = len(confusion.names)
    label_size = 0.6 + _CHARACTER * max(map(len, confusion.names), default=0)
    matrix_size = n * _CELL
    width = max(matrix_size + label_size + 0.2, 5.0)
    height = matrix_size + label_size + _NOTE
    figure = make_figure(width, height)
    if n:
        note = (
            f"Numbers are {confusion.unit}. Blue: agreement. Red: disagreement.\n"
            f"Not shown: {confusion.elsewhere:,} in groups that were never confused."
        )
    else:
        note = f"{confusion.first} and {confusion.second} agree on all {confusion.elsewhere:,} {confusion.unit}."
    figure.text(
        0.2 / width, 0.2 / height, note, fontsize=8, color=FAINT, va="bottom", linespacing=1.5
    )
    if n:
        axes = figure.add_axes(
            (label_size / width, _NOTE / height, matrix_size / width, matrix_size / height)
        )
        _draw_matrix(axes, confusion)
    save(figure, path)


def _draw_matrix(axes: Axes, confusion: Confusion) -> None:
    """Draw the cells of the matrix, with names on the left and above."""
    from matplotlib.colors import to_rgb

    n = len(confusion.names)
    counts = confusion.counts
    diagonal = np.eye(n, dtype=bool)
    # Square roots, so that a cell with many landmarks does not hide the others.
    shade = np.sqrt(counts)
    for cells in (diagonal, ~diagonal):
        shade[cells] /= max(shade[cells].max(initial=0), 1)
    shade[counts > 0] = 0.15 + 0.85 * shade[counts > 0]
    colours = np.where(diagonal[..., None], to_rgb(_AGREED), to_rgb(_DIFFERED))
    axes.imshow(1 - shade[..., None] * (1 - colours), interpolation="nearest")
    for row, column in zip(*np.nonzero(counts), strict=True):
        axes.text(
            column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=7, color=INK
        )
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

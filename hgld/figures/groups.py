"""Figures of groups: their sizes, landmarks that moved between them, disagreements of annotators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import (
    FAINT,
    INK,
    LIGHT,
    Nouns,
    make_canvas,
    make_figure,
    open_axes,
    root_colours,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path as Outline

#: Number of groups drawn for each root, of roots, of groups by size, and of bands between groups.
_N_LARGEST, _N_ROOTS, _N_RANKED, _N_BANDS = 7, 4, 100, 30
_IMAGES = "#f08c00"


@dataclass(frozen=True)
class GroupCount:
    """Size of a group below a root; ``images`` is None where images were not counted."""

    group: str
    root: str
    landmarks: int
    images: int | None


def draw_groups(path: Path, groups: Sequence[GroupCount], nouns: Nouns) -> None:
    """Draw the hundred largest groups by size, and below them the seven largest of each of the largest roots.

    Groups are in descending order of landmarks; all have image counts, or none has.
    """
    figure = make_figure(12, 8.6, layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.45, 1), hspace=0.04, squeeze=False)[:, 0]
    axes = upper.subplots()
    roots, colours = _largest_roots(groups), root_colours(group.root for group in groups)
    _draw_ranks(axes, groups, {root: colours[root] for root in roots}, nouns)
    gap = " " if len(roots) < 3 else "\n"
    for panel, root in zip(lower.subplots(1, len(roots), squeeze=False)[0], roots, strict=True):
        of_root = [group for group in groups if group.root == root]
        _draw_largest(panel, of_root, f"{root}:{gap}", colours[root], nouns)
    save(figure, path)


def _draw_ranks(axes: Axes, groups: Sequence[GroupCount], colours: Mapping[str, str], nouns: Nouns) -> None:
    """Draw the share of all that each large group has as a bar, and of the images as a point."""
    shares = _percentages([group.landmarks for group in groups])
    drawn = groups[:_N_RANKED]
    places = np.arange(len(drawn))
    other = {} if {group.root for group in drawn} <= colours.keys() else {OTHER: FAINT}
    for root, colour in {**colours, **other}.items():
        in_root = np.array([(group.root if group.root in colours else OTHER) == root for group in drawn])
        axes.bar(
            places[in_root],
            shares[: len(drawn)][in_root],
            width=0.78,
            color=colour,
            label=f"{nouns[1]}, {root}",
        )
    if images := [group.images for group in groups if group.images is not None]:
        points = _percentages(images)[: len(drawn)]
        axes.plot(places, points, "o", ms=4, color=_IMAGES, mec="white", mew=0.5, label="images")
    axes.set_xticks(places, [each.group for each in drawn], rotation=90, fontsize=8, parse_math=False)
    axes.set_xlim(-0.8, len(drawn) - 0.2)
    axes.set_ylabel("share (%)")
    axes.legend(frameon=False)
    open_axes(axes)
    axes.grid(visible=False, axis="x")


def _draw_largest(axes: Axes, groups: Sequence[GroupCount], heading: str, colour: str, nouns: Nouns) -> None:
    largest = groups[:_N_LARGEST]
    total = sum(group.landmarks for group in groups)
    places = range(len(largest))
    axes.barh(places, [group.landmarks for group in largest], color=colour)
    for place, group in zip(places, largest, strict=True):
        text = f" {group.landmarks:,}"
        if group.images is not None:
            text += f"  ({group.images:,} images)"
        axes.text(group.landmarks, place, text, va="center", fontsize=9, color=INK)
    axes.set_yticks(places, [each.group for each in largest], parse_math=False)
    axes.set_ylim(_N_LARGEST - 0.4, -0.6)
    axes.margins(x=0.45)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(nouns[1])
    axes.set_title(f"{heading}{total:,} {nouns[1]}, {len(groups)} groups", fontsize=10.5)
    axes.spines[["top", "right"]].set_visible(False)


def _largest_roots(groups: Sequence[GroupCount]) -> list[str]:
    """Return the largest roots, natural before human-made."""
    sizes = Counter[str]()
    for group in groups:
        sizes[group.root] += group.landmarks
    return sorted((root for root, _ in sizes.most_common(_N_ROOTS)), reverse=True)


def _percentages(counts: Sequence[int]) -> NDArray[np.float64]:
    return np.asarray(100 * np.asarray(counts, np.float64) / max(sum(counts), 1))


#: Group before, group after, and number of landmarks.
Band = tuple[str, str, int]

#: Name of all groups whose bands are too small to be drawn.
OTHER = "other groups"
#: Inches: width of the picture, x of the two columns, height of a line of text, height of all bands of a column.
_WIDTH, _LEFT, _RIGHT, _LINE, _BANDS = 9.0, 3.0, 6.0, 0.21, 4.0
_BAR, _TITLE, _MARGIN = 0.1, 0.75, 0.25


def draw_flows(path: Path, bands: Sequence[Band], *, n_landmarks: int, nouns: Nouns) -> None:
    """Draw the groups that landmarks moved between; the thickness of a band is its number of landmarks.

    There is at most one band per pair of groups; small ones are merged by :func:`fold_small`.
    """
    from matplotlib.patches import PathPatch, Rectangle

    drawn = fold_small(bands, _N_BANDS)
    left, right = order_columns(drawn)
    moved = sum(left.values())
    scale = _BANDS / max(moved, 1)
    column_height = max(sum(_slots(column, scale).values()) for column in (left, right))
    starts, ends = (_bar_tops(column, scale, column_height) for column in (left, right))
    height = _TITLE + column_height + _MARGIN
    figure, axes = make_canvas((_WIDTH, height))
    title = f"{moved:,} of {n_landmarks:,} {nouns[1]} moved to another group"
    axes.text(_WIDTH / 2, 0.3, title, ha="center", va="center", fontsize=11, color=INK)

    for x, heading in ((_LEFT - _BAR / 2, "before"), (_RIGHT + _BAR / 2, "after")):
        axes.text(x, _TITLE - 0.08, heading, ha="center", va="bottom", fontsize=9, color=FAINT)

    colours = {name: LIGHT[n % len(LIGHT)] for n, name in enumerate(left)} | {OTHER: FAINT}
    for column, tops, x, side, text_x in (
        (left, starts, _LEFT - _BAR, "right", _LEFT - _BAR - 0.08),
        (right, ends, _RIGHT, "left", _RIGHT + _BAR + 0.08),
    ):
        for name, landmarks in column.items():
            thickness = landmarks * scale
            axes.add_patch(Rectangle((x, tops[name]), _BAR, thickness, color=INK, linewidth=0))
            axes.text(
                text_x,
                tops[name] + thickness / 2,
                f"{name}  {landmarks:,}" if side == "left" else f"{landmarks:,}  {name}",
                ha=side,
                va="center",
                fontsize=9,
                color=FAINT if name == OTHER else INK,
                parse_math=False,
            )
    for source, target, landmarks in _stacking_order(drawn, left, right):
        thickness = landmarks * scale
        ribbon = _ribbon(starts[source], ends[target], thickness)
        axes.add_patch(PathPatch(ribbon, facecolor=colours[source], alpha=0.55, linewidth=0))
        starts[source] += thickness
        ends[target] += thickness
    save(figure, path)


def fold_small(bands: Sequence[Band], max_bands: int) -> list[Band]:
    """Return the largest bands, and merge the others: groups that no large band has become ``OTHER``.

    >>> fold_small([("sea", "lake", 9), ("pond", "lake", 2), ("pond", "bog", 1)], max_bands=1)
    [('sea', 'lake', 9), ('other groups', 'lake', 2), ('other groups', 'other groups', 1)]
    """
    ordered = sorted(bands, key=lambda band: (-band[2], band[:2]))
    sources, targets = ({band[end] for band in ordered[:max_bands]} for end in (0, 1))
    folded: Counter[tuple[str, str]] = Counter()
    for source, target, landmarks in ordered:
        ends = (source if source in sources else OTHER, target if target in targets else OTHER)
        folded[ends] += landmarks
    return [(source, target, landmarks) for (source, target), landmarks in folded.items()]


def order_columns(bands: Sequence[Band]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the landmarks of the groups in both columns from top to bottom, ordered so that few bands cross.

    The left column is ordered by size, the right column by the mean rank of the groups that flow into each group.
    """
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    for source, target, landmarks in bands:
        sources[source] += landmarks
        targets[target] += landmarks
    left = dict(sorted(sources.items(), key=lambda item: (item[0] == OTHER, -item[1], item[0])))
    rank = {name: position for position, name in enumerate(left)}
    mean = dict.fromkeys(targets, 0.0)
    for source, target, landmarks in bands:
        mean[target] += rank[source] * landmarks / targets[target]
    right = dict(sorted(targets.items(), key=lambda item: (item[0] == OTHER, mean[item[0]], item[0])))
    return left, right


def _slots(column: Mapping[str, int], scale: float) -> dict[str, float]:
    """Return the height of each group: that of its bands, but at least that of its name."""
    return {name: max(landmarks * scale, _LINE) + 0.04 for name, landmarks in column.items()}


def _bar_tops(column: Mapping[str, int], scale: float, column_height: float) -> dict[str, float]:
    """Return the upper end of each group's bar; the column is centred in ``column_height``."""
    slots = _slots(column, scale)
    y = _TITLE + (column_height - sum(slots.values())) / 2
    tops = {}
    for name, slot in slots.items():
        tops[name] = y + (slot - column[name] * scale) / 2
        y += slot
    return tops


def _stacking_order(bands: Sequence[Band], left: Mapping[str, int], right: Mapping[str, int]) -> list[Band]:
    """Return the bands in an order in which those of the same bar do not cross."""
    left_rank, right_rank = ({name: position for position, name in enumerate(side)} for side in (left, right))
    return sorted(bands, key=lambda band: (left_rank[band[0]], right_rank[band[1]]))


def _ribbon(start: float, end: float, thickness: float) -> Outline:
    """Return the outline of a band: horizontal at both columns, S-shaped between them."""
    from matplotlib.path import Path as Outline

    middle = (_LEFT + _RIGHT) / 2
    upper = [(_LEFT, start), (middle, start), (middle, end), (_RIGHT, end)]
    lower = [(x, y + thickness) for x, y in reversed(upper)]
    curve = [Outline.CURVE4] * 3
    return Outline([*upper, *lower, upper[0]], [Outline.MOVETO, *curve, Outline.LINETO, *curve, Outline.CLOSEPOLY])


_AGREED, _DIFFERED = LIGHT[0], LIGHT[2]
_CELL, _CHARACTER, _NOTE = 0.34, 0.068, 0.85  # inches


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of two annotators.

    Args:
        first: Name of the annotator of the rows.
        second: Name of the annotator of the columns.
        names: Groups that were confused with another one at least once; there may be none.
        counts: int64, shape (n, n).
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
    """Draw the confusion matrix of the confused groups; agreement is on the diagonal."""
    n = len(confusion.names)
    label_size = 0.6 + _CHARACTER * max(map(len, confusion.names), default=0)
    width, height = max(n * _CELL + label_size + 0.2, 5.0), n * _CELL + label_size + _NOTE
    figure = make_figure(width, height)
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

"""Landmarks that went from group to group, as bands between two columns of names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.figures.style import FAINT, INK, LIGHT, save

if TYPE_CHECKING:
    from matplotlib.path import Path as Outline

#: Where a band begins, where it ends, and how many landmarks it stands for.
Band = tuple[str, str, int]

#: What the groups are called together whose bands are too small to be drawn one by one.
OTHER = "other groups"
#: Inches: the width of the picture, the two columns, a line of text, all bands of a column together.
_WIDTH, _LEFT, _RIGHT, _LINE, _BANDS = 9.0, 3.0, 6.0, 0.21, 4.0
_BAR, _TITLE, _MARGIN = 0.1, 0.75, 0.25


def draw_flows(path: Path, bands: Sequence[Band], *, common: int, most: int = 30) -> None:
    """Draw which groups landmarks moved between; a band is as thick as it has landmarks.

    Args:
        path: the picture to write.
        bands: at most one per pair of groups.
        common: how many landmarks there are, moved or not, for the title.
        most: how many bands are drawn, largest first; what is smaller goes to and from ``OTHER``.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch, Rectangle

    drawn = fold_small(bands, most)
    left, right = order_columns(drawn)
    moved = sum(left.values())
    scale = _BANDS / max(moved, 1)
    room = max(sum(_slots(column, scale).values()) for column in (left, right))
    starts, ends = (_places(column, scale, room) for column in (left, right))
    height = _TITLE + room + _MARGIN
    figure = Figure(figsize=(_WIDTH, height))
    # In inches, y down.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    title = f"{moved:,} of {common:,} landmarks moved to another group"
    axes.text(_WIDTH / 2, 0.3, title, ha="center", va="center", fontsize=11, color=INK)

    for x, head in ((_LEFT - _BAR / 2, "before"), (_RIGHT + _BAR / 2, "after")):
        axes.text(x, _TITLE - 0.08, head, ha="center", va="bottom", fontsize=9, color=FAINT)

    colours = {name: LIGHT[n % len(LIGHT)] for n, name in enumerate(left)} | {OTHER: FAINT}
    for column, places, x, side, text_x in (
        (left, starts, _LEFT - _BAR, "right", _LEFT - _BAR - 0.08),
        (right, ends, _RIGHT, "left", _RIGHT + _BAR + 0.08),
    ):
        for name, landmarks in column.items():
            thickness = landmarks * scale
            axes.add_patch(Rectangle((x, places[name]), _BAR, thickness, color=INK, linewidth=0))
            axes.text(
                text_x,
                places[name] + thickness / 2,
                f"{name}  {landmarks:,}" if side == "left" else f"{landmarks:,}  {name}",
                ha=side,
                va="center",
                fontsize=9,
                color=FAINT if name == OTHER else INK,
                parse_math=False,
            )
    for source, target, landmarks in _down_both(drawn, left, right):
        thickness = landmarks * scale
        ribbon = _ribbon(starts[source], ends[target], thickness)
        axes.add_patch(PathPatch(ribbon, facecolor=colours[source], alpha=0.55, linewidth=0))
        starts[source] += thickness
        ends[target] += thickness
    save(figure, path)


def fold_small(bands: Sequence[Band], most: int) -> list[Band]:
    """The ``most`` largest bands, and the others between those of their ends that a large one has, else ``OTHER``.

    >>> fold_small([("sea", "lake", 9), ("pond", "lake", 2), ("pond", "bog", 1)], most=1)
    [('sea', 'lake', 9), ('other groups', 'lake', 2), ('other groups', 'other groups', 1)]
    """
    ordered = sorted(bands, key=lambda band: (-band[2], band[:2]))
    sources, targets = ({band[end] for band in ordered[:most]} for end in (0, 1))
    folded: Counter[tuple[str, str]] = Counter()
    for source, target, landmarks in ordered:
        ends = (source if source in sources else OTHER, target if target in targets else OTHER)
        folded[ends] += landmarks
    return [(source, target, landmarks) for (source, target), landmarks in folded.items()]


def order_columns(bands: Sequence[Band]) -> tuple[dict[str, int], dict[str, int]]:
    """The groups of both columns from top to bottom, with their landmarks, so that few bands cross.

    On the left the largest come first; on the right each stands at the mean height of what flows into it.
    """
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    for source, target, landmarks in bands:
        sources[source] += landmarks
        targets[target] += landmarks
    left = dict(sorted(sources.items(), key=lambda item: (item[0] == OTHER, -item[1], item[0])))
    rank = {name: place for place, name in enumerate(left)}
    mean = dict.fromkeys(targets, 0.0)
    for source, target, landmarks in bands:
        mean[target] += rank[source] * landmarks / targets[target]
    right = dict(sorted(targets.items(), key=lambda item: (item[0] == OTHER, mean[item[0]], item[0])))
    return left, right


def _slots(column: Mapping[str, int], scale: float) -> dict[str, float]:
    """The height that each group takes: that of its bands, and that of its name at least."""
    return {name: max(landmarks * scale, _LINE) + 0.04 for name, landmarks in column.items()}


def _places(column: Mapping[str, int], scale: float, room: float) -> dict[str, float]:
    """The upper end of each group's bar; the column stands in the middle of ``room``."""
    slots = _slots(column, scale)
    y = _TITLE + (room - sum(slots.values())) / 2
    places = {}
    for name, slot in slots.items():
        places[name] = y + (slot - column[name] * scale) / 2
        y += slot
    return places


def _down_both(bands: Sequence[Band], left: Mapping[str, int], right: Mapping[str, int]) -> list[Band]:
    """The bands in an order in which those of one bar do not cross beside it."""
    rows, columns = ({name: place for place, name in enumerate(side)} for side in (left, right))
    return sorted(bands, key=lambda band: (rows[band[0]], columns[band[1]]))


def _ribbon(start: float, end: float, thickness: float) -> Outline:
    """The outline of a band: level at both columns, an S between them."""
    from matplotlib.path import Path as Outline

    middle = (_LEFT + _RIGHT) / 2
    upper = [(_LEFT, start), (middle, start), (middle, end), (_RIGHT, end)]
    lower = [(x, y + thickness) for x, y in reversed(upper)]
    curve = [Outline.CURVE4] * 3
    return Outline([*upper, *lower, upper[0]], [Outline.MOVETO, *curve, Outline.LINETO, *curve, Outline.CLOSEPOLY])

"""Flow diagram of landmarks that moved between groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.figures.style import FAINT, INK, LIGHT, save

if TYPE_CHECKING:
    from matplotlib.path import Path as Outline

#: Group before, group after, and number of landmarks.
Band = tuple[str, str, int]

#: Name of all groups whose bands are too small to be drawn.
OTHER = "other groups"
#: Inches: width of the picture, x of the two columns, height of a line of text, height of all bands of a column.
_WIDTH, _LEFT, _RIGHT, _LINE, _BANDS = 9.0, 3.0, 6.0, 0.21, 4.0
_BAR, _TITLE, _MARGIN = 0.1, 0.75, 0.25


def draw_flows(path: Path, bands: Sequence[Band], *, n_landmarks: int, max_bands: int = 30) -> None:
    """Draw the groups that landmarks moved between; the thickness of a band is its number of landmarks.

    Args:
        path: Picture to write.
        bands: Bands, at most one per pair of groups.
        n_landmarks: Number of all landmarks, moved or not, for the title.
        max_bands: Number of bands drawn, largest first; see :func:`fold_small`.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch, Rectangle

    drawn = fold_small(bands, max_bands)
    left, right = order_columns(drawn)
    moved = sum(left.values())
    scale = _BANDS / max(moved, 1)
    column_height = max(sum(_slots(column, scale).values()) for column in (left, right))
    starts, ends = (_bar_tops(column, scale, column_height) for column in (left, right))
    height = _TITLE + column_height + _MARGIN
    figure = Figure(figsize=(_WIDTH, height))
    # In inches, y down.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    title = f"{moved:,} of {n_landmarks:,} landmarks moved to another group"
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

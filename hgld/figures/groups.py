"""The groups by size: how uneven they are, and the largest of each root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hgld.figures.style import FAINT, INK, ROOT_COLOURS, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hgld.hierarchy.stats import GroupCount

_MOST = 7
_IMAGES = "#f08c00"


def draw_groups(path: Path, groups: Sequence[GroupCount]) -> None:
    """Draw all groups in the order of their landmarks, and below them the seven largest of each root.

    Args:
        path: the picture to write.
        groups: by landmarks, most first; with images for all of them or none.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.45, 1), hspace=0.04, squeeze=False)[:, 0]
    axes = upper.subplots()
    _draw_ranks(axes, groups)
    _draw_lorenz(axes.inset_axes((0.62, 0.40, 0.30, 0.56)), groups)
    roots = _roots(groups)
    for part, root in zip(lower.subplots(1, len(roots), squeeze=False)[0], roots, strict=True):
        _draw_largest(part, [group for group in groups if group.root == root], root)
    save(figure, path)


def _draw_ranks(axes: Axes, groups: Sequence[GroupCount]) -> None:
    """Every group's part of the landmarks as a bar, and of the images as a point."""
    shares = _shares([group.landmarks for group in groups])
    places = np.arange(len(groups))
    for root in _roots(groups):
        mine = np.array([group.root == root for group in groups])
        axes.bar(
            places[mine], shares[mine], width=0.78, color=ROOT_COLOURS.get(root, FAINT), label=f"landmarks, {root}"
        )
    if (images := _images(groups)) is not None:
        axes.plot(places, _shares(images), "o", ms=4, color=_IMAGES, mec="white", mew=0.5, label="images")
    axes.set_xticks(places, [group.group for group in groups], rotation=90, fontsize=8, parse_math=False)
    axes.set_xlim(-0.8, len(groups) - 0.2)
    axes.set_ylabel("share (%)")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda n: labels[n] == "images")
    axes.legend(
        [handles[n] for n in order],
        [labels[n] for n in order],
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(0.2, 1.0),
    )


def _draw_lorenz(axes: Axes, groups: Sequence[GroupCount]) -> None:
    """The part of all landmarks that the smallest groups together hold."""
    for counts, colour, what in (
        ([group.landmarks for group in groups], INK, "landmarks"),
        (_images(groups), _IMAGES, "images"),
    ):
        if counts is not None:
            held = np.concatenate([[0], np.cumsum(np.sort(_shares(counts)))])
            axes.plot(np.linspace(0, 100, len(held)), held, color=colour, label=what)
    axes.plot([0, 100], [0, 100], color=FAINT, linewidth=0.8, linestyle="--", label="all groups alike")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xlabel("smallest groups (% of groups)", fontsize=8)
    axes.set_ylabel("hold (%)", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_largest(axes: Axes, groups: Sequence[GroupCount], root: str) -> None:
    shown = groups[:_MOST]
    total = sum(group.landmarks for group in groups)
    places = range(len(shown))
    axes.barh(places, [group.landmarks for group in shown], color=ROOT_COLOURS.get(root, FAINT))
    for place, group in zip(places, shown, strict=True):
        text = f" {group.landmarks:,}"
        if group.images is not None:
            text += f"  ({group.images:,} images)"
        axes.text(group.landmarks, place, text, va="center", fontsize=9, color=INK)
    axes.set_yticks(places, [group.group for group in shown], parse_math=False)
    axes.set_ylim(_MOST - 0.4, -0.6)
    axes.margins(x=0.45)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("landmarks")
    axes.set_title(f"{root}: {total:,} landmarks, {len(groups)} groups", fontsize=10.5)
    axes.spines[["top", "right"]].set_visible(False)


def _roots(groups: Sequence[GroupCount]) -> list[str]:
    """Natural before human-made."""
    return sorted({group.root for group in groups}, reverse=True)


def _shares(counts: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """In percent of all."""
    return 100 * np.asarray(counts, np.float64) / max(sum(counts), 1)


def _images(groups: Sequence[GroupCount]) -> list[int] | None:
    images = [group.images for group in groups if group.images is not None]
    return images if images else None

"""Sizes of groups: how uneven they are, and the largest of each root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import FAINT, INK, ROOT_COLOURS, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of groups drawn for each root.
_N_LARGEST = 7
_IMAGES = "#f08c00"


@dataclass(frozen=True)
class GroupSize:
    """Size of a group.

    Args:
        name: Name of the group.
        root: Root above the group.
        landmarks: Number of landmarks in the group.
        images: Number of images of these landmarks; None where images were not counted.
    """

    name: str
    root: str
    landmarks: int
    images: int | None


def draw_groups(path: Path, groups: Sequence[GroupSize]) -> None:
    """Draw all groups by size, and below them the seven largest of each root.

    Args:
        path: Picture to write.
        groups: Groups in descending order of landmarks; all have image counts, or none has.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.45, 1), hspace=0.04, squeeze=False)[:, 0]
    axes = upper.subplots()
    _draw_ranks(axes, groups)
    _draw_lorenz(axes.inset_axes((0.62, 0.40, 0.30, 0.56)), groups)
    roots = _roots(groups)
    for panel, root in zip(lower.subplots(1, len(roots), squeeze=False)[0], roots, strict=True):
        _draw_largest(panel, [group for group in groups if group.root == root], root)
    save(figure, path)


def _draw_ranks(axes: Axes, groups: Sequence[GroupSize]) -> None:
    """Draw each group's share of the landmarks as a bar, and of the images as a point."""
    shares = _percentages([group.landmarks for group in groups])
    places = np.arange(len(groups))
    for root in _roots(groups):
        in_root = np.array([group.root == root for group in groups])
        axes.bar(
            places[in_root],
            shares[in_root],
            width=0.78,
            color=ROOT_COLOURS.get(root, FAINT),
            label=f"landmarks, {root}",
        )
    if (images := _image_counts(groups)) is not None:
        axes.plot(places, _percentages(images), "o", ms=4, color=_IMAGES, mec="white", mew=0.5, label="images")
    axes.set_xticks(places, [group.name for group in groups], rotation=90, fontsize=8, parse_math=False)
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


def _draw_lorenz(axes: Axes, groups: Sequence[GroupSize]) -> None:
    """Draw the Lorenz curves of landmarks and images."""
    for counts, colour, name in (
        ([group.landmarks for group in groups], INK, "landmarks"),
        (_image_counts(groups), _IMAGES, "images"),
    ):
        if counts is not None:
            cumulative = np.concatenate([[0], np.cumsum(np.sort(_percentages(counts)))])
            axes.plot(np.linspace(0, 100, len(cumulative)), cumulative, color=colour, label=name)
    axes.plot([0, 100], [0, 100], color=FAINT, linewidth=0.8, linestyle="--", label="equal groups")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xlabel("smallest groups (% of groups)", fontsize=8)
    axes.set_ylabel("cumulative share (%)", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_largest(axes: Axes, groups: Sequence[GroupSize], root: str) -> None:
    largest = groups[:_N_LARGEST]
    total = sum(group.landmarks for group in groups)
    places = range(len(largest))
    axes.barh(places, [group.landmarks for group in largest], color=ROOT_COLOURS.get(root, FAINT))
    for place, group in zip(places, largest, strict=True):
        text = f" {group.landmarks:,}"
        if group.images is not None:
            text += f"  ({group.images:,} images)"
        axes.text(group.landmarks, place, text, va="center", fontsize=9, color=INK)
    axes.set_yticks(places, [group.name for group in largest], parse_math=False)
    axes.set_ylim(_N_LARGEST - 0.4, -0.6)
    axes.margins(x=0.45)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("landmarks")
    axes.set_title(f"{root}: {total:,} landmarks, {len(groups)} groups", fontsize=10.5)
    axes.spines[["top", "right"]].set_visible(False)


def _roots(groups: Sequence[GroupSize]) -> list[str]:
    """Return the roots, natural before human-made."""
    return sorted({group.root for group in groups}, reverse=True)


def _percentages(counts: Sequence[int]) -> NDArray[np.float64]:
    return np.asarray(100 * np.asarray(counts, np.float64) / max(sum(counts), 1))


def _image_counts(groups: Sequence[GroupSize]) -> list[int] | None:
    images = [group.images for group in groups if group.images is not None]
    return images if images else None

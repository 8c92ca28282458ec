"""Distributions of the cosine similarity of pairs, by the level that the two images share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import INK, level_colours, make_axes, open_axes, save

#: Thresholds of the decomposability loss for positives and negatives (paper, Eq. 7).
_ALPHA, _BETA = 0.9, 0.6


@dataclass(frozen=True, eq=False)
class ScoreDensities:
    """Distributions of the cosine similarities of one method.

    Args:
        title: Title of the method.
        separation: Probability that a pair of the finest level scores higher than another pair (ROC AUC), 0 to 1.
        edges: Edges of the bins, float64, shape (n_bins + 1,).
        densities: Densities by shared level, 0 for none, float64, shape (L + 1, n_bins); NaN for a level without
            pairs.
    """

    title: str
    separation: float
    edges: NDArray[np.float64]
    densities: NDArray[np.float64]


def draw_scores(path: Path, methods: Sequence[ScoreDensities], level_titles: Sequence[str]) -> None:
    """Draw densities, one panel per method.

    Args:
        path: Picture to write.
        methods: Densities of the same levels.
        level_titles: Titles of the L + 1 levels, level 0 first.
    """
    n_levels = len(level_titles) - 1
    colours = level_colours(n_levels)[::-1]
    figure, panels = make_axes(len(methods), 2.6)
    limits = _x_limits(methods)
    for axes, scores in zip(panels, methods, strict=True):
        for level in range(n_levels, -1, -1):
            density = scores.densities[level]
            axes.stairs(density, scores.edges, color=colours[level], linewidth=1.4, label=level_titles[level])
            axes.stairs(density, scores.edges, color=colours[level], alpha=0.18, fill=True)
        for score, style, name in ((_BETA, ":", "β = 0.6"), (_ALPHA, "--", "α = 0.9")):
            axes.axvline(score, color=INK, linestyle=style, linewidth=1, label=f"{name} (Eq. 7)")
        axes.set_title(f"{scores.title}: AUC {100 * scores.separation:.1f} %", fontsize=10, color=INK)
        axes.set_ylim(bottom=0)
        axes.set_xlim(limits)
        axes.set_yticks([])
        axes.set_xlabel("cosine similarity")
        open_axes(axes)
        axes.spines["left"].set_visible(False)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        title=f"AUC: probability that a pair of the {level_titles[-1]} scores higher than another pair",
    )
    save(figure, path)


def _x_limits(methods: Sequence[ScoreDensities]) -> tuple[float, float]:
    """Return the range of scores that occur."""
    bins = np.flatnonzero(np.nansum([scores.densities for scores in methods], axis=(0, 1)))
    edges = methods[0].edges
    return edges[bins[0]], edges[bins[-1] + 1]

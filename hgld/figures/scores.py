"""How scores of pairs are distributed, by what the two have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import INK, arrange, open_axes, save

#: Of pairs that share the finest level, the next coarser ones, or nothing.
_FINEST, _COARSER, _NOTHING = "#2b8a3e", ("#e8590c", "#e0a800", "#9c6ade"), "#c92a2a"
#: The scores that positives are to reach and negatives to stay below (paper, Eq. 7).
_ALPHA, _BETA = 0.9, 0.6


@dataclass(frozen=True, eq=False)
class ScoreDensities:
    """The cosines of a method.

    Args:
        title: of the method.
        separation: how often a pair of the finest level scores higher than another, from 0 to 1.
        edges: float64, shape (n_bins + 1,), of bins.
        densities: float64, shape (L + 1, n_bins), of pairs that share a level, 0 for none; NaN where there are none.
    """

    title: str
    separation: float
    edges: NDArray[np.float64]
    densities: NDArray[np.float64]


def draw_scores(path: Path, methods: Sequence[ScoreDensities], meanings: Sequence[str]) -> None:
    """Draw densities, a panel for each method.

    Args:
        path: the picture to write.
        methods: with the same levels.
        meanings: what pairs of each level are, level 0 first.
    """
    n_levels = len(meanings) - 1
    coarser = [_COARSER[n % len(_COARSER)] for n in range(n_levels - 1)]
    colours = [_FINEST, *coarser, _NOTHING][::-1]
    figure, places = arrange(len(methods), 2.6)
    limits = _limits(methods)
    for axes, scores in zip(places, methods, strict=True):
        for level in range(n_levels, -1, -1):
            density = scores.densities[level]
            axes.stairs(density, scores.edges, color=colours[level], linewidth=1.4, label=meanings[level])
            axes.stairs(density, scores.edges, color=colours[level], alpha=0.18, fill=True)
        for score, style, name in ((_BETA, ":", "β = 0.6"), (_ALPHA, "--", "α = 0.9")):
            axes.axvline(score, color=INK, linestyle=style, linewidth=1, label=f"{name} of Eq. 7")
        axes.set_title(f"{scores.title}: AUC {100 * scores.separation:.1f} %", fontsize=10, color=INK)
        axes.set_ylim(bottom=0)
        axes.set_xlim(limits)
        axes.set_yticks([])
        axes.set_xlabel("cosine of a pair")
        open_axes(axes)
        axes.spines["left"].set_visible(False)
    figure.legend(
        *places[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        title=f"AUC: how often a pair of the {meanings[-1]} scores higher than another",
    )
    save(figure, path)


def _limits(methods: Sequence[ScoreDensities]) -> tuple[float, float]:
    """Where any density is."""
    bins = np.flatnonzero(np.nansum([scores.densities for scores in methods], axis=(0, 1)))
    edges = methods[0].edges
    return edges[bins[0]], edges[bins[-1] + 1]

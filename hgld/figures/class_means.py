"""The mean embeddings of classes on a plane, coloured by their categories (paper, Fig. 9a, b)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import INK, LIGHT, arrange, save

_OTHERS = "#c9ced4"


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """The classes as a method places them.

    Args:
        title: of its panel.
        positions: float64, shape (n, 2).
        categories: of the n classes.
        roots: what these belong to; four at most.
    """

    title: str
    positions: NDArray[np.float64]
    categories: Sequence[str]
    roots: Sequence[str]


def draw_class_means(path: Path, methods: Sequence[ClassMeans]) -> None:
    """Draw classes side by side; the most frequent categories have colours.

    Args:
        path: the picture to write.
        methods: a panel for each, of the same classes.
    """
    from matplotlib.lines import Line2D

    counts, roots = Counter(methods[0].categories), sorted(set(methods[0].roots))
    # By name where as many have them: the picture is to be the same every time.
    shown = sorted(counts, key=lambda name: (-counts[name], name))[: len(LIGHT)]
    colours = dict.fromkeys(counts, _OTHERS) | dict(zip(shown, LIGHT, strict=False))
    markers = dict(zip(roots, "o^sD", strict=False))
    figure, places = arrange(len(methods), 4.2)
    size = float(np.clip(6000 / counts.total(), 4, 50))
    for axes, method in zip(places, methods, strict=True):
        positions = _lying(method.positions)
        for root in roots:
            mine = np.array([root == of for of in method.roots])
            colour = [colours[name] for name, is_mine in zip(method.categories, mine, strict=True) if is_mine]
            axes.scatter(
                positions[mine, 0],
                positions[mine, 1],
                s=size,
                c=colour,
                marker=markers[root],
                edgecolor="white",
                linewidth=0.5,
            )
        axes.set_title(method.title, fontsize=10, color=INK)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", "datalim")
        axes.spines[:].set_color(_OTHERS)
    root_of = dict(zip(methods[0].categories, methods[0].roots, strict=True))
    entries = [(f"{name} ({counts[name]})", colours[name], markers[root_of[name]]) for name in shown]
    if len(shown) < len(counts):
        entries.append(("others", _OTHERS, "o"))
    if len(roots) > 1:
        entries += [(root, INK, markers[root]) for root in roots]
    figure.legend(
        [Line2D([], [], linestyle="", color=colour, marker=marker) for _, colour, marker in entries],
        [name for name, _, _ in entries],
        loc="outside lower center",
        ncols=5,
        frameon=False,
        handletextpad=0.1,
    )
    save(figure, path)


def _lying(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same, turned so that they are spread most from left to right: t-SNE knows no directions."""
    centred = positions - positions.mean(axis=0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2].T)

"""Mean embeddings of classes in two dimensions, coloured by category (paper, Fig. 9a, b)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.figures.style import INK, LIGHT, make_axes, save

_OTHERS = "#c9ced4"


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Positions of n classes in the embedding space of one method.

    Args:
        title: Title of the panel.
        positions: Positions of the classes, float64, shape (n, 2).
        categories: Category of each class.
        roots: Root of each class; at most four different ones.
    """

    title: str
    positions: NDArray[np.float64]
    categories: Sequence[str]
    roots: Sequence[str]


def draw_class_means(path: Path, methods: Sequence[ClassMeans]) -> None:
    """Draw the classes of several methods side by side; the most frequent categories are coloured.

    Args:
        path: Picture to write.
        methods: Positions of the same classes, one panel each.
    """
    from matplotlib.lines import Line2D

    counts, roots = Counter(methods[0].categories), sorted(set(methods[0].roots))
    # Ties are broken by name, so that the picture is reproducible.
    frequent = sorted(counts, key=lambda name: (-counts[name], name))[: len(LIGHT)]
    colours = dict.fromkeys(counts, _OTHERS) | dict(zip(frequent, LIGHT, strict=False))
    markers = dict(zip(roots, "o^sD", strict=False))
    figure, panels = make_axes(len(methods), 4.2)
    size = float(np.clip(6000 / counts.total(), 4, 50))
    for axes, method in zip(panels, methods, strict=True):
        positions = _rotate_to_width(method.positions)
        for root in roots:
            in_root = np.array([class_root == root for class_root in method.roots])
            axes.scatter(
                positions[in_root, 0],
                positions[in_root, 1],
                s=size,
                c=[colours[name] for name, selected in zip(method.categories, in_root, strict=True) if selected],
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
    entries = [(f"{name} ({counts[name]})", colours[name], markers[root_of[name]]) for name in frequent]
    if len(frequent) < len(counts):
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


def _rotate_to_width(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotate positions so that their variance is largest from left to right: t-SNE has no preferred direction."""
    centred = positions - positions.mean(axis=0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2].T)

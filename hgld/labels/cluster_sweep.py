"""Sweep of k-means over a range of k, to choose the number of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.compute.threads import one_thread
from hgld.errors import ConfigurationError, InputError
from hgld.figures.label_map import SweepPoint, draw_sweep
from hgld.labels.clustering import k_means
from hgld.labels.clusters import read_label_vectors
from hgld.progress import NoProgress, Progress


@dataclass(frozen=True)
class SweepSummary:
    """Inertia and silhouette for each k."""

    points: Sequence[SweepPoint]


def sweep_file(
    embeddings: Path, picture: Path, ks: Sequence[int], seed: int = 0, *, progress: Progress | None = None
) -> SweepSummary:
    """Compute inertia and silhouette of k-means for each k, and plot them.

    Args:
        embeddings: ``label_embeddings`` table.
        picture: Image file to write.
        ks: Numbers of clusters, 2 or more.
        seed: Seed of k-means.
        progress: Reports each k.

    Raises:
        InputError: ``embeddings`` is no such table, or has too few different labels.
        ConfigurationError: A k is below 2.
    """
    if min(ks) < 2:
        raise ConfigurationError(f"`ks` begins at {min(ks)}; the silhouette needs 2 clusters or more")
    if not embeddings.is_file():
        raise InputError(f"{embeddings}: no such file; hgld embed writes it")
    # The silhouette is undefined if every label is a cluster of its own.
    _, vectors = read_label_vectors(embeddings, min_distinct=max(ks) + 1)
    points = sweep(vectors, ks, seed, progress)
    draw_sweep(picture, points)
    return SweepSummary(points)


def sweep(
    vectors: NDArray[np.float64], ks: Sequence[int], seed: int = 0, progress: Progress | None = None
) -> list[SweepPoint]:
    """Compute inertia and silhouette (cosine) of k-means for each k.

    Args:
        vectors: float64, shape (n, dimension).
        ks: Numbers of clusters, 2 to n - 1.
        seed: Seed of k-means.
        progress: Reports each k.
    """
    from sklearn.metrics import silhouette_score

    progress = progress or NoProgress()
    progress.start(len(ks))
    points = []
    with one_thread():
        for k in ks:
            cluster, inertia, _ = k_means(vectors, k, seed)
            points.append(SweepPoint(k, inertia, float(silhouette_score(vectors, cluster, metric="cosine"))))
            progress.advance()
    return points

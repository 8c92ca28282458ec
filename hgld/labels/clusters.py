"""The stage ``cluster``: clusters of labels as a table, a picture and an interactive page.

K-means groups all labels, and agglomerative clustering those of each cluster. The result depends on the labels, their
embeddings and the seed only, not on the order of rows: these are sorted by label first. Vectors are float64 and a
single thread is used: with several, floating-point sums depend on the order in which threads finish.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.arrays import Floats, Integers
from hgld.compute.machine import one_thread
from hgld.errors import ConfigurationError, InputError
from hgld.figures.comparisons import tsne_2d
from hgld.figures.label_map import (
    LabelMap,
    MapPhotograph,
    SweepPoint,
    draw_label_map,
    draw_sweep,
    write_label_page,
)
from hgld.figures.style import figure_files
from hgld.labels.embed import embedding_matrix
from hgld.labels.settings import ClusterConfig
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage
from hgld.taxonomy.project import nouns_of

log = logging.getLogger(__name__)

STAGE = Stage("cluster", (tables.CLUSTERS,), inputs={"embeddings": tables.LABEL_EMBEDDINGS})
_N_INIT = 10
_LABELS_PER_NAME = 3


@dataclass(frozen=True)
class ClusterRow:
    """Size and name of one cluster."""

    cluster: int
    name: str
    subclusters: int
    labels: int
    landmarks: int


class PhotographSource(Protocol):
    """Photographs of labels for the page, passed in as plain data."""

    @property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of the files that decide which photographs are shown, by role."""

    def of_labels(self, label_ids: Sequence[str]) -> Mapping[str, Sequence[MapPhotograph]]:
        """Return photographs by label_id; ``label_ids`` has the most important labels first."""


def cluster_file(
    embeddings: Path,
    out: Path,
    config: ClusterConfig | None = None,
    *,
    photographs: PhotographSource | None = None,
    force: bool = False,
) -> list[ClusterRow] | None:
    """Write the clusters of label embeddings, and beside the table a picture (.png) and a page (.html) of them.

    Args:
        embeddings: Table of label embeddings.
        out: Table to write, sorted by cluster, sub-cluster and number of landmarks; a .png and a .html file are
            written beside it.
        force: Run although the output is up to date.

    Returns:
        The clusters, those with most landmarks first, or None if all three files were up to date.

    Raises:
        InputError: ``embeddings`` is no such table, or has fewer different labels than clusters.
    """
    config = config or ClusterConfig()
    picture, page = out.with_suffix(".png"), out.with_suffix(".html")

    def compute() -> tuple[Sequence[pa.Table], list[ClusterRow]]:
        table, vectors = read_label_vectors(embeddings, min_distinct=config.n_clusters or 1)
        landmarks = table["landmarks_train"].to_numpy() + table["landmarks_index"].to_numpy()
        labels = table["label"].to_pylist()
        clusters = cluster_labels(vectors, landmarks, labels, config)
        label_map = LabelMap(
            positions=tsne_2d(vectors, config.seed),
            labels=labels,
            landmarks=landmarks,
            cluster=clusters.cluster,
            subcluster=clusters.subcluster,
            names=clusters.names,
            nouns=nouns_of(embeddings),
        )
        draw_label_map(picture, label_map)
        write_label_page(
            page, label_map, _photographs(photographs, table["label_id"].to_pylist(), label_map)
        )
        return [_clusters_table(table, landmarks, clusters)], _summarise(clusters, landmarks)

    return STAGE.run(
        {"out": out},
        compute,
        inputs={"embeddings": embeddings},
        digests=photographs.digests if photographs else None,
        parameters=vars(config),
        further_files=[*figure_files(picture), page],
        force=force,
    )


def _photographs(
    source: PhotographSource | None, label_ids: Sequence[str], label_map: LabelMap
) -> dict[int, Sequence[MapPhotograph]]:
    """Return photographs by row: of the largest label of every sub-cluster, then of the second largest, and so on."""
    if source is None:
        return {}
    subclusters = list(zip(label_map.cluster.tolist(), label_map.subcluster.tolist(), strict=True))
    seen: Counter[tuple[int, int]] = Counter()
    ranks = {}
    for row in label_map.largest_first():
        ranks[row] = seen[subclusters[row]]
        seen[subclusters[row]] += 1
    in_turn = sorted(ranks, key=ranks.__getitem__)
    photographs = source.of_labels([label_ids[row] for row in in_turn])
    return {row: photographs[label_ids[row]] for row in in_turn if label_ids[row] in photographs}


def read_label_vectors(embeddings: Path, *, min_distinct: int) -> tuple[pa.Table, Floats]:
    """Read label embeddings, sorted by label, and their vectors: float64, shape (n, dimension).

    Raises:
        InputError: The file is no such table, or has fewer than ``min_distinct`` different vectors.
    """
    table = tables.read_table(embeddings, tables.LABEL_EMBEDDINGS)
    # By text before id: category pages do not show the id, and both scraping sources must give the same clusters.
    table = table.sort_by([("label", "ascending"), ("label_id", "ascending")])
    if not len(table):
        raise InputError(f"{embeddings}: no labels in it")
    vectors = embedding_matrix(table).astype(np.float64)
    n_distinct = len(np.unique(vectors, axis=0))
    if n_distinct < min_distinct:
        raise InputError(
            f"{embeddings}: {n_distinct} different labels, too few for this number of clusters; expected at least "
            f"{min_distinct}. Choose fewer clusters, or embed more labels"
        )
    return table, vectors


def _clusters_table(table: pa.Table, landmarks: Integers, clusters: Clusters) -> pa.Table:
    n = len(table)
    columns = {
        name: table[name] for name in ("label_id", "label", "landmarks_train", "landmarks_index")
    }
    columns |= {
        "cluster": pa.array(clusters.cluster, pa.int32()),
        "cluster_name": pa.array(
            [clusters.names[number] for number in clusters.cluster], pa.string()
        ),
        "subcluster": pa.array(clusters.subcluster, pa.int32()),
        "distance": pa.array(clusters.distance, pa.float32()),
        "suggested_group": pa.nulls(n, pa.string()),
        "suggestion_score": pa.nulls(n, pa.float32()),
        "suggestions": pa.array([[]] * n, tables.SUGGESTIONS),
    }
    order = np.lexsort((np.arange(n), -landmarks, clusters.subcluster, clusters.cluster))
    return pa.table(columns).take(pa.array(order))


def _summarise(clusters: Clusters, landmarks: Integers) -> list[ClusterRow]:
    return [
        ClusterRow(
            cluster=number,
            name=name,
            subclusters=int(clusters.subcluster[members].max()),
            labels=int(members.sum()),
            landmarks=int(landmarks[members].sum()),
        )
        for number, name in clusters.names.items()
        for members in [clusters.cluster == number]
    ]


@dataclass(frozen=True)
class Clusters:
    """Clusters of n labels, in the order of the labels given.

    Args:
        cluster: int32, shape (n,); numbers from 1, the cluster with the most landmarks first.
        subcluster: int32, shape (n,); numbers from 1 within each cluster, in the same order.
        distance: float64, shape (n,); distance of each label to the centroid of its cluster.
    """

    cluster: NDArray[np.int32]
    subcluster: NDArray[np.int32]
    distance: Floats
    names: dict[int, str]


def cluster_labels(
    vectors: Floats, landmarks: Integers, labels: Sequence[str], config: ClusterConfig
) -> Clusters:
    """Group labels into clusters and sub-clusters.

    A cluster is named by the three labels with the highest ``log(1 + landmarks) * (1 - d / d_max)``, where d is the
    distance of a label to the centroid and d_max the largest in the cluster: labels that are frequent and central.
    """
    n_clusters, total = config.numbers(len(np.unique(vectors, axis=0)))
    with one_thread():
        assignment, _, distance = k_means(vectors, n_clusters, config.seed)
        cluster = _number_by_landmarks(assignment, landmarks)
        members = [np.flatnonzero(cluster == number) for number in range(1, n_clusters + 1)]
        inertia = np.array([np.sum(distance[rows] ** 2) for rows in members])
        n_distinct = np.array([len(np.unique(vectors[rows], axis=0)) for rows in members])
        subclusters = allocate_subclusters(total, inertia, n_distinct)
        if (n_made := sum(subclusters)) < total:
            log.warning(
                "%d different labels make %d sub-clusters at most, not %d", n_made, n_made, total
            )
        subcluster = np.zeros(len(vectors), np.int32)
        for rows, n_subclusters in zip(members, subclusters, strict=True):
            assignment = _agglomerate(vectors[rows], n_subclusters)
            subcluster[rows] = _number_by_landmarks(assignment, landmarks[rows])
    names = {
        number: _cluster_name([labels[int(row)] for row in rows], landmarks[rows], distance[rows])
        for number, rows in enumerate(members, 1)
    }
    return Clusters(cluster, subcluster, distance, names)


def k_means(vectors: Floats, n_clusters: int, seed: int) -> tuple[NDArray[np.int32], float, Floats]:
    """Run k-means; return the cluster of each vector (from 0), the inertia, and the distances to the centroids."""
    from sklearn.cluster import KMeans

    model = KMeans(n_clusters=n_clusters, n_init=_N_INIT, random_state=seed).fit(vectors)
    distance = np.linalg.norm(vectors - model.cluster_centers_[model.labels_], axis=1)
    return model.labels_, float(model.inertia_), distance


def allocate_subclusters(total: int, inertia: Floats, max_subclusters: Integers) -> list[int]:
    """Distribute sub-clusters over clusters.

    Every cluster gets one. Each further one goes to the cluster with the largest inertia per sub-cluster among those
    below their maximum, on ties to the first. Fewer than ``total`` are allocated if all clusters reach their maximum.

    >>> allocate_subclusters(6, np.array([9.0, 3.0, 0.0]), np.array([10, 10, 1]))
    [4, 1, 1]
    """
    counts = np.ones(len(inertia), np.int64)
    for _ in range(min(total, int(max_subclusters.sum())) - len(inertia)):
        counts[np.argmax(np.where(counts < max_subclusters, inertia / counts, -1.0))] += 1
    return [int(count) for count in counts]


def _agglomerate(vectors: Floats, n_subclusters: int) -> NDArray[np.int32]:
    """Return the sub-cluster of each vector of one cluster, from 0."""
    from sklearn.cluster import AgglomerativeClustering

    if n_subclusters == 1 or len(vectors) == 1:
        return np.zeros(len(vectors), np.int32)
    model = AgglomerativeClustering(n_subclusters, metric="cosine", linkage="average")
    assignment: NDArray[np.int32] = model.fit_predict(vectors)
    return assignment


def _number_by_landmarks(assignment: NDArray[np.int32], landmarks: Integers) -> NDArray[np.int32]:
    """Renumber clusters from 1 by number of landmarks, then number of labels (most first), then first row."""
    clusters, first_row, n_labels = np.unique(assignment, return_index=True, return_counts=True)
    n_landmarks = np.bincount(assignment, landmarks)[clusters]
    order = np.lexsort((first_row, -n_labels, -n_landmarks))
    numbers = np.empty(int(clusters.max()) + 1, np.int32)
    numbers[clusters[order]] = np.arange(1, len(clusters) + 1)
    return numbers[assignment]


def _cluster_name(labels: Sequence[str], landmarks: Integers, distance: Floats) -> str:
    d_max = distance.max()
    centrality = 1 - distance / d_max if d_max > 0 else np.ones_like(distance)
    order = np.argsort(-np.log1p(landmarks) * centrality, kind="stable")
    # Two classes may have the same label.
    return " / ".join(list(dict.fromkeys(labels[int(row)] for row in order))[:_LABELS_PER_NAME])


def sweep_file(
    embeddings: Path,
    picture: Path,
    ks: Sequence[int],
    seed: int = 0,
    *,
    progress: Progress | None = None,
) -> list[SweepPoint]:
    """Compute inertia and silhouette of k-means for each k, and plot them."""
    if min(ks) < 2:
        raise ConfigurationError(
            f"`ks` begins at {min(ks)}; the silhouette needs 2 clusters or more"
        )
    # The silhouette is undefined if every label is a cluster of its own.
    _, vectors = read_label_vectors(embeddings, min_distinct=max(ks) + 1)
    points = sweep(vectors, ks, seed, progress)
    draw_sweep(picture, points)
    return points


def sweep(
    vectors: Floats, ks: Sequence[int], seed: int = 0, progress: Progress | None = None
) -> list[SweepPoint]:
    """Compute inertia and silhouette (cosine) of k-means for each k, from 2 to one less than there are vectors."""
    from sklearn.metrics import silhouette_score

    progress = progress or NoProgress()
    progress.start(len(ks))
    points = []
    with one_thread():
        for k in ks:
            cluster, inertia, _ = k_means(vectors, k, seed)
            points.append(
                SweepPoint(k, inertia, float(silhouette_score(vectors, cluster, metric="cosine")))
            )
            progress.advance()
    return points

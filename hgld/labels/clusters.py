"""The stage ``cluster``: clusters of labels as a table, a picture and an interactive page.

K-means groups all labels, and agglomerative clustering divides each cluster into sub-clusters. The
result depends only on the labels, their embeddings and the seed: rows are sorted by label first.
Vectors are float64 and a single thread is used, since the rounding of sums over several threads
depends on the order in which the threads finish.
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
#: Number of random initialisations of k-means; the best result counts.
_N_INIT = 10
#: Number of labels in the name of a cluster.
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
    """Provides photographs of labels for the page."""

    @property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of the files that determine which photographs are shown, by role."""

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
    """Write clusters of label embeddings as a table, a picture (.png) and a page (.html).

    Args:
        embeddings: Table of label embeddings.
        out: Table to write, sorted by cluster, sub-cluster and number of landmarks; a .png and a
            .html file are written beside it.
        config: Numbers of clusters and sub-clusters, and the seed.
        photographs: Provides photographs for the page. Default: a page without photographs.
        force: Run although the output is up to date.

    Returns:
        The clusters, clusters with most landmarks first, or None if all three files were up to
        date.

    Raises:
        InputError: ``embeddings`` is not a table of label embeddings, or has fewer different labels
            than clusters.
    """
    config = config or ClusterConfig()
    picture = out.with_suffix(".png")
    page = out.with_suffix(".html")

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
        label_photographs: Mapping[int, Sequence[MapPhotograph]] = {}
        if photographs is not None:
            label_ids = table["label_id"].to_pylist()
            label_photographs = _find_photographs(photographs, label_ids, label_map)
        write_label_page(page, label_map, label_photographs)
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


def _find_photographs(
    source: PhotographSource, label_ids: Sequence[str], label_map: LabelMap
) -> dict[int, Sequence[MapPhotograph]]:
    """Return photographs of labels by row.

    The source gets the largest label of every sub-cluster first, then the second largest labels,
    and so on.
    """
    n_ranked: Counter[tuple[int, int]] = Counter()
    ranks = {}
    for row in label_map.largest_first():
        subcluster = (int(label_map.cluster[row]), int(label_map.subcluster[row]))
        ranks[row] = n_ranked[subcluster]
        n_ranked[subcluster] += 1
    rows_by_rank = sorted(ranks, key=ranks.__getitem__)
    photographs = source.of_labels([label_ids[row] for row in rows_by_rank])
    photographs_by_row = {}
    for row in rows_by_rank:
        if label_ids[row] in photographs:
            photographs_by_row[row] = photographs[label_ids[row]]
    return photographs_by_row


def read_label_vectors(embeddings: Path, *, min_distinct: int) -> tuple[pa.Table, Floats]:
    """Read label embeddings, sorted by label, and their vectors: float64, shape (n, dimension).

    Raises:
        InputError: The file is not a table of label embeddings, or has fewer than ``min_distinct``
            different vectors.
    """
    table = tables.read_table(embeddings, tables.LABEL_EMBEDDINGS)
    # By text before id: both scraping sources must give the same clusters, and category pages do
    # not show the id.
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
    cluster_names = [clusters.names[number] for number in clusters.cluster]
    columns = {
        "label_id": table["label_id"],
        "label": table["label"],
        "landmarks_train": table["landmarks_train"],
        "landmarks_index": table["landmarks_index"],
        "cluster": pa.array(clusters.cluster, pa.int32()),
        "cluster_name": pa.array(cluster_names, pa.string()),
        "subcluster": pa.array(clusters.subcluster, pa.int32()),
        "distance": pa.array(clusters.distance, pa.float32()),
        "suggested_group": pa.nulls(n, pa.string()),
        "suggestion_score": pa.nulls(n, pa.float32()),
        "suggestions": pa.array([[]] * n, tables.SUGGESTIONS),
    }
    order = np.lexsort((np.arange(n), -landmarks, clusters.subcluster, clusters.cluster))
    return pa.table(columns).take(pa.array(order))


def _summarise(clusters: Clusters, landmarks: Integers) -> list[ClusterRow]:
    rows = []
    for number, name in clusters.names.items():
        is_member = clusters.cluster == number
        row = ClusterRow(
            cluster=number,
            name=name,
            subclusters=int(clusters.subcluster[is_member].max()),
            labels=int(is_member.sum()),
            landmarks=int(landmarks[is_member].sum()),
        )
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Clusters:
    """Clusters of n labels, in the order of the labels given.

    Args:
        cluster: int32, shape (n,); numbers from 1, the cluster with the most landmarks first.
        subcluster: int32, shape (n,); numbers from 1 within each cluster, in the same order.
        distance: float64, shape (n,); distance of each label to the centroid of its cluster.
        names: Name of each cluster.
    """

    cluster: NDArray[np.int32]
    subcluster: NDArray[np.int32]
    distance: Floats
    names: dict[int, str]


def cluster_labels(
    vectors: Floats, landmarks: Integers, labels: Sequence[str], config: ClusterConfig
) -> Clusters:
    """Group labels into clusters and sub-clusters.

    A cluster is named by the three labels with the highest ``log(1 + landmarks) * (1 - d /
    d_max)``, where d is the distance of a label to the centroid and d_max the largest distance in
    the cluster: labels that are frequent and central.

    Args:
        vectors: float64, shape (n, dimension).
        landmarks: int64, shape (n,); number of landmarks of each label.
        labels: Text of each label.
        config: Numbers of clusters and sub-clusters, and the seed.
    """
    n_clusters, total = config.numbers(len(np.unique(vectors, axis=0)))
    with one_thread():
        assignment, _, distance = k_means(vectors, n_clusters, config.seed)
        cluster = _number_by_landmarks(assignment, landmarks)
        members = [np.flatnonzero(cluster == number) for number in range(1, n_clusters + 1)]
        inertia = np.array([np.sum(distance[rows] ** 2) for rows in members])
        n_distinct = np.array([len(np.unique(vectors[rows], axis=0)) for rows in members])
        subclusters = allocate_subclusters(total, inertia, n_distinct)
        n_made = sum(subclusters)
        if n_made < total:
            log.warning(
                "%d different labels make %d sub-clusters at most, not %d", n_made, n_made, total
            )
        subcluster = np.zeros(len(vectors), np.int32)
        for rows, n_subclusters in zip(members, subclusters, strict=True):
            assignment = _agglomerate(vectors[rows], n_subclusters)
            subcluster[rows] = _number_by_landmarks(assignment, landmarks[rows])
    names = {}
    for number, rows in enumerate(members, 1):
        cluster_labels = [labels[row] for row in rows.tolist()]
        names[number] = _name_cluster(cluster_labels, landmarks[rows], distance[rows])
    return Clusters(cluster, subcluster, distance, names)


def k_means(vectors: Floats, n_clusters: int, seed: int) -> tuple[NDArray[np.int32], float, Floats]:
    """Run k-means.

    Returns:
        The cluster of each vector, numbered from 0; the inertia; and the distance of each vector to
        the centroid of its cluster.
    """
    from sklearn.cluster import KMeans

    model = KMeans(n_clusters=n_clusters, n_init=_N_INIT, random_state=seed).fit(vectors)
    distance = np.linalg.norm(vectors - model.cluster_centers_[model.labels_], axis=1)
    return model.labels_, float(model.inertia_), distance


def allocate_subclusters(total: int, inertia: Floats, max_subclusters: Integers) -> list[int]:
    """Distribute sub-clusters over clusters.

    Every cluster gets one sub-cluster. Each further sub-cluster goes to the cluster with the
    largest inertia per sub-cluster that is below its maximum, on ties to the first such cluster.
    Fewer than ``total`` are allocated if all clusters reach their maximum.

    >>> allocate_subclusters(6, np.array([9.0, 3.0, 0.0]), np.array([10, 10, 1]))
    [4, 1, 1]
    """
    counts = np.ones(len(inertia), np.int64)
    for _ in range(min(total, int(max_subclusters.sum())) - len(inertia)):
        priority = np.where(counts < max_subclusters, inertia / counts, -1.0)
        counts[np.argmax(priority)] += 1
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
    """Renumber clusters from 1 by descending number of landmarks, then of labels, then by first row."""
    clusters, first_row, n_labels = np.unique(assignment, return_index=True, return_counts=True)
    n_landmarks = np.bincount(assignment, landmarks)[clusters]
    order = np.lexsort((first_row, -n_labels, -n_landmarks))
    numbers = np.empty(int(clusters.max()) + 1, np.int32)
    numbers[clusters[order]] = np.arange(1, len(clusters) + 1)
    return numbers[assignment]


def _name_cluster(labels: Sequence[str], landmarks: Integers, distance: Floats) -> str:
    """Join the most frequent and central labels; :func:`cluster_labels` gives the formula."""
    centrality = np.ones_like(distance)
    d_max = distance.max()
    if d_max > 0:
        centrality = 1 - distance / d_max
    order = np.argsort(-np.log1p(landmarks) * centrality, kind="stable")
    # Two classes may have the same label.
    names = dict.fromkeys(labels[row] for row in order.tolist())
    return " / ".join(list(names)[:_LABELS_PER_NAME])


def sweep_file(
    embeddings: Path,
    picture: Path,
    ks: Sequence[int],
    seed: int = 0,
    *,
    progress: Progress | None = None,
) -> list[SweepPoint]:
    """Compute and plot inertia and silhouette of k-means for several numbers of clusters.

    Args:
        embeddings: Table of label embeddings.
        picture: PNG file to write.
        ks: Numbers of clusters, each at least 2.
        seed: Random seed.
        progress: Reports the numbers of clusters that are done.
    """
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
    """Compute inertia and silhouette (cosine) of k-means for each k, from 2 to n_vectors - 1."""
    from sklearn.metrics import silhouette_score

    progress = progress or NoProgress()
    progress.start(len(ks))
    points = []
    with one_thread():
        for k in ks:
            cluster, inertia, _ = k_means(vectors, k, seed)
            silhouette = float(silhouette_score(vectors, cluster, metric="cosine"))
            points.append(SweepPoint(k, inertia, silhouette))
            progress.advance()
    return points

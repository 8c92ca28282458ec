"""Clusters of labels: k-means over all of them, then every cluster divided into sub-clusters.

The result depends on the labels, their embeddings and the seed alone: rows are put in the order of their labels
first, numbers are float64, and one thread does the work, since the order in which several add up their parts
is left to chance.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.figures.label_map import LabelMap, SweepPoint, draw_label_map, draw_sweep, write_label_page
from hgld.figures.tsne import one_thread, tsne_2d
from hgld.labels.embed import matrix_of
from hgld.progress import NoProgress, Progress

log = logging.getLogger(__name__)

DEFAULT_CLUSTERS = 12
DEFAULT_SUBCLUSTERS = 78
_N_INIT = 10
_NAMED = 3


@dataclass(frozen=True)
class ClusterConfig:
    """How labels are divided.

    Args:
        n_clusters: the K of k-means.
        n_subclusters: sub-clusters in all; None means 78 unless there is a distance threshold.
        distance_threshold: divide a cluster until no two sub-clusters are nearer than this cosine distance
            (average linkage), instead of into a given number.
        seed: of k-means and of the picture.
    """

    n_clusters: int = DEFAULT_CLUSTERS
    n_subclusters: int | None = None
    distance_threshold: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_clusters < 1:
            raise ConfigurationError(f"k is {self.n_clusters}; expected 1 or more")
        if self.distance_threshold is None:
            if self.n_subclusters is None:
                # The default must not stand in the way of a k above it.
                object.__setattr__(self, "n_subclusters", max(DEFAULT_SUBCLUSTERS, self.n_clusters))
            elif self.n_subclusters < self.n_clusters:
                raise ConfigurationError(
                    f"{self.n_subclusters} sub-clusters in all are fewer than {self.n_clusters} clusters; "
                    "every cluster has at least one"
                )
        elif self.n_subclusters is not None:
            raise ConfigurationError("give the number of sub-clusters or a distance threshold, not both")
        elif not 0 < self.distance_threshold <= 2:
            raise ConfigurationError(
                f"the distance threshold is {self.distance_threshold}; expected a cosine distance, above 0 "
                "and at most 2"
            )
        if not 0 <= self.seed < 2**32:
            raise ConfigurationError(f"the seed is {self.seed}; expected 0 or more, below 2^32")


@dataclass(frozen=True)
class Clusters:
    """Which label is where; all arrays have one entry per label, in the order of the labels given.

    Args:
        cluster: int32, from 1, the one with the most landmarks first.
        subcluster: int32, from 1 within its cluster, likewise.
        distance: float64, from the label's vector to the centroid of its cluster.
        names: of the clusters, by number.
    """

    cluster: NDArray[np.int32]
    subcluster: NDArray[np.int32]
    distance: NDArray[np.float64]
    names: dict[int, str]


@dataclass(frozen=True)
class ClusterRow:
    """One line of the summary."""

    cluster: int
    name: str
    subclusters: int
    labels: int
    landmarks: int


@dataclass(frozen=True)
class ClusterSummary:
    """The clusters, largest first."""

    rows: Sequence[ClusterRow]


@dataclass(frozen=True)
class SweepSummary:
    """Inertia and silhouette over K."""

    points: Sequence[SweepPoint]


def cluster_file(
    embeddings: Path, out: Path, config: ClusterConfig | None = None, *, force: bool = False
) -> ClusterSummary | None:
    """Write the clusters of a table of label embeddings, and beside it their picture (.png) and page (.html).

    Args:
        embeddings: the table of label embeddings.
        out: the table to write, in the order of clusters, sub-clusters and landmarks.
        config: how labels are divided.
        force: do the work although everything is up to date.

    Returns:
        The clusters, or None if all three files were up to date.

    Raises:
        InputError: ``embeddings`` is not such a table, or has fewer different labels than clusters.
    """
    config = config or ClusterConfig()
    if not embeddings.is_file():
        raise InputError(f"{embeddings}: no such file; hgld embed writes it")
    picture, page = out.with_suffix(".png"), out.with_suffix(".html")
    provenance = tables.Provenance("cluster", vars(config), tables.digests(embeddings=embeddings))
    if not force and tables.is_up_to_date(out, provenance) and all(path.is_file() for path in (picture, page)):
        return None

    table = _read(embeddings)
    vectors, landmarks = _vectors(table), _landmarks(table)
    labels = table["label"].to_pylist()
    _require_distinct(embeddings, vectors, config.n_clusters)
    clusters = cluster_labels(vectors, landmarks, labels, config)
    label_map = LabelMap(
        positions=tsne_2d(vectors, config.seed),
        labels=labels,
        landmarks=landmarks,
        cluster=clusters.cluster,
        subcluster=clusters.subcluster,
        names=clusters.names,
    )
    draw_label_map(picture, label_map)
    write_label_page(page, label_map)
    tables.write_table(out, tables.CLUSTERS, _table_of(table, landmarks, clusters), provenance)
    return _summarise(clusters, landmarks)


def sweep_file(
    embeddings: Path, picture: Path, ks: Sequence[int], seed: int = 0, *, progress: Progress | None = None
) -> SweepSummary:
    """Inertia and silhouette of k-means for every K in ``ks``, also drawn to ``picture``.

    Raises:
        InputError: ``embeddings`` is not a table of label embeddings, or has too few different labels.
    """
    if not embeddings.is_file():
        raise InputError(f"{embeddings}: no such file; hgld embed writes it")
    vectors = _vectors(_read(embeddings))
    # Every label a cluster of its own has no silhouette.
    _require_distinct(embeddings, vectors, max(ks) + 1)
    points = sweep(vectors, ks, seed, progress)
    draw_sweep(picture, points)
    return SweepSummary(points)


def parse_range(text: str) -> range:
    """``4:40``, both ends included, as a range.

    Raises:
        ConfigurationError: it is something else, or begins below 2 (the silhouette needs two clusters).

    >>> parse_range("4:6")
    range(4, 7)
    """
    found = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", text)
    low, high = map(int, found.groups()) if found else (0, 0)
    if not 2 <= low <= high:
        raise ConfigurationError(f'the sweep is "{text}"; expected first:last such as 4:40, from 2 on')
    return range(low, high + 1)


def cluster_labels(
    vectors: NDArray[np.float64], landmarks: NDArray[np.int64], labels: Sequence[str], config: ClusterConfig
) -> Clusters:
    """Divide labels into clusters and these into sub-clusters.

    A cluster is named by the three labels with the highest ``log(1 + landmarks) * (1 - d / d_max)``, where d
    is a label's distance to the centroid and d_max the largest in the cluster: frequent, and central.

    Args:
        vectors: float64, shape (n, dimension), unit vectors, at least ``config.n_clusters`` different ones.
        landmarks: int64, shape (n,); how many landmarks have the label.
        labels: their texts.
        config: how to divide.
    """
    with one_thread():
        found, _, distance = _k_means(vectors, config.n_clusters, config.seed)
        cluster = _numbered(found, landmarks)
        members = [np.flatnonzero(cluster == number) for number in range(1, config.n_clusters + 1)]
        spread = np.array([np.sum(distance[rows] ** 2) for rows in members])
        distinct = np.array([len(np.unique(vectors[rows], axis=0)) for rows in members])
        shares = _shares(spread, distinct, config)
        subcluster = np.zeros(len(vectors), np.int32)
        for rows, share in zip(members, shares, strict=True):
            divided = _divide(vectors[rows], share, config.distance_threshold)
            subcluster[rows] = _numbered(divided, landmarks[rows])
    names = {
        number: _name([labels[int(row)] for row in rows], landmarks[rows], distance[rows])
        for number, rows in enumerate(members, 1)
    }
    return Clusters(cluster, subcluster, distance, names)


def share_out(total: int, spread: NDArray[np.float64], most: NDArray[np.int64]) -> list[int]:
    """How many sub-clusters each cluster gets: one each, and the others one by one to the most spread out.

    The next one always goes to the cluster whose spread per sub-cluster (sum of squared distances to the
    centroid, divided by its sub-clusters so far) is largest among those that are not full; of equal ones to
    the first. If all are full, fewer than ``total`` are given.

    Args:
        total: sub-clusters to give.
        spread: float64, shape (k,).
        most: int64, shape (k,); how many a cluster can have, i.e. its different vectors.

    >>> share_out(6, np.array([9.0, 3.0, 0.0]), np.array([10, 10, 1]))
    [4, 1, 1]
    """
    shares = np.ones(len(spread), np.int64)
    for _ in range(min(total, int(most.sum())) - len(spread)):
        shares[np.argmax(np.where(shares < most, spread / shares, -1.0))] += 1
    return [int(share) for share in shares]


def sweep(
    vectors: NDArray[np.float64], ks: Sequence[int], seed: int = 0, progress: Progress | None = None
) -> list[SweepPoint]:
    """Inertia and silhouette (cosine) of k-means for every K in ``ks``."""
    from sklearn.metrics import silhouette_score

    progress = progress or NoProgress()
    progress.start(len(ks))
    points = []
    with one_thread():
        for k in ks:
            cluster, inertia, _ = _k_means(vectors, k, seed)
            points.append(SweepPoint(k, inertia, float(silhouette_score(vectors, cluster, metric="cosine"))))
            progress.advance()
    return points


def _k_means(vectors: NDArray[np.float64], k: int, seed: int) -> tuple[NDArray[np.int32], float, NDArray[np.float64]]:
    """Clusters from 0 in no particular order, inertia, and distances to the own centroid."""
    from sklearn.cluster import KMeans

    fitted = KMeans(n_clusters=k, n_init=_N_INIT, random_state=seed).fit(vectors)
    distance = np.linalg.norm(vectors - fitted.cluster_centers_[fitted.labels_], axis=1)
    return fitted.labels_, float(fitted.inertia_), distance


def _divide(vectors: NDArray[np.float64], parts: int | None, threshold: float | None) -> NDArray[np.int32]:
    """The sub-clusters of one cluster, from 0 in no particular order."""
    from sklearn.cluster import AgglomerativeClustering

    if parts == 1 or len(vectors) == 1:
        return np.zeros(len(vectors), np.int32)
    method = AgglomerativeClustering(
        n_clusters=parts, distance_threshold=threshold, metric="cosine", linkage="average"
    )
    found: NDArray[np.int32] = method.fit_predict(vectors)
    return found


def _shares(spread: NDArray[np.float64], distinct: NDArray[np.int64], config: ClusterConfig) -> Sequence[int | None]:
    if config.n_subclusters is None:
        return [None] * len(spread)
    shares = share_out(config.n_subclusters, spread, distinct)
    if sum(shares) < config.n_subclusters:
        log.warning(
            "%d different labels make %d sub-clusters at most, not %d",
            *(sum(shares), sum(shares), config.n_subclusters),
        )
    return shares


def _numbered(found: NDArray[np.int32], landmarks: NDArray[np.int64]) -> NDArray[np.int32]:
    """Number groups from 1 by their landmarks, then their labels, then their first row."""
    groups, first = np.unique(found, return_index=True)
    totals = [(landmarks[found == group].sum(), (found == group).sum()) for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (-totals[i][0], -totals[i][1], first[i]))
    numbers = np.empty(int(groups.max()) + 1, np.int32)
    numbers[groups[order]] = np.arange(1, len(groups) + 1)
    return numbers[found]


def _name(labels: Sequence[str], landmarks: NDArray[np.int64], distance: NDArray[np.float64]) -> str:
    farthest = distance.max()
    nearness = 1 - distance / farthest if farthest > 0 else np.ones_like(distance)
    order = np.argsort(-np.log1p(landmarks) * nearness, kind="stable")
    # Two classes may have the same label.
    return " / ".join(list(dict.fromkeys(labels[int(row)] for row in order))[:_NAMED])


def _require_distinct(embeddings: Path, vectors: NDArray[np.float64], wanted: int) -> None:
    distinct = len(np.unique(vectors, axis=0))
    if distinct < wanted:
        raise InputError(
            f"{embeddings}: {distinct} different labels, too few for this k; expected at least {wanted}. "
            "Choose a smaller k, or scrape more landmarks"
        )


def _read(embeddings: Path) -> pa.Table:
    table = tables.read_table(embeddings, tables.LABEL_EMBEDDINGS)
    # By the text first: pages of Commons show it, but not the id, and both sources are to give the same clusters.
    table = table.sort_by([("label", "ascending"), ("label_id", "ascending")])
    if not len(table):
        raise InputError(f"{embeddings}: no labels in it")
    return table


def _vectors(table: pa.Table) -> NDArray[np.float64]:
    return matrix_of(table).astype(np.float64)


def _landmarks(table: pa.Table) -> NDArray[np.int64]:
    train, index = (table[f"landmarks_{split}"].to_numpy() for split in ("train", "index"))
    return np.asarray(train + index, np.int64)


def _table_of(table: pa.Table, landmarks: NDArray[np.int64], clusters: Clusters) -> pa.Table:
    n = len(table)
    columns = {name: table[name] for name in ("label_id", "label", "landmarks_train", "landmarks_index")}
    columns |= {
        "cluster": pa.array(clusters.cluster, pa.int32()),
        "cluster_name": pa.array([clusters.names[number] for number in clusters.cluster], pa.string()),
        "subcluster": pa.array(clusters.subcluster, pa.int32()),
        "distance": pa.array(clusters.distance, pa.float32()),
        "suggested_group": pa.nulls(n, pa.string()),
        "suggestion_score": pa.nulls(n, pa.float32()),
        "suggestions": pa.array([[]] * n, tables.SUGGESTIONS),
    }
    order = np.lexsort((np.arange(n), -landmarks, clusters.subcluster, clusters.cluster))
    return pa.table(columns).take(pa.array(order))


def _summarise(clusters: Clusters, landmarks: NDArray[np.int64]) -> ClusterSummary:
    rows = []
    for number, name in clusters.names.items():
        here = clusters.cluster == number
        rows.append(
            ClusterRow(
                cluster=number,
                name=name,
                subclusters=int(clusters.subcluster[here].max()),
                labels=int(here.sum()),
                landmarks=int(landmarks[here].sum()),
            )
        )
    return ClusterSummary(rows)

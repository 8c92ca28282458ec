"""The stage ``cluster``: a table of clusters of labels, a picture and an interactive page of them.

The result depends on the labels, their embeddings and the seed only, not on the order of rows: these are sorted by
label first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld import tables
from hgld.errors import InputError
from hgld.figures.style import figure_files
from hgld.labels.clustering import ClusterConfig, Clusters, cluster_labels
from hgld.labels.embed import embedding_matrix

if TYPE_CHECKING:
    from hgld.figures.label_map import LabelMap, MapPhotograph


@dataclass(frozen=True)
class ClusterRow:
    """Size and name of one cluster."""

    cluster: int
    name: str
    subclusters: int
    labels: int
    landmarks: int


@dataclass(frozen=True)
class ClusterSummary:
    """The clusters, the one with the most landmarks first."""

    rows: Sequence[ClusterRow]


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
) -> ClusterSummary | None:
    """Write the clusters of label embeddings, and beside the table a picture (.png) and a page (.html) of them.

    Args:
        embeddings: ``label_embeddings`` table.
        out: ``clusters`` table to write, sorted by cluster, sub-cluster and number of landmarks.
        config: Settings of the clustering.
        photographs: Photographs for the page; none by default.
        force: Cluster even if all three files are up to date.

    Returns:
        The clusters, or None if all three files were up to date.

    Raises:
        InputError: ``embeddings`` is no such table, or has fewer different labels than clusters.
    """
    config = config or ClusterConfig()
    if not embeddings.is_file():
        raise InputError(f"{embeddings}: no such file; hgld embed writes it")
    picture, page = out.with_suffix(".png"), out.with_suffix(".html")
    shown = [*figure_files(picture), page]
    inputs = {**tables.input_digests(embeddings=embeddings), **(photographs.digests if photographs else {})}
    provenance = tables.Provenance("cluster", vars(config), inputs)
    if not force and tables.is_up_to_date(out, provenance) and all(map(Path.is_file, shown)):
        return None
    from hgld.figures.comparisons import tsne_2d
    from hgld.figures.label_map import LabelMap, draw_label_map, write_label_page

    table, vectors = read_label_vectors(embeddings, min_distinct=config.n_clusters)
    landmarks = _landmark_counts(table)
    labels = table["label"].to_pylist()
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
    write_label_page(page, label_map, _photographs(photographs, table["label_id"].to_pylist(), label_map))
    tables.write_table(out, tables.CLUSTERS, _clusters_table(table, landmarks, clusters), provenance)
    return _summarise(clusters, landmarks)


def _photographs(
    source: PhotographSource | None, label_ids: Sequence[str], label_map: LabelMap
) -> dict[int, Sequence[MapPhotograph]]:
    """Return photographs by row: of the largest label of every sub-cluster, then of the second largest, and so on."""
    if source is None:
        return {}
    by_subcluster: dict[tuple[int, int], int] = {}
    ranks = {}
    for row in label_map.largest_first():
        subcluster = int(label_map.cluster[row]), int(label_map.subcluster[row])
        ranks[row] = by_subcluster[subcluster] = by_subcluster.get(subcluster, -1) + 1
    in_turn = sorted(ranks, key=ranks.__getitem__)
    photographs = source.of_labels([label_ids[row] for row in in_turn])
    return {row: photographs[label_ids[row]] for row in in_turn if label_ids[row] in photographs}


def read_label_vectors(embeddings: Path, *, min_distinct: int) -> tuple[pa.Table, NDArray[np.float64]]:
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
            f"{min_distinct}. Choose fewer clusters, or scrape more landmarks"
        )
    return table, vectors


def _landmark_counts(table: pa.Table) -> NDArray[np.int64]:
    train, index = (table[f"landmarks_{split}"].to_numpy() for split in ("train", "index"))
    return np.asarray(train + index, np.int64)


def _clusters_table(table: pa.Table, landmarks: NDArray[np.int64], clusters: Clusters) -> pa.Table:
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
        members = clusters.cluster == number
        rows.append(
            ClusterRow(
                cluster=number,
                name=name,
                subclusters=int(clusters.subcluster[members].max()),
                labels=int(members.sum()),
                landmarks=int(landmarks[members].sum()),
            )
        )
    return ClusterSummary(rows)

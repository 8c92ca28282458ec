import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgld import tables
from hgld.cli.labels import format_clusters, format_sweep, parse_sweep
from hgld.errors import ConfigurationError, InputError
from hgld.figures.label_map import MapPhotograph
from hgld.labels.clusters import Clusters, allocate_subclusters, cluster_file, cluster_labels, sweep, sweep_file
from hgld.labels.settings import ClusterConfig
from tests.assertions import not_none
from tests.labels.label_tables import PROVENANCE


def blobs(sizes: Sequence[int], *, spread: float = 0.05, dimension: int = 8, seed: int = 0) -> NDArray[np.float64]:
    """Unit vectors around as many axes as there are sizes."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(np.eye(dimension)[: len(sizes)], sizes, axis=0)
    vectors = centres + rng.normal(0, spread, centres.shape)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def run_clustering(
    vectors: NDArray[np.float64],
    landmarks: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    **config: Any,
) -> Clusters:
    counts = np.ones(len(vectors), np.int64) if landmarks is None else np.asarray(landmarks)
    labels = labels or [f"label {n}" for n in range(len(vectors))]
    return cluster_labels(vectors, counts, labels, ClusterConfig(**config))


def test_clusters_and_subclusters_are_numbered_by_landmarks() -> None:
    clusters = run_clustering(blobs([5, 4, 3]), [1] * 5 + [10] * 4 + [5] * 3, n_clusters=3, n_subclusters=6)
    assert clusters.cluster.tolist() == [3] * 5 + [1] * 4 + [2] * 3
    landmarks = np.array([1] * 5 + [10] * 4 + [5] * 3)
    total = 0
    for number in (1, 2, 3):
        members = clusters.cluster == number
        subclusters = clusters.subcluster[members]
        assert set(subclusters) == set(range(1, subclusters.max() + 1))
        held = [landmarks[members][subclusters == part].sum() for part in range(1, subclusters.max() + 1)]
        assert held == sorted(held, reverse=True)
        total += subclusters.max()
    assert total == 6


def test_distance_is_to_the_own_centroid() -> None:
    vectors = blobs([5, 4, 3])
    clusters = run_clustering(vectors, n_clusters=3)
    for number in (1, 2, 3):
        members = clusters.cluster == number
        expected = np.linalg.norm(vectors[members] - vectors[members].mean(axis=0), axis=1)
        np.testing.assert_allclose(clusters.distance[members], expected, rtol=1e-9)


def test_subclusters_match_average_linkage_by_hand() -> None:
    """Angles 0, 2, 10 and 13 degrees in one cluster: {0, 2} and {10, 13} are the two parts."""
    angles = np.radians([0, 10, 2, 13, 180, 181])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    clusters = run_clustering(vectors, [5, 1, 1, 1, 1, 1], n_clusters=2, n_subclusters=3)
    assert clusters.cluster.tolist() == [1, 1, 1, 1, 2, 2]
    assert clusters.subcluster.tolist() == [1, 2, 1, 2, 1, 1]
    # Cosine distances: 0.0006 and 0.0014 inside the pairs, 0.016 between them.
    clusters = run_clustering(vectors, [5, 1, 1, 1, 1, 1], n_clusters=2, n_subclusters=4)
    assert clusters.subcluster.tolist() == [1, 2, 1, 3, 1, 1]


def test_a_cluster_is_named_by_its_central_and_frequent_labels() -> None:
    angles = np.radians([0, 1, -1, 30, -30])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    clusters = run_clustering(vectors, [3, 9, 9, 99, 1], ["a", "b", "b", "far", "c"], n_clusters=1)
    # "far" has the most landmarks and lies at the rim; "b" stands twice and is said once.
    assert clusters.names == {1: "b / a / far"}


def test_identical_vectors_share_a_subcluster() -> None:
    vectors = np.repeat(blobs([1, 1, 1]), 4, axis=0)
    clusters = run_clustering(vectors, n_clusters=3)
    assert clusters.subcluster.tolist() == [1] * 12
    assert np.allclose(clusters.distance, 0)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 8)), min_size=1, max_size=6), st.integers(0, 40))
def test_subcluster_allocation_matches_greedy_loop(clusters: list[tuple[float, int]], more: int) -> None:
    inertia = np.array([value for value, _ in clusters])
    maximum = np.array([value for _, value in clusters])
    total = len(clusters) + more
    expected = [1] * len(clusters)
    while sum(expected) < total:
        available = [n for n in range(len(clusters)) if expected[n] < maximum[n]]
        if not available:
            break
        expected[max(available, key=lambda n: (inertia[n] / expected[n], -n))] += 1
    assert allocate_subclusters(total, inertia, maximum) == expected


@pytest.mark.slow
def test_clusters_do_not_depend_on_threads_or_row_order(
    write_embeddings: Callable[..., Path], tmp_path: Path
) -> None:
    from threadpoolctl import threadpool_limits

    vectors, landmarks = blobs([30, 20, 10, 10], spread=0.3), list(range(70))
    embeddings = write_embeddings(vectors, landmarks)
    config = ClusterConfig(n_clusters=4, n_subclusters=12)
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            cluster_file(embeddings, tmp_path / f"{threads}.parquet", config)
        results.append(tables.read_table(tmp_path / f"{threads}.parquet", tables.CLUSTERS))
    assert results[0].equals(results[1])
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()

    shuffled = tables.read_table(embeddings, tables.LABEL_EMBEDDINGS)
    shuffled = shuffled.take(np.random.default_rng(1).permutation(70))
    tables.write_table(embeddings, tables.LABEL_EMBEDDINGS, shuffled, PROVENANCE)
    cluster_file(embeddings, tmp_path / "3.parquet", config)
    assert tables.read_table(tmp_path / "3.parquet", tables.CLUSTERS).equals(results[0])


def test_table_of_clusters(write_embeddings: Callable[..., Path], tmp_path: Path) -> None:
    embeddings = write_embeddings(blobs([5, 4, 3]), [1] * 5 + [10] * 4 + [5] * 3)
    out, config = tmp_path / "clusters.parquet", ClusterConfig(n_clusters=3, n_subclusters=4)
    summary = not_none(cluster_file(embeddings, out, config))
    assert [(row.cluster, row.labels, row.landmarks) for row in summary] == [(1, 4, 40), (2, 3, 15), (3, 5, 5)]
    assert format_clusters(summary).startswith("12 labels in 3 clusters and 4 sub-clusters\n")
    rows = tables.read_table(out, tables.CLUSTERS).to_pylist()
    assert [row["cluster"] for row in rows] == [1] * 4 + [2] * 3 + [3] * 5
    assert {row["suggested_group"] for row in rows} == {None}
    assert rows[0]["cluster_name"] == summary[0].name
    assert cluster_file(embeddings, out, ClusterConfig(n_clusters=3, n_subclusters=4, seed=1)) is not None


def test_photographs_of_all_subclusters_come_first(write_embeddings: Callable[..., Path], tmp_path: Path) -> None:
    class Source:
        """One photograph for each of the first labels."""

        def __init__(self, n: int) -> None:
            self.digests, self.n, self.asked = {"photographs.0": str(n)}, n, [""]

        def of_labels(self, label_ids: Sequence[str]) -> dict[str, list[MapPhotograph]]:
            self.asked = list(label_ids)
            return {label_id: [MapPhotograph(label_id, "data:,x")] for label_id in label_ids[: self.n]}

    embeddings = write_embeddings(blobs([5, 4, 3]), [1] * 5 + [10] * 4 + [5] * 3)
    out, config = tmp_path / "clusters.parquet", ClusterConfig(n_clusters=3, n_subclusters=4)
    few = Source(4)
    cluster_file(embeddings, out, config, photographs=few)
    assert out.with_suffix(".html").read_text().count('"data:,x"') == 4
    rows = {row["label_id"]: row for row in tables.read_table(out, tables.CLUSTERS).to_pylist()}
    assert sorted(few.asked) == sorted(rows)
    first = [(rows[label_id]["cluster"], rows[label_id]["subcluster"]) for label_id in few.asked[:4]]
    assert sorted(first) == sorted({(row["cluster"], row["subcluster"]) for row in rows.values()})
    assert cluster_file(embeddings, out, config, photographs=few) is None
    assert cluster_file(embeddings, out, config, photographs=Source(2)) is not None
    assert cluster_file(embeddings, out, config) is not None, "without photographs"


def test_too_few_labels_are_reported(
    write_embeddings: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    out = tmp_path / "clusters.parquet"
    rng = np.random.default_rng(0)
    config = ClusterConfig(n_clusters=12, n_subclusters=78)
    summary = not_none(cluster_file(write_embeddings(rng.normal(size=(12, 8)), [1] * 12), out, config))
    assert len(summary) == 12
    assert "12 different labels make 12 sub-clusters at most, not 78" in caplog.text
    out.unlink()
    eleven = np.concatenate([rng.normal(size=(10, 8)), np.ones((2, 8))])
    with pytest.raises(InputError, match=r"label_embeddings\.parquet: 11 different labels.*at least 12"):
        cluster_file(write_embeddings(eleven, [1] * 12), out, config)
    assert not out.exists()


def test_short_lists_have_fewer_clusters_unless_numbers_are_chosen(
    write_embeddings: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    embeddings = write_embeddings(np.random.default_rng(0).normal(size=(33, 8)), [1] * 33)
    summary = not_none(cluster_file(embeddings, tmp_path / "clusters.parquet"))
    assert (len(summary), sum(row.subclusters for row in summary)) == (8, 16)
    assert not caplog.text


def test_sweep_matches_definitions() -> None:
    vectors = blobs([6, 5, 4])
    three = sweep(vectors, [2, 3, 4])[1]
    groups = np.repeat([0, 1, 2], [6, 5, 4])
    inertia = sum(np.sum((vectors[groups == g] - vectors[groups == g].mean(axis=0)) ** 2) for g in range(3))
    distances = 1 - vectors @ vectors.T
    silhouettes = []
    for row, group in enumerate(groups):
        own = distances[row, (groups == group) & (np.arange(15) != row)].mean()
        other = min(distances[row, groups == g].mean() for g in range(3) if g != group)
        silhouettes.append((other - own) / max(own, other))
    assert three.n_clusters == 3
    assert three.inertia == pytest.approx(inertia)
    assert three.silhouette == pytest.approx(np.mean(silhouettes))


def test_sweep_draws_but_writes_no_clusters(write_embeddings: Callable[..., Path], tmp_path: Path) -> None:
    embeddings = write_embeddings(blobs([6, 5, 4]), [1] * 15)
    picture = tmp_path / "clusters.sweep.png"
    lines = format_sweep(sweep_file(embeddings, picture, parse_sweep("2:5"))).splitlines()
    assert [line.split()[0] for line in lines] == ["k", "2", "3", "4", "5"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("*.parquet")) == [embeddings]
    with pytest.raises(InputError, match=r"15 different labels.*at least 16"):
        sweep_file(embeddings, picture, parse_sweep("2:15"))


@pytest.mark.parametrize("text", ["4", "40:4", "1:5", "4-40", "a:b", ""])
def test_invalid_sweep_range_is_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match="4:40"):
        parse_sweep(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, "`n_clusters` is 0"),
        ({"n_clusters": 12, "n_subclusters": 5}, "`n_subclusters` is 5, fewer than the 12 clusters"),
        ({"seed": -1}, "`seed` is -1"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ClusterConfig(**settings)


def test_the_default_number_of_subclusters() -> None:
    assert ClusterConfig().numbers(5_700) == (12, 78)
    assert ClusterConfig(n_clusters=100).numbers(5_700) == (100, 100)
    assert ClusterConfig().numbers(1) == (1, 1)

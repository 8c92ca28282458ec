import json
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from hgld.compute.parted import PartedTensor
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.settings import RerankMethod, RerankSettings
from hgld.search.faiss_index import _description, build_index, open_index
from hgld.search.gallery import Gallery
from hgld.search.searcher import Searcher
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld
from tests.search.conftest import PATHS
from tests.search.galleries import obvious_neighbours, toy_gallery

faiss = pytest.importorskip("faiss")


def test_flat_index_finds_what_the_obvious_search_finds(tmp_path: Path) -> None:
    gallery = toy_gallery(40, 5)
    record = build_index(gallery, tmp_path / "x.faiss", "flat")
    assert (record.recall, record.images, record.dim, record.queries) == (1.0, 40, 5, 40)
    queries = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32) * 7
    scores, positions = open_index(tmp_path / "x.faiss", gallery).search(queries, 50)
    expected = obvious_neighbours(queries, gallery.vectors.numpy(), 50)
    assert positions[:, :40].tolist() == [[position for position, _ in row] for row in expected]
    np.testing.assert_allclose(scores[:, :40], [[score for _, score in row] for row in expected], atol=1e-5)
    assert (positions[:, 40:] == -1).all(), "more were asked for than there are"
    assert np.isnan(scores[:, 40:]).all()
    exact, indexed = Searcher(gallery), Searcher(gallery, index=open_index(tmp_path / "x.faiss", gallery))
    for k in (3, 50):
        one, other = exact.search(queries, k), indexed.search(queries, k)
        assert one.top_k.positions.tolist() == other.top_k.positions.tolist()
        np.testing.assert_allclose(one.shares, other.shares, atol=1e-5)


def test_equal_images_of_an_index_are_in_the_order_of_the_gallery(tmp_path: Path) -> None:
    gallery = Gallery.from_arrays(np.ones((9, 3)), [str(row) for row in range(9)])
    record = build_index(gallery, tmp_path / "x.faiss", "flat")
    assert record.recall > 0.5
    assert open_index(tmp_path / "x.faiss", gallery).search(np.ones((1, 3), np.float32), 9)[1].tolist() == [
        list(range(9))
    ]


@pytest.mark.parametrize("kind", ["ivf", "hnsw", "IVF8,PQ4x4"])
def test_recall_is_that_of_the_written_index(tmp_path: Path, kind: str) -> None:
    gallery = toy_gallery(1000, 16)
    record = build_index(gallery, tmp_path / "x.faiss", kind, queries=1000)
    index = open_index(tmp_path / "x.faiss", gallery)
    assert index.record == record
    found = index.search(gallery.vectors.numpy(), 11)[1].tolist()
    wanted = obvious_neighbours(gallery.vectors.numpy()[:60], gallery.vectors.numpy(), 11)
    hits = [
        len({position for position, _ in wanted[row] if position != row}
            & set([position for position in found[row] if position != row][:10]))
        for row in range(60)
    ]  # fmt: skip
    assert sum(hits) / 600 == pytest.approx(record.recall, abs=0.12)
    assert 0.2 < record.recall <= 1
    assert (tmp_path / "x.faiss.ids.txt").read_text().splitlines() == gallery.ids.tolist()
    assert faiss.read_index(str(tmp_path / "x.faiss")).ntotal == 1000


def test_lossy_indexes_of_parts_have_the_scores_of_the_exact_search(tmp_path: Path) -> None:
    """Merged by score and then by position, they find what one index of all vectors does."""
    whole = toy_gallery(900, 8)
    vectors = torch.cat([whole.vectors[:300], whole.vectors[:300], whole.vectors[300:]])  # each of 300 twice
    parts = [vectors[:290], vectors[290:310], vectors[310:]]
    (tmp_path / "index").mkdir()
    for number, (part, kind) in enumerate(zip(parts, ["IVF4,PQ4x4", "flat", "IVF4,SQ8"], strict=True)):
        build_index(
            Gallery.from_arrays(part, [*map(str, range(len(part)))]), tmp_path / f"index/{number}.faiss", kind
        )
    gallery = Gallery.from_arrays(PartedTensor(parts), [f"image {row}" for row in range(1200)])
    index = open_index(tmp_path / "index", gallery)
    assert (index.record.images, index.record.queries) == (1200, 290 + 20 + 890)
    assert index.record.description == "IVF4,PQ4x4 and Flat and IVF4,SQ8"
    assert index.record.recall > 0.95
    queries = np.random.default_rng(3).normal(size=(40, 8)).astype(np.float32)
    (scores, found), exact = index.search(queries, 12), obvious_neighbours(queries, vectors.numpy(), 12)
    hits = [len({*row} & {position for position, _ in near}) for row, near in zip(found.tolist(), exact, strict=True)]
    assert sum(hits) / 480 > 0.95
    for row, own in enumerate(found.tolist()):
        cosine_of = dict(obvious_neighbours(queries[row : row + 1], vectors.numpy(), 1200)[0])
        np.testing.assert_allclose(scores[row], [cosine_of[position] for position in own], atol=1e-6)
        twins = [position for position in own if position < 300 and position + 300 in own]
        assert all(own.index(position) + 1 == own.index(position + 300) for position in twins), (
            "ties in gallery order"
        )
    (tmp_path / "index" / "2.faiss").unlink()
    with pytest.raises(ConfigurationError, match="the index of other embeddings, 310 of 1,200; write one from each"):
        open_index(tmp_path / "index", gallery)


def test_indexes_of_parts_are_those_of_files_of_the_parts(
    tmp_path: Path, parts_run_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = toy_gallery(900, 8)
    write_embeddings(tmp_path / "all.npy", gallery.vectors, gallery.ids)
    command = ("export-embeddings", tmp_path / "all.npy", "-o", tmp_path / "parts", "--queries", 50)
    assert "parts/03-of-11.faiss" in run_hgld(*command, "--part", "3/11").stdout
    engine = ("--executor", "local", "--parts", 11)
    built = run_hgld(*command, *engine).stdout
    assert built.startswith("IVF2,Flat: 900 images of 8 dimensions")
    assert parts_run_here == [f"part {number}/11" for number in (1, 2, *range(4, 12))]
    for number, rows in enumerate(np.split(np.arange(900), [900 * n // 11 for n in range(1, 11)]), start=1):
        own = Gallery.from_arrays(gallery.vectors[rows], gallery.ids[rows].tolist())
        build_index(own, tmp_path / "own.faiss", queries=50)
        for suffix in ("", ".ids.txt"):
            part = tmp_path / "parts" / f"{number:02}-of-11.faiss{suffix}"
            assert part.read_bytes() == (tmp_path / f"own.faiss{suffix}").read_bytes()
    for further, n_run in (((), 0), (("--seed", 1), 11), (("--index", "flat"), 11)):
        parts_run_here.clear()
        run_hgld(*command, *further, *engine)
        assert len(parts_run_here) == n_run
    (tmp_path / "parts" / "03-of-11.faiss.json").write_text("{")
    parts_run_here.clear()
    run_hgld(*command, "--index", "flat", *engine)
    assert parts_run_here == ["part 3/11"]
    refused = run_hgld(*command, *engine[:-1], 2, code=1).stderr
    assert "parts has files of 11 parts; choose this number as --parts, or remove them" in refused
    monkeypatch.chdir(tmp_path / "parts")
    assert run_hgld(*command[:3], ".", *engine, "--queries", 50).stdout.endswith("\n.\n")
    assert parts_run_here[:2] == ["part 3/11", "part 1/11"]
    assert not [*tmp_path.rglob("*.logs")]
    queries = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
    scores, positions = open_index(tmp_path / "parts", gallery).search(queries, 20)
    build_index(gallery, tmp_path / "whole.faiss", "flat")
    whole_scores, whole_positions = open_index(tmp_path / "whole.faiss", gallery).search(queries, 20)
    assert positions.tolist() == whole_positions.tolist()
    np.testing.assert_array_equal(scores, whole_scores)
    refused = run_hgld(*command[:3], tmp_path / "x.faiss", *engine, code=1).stderr
    assert "parts are indexes in a folder; name one as --out" in refused
    refused = run_hgld(*command, code=1).stderr
    assert "name one as --out, or a .faiss or .parquet file without --parts" in refused
    assert "901 parts of 900 images; choose fewer --parts" in run_hgld(*command, "--part", "1/901", code=1).stderr


def test_more_is_searched_for_a_higher_recall(tmp_path: Path) -> None:
    gallery = toy_gallery(3000, 16)
    low, high = (build_index(gallery, tmp_path / "x.faiss", "IVF70,Flat", recall=recall) for recall in (0, 1.0))
    assert low.effort == 1
    assert high.effort > 1
    assert low.recall < high.recall
    assert high.recall > 0.99
    assert faiss.read_index(str(tmp_path / "x.faiss")).nprobe == 16 * high.effort


def test_kinds_suit_the_size_of_the_gallery() -> None:
    assert _description("ivf", 1000, 16) == "IVF25,Flat"
    assert _description("ivf-pq", 10_000_000, 64) == "IVF3360,PQ32"
    assert [_description("ivf-pq", 40, dim) for dim in (2048, 100, 7)] == ["IVF1,PQ64", "IVF1,PQ50", "IVF1,PQ1"]


@pytest.mark.parametrize("method", get_args(RerankMethod)[:-1])
def test_reranking_with_a_flat_index_is_that_of_the_exact_search(tmp_path: Path, method: RerankMethod) -> None:
    gallery = toy_gallery(40, 6)
    build_index(gallery, tmp_path / "x.faiss", "flat")
    index = open_index(tmp_path / "x.faiss", gallery)
    config = RankingConfig(reranking=RerankSettings(method, rerank_neighbours=4, rerank_candidates=12))
    queries = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    exact = Searcher(gallery, config=config)
    assert not np.array_equal(
        exact.search(queries, 12).top_k.positions, Searcher(gallery).search(queries, 12).top_k.positions
    )
    if method == "dba":
        with pytest.raises(ConfigurationError, match="`rerank` dba changes the gallery"):
            Searcher(gallery, index=index, config=config)
        return
    for k in (3, 12, 50):
        found = [
            searcher.search(queries, k).top_k for searcher in (exact, Searcher(gallery, index=index, config=config))
        ]
        np.testing.assert_array_equal(found[0].positions, found[1].positions)
        np.testing.assert_allclose(found[0].scores, found[1].scores, atol=1e-6)


def test_index_of_another_gallery_is_refused(tmp_path: Path) -> None:
    build_index(toy_gallery(), tmp_path / "x.faiss", "flat")
    other = Gallery.from_arrays(np.ones((12, 4)), [f"other {row}" for row in range(12)])
    for gallery in (toy_gallery(11), toy_gallery(dim=5), other):
        with pytest.raises(ConfigurationError, match=r"x\.faiss: the index of other embeddings, 12 of 4 dimensions"):
            open_index(tmp_path / "x.faiss", gallery)
    (tmp_path / "x.faiss").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"no whole index with its record x\.faiss\.json"):
        open_index(tmp_path / "x.faiss", toy_gallery())
    with pytest.raises(InputError, match="no whole index"):
        open_index(tmp_path / "none.faiss", toy_gallery())


def test_what_cannot_be_built_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.ones((12, 4))
    vectors[3] = np.nan
    with pytest.raises(InputError, match="NaN"):
        build_index(Gallery.from_arrays(vectors, "abcdefghijkl"), tmp_path / "x.faiss")
    with pytest.raises(ConfigurationError, match='cannot make an index "no such"'):
        build_index(toy_gallery(), tmp_path / "x.faiss", "no such")
    with pytest.raises(ConfigurationError, match='cannot make an index "IVF100,Flat" of 12 images'):
        build_index(toy_gallery(), tmp_path / "x.faiss", "IVF100,Flat")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[faiss\]' in a clone"):
        build_index(toy_gallery(), tmp_path / "x.faiss")
    assert list(tmp_path.iterdir()) == []


def test_search_with_an_index_says_its_recall(gallery_folder: Path, tmp_path: Path) -> None:
    embeddings = str(gallery_folder / "all.npy")
    index = str(tmp_path / "x.faiss")
    built = run_hgld("export-embeddings", embeddings, "-o", index, "--index", "flat")
    assert built.stdout.startswith("Flat: 9 images of 96 dimensions\nrecall@10 1.000 against exact search, ")
    query = str(gallery_folder / "pictures" / PATHS[3])
    result = run_hgld("search", query, "--embeddings", embeddings, "--index", index, "--json")
    assert "recall@10 1.000 against exact search" in result.stderr
    assert json.loads(result.stdout)["queries"][0]["results"][0]["id"] == PATHS[3]

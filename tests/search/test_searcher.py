"""Galleries, and searches in them beside obvious ones."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.cli.search import format_answers
from hgld.datasets.manifest import Manifest, write_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import LabelSets
from hgld.hierarchy.settings import TEMPERATURE
from hgld.io.text_array import TextArray
from hgld.search.answer_files import answers_table, answers_to_json
from hgld.search.gallery import Gallery, read_gallery
from hgld.search.searcher import Searcher
from hgld.tables import Provenance
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_table
from tests.search.galleries import LEVELS, gallery_of, obvious_neighbours, obvious_vote, toy_gallery


@given(n=st.integers(1, 15), k=st.integers(1, 20), seed=st.integers(0, 50))
def test_search_finds_what_the_obvious_search_finds(n: int, k: int, seed: int) -> None:
    """Vectors of few small integers: many are equal or parallel, and k may exceed the gallery."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(1, 3, (n, 3)).astype(np.float32)
    queries = rng.integers(1, 3, (4, 3)).astype(np.float32)
    names = [[f"p{row}", f"g{row // 2}"] for row in rng.integers(0, 4, n).tolist()]
    gallery = gallery_of(vectors, [str(row) for row in range(n)], names, ["product", "group"])
    answers = Searcher(gallery).search(queries, k)
    expected = obvious_neighbours(queries, vectors, k)
    for row in range(4):
        results = list(answers.results(row))
        assert len(results) == min(k, n)
        assert [score for _, score, _ in results] == pytest.approx([score for _, score in expected[row]], abs=1e-6)
        votes = obvious_vote([(score, names[position]) for position, score, _ in results], TEMPERATURE)
        answer = answers.answer(row)
        assert [level.share for level in answer] == pytest.approx([share for _, share in votes], abs=1e-5)
        for position, _, level in results:
            shared = [name == level.name for name, level in zip(names[position], answer, strict=True)]
            assert level == sum(shared)


def test_equal_images_are_in_the_order_of_the_gallery() -> None:
    gallery = gallery_of(np.ones((5, 2)), list("abcde"))
    assert [position for position, *_ in Searcher(gallery).search(np.ones((1, 2)), 3).results(0)] == [0, 1, 2]


def test_image_of_the_gallery_finds_itself_first() -> None:
    gallery = toy_gallery()
    answers = Searcher(gallery).search(gallery.vectors, 3, ids=gallery.ids.tolist())
    assert [next(answers.results(row))[0] for row in range(len(gallery))] == list(range(len(gallery)))
    assert answers.query_ids[7] == "image 7"


def test_gallery_without_labels_has_no_answer() -> None:
    answers = Searcher(gallery_of(np.eye(3), "abc")).search(np.eye(3), 2)
    assert answers.answer(0) == ()
    assert [level for _, _, level in answers.results(0)] == [0, 0]


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (np.ones((1, 3)), 1, r"the queries have the shape \(1, 3\); expected \(n, 4\), the dimension of the gallery"),
        (np.ones(4), 1, r"the queries have the shape \(4,\)"),
        (np.full((1, 4), np.nan), 1, "NaN, infinite or huge"),
        (np.zeros((1, 4)), 1, "only zeros"),
        (np.ones((1, 4)), 0, "`k` is 0; expected at least 1"),
    ],
)
def test_bad_queries_are_refused(queries: np.ndarray, k: int, message: str) -> None:
    with pytest.raises((InputError, ConfigurationError), match=message):
        Searcher(toy_gallery()).search(queries, k)


def test_temperatures_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="`temperature` is 0"):
        Searcher(toy_gallery(), temperature=0)


def test_results_share_nested_levels_with_the_answer() -> None:
    answers = Searcher(toy_gallery(60, 3)).search(np.eye(3), 20)
    for row in range(3):
        answer = [level.name for level in answers.answer(row)]
        assert [level.level for level in answers.answer(row)] == list(LEVELS)
        for position, _, level in answers.results(row):
            names = answers.gallery.names_of(position)
            assert list(names[len(LEVELS) - level :]) == answer[len(LEVELS) - level :]
            assert level == len(LEVELS) or names[len(LEVELS) - level - 1] != answer[len(LEVELS) - level - 1]


#: Sun and star are of one category, the fish of another; image d is unlabelled.
SUN, STAR, FISH = [0, 0], [1, 0], [2, 1]
GALLERY = Gallery(
    torch.eye(4),
    TextArray("abcd"),
    LabelSets.from_rows(np.array([SUN, FISH, STAR, FISH]), np.array([2, 1, 1, 0])),
    ("section", "category"),
    (("sun", "star", "fish"), ("sky", "sea")),
)


def test_images_vote_for_each_of_their_labels() -> None:
    answers = Searcher(GALLERY, temperature=0.1).search(np.array([[0.8, 0.1, 0.5, 0.3]]), k=4)
    weights = np.exp(np.array([0.8, 0.8, 0.5, 0.1]) / np.linalg.norm([0.8, 0.1, 0.5, 0.3]) / 0.1)  # a, a, c, b
    weights /= weights.sum()
    fish = weights[1] + weights[2]
    assert [(answer.name, round(answer.share, 6)) for answer in answers.answer(0)] == [
        ("fish", round(fish, 6)),
        ("sea", round(fish, 6)),
    ]
    shared = {str(GALLERY.ids[position]): level for position, _, level in answers.results(0)}
    assert shared == {"a": 2, "b": 0, "c": 2, "d": 0}
    assert "sun; fish" in format_answers(answers)
    assert answers_table(answers)["section"].to_pylist() == ["sun; fish", "fish", None, "star"]
    assert json.loads(answers_to_json(answers))["queries"][0]["results"][0]["labels"] == ["sun; fish", "sky; sea"]


def test_galleries_of_manifests_with_lists_are_read(tmp_path: Path) -> None:
    names = {"section": [["sun", "fish"], ["star"]], "category": [["sky", "sea"], ["sky"]]}
    table = manifest_table(["a", "b"], {})
    for level, values in names.items():
        table = table.append_column(level, pa.array(values, pa.list_(pa.string())))
    write_manifest(tmp_path / "m.parquet", Manifest.from_arrow(table), Provenance("test"))
    np.save(tmp_path / "e.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "e.ids.txt").write_text("b\na\n")
    gallery = read_gallery(tmp_path / "e.npy", tmp_path / "m.parquet")
    assert [gallery.names_of(position) for position in (0, 1)] == [("star", "sky"), ("sun; fish", "sky; sea")]


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """The same embeddings as a file and as a folder, with labels beside them."""
    rng = np.random.default_rng(0)
    vectors, ids = torch.from_numpy(rng.normal(size=(90, 6)).astype(np.float32)), [f"i{n}" for n in range(90)]
    write_embeddings(tmp_path / "index.npy", vectors, ids)
    (tmp_path / "index").mkdir()
    for n, part in enumerate([slice(0, 40), slice(40, 41), slice(41, 90)]):
        write_embeddings(tmp_path / "index" / f"{n}.npy", vectors[part], ids[part])
    rows = [f"{image},{n % 9},{n % 3}" for n, image in enumerate(ids)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,landmark,group", *rows]))
    return tmp_path / "index.npy", tmp_path / "index"


def test_parts_are_evaluated_and_searched_as_one_file(both: tuple[Path, Path], tmp_path: Path) -> None:
    labels, found = ["--manifest", tmp_path / "labels.csv"], []
    for embeddings in both:
        out = tmp_path / "out" / embeddings.name
        run_hgld("evaluate", "--embeddings", embeddings, *labels, "--per-query", out.with_suffix(".queries.parquet"))
        gallery = read_gallery(embeddings, tmp_path / "labels.csv")
        found.append([*Searcher(gallery).search(np.ones((2, 6), np.float32), 5).results(1)])
    assert found[0] == found[1]

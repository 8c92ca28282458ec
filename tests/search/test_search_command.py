"""``hgld search`` on pictures, an embedding model with random weights, and everything that can be wrong with them."""

import csv
import json
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hgld.hierarchy.label_sets import single_labels
from hgld.search.answer_files import write_answer_page
from hgld.search.query_model import load_query_model
from hgld.search.searcher import Searcher
from hgld.tables import read_provenance
from tests.commands import run_hgld
from tests.search.conftest import PATHS
from tests.search.galleries import toy_gallery

run = partial(run_hgld, "search")


def test_pictures_of_the_gallery_find_themselves(gallery_folder: Path, tmp_path: Path) -> None:
    """Model, mean, labels and photographs are those that embed-images recorded."""
    result = run(
        gallery_folder / "pictures", "--embeddings", gallery_folder / "all.npy", "--top", 3,
        "--out", tmp_path / "answers.csv", "--page", tmp_path / "page.html",
    )  # fmt: skip
    first = r"a/b/0.jpg: a [01].\d\d, b [01].\d\d\n +score +id +product +kind\n +1 +1.000 +a/b/0.jpg +b +a\n"
    assert re.search(first, result.stdout)
    with (tmp_path / "answers.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows if row["rank"] == "1"] == PATHS
    assert all(float(row["score"]) == pytest.approx(1, abs=1e-5) for row in rows if row["rank"] == "1")
    assert len(rows) == 27
    html = (tmp_path / "page.html").read_text()
    assert "9 queries in 9 photographs." in html
    assert "not available" not in html
    assert html.count('src="data:image/jpeg') == 9 * 4


def test_answers_as_parquet_and_json(gallery_folder: Path, tmp_path: Path) -> None:
    query = gallery_folder / "pictures" / PATHS[0]
    result = run(
        query, "--embeddings", gallery_folder / "all.npy", "--top", 20, "--json", "-o", tmp_path / "a.parquet"
    )
    answer = json.loads(result.stdout)
    assert answer["levels"] == ["product", "kind"]
    (entry,) = answer["queries"]
    assert entry["id"] == "0.jpg"
    assert [result["rank"] for result in entry["results"]] == list(range(1, 10)), "more were asked for than there are"
    first = entry["results"][0]
    assert (first["id"], first["labels"]) == (PATHS[0], ["b", "a"])
    assert first["score"] == pytest.approx(1, abs=1e-5)
    assert [level["level"] for level in entry["answer"]] == ["product", "kind"]
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == [
        "query", "rank", "id", "score", "level",
        "product", "answer_product", "share_product", "kind", "answer_kind", "share_kind",
    ]  # fmt: skip
    assert table["id"].to_pylist() == [result["id"] for result in entry["results"]]
    assert read_provenance(tmp_path / "a.parquet").parameters == {"top": 20, "split": None, "distance": "cosine"}
    written = tmp_path / "a.json"
    for _ in range(2):
        run(query, "--embeddings", gallery_folder / "all.npy", "--top", 20, "-o", written)
        assert json.loads(written.read_text()) == answer
    written.write_text('{"levels": 3}')
    refused = run_hgld("search", query, "--embeddings", gallery_folder / "all.npy", "-o", written, code=1).stderr
    assert "a.json: exists, and hgld did not write it" in refused
    assert written.read_text() == '{"levels": 3}'


def test_reranking(gallery_folder: Path, tmp_path: Path) -> None:
    """A query expanded by its neighbours is no longer its own copy."""
    query = gallery_folder / "pictures" / PATHS[0]
    options = ("--embeddings", gallery_folder / "all.npy", "--json", "-o", tmp_path / "a.parquet")
    result = run(query, *options, "--rerank", "aqe", "--rerank-neighbours", 3)
    (entry,) = json.loads(result.stdout)["queries"]
    scores = [found["score"] for found in entry["results"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] < 0.999
    assert read_provenance(tmp_path / "a.parquet").parameters["rerank"] == "aqe, 3 neighbours"


def test_gallery_without_labels_and_photographs(gallery_folder: Path, tmp_path: Path) -> None:
    """Embeddings of another program, with the model named."""
    np.save(tmp_path / "other.npy", np.load(gallery_folder / "all.npy"))
    query = gallery_folder / "pictures" / PATHS[0]
    result = run(
        query, "--embeddings", tmp_path / "other.npy", "--model", "test_resnet", "--pretrained", "none",
        "--page", tmp_path / "page.html", "--top", 2,
    )  # fmt: skip
    assert result.stdout.startswith("0.jpg: no labels\n")
    html = (tmp_path / "page.html").read_text()
    assert "The photographs have no labels." in html
    assert "2 of 3 photographs are not available." in html
    assert "level 0" not in html


def test_unlabelled_photographs_of_a_page_have_no_level(tmp_path: Path) -> None:
    gallery = toy_gallery(4)
    single_labels(gallery.labels)[2] = -1
    answers = Searcher(gallery).search(gallery.vectors[2:3], 4)
    write_answer_page(answers, tmp_path / "page.html", lambda _: None, lambda _: None)
    html = (tmp_path / "page.html").read_text()
    first, *others = re.findall(r'<li(?: class="level-\d")?>\n<div class="photo">.*?</li>', html, re.DOTALL)
    assert "<span>no label</span>" in first
    assert 'aria-label="rank 1, no label: image 2, no photograph"' in first
    assert "level" not in first
    assert len(others) == 3
    assert all("<span>level " in other for other in others)


def test_wrong_inputs_end_in_one_line(gallery_folder: Path, tmp_path: Path) -> None:
    embeddings, query = gallery_folder / "all.npy", gallery_folder / "pictures" / PATHS[0]
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    moved = tmp_path / "moved.npy"
    shutil.copy(embeddings, moved)
    shutil.copy(gallery_folder / "all.ids.txt", tmp_path / "moved.ids.txt")
    record = json.loads((gallery_folder / "all.made.json").read_text())
    record["sources"]["model"]["model"] = str(tmp_path / "gone.pt")
    (tmp_path / "moved.made.json").write_text(json.dumps(record))
    unknown = tmp_path / "unknown.npy"
    shutil.copy(embeddings, unknown)
    expected = {
        (): "expected a QUERY, an image or a folder, or --text, or --serve; found nothing",
        (query, "--serve"): "found a QUERY and --serve",
        (tmp_path / "none.jpg",): "none.jpg: no such file",
        (text,): f"{text}: none of the 1 images can be read",
        (query, "--out", tmp_path / "answers.txt"): 'answers.txt: the suffix is ".txt"; choose .csv or ',
        (query, "--manifest", tmp_path / "none.csv"): "none.csv: no such file; expected the labels of images",
        (query, "--model", "test_vit", "--pretrained", "none"): "--model has 64 dimensions, but",
        (query, "--model", "no_such_model"): "no_such_model",
        (query, "--embeddings", moved): f"made by {tmp_path / 'gone.pt'}, which cannot be loaded: ",
        (query, "--embeddings", unknown): "not recorded beside it which model made these embeddings; give --model",
        (query, "--embeddings", tmp_path / "no.npy"): "no.npy: no such file; expected the embeddings of images",
    }
    for arguments, message in expected.items():
        given = () if "--embeddings" in arguments else ("--embeddings", embeddings)
        result = run(*arguments, *given, code=1)
        assert message in result.stderr, arguments
        assert result.stdout == ""
    assert run(query, "--top", 0, "--embeddings", embeddings, code=2).stdout == ""


def test_model_with_other_weights_is_refused(gallery_folder: Path, tmp_path: Path) -> None:
    record = json.loads((gallery_folder / "all.made.json").read_text())
    record["provenance"]["inputs"]["weights"] = "0" * 64
    for name in ("all.npy", "all.ids.txt"):
        shutil.copy(gallery_folder / name, tmp_path / name)
    (tmp_path / "all.made.json").write_text(json.dumps(record))
    result = run(gallery_folder / "pictures" / PATHS[0], "--embeddings", tmp_path / "all.npy", code=1)
    assert "has other weights than the model that made" in result.stderr


def test_queries_are_embedded_as_the_gallery_was(gallery_folder: Path) -> None:
    model = load_query_model(gallery_folder / "all.npy", 96)
    assert model.embedder.image_settings.size == 32
    vectors = model.embed([gallery_folder / "pictures" / path for path in PATHS])
    np.testing.assert_allclose(vectors.numpy(), np.load(gallery_folder / "all.npy"), atol=1e-5)

"""Search in galleries of images with several labels: votes, levels, names and export."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hgld.cli.search import format_answers
from hgld.datasets.manifest import Manifest, write_manifest
from hgld.hierarchy import LabelSets
from hgld.search import Gallery, Searcher, read_gallery
from hgld.search.gallery import export_gallery
from hgld.search.searcher import answers_table, answers_to_json
from hgld.tables import Provenance
from tests.datasets.pictures import manifest_table

#: Sun and star are of one category, the fish of another; image d is unlabelled.
SUN, STAR, FISH = [0, 0], [1, 0], [2, 1]
GALLERY = Gallery(
    torch.eye(4),
    np.array(list("abcd")),
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


def test_galleries_of_manifests_with_lists_are_read_and_exported(tmp_path: Path) -> None:
    names = {"section": [["sun", "fish"], ["star"]], "category": [["sky", "sea"], ["sky"]]}
    table = manifest_table(["a", "b"], {})
    for level, values in names.items():
        table = table.append_column(level, pa.array(values, pa.list_(pa.string())))
    write_manifest(tmp_path / "m.parquet", Manifest.from_arrow(table), Provenance("test"))
    np.save(tmp_path / "e.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "e.ids.txt").write_text("b\na\n")
    gallery = read_gallery(tmp_path / "e.npy", tmp_path / "m.parquet")
    assert [gallery.names_of(position) for position in (0, 1)] == [("star", "sky"), ("sun; fish", "sky; sea")]
    export_gallery(gallery, tmp_path / "out.parquet", Provenance("test"))
    exported = pq.read_table(tmp_path / "out.parquet")
    assert exported["section"].to_pylist() == [["star"], ["sun", "fish"]]
    assert exported["category"].to_pylist() == [["sky"], ["sky", "sea"]]

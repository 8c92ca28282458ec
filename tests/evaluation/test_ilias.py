"""ILIAS in its published layout, from lists of ids to mAP@1k, against the published steps in plain loops."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hgld.datasets.manifest import read_manifest
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld
from tests.hdf5_features import write_features

OBJECTS = ("bold_bimp_000", "bold_flep_001", "zippy_zootlenibble_999")
IMAGE_QUERIES = [f"{name}/query/Q{name[-3:]}_{n:02}.jpg" for name in OBJECTS for n in range(1 + (name == OBJECTS[1]))]
TEXT_QUERIES = [f"{name}/query/T{name[-3:]}.txt" for name in OBJECTS]
POSITIVES = [
    f"{name}/pos/P{name[-3:]}_{n:02}.jpg" for name, k in zip(OBJECTS, (1, 5, 1100), strict=True) for n in range(k)
]
TAXONOMY = {
    "product": {"food": {"cake": [OBJECTS[0]], "other": [OBJECTS[1]]}},
    "art": {"textile": {"other": [OBJECTS[2]]}},
}


def write_ilias(root: Path) -> Path:
    (root / "image_ids").mkdir(parents=True)
    lists = {
        "image_query_ids": [f"{image},0.5,12" for image in IMAGE_QUERIES],
        "text_query_ids": TEXT_QUERIES,
        "positive_ids": [f"{image},{n / 1106},{n}" for n, image in enumerate(POSITIVES)],
    }
    for name, lines in lists.items():
        (root / "image_ids" / f"{name}.txt").write_text("\n".join([*lines, ""]))
    (root / "taxonomy.json").write_text(json.dumps(TAXONOMY))
    return root


@pytest.fixture
def vectors(tmp_path: Path) -> dict[str, NDArray[np.float32]]:
    """Embeddings of all kinds of images, those of the tar files without suffixes, and distractors in two parts."""
    rng = np.random.default_rng(0)
    sizes = {"images": len(IMAGE_QUERIES), "texts": len(TEXT_QUERIES), "positives": len(POSITIVES), "others": 1500}
    drawn = {name: rng.normal(size=(size, 6)).astype(np.float32) for name, size in sizes.items()}
    ids = {"images": [image[:-4] for image in IMAGE_QUERIES], "texts": TEXT_QUERIES, "positives": POSITIVES[::-1]}
    ids["positives"] = [f"ilias_core/{image}" for image in ids["positives"]]
    for name, own in ids.items():
        write_embeddings(tmp_path / f"{name}.npy", torch.from_numpy(drawn[name]), own)
    (tmp_path / "others").mkdir()
    for n, part in enumerate((slice(0, 700), slice(700, 1500))):
        np.save(tmp_path / "others" / f"{n}.npy", drawn["others"][part])
    return drawn | {"positives": drawn["positives"][::-1]}


def run(*arguments: object, code: int = 0) -> str:
    result = run_hgld(*arguments, code=code)
    return result.stdout if code == 0 else result.stderr


def published(
    query: str, vector: NDArray[np.float32], database: list[tuple[str, NDArray[np.float32]]]
) -> list[float]:
    """mAP@1k and oracle of a query, down the list of the first thousand, of no more positives."""
    cosines = {name: float(vector @ item / np.linalg.norm(vector) / np.linalg.norm(item)) for name, item in database}
    relevant = {image for image in POSITIVES if image.startswith(query.split("/")[0] + "/")}
    hits, total = 0, 0.0
    for rank, name in enumerate(sorted(cosines, key=lambda name: -cosines[name])[:1000], 1):
        if name in relevant:
            hits += 1
            total += hits / rank
    return [total / min(1000, len(relevant)), hits / min(1000, len(relevant))]


def test_protocol_agrees_with_the_published_steps(tmp_path: Path, vectors: dict[str, NDArray[np.float32]]) -> None:
    root = write_ilias(tmp_path / "ilias")
    files = ["--gallery-embeddings", tmp_path / "positives.npy", "--ground-truth", root / "image_ids"]
    files += ["--protocol", "ilias", "--json", "--no-intervals"]
    others = [(str(row), item) for row, item in enumerate(vectors["others"])]
    for kind, ids in (("images", IMAGE_QUERIES), ("texts", TEXT_QUERIES)):
        for distractors in ([], others):
            database = [*zip(POSITIVES, vectors["positives"], strict=True), *distractors]
            values = [published(query, vector, database) for query, vector in zip(ids, vectors[kind], strict=True)]
            more = ["--distractor-embeddings", tmp_path / "others"] if distractors else []
            queries = tmp_path / f"{kind}.npy"
            (result,) = json.loads(run("evaluate", "--query-embeddings", queries, *files, *more))["results"]
            assert result["name"] == f"{kind[:-1]} queries"
            assert result["means"] == pytest.approx(
                dict(zip(("mAP@1000", "TR@1000"), np.mean(values, 0), strict=True))
            )
            assert not distractors or 0 < result["means"]["TR@1000"] < 1


def test_published_features_have_the_values_of_other_formats(
    tmp_path: Path, vectors: dict[str, NDArray[np.float32]]
) -> None:
    """The files of a model lie in one folder, of which the numbered ones alone are distractors."""
    root, folder = write_ilias(tmp_path / "ilias"), tmp_path / "features"
    folder.mkdir()
    half = {name: own.astype(np.float16) for name, own in vectors.items()}
    others = np.random.default_rng(1).normal(size=(12_000, 6)).astype(np.float16)
    write_features(folder / "features_image_queries.hdf5", half["images"], IMAGE_QUERIES)
    write_features(folder / "features_text_queries.hdf5", vectors["texts"], TEXT_QUERIES)
    write_features(folder / "features_positives.hdf5", half["positives"], POSITIVES)
    for number, part in enumerate(np.split(others, [7000])):
        ids = [f"yfcc100m_{number:04}.tar/{row:032x}" for row in range(len(part))]
        write_features(folder / f"features_distractors_{number:05}.hdf5", part, ids)
    write_embeddings(tmp_path / "images.npy", torch.from_numpy(half["images"]), IMAGE_QUERIES)
    write_embeddings(tmp_path / "positives.npy", torch.from_numpy(half["positives"].copy()), POSITIVES)
    np.save(tmp_path / "others.npy", others)

    def evaluate(queries: Path, positives: Path, distractors: Path) -> str:
        files = ["--query-embeddings", queries, "--gallery-embeddings", positives, "--ground-truth", root]
        options = ["--distractor-embeddings", distractors, "--protocol", "ilias", "--no-intervals", "--json"]
        return run("evaluate", *files, *options)

    for kind, file in (("images", "features_image_queries.hdf5"), ("texts", "features_text_queries.hdf5")):
        published = [folder / file, folder / "features_positives.hdf5", folder]
        expected = evaluate(tmp_path / f"{kind}.npy", tmp_path / "positives.npy", tmp_path / "others.npy")
        (result,) = json.loads(expected)["results"]
        assert 0 < result["means"]["mAP@1000"] < 1
        assert json.loads(evaluate(*published))["results"] == [result]


def test_manifest_and_hierarchical_metrics(tmp_path: Path, vectors: dict[str, NDArray[np.float32]]) -> None:
    root = write_ilias(tmp_path / "ilias")
    run("manifest", "ilias", root, "-o", tmp_path / "ilias.parquet")
    manifest = read_manifest(tmp_path / "ilias.parquet")
    assert manifest.ids.tolist() == [*IMAGE_QUERIES, *POSITIVES]
    assert manifest.paths[0] == f"ilias_core/{IMAGE_QUERIES[0]}"
    assert manifest.splits.tolist() == ["query"] * 4 + ["gallery"] * 1106
    labels = dict(zip(manifest.level_names, manifest.class_names, strict=True))
    assert labels["fine"] == ("cake", "other (food)", "other (textile)")
    assert labels["coarse"] == ("art", "product")
    write_embeddings(tmp_path / "q.npy", torch.from_numpy(vectors["images"]), IMAGE_QUERIES)
    write_embeddings(tmp_path / "g.npy", torch.from_numpy(vectors["positives"].copy()), POSITIVES)
    files = ["--query-embeddings", tmp_path / "q.npy", "--gallery-embeddings", tmp_path / "g.npy"]
    metrics = ["--metric", "mAP@1000", "--metric", "H-AP", "--json", "--no-intervals"]
    labelled = json.loads(run("evaluate", *files, "--labels", tmp_path / "ilias.parquet", *metrics))["results"][0]
    protocol = ["--protocol", "ilias", "--ground-truth", root]
    (official,) = json.loads(run("evaluate", *files, *protocol, *metrics[:2], *metrics[4:]))["results"]
    assert labelled["means"]["mAP@1000"] == pytest.approx(official["means"]["mAP@1000"])


def test_what_does_not_fit_is_refused(tmp_path: Path, vectors: dict[str, NDArray[np.float32]]) -> None:
    root = write_ilias(tmp_path / "ilias")
    files = ["evaluate", "--protocol", "ilias", "--query-embeddings", tmp_path / "images.npy", "--ground-truth", root]
    write_embeddings(tmp_path / "few.npy", torch.ones(2, 6), POSITIVES[:2])
    assert "1,104 of the 1,106 positives" in run(*files, "--gallery-embeddings", tmp_path / "few.npy", code=1)
    write_embeddings(tmp_path / "more.npy", torch.ones(1107, 6), [*POSITIVES, "yfcc/1"])
    message = run(*files, "--gallery-embeddings", tmp_path / "more.npy", code=1)
    assert "1 embeddings are of other images" in message
    assert "--distractor-embeddings" in message
    (root / "taxonomy.json").write_text('{"art": {}}')
    manifest = ("manifest", "ilias", root, "-o", tmp_path / "m.parquet")
    assert "lacks 3 of the objects" in run(*manifest, code=1).replace("\n", " ")
    (root / "image_ids" / "positive_ids.txt").write_text("P000_00.jpg\n")
    assert "line 1: P000_00.jpg; expected an id such as" in run(*manifest, code=1)

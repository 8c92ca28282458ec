"""``hgld reject``: from embeddings to detectors, thresholds and scores."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import Result

from hgld.rejection import DETECTORS, load_detector
from hgld.rejection.detection_metrics import detection_metrics
from hgld.rejection.risk_coverage import threshold_for_precision
from hgld.search.calibration import CalibrationImages, fit_thresholds
from hgld.tables import read_provenance
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld

DIM, N_CLASSES = 8, 6


def write(folder: Path, name: str, vectors: Any, classes: Any) -> None:
    """Write embeddings, their labels of two levels, and logits and deviations beside them."""
    ids = [f"{name}{row}" for row in range(len(vectors))]
    write_embeddings(folder / f"{name}.npy", torch.from_numpy(vectors.astype(np.float32)), ids)
    rng = np.random.default_rng(len(ids))
    for kind, values in (("logits", vectors[:, :N_CLASSES]), ("deviations", rng.gamma(2, size=(len(ids), 4)))):
        write_embeddings(folder / f"{name}.{kind}.npy", torch.from_numpy(values.astype(np.float32)), ids)
    with (folder / f"{name}.csv").open("w") as stream:
        stream.write("id,landmark,kind\n")
        stream.writelines(f"{i},l{c},k{c % 2}\n" for i, c in zip(ids, classes, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Embeddings of an index of six landmarks of two kinds, queries of these and of four others, and far images."""
    path, rng = tmp_path_factory.mktemp("reject"), np.random.default_rng(0)
    centres = rng.normal(size=(10, DIM)) + 3 * np.eye(10, DIM)
    for name, classes in (
        ("index", np.arange(90) % N_CLASSES),
        ("queries", np.arange(100) % 10),
        ("test", np.arange(60) % N_CLASSES),
    ):
        write(path, name, centres[classes] + 0.5 * rng.normal(size=(len(classes), DIM)), classes)
    distractors = centres[6:][np.arange(10) % 4]  # images of the index without a landmark
    write(path, "mixed", np.concatenate([np.load(path / "index.npy"), distractors]), np.arange(100))
    with (path / "mixed.csv").open("w") as stream:
        stream.write("id,landmark_id\n")
        stream.writelines(f"mixed{row},{row % N_CLASSES if row < 90 else -1}\n" for row in range(100))
    write(path, "far", rng.normal(size=(40, DIM)) - 3, np.zeros(40, int))
    return path


@pytest.fixture(scope="module")
def detector(folder: Path) -> Path:
    """A detector with thresholds."""
    fit(folder, "top1_cosine", folder / "detector", "--precision", 0.9)
    return folder / "detector"


def fit(
    folder: Path, score: str, out: Path, *arguments: object, index: str = "index", query_labels: Path | None = None
) -> Result:
    return run_hgld(
        "reject", "fit", score, "--embeddings", folder / f"{index}.npy", "--labels", folder / f"{index}.csv",
        "--queries", folder / "queries.npy", "--query-labels", query_labels or folder / "queries.csv",
        "--unknown", f"far={folder / 'far.npy'}", "-o", out, *arguments,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["level_agreement", "distractor_penalty", "mahalanobis", "msp"])
def test_scores_are_fitted_and_score(name: str, folder: Path, tmp_path: Path) -> None:
    logits = ["--logits", folder / "mixed.logits.npy"] if name == "msp" else []
    result = run_hgld(
        "reject", "fit", name, "--embeddings", folder / "mixed.npy", "--labels", folder / "mixed.csv", *logits,
        "-o", tmp_path / "d",
    )  # fmt: skip
    assert result.stdout.startswith(name)
    assert result.stdout.endswith(f"\n{tmp_path / 'd'}\n")
    assert "None was fitted" in (tmp_path / "d" / "README.md").read_text()
    result = run_hgld(
        "reject", "score", tmp_path / "d", "--embeddings", folder / "test.npy", "-o", tmp_path / "s.parquet"
    )
    saved = load_detector(tmp_path / "d")
    assert saved.record.inputs == (("logits",) if logits else ())
    further = {kind: np.load(folder / f"test.{kind}.npy") for kind in saved.record.inputs}
    scores = saved.detector.score(np.load(folder / "test.npy"), **further)
    np.testing.assert_array_equal(pq.read_table(tmp_path / "s.parquet")["score"].to_numpy(), scores)


@pytest.mark.parametrize("option", ["--queries", "--unknown"])
def test_images_of_the_index_calibrate_no_threshold(option: str, folder: Path, tmp_path: Path) -> None:
    index = folder / "index.npy"
    value = index if option == "--queries" else f"far={index}"
    # The other images are there so that nothing but the images of the index is wrong.
    others = (
        ["--queries", folder / "queries.npy"]
        if option == "--unknown"
        else ["--unknown", f"far={folder / 'queries.npy'}"]
    )
    labels = folder / ("queries.csv" if option == "--unknown" else "index.csv")
    result = run_hgld(
        "reject", "fit", "top1_cosine", "--embeddings", index, "--labels", folder / "index.csv", *others,
        "--query-labels", labels, option, value, "-o", tmp_path / "d", code=1,
    )  # fmt: skip
    assert "90 of 90 images are in the index, too, such as" in result.stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
def test_every_score_gets_thresholds(name: str, folder: Path, tmp_path: Path) -> None:
    if name == "heat":
        pytest.skip("its training takes long")
    with (tmp_path / "queries.csv").open("w") as stream:
        stream.write("id,landmark_id\n")
        stream.writelines(f"queries{row},{row % 10}\n" for row in range(100))
    fit(folder, name, tmp_path / "d", index="mixed", query_labels=tmp_path / "queries.csv")
    saved = load_detector(tmp_path / "d")
    calibration = saved.record.calibration
    assert calibration is not None
    assert [threshold.target for threshold in calibration.thresholds] == [0.9]
    scores = {}
    for images in ("queries", "far"):
        further = {kind: np.load(folder / f"{images}.{kind}.npy") for kind in saved.record.inputs}
        scores[images] = saved.detector.score(np.load(folder / f"{images}.npy"), **further)
    auroc = detection_metrics(scores["queries"][np.arange(100) % 10 < N_CLASSES], scores["far"])["auroc"]
    assert calibration.detection["far"]["auroc"].value == pytest.approx(auroc)


def test_split_keeps_classes_from_the_index_and_from_the_other_queries(tmp_path: Path) -> None:
    rows = [f"{c}/{n}.jpg,all,c{c},k{c % 2}" for c in range(12) for n in range(10)]
    (tmp_path / "all.csv").write_text("\n".join(["path,split,class,kind", *rows]))
    command = ["reject", "split", tmp_path / "all.csv", "-o", tmp_path / "splits.parquet"]
    result = run_hgld(*command)
    assert result.stdout.startswith("120 images (36 index, 42 queries, 42 test) with labels at 2 levels (12 class")
    images = pq.read_table(tmp_path / "splits.parquet").to_pandas()
    classes = {split: set(own) for split, own in images.groupby("split")["class"]}
    near = {split: classes[split] - classes["index"] for split in ("queries", "test")}
    assert [len(near[split]) for split in near] == [3, 3]
    assert not near["queries"] & near["test"]
    assert len(classes["index"]) == 6
    assert run_hgld(*command).stdout == f"{tmp_path / 'splits.parquet'}: up to date\n"
    assert "error: --near-share is 1.0; expected" in run_hgld(*command, "--near-share", "1", code=1).stderr
    assert "no images are left for one of the sets" in run_hgld(*command, "--near-share", "0.01", code=1).stderr


def test_card_states_thresholds_and_figures(detector: Path) -> None:
    saved = load_detector(detector)
    assert saved.record.level_names == ("landmark", "kind")
    assert saved.record.calibration is not None
    assert saved.record.calibration.n_images == {"known": 60, "near": 40, "far": 40}
    card = (detector / "README.md").read_text()
    assert "the very images that the thresholds were fitted on" in card
    assert "| landmark |" in card
    assert "| metric in % | near (40) | far (40) |" in card


def test_thresholds_and_figures_are_those_of_the_library(folder: Path, detector: Path) -> None:
    """By hand: the nearest ten images vote, and cosines are rejected."""
    index, queries, far = (np.load(folder / f"{name}.npy") for name in ("index", "queries", "far"))
    of_index, of_queries = np.arange(90) % N_CLASSES, np.arange(100) % 10
    unit_index = index / np.linalg.norm(index, axis=1, keepdims=True)
    cosines = queries / np.linalg.norm(queries, axis=1, keepdims=True) @ unit_index.T
    far_cosines = far / np.linalg.norm(far, axis=1, keepdims=True) @ unit_index.T
    right = np.zeros((140, 2), bool)
    for row in range(100):
        near = np.argsort(-cosines[row], kind="stable")[:10]
        weights = np.exp(cosines[row][near].astype(np.float64) / 0.07)
        kind = np.bincount(of_index[near] % 2, weights, 2).argmax()
        landmark = np.bincount(of_index[near], weights * (of_index[near] % 2 == kind), N_CLASSES).argmax()
        right[row] = landmark == of_queries[row], kind == of_queries[row] % 2
    scores = np.concatenate([-cosines.max(axis=1), -far_cosines.max(axis=1)])
    calibration = load_detector(detector).record.calibration
    assert calibration is not None
    for column, threshold in enumerate(calibration.thresholds):
        expected = threshold_for_precision(scores, right[:, column], 0.9)
        assert threshold.value == pytest.approx(expected.value, abs=1e-6)
        assert (threshold.n_accepted, threshold.precision) == (expected.n_accepted, expected.precision)
    known = np.flatnonzero(of_queries < N_CLASSES)
    for name, unknown in (("near", np.flatnonzero(of_queries >= N_CLASSES)), ("far", np.arange(100, 140))):
        for metric, value in detection_metrics(scores[known], scores[unknown]).items():
            assert calibration.detection[name][metric].value == pytest.approx(value, abs=1e-6), metric


def test_scores_are_written_and_summarised(folder: Path, detector: Path, tmp_path: Path) -> None:
    command = ("reject", "score", detector, "--embeddings", folder / "test.npy", "--unknown", f"far={folder}/far.npy")
    content = json.loads(run_hgld(*command, "--json", "-o", tmp_path / "s.parquet").stdout)
    assert list(content["images"]) == ["images", "far"]
    assert content["images"]["images"]["n"] == 60
    assert content["detection"]["far"]["auroc"]["value"] > 0.95
    table = pq.read_table(tmp_path / "s.parquet").to_pandas()
    assert table["id"].tolist()[:2] == ["test0", "test1"]
    saved = load_detector(detector)
    scores = saved.detector.score(np.load(folder / "test.npy"))
    np.testing.assert_allclose(table.loc[table["images"] == "images", "score"], scores)
    assert saved.record.calibration is not None
    threshold = saved.record.calibration.thresholds[0]
    at_landmark = table.loc[table["images"] == "images", "accepted_level"] == "landmark"
    assert at_landmark.tolist() == threshold.accepts(scores).tolist()
    assert content["images"]["images"]["accepted"]["landmark"] == at_landmark.mean()
    assert read_provenance(tmp_path / "s.parquet").command == "reject score"
    result = run_hgld(*command, "-o", tmp_path / "s.csv")
    assert "known from far" in result.stdout
    with (tmp_path / "s.csv").open() as stream:
        assert [row["id"] for row in csv.DictReader(stream)] == table["id"].tolist()


def test_scores_are_listed() -> None:
    result = run_hgld("reject", "scores")
    lines = result.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == [*DETECTORS]
    assert "level_agreement: needs labels; k=10, temperature=0.07" in lines
    assert "gmm: needs labels; variant=paper (or code), " in result.stdout


def test_thresholds_that_do_not_exist_accept_nothing() -> None:
    images = CalibrationImages(
        np.array(["known", "known", "far"]), np.array([[0.5], [0.6], [0.1]]), np.array([[True], [False], [False]])
    )
    calibration = fit_thresholds(images, 0.9)
    assert calibration.thresholds[0].value is None
    assert calibration.finest_accepted(images.scores).tolist() == [1, 1, 1]
    assert type(calibration).model_validate_json(calibration.model_dump_json()) == calibration


def test_levels_are_accepted_from_the_finest_up() -> None:
    right = np.array([[True, True], [False, True], [False, True], [False, False]])
    images = CalibrationImages(
        np.array(["known", "near", "near", "far"]), np.repeat(np.arange(4.0)[:, None], 2, axis=1), right
    )
    assert fit_thresholds(images, 1).finest_accepted(images.scores).tolist() == [0, 1, 1, 2]

"""hgld evaluate --reject: what it prints and writes, detectors from folders, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.evaluation.results import read_per_query
from hgld.rejection import DetectorRecord, build_detector, save_detector
from hgld.tables import read_provenance
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Queries and a gallery of landmarks, near and far images; the working directory."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(20, 6))
    for name, low, high, n in (("g", 0, 8, 40), ("q", 0, 9, 30), ("near", 10, 20, 25)):
        landmarks = rng.integers(low, high, size=n)
        vectors = torch.from_numpy((centres[landmarks] + rng.normal(size=(n, 6))).astype(np.float32))
        ids = [f"{name}{row}" for row in range(n)]
        write_embeddings(tmp_path / f"{name}.npy", vectors, ids)
        pd.DataFrame({"id": ids, "landmark_id": landmarks}).to_csv(tmp_path / f"{name}.csv", index=False)
    np.save(tmp_path / "far.npy", rng.normal(size=(25, 6)).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


RETRIEVAL = ("--query-embeddings=q.npy", "--gallery-embeddings=g.npy", "--labels=g.csv", "--query-labels=q.csv")
SETS = ("--unknown=near=near.npy", "--unknown=far=far.npy")


def run(*arguments: str, code: int = 0) -> str:
    result = run_hgld("evaluate", *arguments, code=code)
    return result.stdout if code == 0 else " ".join(result.output.split())


def values(*arguments: str) -> Any:
    return json.loads(run(*RETRIEVAL, "--json", "--no-intervals", "--metric=R@1", *arguments))


def test_json_has_the_figures_of_rejection(folder: Path) -> None:
    plain = values()
    assert "rejection" not in plain
    report = values("--reject=soft_vote", "--reject-option=k=3", *SETS, "--reject-precision=0.5")
    assert report["results"] == plain["results"]
    (rejection,) = report["rejection"]
    assert rejection["name"] == "retrieval"
    assert rejection["score"]["name"] == "soft_vote"
    assert rejection["score"]["options"]["k"] == 3
    assert [level["level"] for level in rejection["levels"]] == [1]
    assert list(rejection["unknown"]) == ["queries without positives", "near", "far"]
    assert rejection["unknown"]["near"]["n_unknown"] == 25
    assert set(rejection["unknown"]["far"]["detection"]) >= {"auroc", "fpr95_known", "fpr95_unknown"}
    assert rejection["threshold"]["target"] == 0.5
    assert rejection["means_at_threshold"]["R@1"] is not None


def test_tables_show_them(folder: Path) -> None:
    lines = run(
        *RETRIEVAL, "--metric=R@1", "--metric=AP", "--reject=top1_cosine", *SETS, "--no-intervals"
    ).splitlines()
    assert "retrieval, rejected by top1_cosine" in lines
    titles = [line.split() for line in lines]
    assert ["in", "%", "GAP", "AURC"] in titles
    assert ["accepted", "risk", "R@1", "AP"] in titles
    assert sum(line.startswith(("near", "far")) for line in lines) >= 2
    latex = run(*RETRIEVAL, "--metric=AP", "--reject=top1_cosine", *SETS, "--latex")
    assert "retrieval, near & " in latex
    assert "FPR95 (known) & FPR95 (unknown)" in latex


def test_values_of_queries_are_written(folder: Path) -> None:
    run(*RETRIEVAL, "--metric=R@1", "--reject=level_agreement", "--per-query=values.parquet", "--no-intervals")
    (result,) = read_per_query(folder / "values.parquet")
    gallery = np.load("g.npy")
    detector = build_detector("level_agreement").fit(gallery, pd.read_csv("g.csv")["landmark_id"].to_numpy())
    assert result.per_query["rejection_score"].to_numpy() == pytest.approx(detector.score(np.load("q.npy")), abs=1e-6)
    assert result.per_query["right_l1"].dtype == bool
    assert read_provenance(folder / "values.parquet").parameters["rejection"]["score"] == "level_agreement"


def test_a_fitted_detector_gives_the_numbers_of_a_fit(folder: Path) -> None:
    landmarks = pd.read_csv("g.csv")["landmark_id"].to_numpy()
    for score in ("soft_vote", "mahalanobis"):
        detector = build_detector(score).fit(np.load("g.npy"), landmarks)
        save_detector(folder / score / "fitted", detector, DetectorRecord(n_images=40))
        loaded, fitted = values(f"--reject={score}/fitted", *SETS), values(f"--reject={score}", *SETS)
        assert loaded == fitted
    save_detector(
        folder / "queries", build_detector("top1_cosine").fit(np.load("q.npy")), DetectorRecord(n_images=30)
    )
    assert "fit it on this gallery" in run(*RETRIEVAL, "--reject=queries", code=1)
    message = run(*RETRIEVAL, "--reject=soft_vote/fitted", "--reject-option=k=3", code=1)
    assert "--reject-option are those of a score to fit" in message


def test_unknown_sets_are_checked_before_the_ranking(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rank(*arguments: object) -> None:
        raise AssertionError("the queries are ranked")

    monkeypatch.setattr("hgld.evaluation.evaluation_files.evaluate_tasks", rank)
    np.save(folder / "wide.npy", np.ones((3, 7), np.float32))
    message = run(*RETRIEVAL, "--reject=top1_cosine", "--unknown=wide=wide.npy", code=1)
    assert "wide.npy: has 7 dimensions, and the gallery 6" in message
    with pytest.raises(AssertionError, match="are ranked"):
        run_hgld("evaluate", *RETRIEVAL, "--reject=top1_cosine", *SETS, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reject=g.npy"], "there is no rejection score g.npy, nor a folder of that name"),
        (["--reject=soft_vote", "--reject-option=k"], '--reject-option is "k"; expected NAME=VALUE'),
        (["--reject=soft_vote", "--reject-option=k=x"], "option k of the score soft_vote"),
        (["--unknown=near=near.npy"], "--unknown are for rejection scores; add --reject"),
        (["--reject=top1_cosine", "--unknown=near"], '--unknown is "near"; expected NAME='),
        (["--reject=top1_cosine", "--reject-precision=2"], "the wanted precision is 2"),
    ],
)
def test_wrong_options_get_one_clear_line(folder: Path, arguments: list[str], message: str) -> None:
    assert message in run(*RETRIEVAL, *arguments, code=1)


def test_predictions_have_scores_of_their_own(folder: Path) -> None:
    for name in ("p.csv", "s.csv"):
        (folder / name).touch()
    message = run("--predictions=p.csv", "--ground-truth=s.csv", "--reject=top1_cosine", code=1)
    assert "--reject scores queries by their embeddings, and --predictions have scores of their own" in message

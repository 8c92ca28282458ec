"""Recognition from embeddings: what is answered, what is left out, and the file of predictions."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from hgld.cli import app
from hgld.errors import ConfigurationError, HgldError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.gldv2.ground_truth import LandmarkPrediction, read_recognition_predictions, read_recognition_solution
from hgld.rejection import build_detector
from hgld.rejection.rejected_queries import RejectionConfig, evaluate_with_rejection
from hgld.tables.embeddings import write_embeddings

N_TRAIN, N_TEST = 60, 40


@pytest.fixture
def files(tmp_path: Path) -> EvaluationFiles:
    """Training images of nine landmarks, test images of twelve and of none; one test image is not embedded."""
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(12, 5))
    train, test = rng.integers(9, size=N_TRAIN), rng.integers(-4, 12, size=N_TEST)
    test[[8, 9]] = -1  # Public and Private have images without a landmark
    gallery = centres[train] + 0.6 * rng.normal(size=(N_TRAIN, 5))
    queries = np.where(test[:, None] >= 0, centres[test], 0) + 0.6 * rng.normal(size=(N_TEST, 5))
    ids = [f"test{row}" for row in range(N_TEST)]
    usages = [("Public", "Private", "Private", "Ignored")[row % 4] for row in range(N_TEST)]
    landmarks = ["" if own < 0 else f"{own} 77" for own in test]
    table = pd.DataFrame({"id": ids, "landmarks": landmarks, "Usage": usages})
    table.to_csv(tmp_path / "solution.csv", index=False)
    # An image of the gallery is a test image, and would be found by itself.
    gallery[4] = queries[5]
    train_ids = [f"train{row}" for row in range(N_TRAIN)]
    train_ids[4] = "test5"
    pd.DataFrame({"id": train_ids, "url": "x", "landmark_id": train}).to_csv(tmp_path / "train.csv", index=False)
    write_embeddings(tmp_path / "g.npy", torch.from_numpy(gallery.astype(np.float32)), train_ids)
    shuffled = rng.permutation(np.arange(1, N_TEST))  # the first is not embedded
    write_embeddings(
        tmp_path / "q.npy", torch.from_numpy(queries[shuffled].astype(np.float32)), [ids[row] for row in shuffled]
    )
    return EvaluationFiles(
        query_embeddings=tmp_path / "q.npy",
        gallery_embeddings=tmp_path / "g.npy",
        labels=tmp_path / "train.csv",
        ground_truth=tmp_path / "solution.csv",
    )


def evaluate(files: EvaluationFiles, rejection: RejectionConfig | None = None, **settings: Any) -> Any:
    config = EvaluationConfig(**settings)
    if rejection is None:
        return evaluate_files(files, "gldv2-recognition", config)
    return evaluate_with_rejection(files, "gldv2-recognition", config, rejection, intervals=False)[0]


def run(files: EvaluationFiles, *arguments: str, code: int = 0) -> str:
    given = [f"--{name.replace('_', '-')}={getattr(files, name)}" for name in sorted(files.given())]
    result = CliRunner().invoke(app, ["evaluate", "--protocol=gldv2-recognition", *given, *arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def arrays(files: EvaluationFiles) -> tuple[Any, Any, Any, Any]:
    """Queries, the gallery without the test image, its landmarks, and the ids of the queries."""
    assert files.query_embeddings is not None
    assert files.gallery_embeddings is not None
    assert files.labels is not None
    queries, gallery = np.load(files.query_embeddings), np.load(files.gallery_embeddings)
    labels = pd.read_csv(files.labels)["landmark_id"].to_numpy()
    keep = np.arange(N_TRAIN) != 4
    return queries, gallery[keep], labels[keep], files.query_embeddings.with_suffix(".ids.txt").read_text().split()


def test_the_nearest_training_image_is_the_answer(files: EvaluationFiles, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        evaluation = evaluate(files)
    assert "1 of 30 scored test images are not embedded, such as test0; they have no prediction" in caplog.text
    queries, gallery, labels, ids = arrays(files)
    cosines = (queries / np.linalg.norm(queries, axis=1)[:, None]) @ (
        gallery / np.linalg.norm(gallery, axis=1)[:, None]
    ).T
    predictions = evaluation.answers.predictions
    assert set(predictions) == set(ids)  # ignored test images, too, and not test0
    for row, image in enumerate(ids):
        assert predictions[image].landmark == labels[cosines[row].argmax()]
        assert predictions[image].score == pytest.approx(cosines[row].max(), abs=1e-6)
    public, private = evaluation.results
    assert (public.counts["queries"], private.counts["queries"]) == (10, 20)
    assert public.counts["images_without_a_prediction"] == 1
    assert public.counts["gallery"] == N_TRAIN - 1
    assert public.counts["test_images_in_gallery"] == 1
    assert public.counts["ignored_queries"] == 10


@pytest.mark.parametrize("score", ["top1_cosine", "soft_vote", "class_means", "margin"])
def test_any_score_can_be_the_confidence(files: EvaluationFiles, score: str) -> None:
    queries, gallery, labels, ids = arrays(files)
    detector = build_detector(score).fit(gallery, labels)
    predictions = evaluate(files, RejectionConfig(score)).answers.predictions
    expected = dict(zip(ids, (-detector.score(queries)).tolist(), strict=True))
    assert {image: answer.score for image, answer in predictions.items()} == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("score", ["top1_cosine", "soft_vote", "mahalanobis"])
def test_written_predictions_give_the_same_numbers(files: EvaluationFiles, tmp_path: Path, score: str) -> None:
    out = tmp_path / "p.csv"
    options = ["--json", "--no-intervals"]
    own = json.loads(run(files, f"--reject={score}", f"--write-predictions={out}", *options))["results"]
    lines = out.read_text().splitlines()
    assert lines[0] == "id,landmarks"
    assert len(lines) == 1 + N_TEST
    assert "test0," in lines
    given = EvaluationFiles(predictions=out, ground_truth=files.ground_truth)
    read = json.loads(run(given, *options))["results"]
    for one, other in zip(own, read, strict=True):
        assert one["means"] == pytest.approx(other["means"], abs=1e-12)
    assert any(0 < value < 1 for value in own[1]["means"].values())
    assert files.ground_truth is not None
    solution = read_recognition_solution(files.ground_truth)
    exact = evaluate(files, RejectionConfig(score)).answers.predictions
    assert read_recognition_predictions(out, solution) == {
        image: answer for image, answer in exact.items() if image in solution.scored_ids
    }


def test_the_number_of_processes_and_the_size_of_blocks_do_not_count(files: EvaluationFiles) -> None:
    class Gathering:
        """One of three processes; the shares of the others are appended by the test."""

        def __init__(self, rank: int) -> None:
            self.part = (rank, 3)

        def gather(self, value: Any) -> list[Any]:
            return [value]

    ranking = RankingConfig(block_size=4)
    whole = evaluate(files, ranking=ranking).answers.predictions
    shares = [evaluate(files, ranking=ranking, processes=Gathering(rank)).answers.predictions for rank in range(3)]
    assert sum(map(len, shares)) == len(whole)
    assert {image: answer for share in shares for image, answer in share.items()} == whole


def test_figures_of_rejection_are_those_of_the_predictions(files: EvaluationFiles) -> None:
    report = json.loads(run(files, "--reject=top1_cosine", "--json", "--no-intervals"))
    for result, rejection in zip(report["results"], report["rejection"], strict=True):
        assert rejection["levels"][0]["gap"] == pytest.approx(result["means"]["gap"], abs=1e-12)
        whole, *_, last = rejection["coverages"]
        assert whole["means"]["gap"] == pytest.approx(result["means"]["gap"], abs=1e-12)
        assert last["n_accepted"] < whole["n_accepted"]
        assert last["means"]["top1"] < whole["means"]["top1"]  # rejected images count as wrong
        assert list(rejection["unknown"]) == ["images without a landmark"]
        assert rejection["unknown"]["images without a landmark"]["detection"]["auroc"] > 0.5
    text = run(files, "--reject=soft_vote", "--reject-option=k=2", "--no-intervals")
    assert "recognition public, rejected by soft_vote (k 2" in text
    assert r"\begin{tabular}" in run(files, "--reject=soft_vote", "--latex", "--metric=gap")


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, ["--unknown=far=far.npy", "--reject=top1_cosine"], "far.npy: no such file"),
        ({}, ["--reject=nothing"], "there is no rejection score nothing, nor a folder of that name"),
        ({}, ["--reject-option=k=3"], "--reject-option and --unknown are for rejection scores; add --reject"),
        ({}, ["--worst=3"], "--worst and --per-label show rankings, which gldv2-recognition does not score"),
        ({"labels": None}, [], "does not say which landmark an image shows; give --labels"),
        ({"query_embeddings": "g.npy", "gallery_embeddings": "h.npy"}, [], "no such file"),
    ],
)
def test_wrong_inputs_get_one_clear_line(
    files: EvaluationFiles, changes: dict[str, Any], arguments: list[str], message: str
) -> None:
    assert message in " ".join(run(replace(files, **changes), *arguments, code=1).split())


def test_files_that_do_not_fit_are_refused(files: EvaluationFiles, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leave out `unknown`"):
        evaluate(files, RejectionConfig(unknown={"far": None}))  # type: ignore[dict-item]
    with pytest.raises(ConfigurationError, match="`predictions` have scores of their own"):
        evaluate(EvaluationFiles(predictions=tmp_path / "p.csv", ground_truth=files.ground_truth), RejectionConfig())
    vectors = torch.ones(2, 5)
    write_embeddings(tmp_path / "other.npy", vectors, ["a", "b"])
    with pytest.raises(HgldError, match="none of its 2 images, such as a, is a test image"):
        evaluate(replace(files, query_embeddings=tmp_path / "other.npy"))
    write_embeddings(tmp_path / "tests.npy", vectors, ["test5", "test6"])
    pd.DataFrame({"id": ["test5", "test6"], "landmark_id": 1}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(HgldError, match="no image is left that has a landmark and is no test image"):
        evaluate(replace(files, gallery_embeddings=tmp_path / "tests.npy", labels=tmp_path / "t.csv"))
    names = pd.read_csv(files.labels)  # type: ignore[arg-type]
    pd.DataFrame({"id": names["id"], "church": [f"c{own}" for own in names["landmark_id"]]}).to_csv(
        tmp_path / "names.csv", index=False
    )
    with pytest.raises(HgldError, match='no landmark ids, such as "c.*" of the level church; recognition needs'):
        evaluate(replace(files, labels=tmp_path / "names.csv"))
    np.save(tmp_path / "bare.npy", np.ones((2, 5), np.float32))
    with pytest.raises(HgldError, match="has no ids, and test images are known by theirs"):
        evaluate(replace(files, query_embeddings=tmp_path / "bare.npy"))


def test_scores_survive_the_text_form(tmp_path: Path) -> None:
    from hgld.gldv2.ground_truth import RecognitionSolution, write_recognition_predictions

    scores = [0.1, -1e-300, 1 / 3, float(np.float32(0.7)), -np.inf, 12345678901234.5, -0.0]
    predictions = {f"i{row}": LandmarkPrediction(row, score) for row, score in enumerate(scores)}
    images = [*predictions, "abstains"]
    write_recognition_predictions(tmp_path / "p.csv", images, predictions)
    solution = RecognitionSolution({"Public": dict.fromkeys(images, frozenset({1})), "Private": {}})
    assert read_recognition_predictions(tmp_path / "p.csv", solution) == predictions
    with pytest.raises(HgldError, match='the id " a" is empty or has whitespace around it'):
        write_recognition_predictions(tmp_path / "p.csv", [" a"], {})

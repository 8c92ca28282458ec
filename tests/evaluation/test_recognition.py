"""GAP against a slow oracle, and the recognition protocol from files and from embeddings.

Numbers are those of the published scorer.
"""

import json
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, HgldError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.recognition import RECOGNITION_METRICS, SOLUTION, RecognitionResult, recognition_results
from hgld.evaluation.results import read_per_query
from hgld.gldv2.recognition_ground_truth import (
    LandmarkPrediction,
    RecognitionSolution,
    read_recognition_predictions,
    read_recognition_solution,
    write_recognition_predictions,
)
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld

N_CASES = 12


@pytest.fixture
def predicted(tmp_path: Path) -> list[str]:
    """The example of Google's unit tests, and a Private image without a landmark."""
    (tmp_path / SOLUTION).write_text(
        "id,landmarks,Usage\na,0 12,Public\nb,100 200 300,Public\nc,1,Public\nd,,Public\ne,,Public\nf,,Private\n"
        "g,1,Ignored\n"
    )
    (tmp_path / "p.csv").write_text("id,landmarks\nb,0 0.01\nc,1 10.0\nd,150 15.0\nf,3 1\ng,1 2\n")
    return [f"--ground-truth={tmp_path / SOLUTION}", f"--predictions={tmp_path / 'p.csv'}"]


def run(*arguments: str, code: int = 0) -> str:
    result = run_hgld("evaluate", "--protocol=gldv2-recognition", *arguments, code=code)
    return result.output if code else result.stdout


@pytest.mark.parametrize(
    ("group", "number"),
    [*(("recognition", number) for number in range(N_CASES)), ("reader_errors", 1), ("reader_errors", 3)],
)
def test_numbers_agree_with_the_published_scorer(shared: Path, tmp_path: Path, group: str, number: int) -> None:
    cases = json.loads((shared / "golden_beyond" / "recognition.json").read_text("utf-8"))
    assert len(cases["recognition"]) == N_CASES
    case = cases[group][number]
    (tmp_path / "solution.csv").write_text(case["solution_csv"], "utf-8")
    (tmp_path / "predictions.csv").write_text(case["predictions_csv"], "utf-8")
    given = EvaluationFiles(predictions=tmp_path / "predictions.csv", ground_truth=tmp_path / "solution.csv")
    results = evaluate_files(given, "gldv2-recognition").results
    assert [result.name for result in results] == ["recognition public", "recognition private"]
    for usage, result in zip(("Public", "Private"), results, strict=True):
        expected = case["expected"].get(usage, {"images": 0, "images_with_truth": 0, "predictions_read": 0})
        for name in RECOGNITION_METRICS:
            value = expected.get(name)
            number_expected = value if isinstance(value, float) else float("nan")  # the published code divides by 0
            assert result.means[name] == pytest.approx(number_expected, abs=1e-12, nan_ok=True)
        counts = result.counts
        assert counts["queries"] == expected["images"]
        assert counts["queries"] - counts["images_without_a_landmark"] == expected["images_with_truth"]
        assert counts["queries"] - counts["images_without_a_prediction"] == expected["predictions_read"]
        assert counts["ignored_queries"] == case["expected"]["ignored"]


def test_json_has_both_parts(predicted: list[str]) -> None:
    public, private = json.loads(run(*predicted, "--json"))["results"]
    assert public["means"] == pytest.approx({"gap": 1 / 6, "gap_ignore_non_landmark": 1 / 3, "top1": 1 / 3})
    assert 0 <= public["intervals"]["gap"][0] <= 1 / 6 <= public["intervals"]["gap"][1] <= 1
    assert private["means"] == dict.fromkeys(RECOGNITION_METRICS)
    assert private["intervals"]["top1"] == [None, None]
    assert private["counts"] == {
        "queries": 1,
        "images_without_a_landmark": 1,
        "images_without_a_prediction": 0,
        "ignored_queries": 1,
    }


def test_tables_say_what_the_numbers_are(predicted: list[str]) -> None:
    lines = run(*predicted, "--no-intervals").splitlines()
    assert lines[0].split() == ["mean", "in", "%", *RECOGNITION_METRICS]
    assert lines[2].split() == ["recognition", "public", "16.67", "33.33", "33.33"]
    assert lines[3].split() == ["recognition", "private", "–", "–", "–"]
    assert "Mean: over the images that show a landmark." in lines
    assert "recognition public: Images without a prediction: 2." in lines
    assert not any("l1" in line for line in lines)


def test_the_solution_is_found_in_its_folder_and_values_of_images_are_written(
    predicted: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "values.parquet"
    run(f"--ground-truth={tmp_path}", predicted[1], f"--per-query={out}", "--no-intervals")
    public, _ = read_per_query(out)
    assert public.means["gap"] == pytest.approx(1 / 6)
    assert list(public.per_query.index[:3]) == ["d", "c", "b"]  # by rank


Truths = dict[str, frozenset[int]]
Predictions = dict[str, LandmarkPrediction]


def oracle(truths: Truths, predictions: Predictions, *, landmark_images_only: bool) -> float:
    """GAP by its definition: for each right prediction, count those that are not ranked below it."""
    counted = [image for image in predictions if image in truths and (truths[image] or not landmark_images_only)]
    total = 0.0
    for image in counted:
        if predictions[image].landmark not in truths[image]:
            continue
        own = (-predictions[image].score, image)
        above = [other for other in counted if (-predictions[other].score, other) <= own]
        total += sum(predictions[other].landmark in truths[other] for other in above) / len(above)
    n_landmark_images = sum(bool(own) for own in truths.values())
    return total / n_landmark_images if n_landmark_images else math.nan


def top1_oracle(truths: Truths, predictions: Predictions) -> float:
    landmark_images = [image for image, own in truths.items() if own]
    right = [image in predictions and predictions[image].landmark in truths[image] for image in landmark_images]
    return sum(right) / len(right) if right else math.nan


IMAGES = st.text("aAb019", min_size=1, max_size=3)
LANDMARKS = st.integers(0, 3)
SCORES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf])
TRUTHS = st.dictionaries(IMAGES, st.frozensets(LANDMARKS, max_size=3), max_size=12)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Truths], Predictions]:
    truths = draw(TRUTHS)
    private = draw(st.frozensets(st.sampled_from(sorted(truths)))) if truths else frozenset()
    answers = st.builds(LandmarkPrediction, LANDMARKS, SCORES)
    predictions = draw(st.dictionaries(st.sampled_from(sorted(truths)), answers)) if truths else {}
    parts = {
        "Public": {image: own for image, own in truths.items() if image not in private},
        "Private": {image: own for image, own in truths.items() if image in private},
    }
    return parts, predictions


@given(cases())
def test_metrics_agree_with_the_oracle(case: tuple[dict[str, Truths], Predictions]) -> None:
    parts, predictions = case
    results = recognition_results(predictions, RecognitionSolution(parts))
    for truths, result in zip(parts.values(), results, strict=True):
        expected = {
            "gap": oracle(truths, predictions, landmark_images_only=False),
            "gap_ignore_non_landmark": oracle(truths, predictions, landmark_images_only=True),
            "top1": top1_oracle(truths, predictions),
        }
        assert result.means == pytest.approx(expected, abs=1e-12, nan_ok=True)
        assert result.counts["queries"] == len(truths)
        assert result.counts["images_without_a_landmark"] == sum(not own for own in truths.values())
        assert result.counts["images_without_a_prediction"] == sum(image not in predictions for image in truths)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_count(
    case: tuple[dict[str, Truths], Predictions], random: np.random.Generator
) -> None:
    parts, predictions = case

    def shuffled(rows: dict[str, object]) -> dict[str, object]:
        keys = list(rows)
        random.shuffle(keys)
        return {key: rows[key] for key in keys}

    moved = {usage: shuffled(dict(truths)) for usage, truths in parts.items()}
    results = recognition_results(predictions, RecognitionSolution(parts))
    others = recognition_results(shuffled(dict(predictions)), RecognitionSolution(moved))  # type: ignore[arg-type]
    for result, other in zip(results, others, strict=True):
        assert result.per_query.equals(other.per_query)


def sample(n: int = 60) -> tuple[Truths, Predictions, RecognitionResult]:
    rng = np.random.default_rng(4)
    truths = {f"{i:02}": frozenset({i % 5} if i % 3 else ()) for i in range(n)}
    predictions = {
        f"{i:02}": LandmarkPrediction(int(rng.integers(5)) if i % 2 else i % 5, float(rng.integers(8)))
        for i in range(n)
        if i % 7
    }
    result, _ = recognition_results(predictions, RecognitionSolution({"Public": truths, "Private": {}}))
    return truths, predictions, result


def test_parts_are_ranked_among_themselves() -> None:
    truths, predictions, result = sample()
    chosen = result.per_query.index < "30"
    part = result.part("half", chosen)
    half = {image: own for image, own in truths.items() if image < "30"}
    assert part.means["gap"] == pytest.approx(oracle(half, predictions, landmark_images_only=False), abs=1e-12)
    assert part.means["gap"] != pytest.approx(result.per_query["gap"][chosen].mean(), abs=1e-3)
    assert part.counts["queries"] == 30
    assert part.counts["images_without_a_landmark"] == 10


def test_intervals_rank_every_resample_of_either_kind_of_images() -> None:
    truths, predictions, result = sample()
    images = list(result.per_query.index)
    kinds = [[image for image in images if bool(truths[image]) is shown] for shown in (True, False)]
    assert all(kinds)
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(50):
        drawn = [kind[i] for kind in kinds for i in rng.integers(len(kind), size=len(kind))]
        # Copies get ids that keep them beside each other.
        names = [f"{image}/{copy}" for copy, image in enumerate(drawn)]
        own = {name: truths[name[:2]] for name in names}
        answers = {name: predictions[name[:2]] for name in names if name[:2] in predictions}
        draws.append(oracle(own, answers, landmark_images_only=False))
    expected = np.quantile(draws, [0.05, 0.95])
    assert result.intervals(0.9, n_resamples=50, seed=3)["gap"] == pytest.approx(tuple(expected), abs=1e-12)


def test_intervals_of_parts_without_a_landmark_are_nan() -> None:
    results = recognition_results({}, RecognitionSolution({"Public": {"a": frozenset()}, "Private": {}}))
    for result in results:
        assert all(math.isnan(end) for ends in result.intervals(n_resamples=3).values() for end in ends)
    with pytest.raises(ConfigurationError, match="the confidence is 2 with 3 resamples"):
        results[0].intervals(2, n_resamples=3)


def test_metrics_can_be_chosen() -> None:
    solution = RecognitionSolution({"Public": {"a": frozenset({1})}})
    (result,) = recognition_results({"a": LandmarkPrediction(1, 0.0)}, solution, RECOGNITION_METRICS[:1])
    assert result.means == {"gap": 1.0}
    assert list(result.intervals(n_resamples=2)) == ["gap"]


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


def evaluate(files: EvaluationFiles, **settings: Any) -> Any:
    return evaluate_files(files, "gldv2-recognition", EvaluationConfig(**settings))


def options_of(files: EvaluationFiles) -> list[str]:
    options = {name: f"--{name.replace('_', '-')}" for name in files.given()} | {"labels": "--manifest"}
    return [f"{options[name]}={getattr(files, name)}" for name in sorted(files.given())]


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


def test_written_predictions_give_the_same_numbers(files: EvaluationFiles, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    options = ["--json", "--no-intervals"]
    own = json.loads(run(*options_of(files), f"--write-predictions={out}", *options))["results"]
    lines = out.read_text().splitlines()
    assert lines[0] == "id,landmarks"
    assert len(lines) == 1 + N_TEST
    assert "test0," in lines
    given = EvaluationFiles(predictions=out, ground_truth=files.ground_truth)
    read = json.loads(run(*options_of(given), *options))["results"]
    for one, other in zip(own, read, strict=True):
        assert one["means"] == pytest.approx(other["means"], abs=1e-12)
    assert any(0 < value < 1 for value in own[1]["means"].values())
    assert files.ground_truth is not None
    solution = read_recognition_solution(files.ground_truth)
    exact = evaluate(files).answers.predictions
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


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, ["--worst=3"], "--worst and --per-label show rankings, which gldv2-recognition does not score"),
        ({"labels": None}, [], "does not say which landmark an image shows; give --manifest"),
        ({"query_embeddings": "g.npy", "gallery_embeddings": "h.npy"}, [], "no such file"),
        (None, ["--embeddings=e.npy"], "the protocol gldv2-recognition needs --predictions and --ground-truth"),
        (None, ["--predictions=p.csv"], "needs --ground-truth (recognition_solution_v2.1.csv, or its folder)"),
        (None, ["--predictions=p.csv", "--ground-truth=s.csv", "--hierarchy=h.csv"], "does not use --hierarchy"),
        (
            None,
            ["--predictions=p.csv", "--ground-truth=s.csv", "--metric=gap", "--metric=R@1"],
            "--metric asks for R@1",
        ),
        (None, ["--predictions=p.csv", "--ground-truth=s.csv"], "s.csv: no such file"),
    ],
)
def test_wrong_inputs_get_one_clear_line(
    files: EvaluationFiles, changes: dict[str, Any] | None, arguments: list[str], message: str
) -> None:
    given = [] if changes is None else options_of(replace(files, **changes))
    assert message in " ".join(run(*given, *arguments, code=1).split())


def test_files_that_do_not_fit_are_refused(files: EvaluationFiles, tmp_path: Path) -> None:
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
    with pytest.raises(HgldError, match='not landmark ids, such as "c.*" of the level church; recognition needs'):
        evaluate(replace(files, labels=tmp_path / "names.csv"))
    np.save(tmp_path / "bare.npy", np.ones((2, 5), np.float32))
    with pytest.raises(HgldError, match="has no ids, and test images are known by theirs"):
        evaluate(replace(files, query_embeddings=tmp_path / "bare.npy"))


def test_scores_survive_the_text_form(tmp_path: Path) -> None:
    scores = [0.1, -1e-300, 1 / 3, float(np.float32(0.7)), -np.inf, 12345678901234.5, -0.0]
    predictions = {f"i{row}": LandmarkPrediction(row, score) for row, score in enumerate(scores)}
    images = [*predictions, "abstains"]
    write_recognition_predictions(tmp_path / "p.csv", images, predictions)
    solution = RecognitionSolution({"Public": dict.fromkeys(images, frozenset({1})), "Private": {}})
    assert read_recognition_predictions(tmp_path / "p.csv", solution) == predictions
    with pytest.raises(HgldError, match='the id " a" is empty or has whitespace around it'):
        write_recognition_predictions(tmp_path / "p.csv", [" a"], {})

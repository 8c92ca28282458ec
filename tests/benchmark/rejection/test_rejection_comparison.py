"""Comparisons of rejection scores from settings to files."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from hgld.benchmark.rejection import RejectionComparison, compare_rejection, read_rejection_settings
from hgld.benchmark.rejection.reports import confident_mistakes, rejection_markdown
from hgld.benchmark.rejection.settings import for_split
from hgld.benchmark.rejection.split_scores import ScoreResults, SplitScores
from hgld.benchmark.rejection.values import compare_scores
from hgld.errors import ConfigurationError, InputError
from hgld.progress import NoProgress
from hgld.rejection.detection_metrics import detection_metrics
from hgld.rejection.neighbours import Knn
from hgld.tables.embeddings import read_embeddings, write_embeddings
from tests.benchmark.rejection.toy import toy_settings, write_toy
from tests.commands import run_hgld


def change(path: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(toy_settings(path.parent) | changes, sort_keys=False))
    return path


def read(path: Path, out: Path) -> RejectionComparison:
    return RejectionComparison(read_rejection_settings(path), out)


def computed(path: Path, out: Path) -> tuple[ScoreResults, list[str]]:
    """Return all results of a comparison, and those that failed."""
    study = read(path, out)
    return study.compute(force=False, progress=NoProgress()), study.failure_lines


def n_finished(path: Path, out: Path) -> int:
    return read(path, out).n_finished()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the toy comparison and its results, in ``out``."""
    folder = tmp_path_factory.mktemp("toy")
    study = read(write_toy(folder), folder / "out")
    compare_rejection(study)
    assert (study.n_results, study.n_kept, study.failure_lines) == (8, 0, [])
    return folder


def test_values_are_metrics_of_the_scores(compared: Path) -> None:
    values = pd.read_parquet(compared / "out" / "values.parquet")
    folder = compared / "out" / "scores" / "sharp" / "split1"
    answers, scores = (pd.read_parquet(folder / f"{name}.parquet") for name in ("queries", "knn"))
    known, far = (scores.loc[answers["set"] == name, "score"] for name in ("known", "food"))
    chosen = (values["embedding"] == "sharp") & (values["score"] == "knn") & (values["unknown"] == "food")
    by_metric = values[chosen & (values["split"] == 1)].set_index("metric")["value"]
    expected = detection_metrics(known, far)
    assert by_metric["auroc"] == expected["auroc"]
    assert by_metric["fpr95_unknown"] == expected["fpr95_unknown"]
    mean = values[chosen & values["split"].isna() & (values["metric"] == "auroc")].iloc[0]
    by_split = values[chosen & values["split"].notna() & (values["metric"] == "auroc")]["value"]
    assert mean["value"] == pytest.approx(by_split.mean())
    assert mean["low"] <= mean["value"] <= mean["high"]


def test_queries_are_answered_by_their_nearest_images(compared: Path) -> None:
    folder = compared / "out" / "scores" / "sharp" / "split0"
    queries, scores = (pd.read_parquet(folder / f"{name}.parquet") for name in ("queries", "knn"))
    known = queries[queries["kind"] == "known"]
    assert (known["nearest_class"] == known["class"]).all()
    assert (known["level"] == 2).all()
    assert (scores["right"] == queries["kind"].isin(["known", "calibration"])).all()
    embeddings = read_embeddings(compared / "sharp.parquet")
    assert embeddings.ids is not None
    rows = {name: row for row, name in enumerate(embeddings.ids.tolist())}
    first = known.iloc[0]
    cosine = torch.cosine_similarity(
        embeddings.vectors[rows[first["id"]]], embeddings.vectors[rows[first["nearest"]]], dim=0
    )
    assert first["cosine"] == pytest.approx(float(cosine), abs=1e-6)


def test_scores_are_fitted_on_a_share_of_the_index(compared: Path) -> None:
    study = read(compared / "settings.yaml", compared / "out")
    split = study.splits[0]
    detector = Knn(1)
    few, whole = (split.score(detector, share) for share in (0.5, 1))
    split.score(detector, 0.5)
    assert len(detector.index) == pytest.approx(split.images.n_index / 2, abs=float(split.images.labels.max()))
    assert (few["score"] >= whole["score"]).all()  # the nearest of some images is no nearer than that of all
    assert (few["score"] > whole["score"]).any()


def test_pictures_of_each_embedding_are_written_and_shown(compared: Path) -> None:
    text = (compared / "out" / "results.md").read_text(encoding="utf-8")
    for name in ("near_far_sharp", "near_far_blurred", "risk_sharp", "risk_blurred"):
        assert (compared / "out" / f"{name}.png").stat().st_size > 2000
        assert f"![{name}]({name}.png)" in text


def test_equal_scores_differ_by_nothing_and_sharp_embeddings_reject_better(compared: Path) -> None:
    differences = pd.read_parquet(compared / "out" / "differences.parquet")
    of_scores = differences[differences["score"] == "again"]
    of_scores = of_scores[of_scores["from_embedding"] == of_scores["embedding"]]
    assert (of_scores[["value", "low", "high"]] == 0).all(axis=None)
    of_embeddings = differences[(differences["embedding"] == "sharp") & (differences["from_embedding"] == "blurred")]
    gap = of_embeddings[(of_embeddings["metric"] == "gap") & (of_embeddings["unknown"] == "all")]
    assert (gap["value"] > 0).all()


def test_finished_parts_are_kept_and_changed_ones_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = change(write_toy(tmp_path), splits=[0], mistakes=None), tmp_path / "out"
    first, _ = computed(path, out)
    fits: list[int] = []
    fit = Knn.fit

    def counted_fit(self: Knn, *args: Any, **inputs: Any) -> Knn:
        fits.append(1)
        return fit(self, *args, **inputs)

    monkeypatch.setattr(Knn, "fit", counted_fit)
    again, _ = computed(path, out)
    assert not fits
    for result, same in zip(first.values(), again.values(), strict=True):
        pd.testing.assert_frame_equal(result, same)
    embeddings = read_embeddings(tmp_path / "sharp.parquet")
    write_embeddings(tmp_path / "sharp.parquet", embeddings.vectors + 0.01, embeddings.ids)  # type: ignore[arg-type]
    assert n_finished(path, out) == 2
    computed(path, out)
    assert len(fits) == 2


def test_a_score_that_fails_is_named_and_the_others_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **inputs: object) -> Any:
        raise InputError("the covariance is singular")

    path = change(write_toy(tmp_path), splits=[0], mistakes=None)
    score = SplitScores.score
    failing = [False, True, False, False]
    monkeypatch.setattr(SplitScores, "score", lambda *args: fail() if failing.pop(0) else score(*args))
    results, failed = computed(path, tmp_path / "out")
    assert failed == ["blurred, split 0, again: the covariance is singular"]
    settings = read_rejection_settings(path)
    values = compare_scores(settings, results)
    text = rejection_markdown(settings, values, failed)
    assert "- blurred, split 0, again: the covariance is singular" in text
    assert n_finished(path, tmp_path / "out") == 3
    monkeypatch.setattr(SplitScores, "score", fail)
    with pytest.raises(InputError, match=r"none of the scores(.|\n)*singular"):
        compare_rejection(RejectionComparison(settings, tmp_path / "other"))


def test_reports_are_written_again_only_if_something_has_changed(tmp_path: Path) -> None:
    path, out = write_toy(tmp_path), tmp_path / "out"
    command = ("compare-rejection", path, "-o", out)
    first = run_hgld(*command).stdout
    written = (out / "results.md").stat().st_mtime_ns
    assert run_hgld(*command).stdout == first.replace("0 done before", "8 done before")
    assert (out / "results.md").stat().st_mtime_ns == written
    change(path, mistakes=None)
    assert "mistakes.html" not in run_hgld(*command).stdout
    assert not (out / "mistakes.html").exists()


def test_plan_shows_sets_and_parts_to_do(tmp_path: Path) -> None:
    path = write_toy(tmp_path)
    plan = run_hgld("compare-rejection", path, "-o", tmp_path / "out", "--plan").stdout
    assert "8 scores (2 of 2 embeddings on 2 splits), 0 of them done" in plan
    assert plan.splitlines()[2].split() == ["split", "index", "calibration", "known", "near", "food"]
    assert sum(read(path, tmp_path / "out").sizes()[0].values()) == 140


def test_missing_embeddings_are_one_line(tmp_path: Path) -> None:
    path, missing = write_toy(tmp_path), [tmp_path / f"{name}_food.parquet" for name in ("blurred", "sharp")]
    assert read(path, tmp_path / "out").missing() == []
    for file in missing:
        file.unlink()
    assert read(path, tmp_path / "out").missing() == list(map(str, missing))
    stderr = run_hgld("compare-rejection", path, "-o", tmp_path / "out", code=1).stderr
    assert "no such file" in stderr.splitlines()[-1]
    assert "blurred_food.parquet" in stderr


def test_mistakes_are_the_most_confident_ones_of_different_landmarks() -> None:
    queries = pd.DataFrame(
        {
            "set": ["known", "known", "known", "near", "near", "near"],
            "kind": ["known", "known", "known", "near", "near", "near"],
            "class": ["a", "a", "b", "c", "c", "d"],
            "right": [True, True, False, False, False, False],
            "score": [0.1, 0.9, 0.5, 0.3, 0.2, 0.4],
        }
    )
    sections = {heading: rows.index.tolist() for heading, rows in confident_mistakes(queries, 2).items()}
    assert list(sections.values()) == [[4, 5], [2], [1]]
    assert next(iter(sections)) == "Accepted although unknown: near"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mistakes": None, "scores": {"knn2": {}}}, "scores.knn2: there is no score knn2"),
        ({"scores": {"knn": {"options": {"j": 3}}}}, "scores.knn: option j"),
        ({"unknown": {"near": {"kind": "far", "manifest": "x"}}}, 'unknown images are called "near"'),
        ({"unknown": {}}, "expected a file each for index"),
        ({"splits": [1, 1]}, "expected different seeds"),
        ({"mistakes": {"embedding": "x", "score": "again"}}, "expected one of blurred, sharp"),
        ({"index": {"name": "open_set", "manifest": "x", "known_share": 0.9}}, "leave no photographs for the index"),
        ({"index": {"name": "open_set", "manifest": "x", "split": "a", "test_share": 0.5}}, "test_share replaces"),
    ],
)
def test_bad_settings_are_one_message(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = change(write_toy(tmp_path), **changes)
    with pytest.raises(ConfigurationError) as error:
        read_rejection_settings(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_the_split_is_part_of_paths() -> None:
    assert for_split(Path("a{split}/b{split}.npy"), 4) == Path("a4/b4.npy")
    assert for_split(Path("a"), 1) == Path("a")

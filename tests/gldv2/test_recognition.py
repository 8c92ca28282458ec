"""Files of the landmark recognition track."""

import json
from pathlib import Path
from typing import Any

import pytest

from hgld.errors import InputError
from hgld.gldv2.ground_truth import (
    LandmarkPrediction,
    RecognitionSolution,
    read_recognition_predictions,
    read_recognition_solution,
)

SOLUTION = RecognitionSolution(
    {"Public": {"a": frozenset({7}), "b": frozenset()}, "Private": {"c": frozenset({8})}}, frozenset({"x"})
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_solution_is_read_by_part(tmp_path: Path) -> None:
    path = write(tmp_path, "id,landmarks,Usage\na,7 007 8,Public\nb,,Private\nc,any thing,Ignored\nd,,Ignored\n")
    solution = read_recognition_solution(path)
    assert solution.landmarks == {"Public": {"a": {7, 8}}, "Private": {"b": frozenset()}}
    assert solution.ignored_ids == {"c", "d"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,images,Usage\na,7,Public\n", "line 1: no column landmarks"),
        ("id,landmarks,Usage\n", "no rows below the header"),
        ("id,landmarks,Usage\n,7,Public\n", "line 2: the id is empty"),
        ("id,landmarks,Usage\na,7,Public\na,7,Ignored\n", "line 3: the id a is in line 2 already"),
        ("id,landmarks,Usage\na,7,public\n", 'line 2: the Usage is "public"; expected Public, Private or Ignored'),
        ("id,landmarks,Usage\na,7  8,Public\n", 'line 2: a landmark is ""; expected whole numbers'),
        ("id,landmarks,Usage\na,None,Public\n", 'line 2: a landmark is "None"; expected whole numbers'),
    ],
)
def test_invalid_solutions_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_recognition_solution(write(tmp_path, content))


def test_predictions_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "id,landmarks\nc,8 -inf\nx,not looked at\nx,\na,\na,007 +1_0.0 \nb,\n")
    expected = {"c": LandmarkPrediction(8, float("-inf")), "a": LandmarkPrediction(7, 10.0)}
    assert read_recognition_predictions(path, SOLUTION) == expected


def test_unknown_images_without_a_prediction_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_recognition_predictions(write(tmp_path, "id,landmarks\nu,\nv,\n"), SOLUTION) == {}
    assert (
        "2 rows without a prediction are of images that are not in the solution, the first that of u" in caplog.text
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (",7 .5", "line 2: the id is empty"),
        ("a,7 .5\na,", "line 3: the id a has a prediction in line 2 already; expected one per image"),
        ("u,7 .5", "line 2: the id u is not that of a test image in the solution"),
        ("a,7", 'line 2: the prediction is "7"; expected one landmark and its score'),
        ("a, ", 'line 2: the prediction is " "; expected'),
        ("a,7 .5 8 .4", "line 2: the prediction is"),
        ("a,7 .5  ", "line 2: the prediction is"),
        ("a,7.0 .5", 'line 2: a landmark is "7.0"; expected whole numbers'),
        ("a,7 high", 'line 2: the score is "high"; expected a number'),
        ("a,7 nan", 'line 2: the score is "nan"; expected a number'),
    ],
)
def test_invalid_predictions_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_recognition_predictions(write(tmp_path, f"id,landmarks\n{rows}\n"), SOLUTION)


def test_files_are_refused_where_the_published_readers_refuse_them(shared: Path, tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = json.loads((shared / "golden_beyond" / "recognition.json").read_text("utf-8"))[
        "reader_errors"
    ]
    refused = {case["name"] for case in cases if not _is_readable(case, tmp_path)}
    assert refused == {case["name"] for case in cases if "raises" in case["expected"]}
    assert 0 < len(refused) < len(cases)


def _is_readable(case: dict[str, Any], folder: Path) -> bool:
    (folder / "solution.csv").write_text(case["solution_csv"], "utf-8")
    (folder / "predictions.csv").write_text(case["predictions_csv"], "utf-8")
    try:
        read_recognition_predictions(folder / "predictions.csv", read_recognition_solution(folder / "solution.csv"))
    except InputError:
        return False
    return True

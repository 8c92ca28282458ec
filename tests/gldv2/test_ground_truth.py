"""Files of the retrieval and recognition tracks, and positions of positives in a gallery."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.gldv2.recognition_ground_truth import (
    LandmarkPrediction,
    RecognitionSolution,
    read_recognition_predictions,
    read_recognition_solution,
)
from hgld.gldv2.retrieval_ground_truth import (
    ImageLandmarks,
    RetrievalSolution,
    positive_positions,
    query_landmarks,
    read_image_to_landmark,
    read_retrieval_predictions,
    read_retrieval_solution,
    write_retrieval_predictions,
)

SOLUTION = "id,images,Usage\n"
LANDMARKS = "id,landmark_id\n"
SHOWN = "id,landmarks,Usage\n"
TEST_IMAGES = ("t1", "t2", "t3")
RECOGNITION = RecognitionSolution(
    {"Public": {"a": frozenset({7}), "b": frozenset()}, "Private": {"c": frozenset({8})}}, frozenset({"x"})
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def solution(*positives: tuple[str, ...]) -> RetrievalSolution:
    return RetrievalSolution(tuple(f"q{n}" for n in range(len(positives))), ("Public",) * len(positives), positives)


def test_read_solution_and_count_ignored_images(tmp_path: Path) -> None:
    path = write(
        tmp_path, f"{SOLUTION}t1,a b,Private\nt2,None,Public\r\nt3,None,Ignored\nt4,c,Public\nt5,d,Ignored\n"
    )
    assert read_retrieval_solution(path) == RetrievalSolution(
        ("t1", "t4"), ("Private", "Public"), (("a", "b"), ("c",)), ("t2", "t3", "t5")
    )


def test_repeated_positive_counts_as_often_as_it_is_listed_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, f"{SOLUTION}t1,b a b,Public\nt2,a,Public\nt3,c c c,Public\n")
    with caplog.at_level(logging.WARNING):
        assert read_retrieval_solution(path).positives == (("b", "a", "b"), ("a",), ("c", "c", "c"))
    assert "2 lists of images repeat an image, the first that of t1" in caplog.text


def test_landmarks_are_in_the_order_of_the_file_also_of_unusual_ones(tmp_path: Path) -> None:
    for text in (f"{LANDMARKS}b,203093\na,7\n", "x, landmark_id , id\r\n\r\n1, 0203093 , b \r\n1,7,a\r\n"):
        image_landmarks = read_image_to_landmark(write(tmp_path, text))
        assert (image_landmarks.ids.tolist(), image_landmarks.landmark_ids.tolist()) == (["b", "a"], [203093, 7])
        assert image_landmarks.landmark_ids.dtype == np.int64


def predicted(path: Path) -> Any:
    return read_retrieval_predictions(path, TEST_IMAGES)


def recognised(path: Path) -> Any:
    return read_recognition_predictions(path, RECOGNITION)


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_retrieval_solution, "id,images\nt,a\n", "line 1: no column Usage"),
        (
            read_retrieval_solution,
            f"{SOLUTION}t1,a,Public\nt2,b,public\n",
            'line 3: the Usage is "public"; expected Public or Private',
        ),
        (read_retrieval_solution, f"{SOLUTION}t1, ,Public\n", "line 2: the images are empty"),
        (read_retrieval_solution, f"{SOLUTION},a,Public\n", "line 2: the id is empty"),
        (
            read_retrieval_solution,
            f"{SOLUTION}t1,a,Public\nt2,a,Public\nt1,b,Public\n",
            "line 4: the id t1 is in line 2 already",
        ),
        (
            read_retrieval_solution,
            f"{SOLUTION}t1,None,Public\nt2,None,Private\n",
            "none of its 2 test images has index images",
        ),
        (read_image_to_landmark, "", "the file is empty"),
        (read_image_to_landmark, LANDMARKS, "no rows below the header"),
        (read_image_to_landmark, "id,landmark\na,1\n", "line 1: no column landmark_id"),
        (read_image_to_landmark, f"{LANDMARKS}a,1\nb,x\n", 'line 3: the landmark_id is "x"; expected a whole number'),
        (read_image_to_landmark, f"{LANDMARKS}a,1\nb,-1\n", "line 3: the landmark_id"),
        (read_image_to_landmark, f"{LANDMARKS}a,1\nb,0x10\n", "line 3: the landmark_id"),
        (read_image_to_landmark, f"{LANDMARKS}a,1\nb,\n", "line 3: the landmark_id"),
        (read_image_to_landmark, f"{LANDMARKS}a,{10**19}\n", "line 2: the landmark_id"),
        (read_image_to_landmark, f"{LANDMARKS}a,1\n\n,2\n", "line 4: the id is empty"),
        (read_image_to_landmark, f"{LANDMARKS}a,1\nb,2\na,1\n", "line 4: the id a is in line 2 already"),
        (read_image_to_landmark, f"{LANDMARKS}a,1\nb\n", "line 3: 1 values, expected 2"),
        (predicted, "id,landmarks\nt1,7 .5\n", "line 1: no column images"),
        (predicted, "id,images\n,a\n", "line 2: the id is empty"),
        (predicted, "id,images\nt1,\nt1,a\n", "line 3: the id t1 is in line 2 already; expected one row per image"),
        (predicted, "id,images\nt1,a\nt9,\n", "1 of 2 ids are not those of test images in the solution:\n.*t9"),
        (read_recognition_solution, "id,images,Usage\na,7,Public\n", "line 1: no column landmarks"),
        (read_recognition_solution, SHOWN, "no rows below the header"),
        (read_recognition_solution, f"{SHOWN},7,Public\n", "line 2: the id is empty"),
        (read_recognition_solution, f"{SHOWN}a,7,Public\na,7,Ignored\n", "line 3: the id a is in line 2 already"),
        (
            read_recognition_solution,
            f"{SHOWN}a,7,public\n",
            'line 2: the Usage is "public"; expected Public, Private or Ignored',
        ),
        (read_recognition_solution, f"{SHOWN}a,7  8,Public\n", 'line 2: a landmark is ""; expected whole numbers'),
        (
            read_recognition_solution,
            f"{SHOWN}a,None,Public\n",
            'line 2: a landmark is "None"; expected whole numbers',
        ),
        (recognised, "id,landmarks\n,7 .5\n", "line 2: the id is empty"),
        (
            recognised,
            "id,landmarks\na,7 .5\na,\n",
            "line 3: the id a has a prediction in line 2 already; expected one per image",
        ),
        (recognised, "id,landmarks\nu,7 .5\n", "line 2: the id u is not that of a test image in the solution"),
        (recognised, "id,landmarks\na,7\n", 'line 2: the prediction is "7"; expected one landmark and its score'),
        (recognised, "id,landmarks\na, \n", 'line 2: the prediction is " "; expected'),
        (recognised, "id,landmarks\na,7 .5 8 .4\n", "line 2: the prediction is"),
        (recognised, "id,landmarks\na,7 .5  \n", "line 2: the prediction is"),
        (recognised, "id,landmarks\na,7.0 .5\n", 'line 2: a landmark is "7.0"; expected whole numbers'),
        (recognised, "id,landmarks\na,7 high\n", 'line 2: the score is "high"; expected a number'),
        (recognised, "id,landmarks\na,7 nan\n", 'line 2: the score is "nan"; expected a number'),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, read: Callable[[Path], Any], content: str, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "absent.csv")


def test_real_part_of_the_index(shared: Path) -> None:
    path = shared / "released" / "index_image_to_landmark_part.csv"
    image_landmarks = read_image_to_landmark(path)
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    assert [
        f"{image},{landmark}"
        for image, landmark in zip(image_landmarks.ids, image_landmarks.landmark_ids, strict=True)
    ] == lines


@given(st.data())
def test_positions_of_positives_for_any_order_of_the_gallery(data: st.DataObject) -> None:
    gallery = data.draw(st.permutations([f"{n:016x}" for n in range(12)]))
    lists = data.draw(st.lists(st.lists(st.sampled_from(gallery), min_size=1, unique=True), min_size=1, max_size=5))
    rows = positive_positions(solution(*map(tuple, lists)), np.array(gallery))
    assert [{gallery[column] for column in rows.row(n)} for n in range(len(lists))] == [set(x) for x in lists]
    assert all((np.diff(rows.row(n)) > 0).all() for n in range(len(lists)))
    assert rows.columns.dtype == rows.offsets.dtype == np.int64


def test_images_missing_from_the_gallery_are_named() -> None:
    with pytest.raises(InputError) as caught:
        positive_positions(solution(("a", "y"), ("z", "y")), ["a", "b"])
    assert "2 of the 3 index images that the solution lists are not in the gallery (2 images)" in str(caught.value)
    assert "\n  y\n  z" in str(caught.value)


def test_gallery_with_a_repeated_id() -> None:
    with pytest.raises(InputError, match="the gallery: 1 of 3 ids are repeated"):
        positive_positions(solution(("a",)), ["a", "b", "a"])


def test_query_landmark_is_that_of_the_first_image() -> None:
    landmarks = ImageLandmarks(np.array(["a", "b", "c", "d"]), np.array([5, 6, 5, 7]))
    result = query_landmarks(solution(("d", "a", "b"), ("c", "a"), ("b", "c")), landmarks)
    assert result.landmark_ids.tolist() == [7, 5, 6]
    assert result.n_mixed == 2


def test_image_without_a_landmark_is_named() -> None:
    with pytest.raises(InputError, match=r"1 of the 2 index images .* not in the images with a landmark"):
        query_landmarks(solution(("a", "e")), ImageLandmarks(np.array(["a"]), np.array([1])))


def test_lists_are_read_in_order_and_blanks_keep_a_rank(tmp_path: Path) -> None:
    path = write(tmp_path, "id,images\nt3,c a b\nt1,\nt2,a  b\n")
    expected = {"t3": ("c", "a", "b"), "t1": (), "t2": ("a", "", "b")}
    assert read_retrieval_predictions(path, TEST_IMAGES) == expected


def test_written_predictions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "predictions.csv"
    write_retrieval_predictions(path, ["t1", "t2"], [["a", "b"], []])
    assert path.read_text("utf-8") == "id,images\nt1,a b\nt2,\n"
    assert read_retrieval_predictions(path, TEST_IMAGES) == {"t1": ("a", "b"), "t2": ()}


@pytest.mark.parametrize("image", ["", "a b", "a\n"])
def test_ids_with_whitespace_are_not_written(tmp_path: Path, image: str) -> None:
    with pytest.raises(InputError, match="is empty or has whitespace"):
        write_retrieval_predictions(tmp_path / "predictions.csv", ["t1"], [[image]])
    assert not any(tmp_path.iterdir())


def test_solution_is_read_by_part(tmp_path: Path) -> None:
    path = write(tmp_path, "id,landmarks,Usage\na,7 007 8,Public\nb,,Private\nc,any thing,Ignored\nd,,Ignored\n")
    solution = read_recognition_solution(path)
    assert solution.landmarks == {"Public": {"a": {7, 8}}, "Private": {"b": frozenset()}}
    assert solution.ignored_ids == {"c", "d"}


def test_predictions_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "id,landmarks\nc,8 -inf\nx,not looked at\nx,\na,\na,007 +1_0.0 \nb,\n")
    expected = {"c": LandmarkPrediction(8, float("-inf")), "a": LandmarkPrediction(7, 10.0)}
    assert read_recognition_predictions(path, RECOGNITION) == expected


def test_unknown_images_without_a_prediction_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_recognition_predictions(write(tmp_path, "id,landmarks\nu,\nv,\n"), RECOGNITION) == {}
    assert (
        "2 rows without a prediction are of images that are not in the solution, the first that of u" in caplog.text
    )


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

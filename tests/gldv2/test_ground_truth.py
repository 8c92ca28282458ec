"""Retrieval solutions, landmarks of index images, and positions of positives in a gallery."""

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.gldv2.ground_truth import (
    ImageLandmarks,
    RetrievalSolution,
    positive_positions,
    query_landmarks,
    read_image_to_landmark,
    read_retrieval_solution,
)

SOLUTION = "id,images,Usage\n"
LANDMARKS = "id,landmark_id\n"


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,images\nt,a\n", "line 1: no column Usage"),
        (f"{SOLUTION}t1,a,Public\nt2,b,public\n", 'line 3: the Usage is "public"; expected Public or Private'),
        (f"{SOLUTION}t1, ,Public\n", "line 2: the images are empty"),
        (f"{SOLUTION},a,Public\n", "line 2: the id is empty"),
        (f"{SOLUTION}t1,a,Public\nt2,a,Public\nt1,b,Public\n", "line 4: the id t1 is in line 2 already"),
        (f"{SOLUTION}t1,None,Public\nt2,None,Private\n", "none of its 2 test images has index images"),
    ],
)
def test_invalid_solutions(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_retrieval_solution(path)
    assert str(path) in str(caught.value)


def test_read_landmarks_in_the_order_of_the_file(tmp_path: Path) -> None:
    image_landmarks = read_image_to_landmark(write(tmp_path, f"{LANDMARKS}b,203093\na,7\n"))
    assert image_landmarks.ids.tolist() == ["b", "a"]
    assert image_landmarks.landmark_ids.dtype == np.int64
    assert image_landmarks.landmark_ids.tolist() == [203093, 7]


def test_unusual_but_valid_files(tmp_path: Path) -> None:
    image_landmarks = read_image_to_landmark(write(tmp_path, "x, landmark_id , id\r\n\r\n1, 07 , b \r\n1,3,a\r\n"))
    assert (image_landmarks.ids.tolist(), image_landmarks.landmark_ids.tolist()) == (["b", "a"], [7, 3])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        (LANDMARKS, "no rows below the header"),
        ("id,landmark\na,1\n", "line 1: no column landmark_id"),
        (f"{LANDMARKS}a,1\nb,x\n", 'line 3: the landmark_id is "x"; expected a whole number'),
        (f"{LANDMARKS}a,1\nb,-1\n", "line 3: the landmark_id"),
        (f"{LANDMARKS}a,1\nb,0x10\n", "line 3: the landmark_id"),
        (f"{LANDMARKS}a,1\nb,\n", "line 3: the landmark_id"),
        (f"{LANDMARKS}a,{10**19}\n", "line 2: the landmark_id"),
        (f"{LANDMARKS}a,1\n\n,2\n", "line 4: the id is empty"),
        (f"{LANDMARKS}a,1\nb,2\na,1\n", "line 4: the id a is in line 2 already"),
        (f"{LANDMARKS}a,1\nb\n", "line 3: 1 values, expected 2"),
    ],
)
def test_invalid_landmarks_of_images(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_image_to_landmark(write(tmp_path, content))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_image_to_landmark(tmp_path / "absent.csv")


def test_real_part_of_the_index(shared: Path) -> None:
    path = shared / "released" / "index_image_to_landmark_part.csv"
    image_landmarks = read_image_to_landmark(path)
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    assert [
        f"{image},{landmark}"
        for image, landmark in zip(image_landmarks.ids, image_landmarks.landmark_ids, strict=True)
    ] == lines


def test_positive_positions() -> None:
    rows = positive_positions(solution(("c", "a"), ("b",)), ["a", "b", "x", "c"])
    assert rows.offsets.tolist() == [0, 2, 3]
    assert rows.columns.tolist() == [0, 3, 1]
    assert rows.columns.dtype == rows.offsets.dtype == np.int64


@given(st.data())
def test_positive_positions_for_any_order_of_the_gallery(data: st.DataObject) -> None:
    gallery = data.draw(st.permutations([f"{n:016x}" for n in range(12)]))
    lists = data.draw(st.lists(st.lists(st.sampled_from(gallery), min_size=1, unique=True), min_size=1, max_size=5))
    rows = positive_positions(solution(*map(tuple, lists)), np.array(gallery))
    assert [{gallery[column] for column in rows.row(n)} for n in range(len(lists))] == [set(x) for x in lists]
    assert all((np.diff(rows.row(n)) > 0).all() for n in range(len(lists)))


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

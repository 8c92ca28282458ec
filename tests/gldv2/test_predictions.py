"""Files of predictions in the form of the public landmark retrieval challenges."""

from pathlib import Path

import pytest

from hgld.errors import InputError
from hgld.gldv2.ground_truth import read_retrieval_predictions, write_retrieval_predictions

TEST_IMAGES = ("t1", "t2", "t3")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "predictions.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_lists_are_read_in_order_and_blanks_keep_a_rank(tmp_path: Path) -> None:
    path = write(tmp_path, "id,images\nt3,c a b\nt1,\nt2,a  b\n")
    expected = {"t3": ("c", "a", "b"), "t1": (), "t2": ("a", "", "b")}
    assert read_retrieval_predictions(path, TEST_IMAGES) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,landmarks\nt1,7 .5\n", "line 1: no column images"),
        ("id,images\n,a\n", "line 2: the id is empty"),
        ("id,images\nt1,\nt1,a\n", "line 3: the id t1 is in line 2 already; expected one row per image"),
        ("id,images\nt1,a\nt9,\n", "1 of 2 ids are not those of test images in the solution:\n.*t9"),
    ],
)
def test_invalid_predictions_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_retrieval_predictions(write(tmp_path, content), TEST_IMAGES)


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

from pathlib import Path

import pytest

from hgld.datasets.readers.dyml import LEVELS, read_test_set
from hgld.errors import InputError
from tests.datasets.test_readers import write


@pytest.fixture
def vehicle(tmp_path: Path) -> Path:
    """As published: the first image stands in the line of the header."""
    for n, level in enumerate(LEVELS):
        write(tmp_path, {f"bmk_{level}/query.csv": f"fname, labels0.jpg, {n}\n5.jpg, 9\n7.jpg, 9\n"})
        write(tmp_path, {f"bmk_{level}/gallery.csv": f"fname, labels3.jpg, {n}\n5.jpg, 9\n0.jpg, {n}\n"})
    return tmp_path


def test_each_level_has_its_own_test_set(vehicle: Path) -> None:
    levels = read_test_set(vehicle)
    assert tuple(levels) == LEVELS
    middle = levels["middle"]
    assert middle.query_ids == ("bmk_middle/query/0.jpg", "bmk_middle/query/5.jpg", "bmk_middle/query/7.jpg")
    assert middle.gallery_ids == ("bmk_middle/gallery/3.jpg", "bmk_middle/gallery/5.jpg", "bmk_middle/gallery/0.jpg")
    assert middle.query_labels.tolist() == [1, 9, 9]
    assert middle.gallery_labels.tolist() == [1, 9, 1]
    assert levels["coarse"].gallery_labels.tolist() == [2, 9, 2]


def test_query_is_identified_in_the_gallery_by_name(vehicle: Path) -> None:
    fine = read_test_set(vehicle)["fine"]
    assert fine.self_positions.tolist() == [2, 1, -1]
    assert fine.gallery_ids[fine.self_positions[0]].endswith("/0.jpg")


@pytest.mark.parametrize("header", ["fname, labels0.jpg", "fname, labels", "fname,anything"])
def test_a_header_on_a_line_of_its_own(vehicle: Path, header: str) -> None:
    write(vehicle, {"bmk_fine/query.csv": f"{header}\n5.jpg, 9\n"})
    fine = read_test_set(vehicle)["fine"]
    assert fine.query_ids == ("bmk_fine/query/5.jpg",)
    assert fine.query_labels.tolist() == [9]


@pytest.mark.parametrize(
    "text",
    [
        "fname, coarse_id, middle_id, fine_id0.jpg, 1, 20, 300\n1.jpg, 2, 21, 301\n",
        "fname, fine_id, middle_id, coarse_id0.jpg, 300, 20, 1\n1.jpg, 301, 21, 2\n",
        "fname, fine_id0.jpg, middle_id, coarse_id\n0.jpg, 300, 20, 1\n1.jpg, 301, 21, 2\n",
    ],
)
def test_single_set_for_all_levels(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"mini-bmk_all_in_one/label.csv": text})
    levels = read_test_set(tmp_path)
    assert [levels[level].query_labels.tolist() for level in LEVELS] == [[300, 301], [20, 21], [1, 2]]
    for level in levels.values():
        assert level.query_ids == level.gallery_ids
        assert level.query_ids == ("mini-bmk_all_in_one/imgs/0.jpg", "mini-bmk_all_in_one/imgs/1.jpg")
        assert level.self_positions.tolist() == [0, 1]
        assert level.gallery_labels.tolist() == level.query_labels.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fname, labels0.jpg, x\n", 'line 1: the label is "x"'),
        ("fname, labels0.jpg, 1\n1.jpg, -1\n", 'line 2: the label is "-1"'),
        ("fname, labels0.jpg, 1\n1.jpg, 1\n0.jpg, 1\n", "line 3: 0.jpg is already in line 1"),
        ("fname, labels0.jpg, 1\n, 1\n", "line 2: the fname is empty"),
        ("fname, labels0.jpg, 1\n1.jpg\n", "line 2: 1 values, expected 2"),
        ("fname, labels0.jpg, 1, 2\n", "line 1: 3 values, expected 2"),
        ("fname\n0.jpg\n", "line 1: no column label"),
        ("", "the file is empty"),
    ],
)
def test_bad_rows_are_reported_by_line(vehicle: Path, text: str, message: str) -> None:
    write(vehicle, {"bmk_fine/query.csv": text})
    with pytest.raises(InputError, match=message) as caught:
        read_test_set(vehicle)
    assert str(vehicle / "bmk_fine" / "query.csv") in str(caught.value)


def test_names_with_conflicting_labels_are_refused(vehicle: Path) -> None:
    write(vehicle, {"bmk_coarse/gallery.csv": "fname, labels0.jpg, 2\n5.jpg, 8\n"})
    with pytest.raises(InputError, match=r"bmk_coarse: 1 queries have another label .* first 5.jpg \(9 and 8\)"):
        read_test_set(vehicle)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither bmk_fine .* nor mini-bmk_all_in_one"):
        read_test_set(tmp_path)


def test_missing_level_is_refused(vehicle: Path) -> None:
    (vehicle / "bmk_middle" / "gallery.csv").unlink()
    with pytest.raises(InputError, match="gallery.csv: no such file"):
        read_test_set(vehicle)

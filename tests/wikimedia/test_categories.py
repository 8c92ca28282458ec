"""GLDv2's category lists, valid and invalid."""

import logging
from pathlib import Path

import pytest

from hgld.errors import InputError
from hgld.wikimedia.scrape_files import read_categories

HEADER = "landmark_id,category\n"
URL = "http://commons.wikimedia.org/wiki/Category:"


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "train_label_to_category.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_read_gldv2_layout_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, f'{HEADER}7,{URL}Comet_Falls\n3,"{URL}St._Edge\'s_(Ledge,_Kent)"\n')
    landmarks = read_categories(path)
    assert [(x.landmark_id, x.title) for x in landmarks] == [
        (7, "Category:Comet Falls"),
        (3, "Category:St. Edge's (Ledge, Kent)"),
    ]
    assert landmarks[0].category == f"{URL}Comet_Falls"


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, f"category,extra,landmark_id\r\n{URL}A,x,1\r\n\r\n")
    assert [x.landmark_id for x in read_categories(path)] == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        (HEADER, "no rows below the header"),
        ("landmark_id,url\n1,x\n", r"line 1: no column category; found landmark_id,url"),
        (f"{HEADER}a,{URL}A\n", r'line 2: the landmark_id is "a"; expected a whole number'),
        (f"{HEADER}1_000,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}1.0,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}-1,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}١,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}1,{URL}A\n2,https://example.org/x\n", "line 3: .*not a URL of Wikimedia Commons"),
        (
            f"{HEADER}1,{URL}A\n2,{URL}B\n1,{URL}C\n",
            'line 4: the landmark_id "1" has the category .*:C, but line 2 says .*:A',
        ),
        (f"{HEADER}1,{URL}A_B\n1,{URL}A%20B\n", "line 3: .*A%20B, but line 2 says .*A_B"),
        (f"{HEADER}1,\n", "line 2: .*not a URL of Wikimedia Commons"),
        (f"{HEADER}1,Category:A\n", "line 2: .*not a URL of Wikimedia Commons"),
        (f"{HEADER}1,{URL}A,B\n", "line 2: 3 values, expected 2"),
        (f"{HEADER}1\n", "line 2: 1 values, expected 2"),
        (f'{HEADER}1,"{URL}A\n', "cannot be read as CSV"),
        (f"{HEADER}1,{URL}Caf".encode() + b"\xe9\n", "line 2: not UTF-8 .byte 0xe9."),
        ((HEADER + f"1,{URL}A\n").encode("utf-16"), "line 1: not UTF-8"),
    ],
)
def test_invalid_input_is_reported_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_categories(path)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_categories(tmp_path / "absent.csv")


def test_all_invalid_rows_are_reported_together(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "".join(f"x{n},{URL}A\n" for n in range(30)))
    with pytest.raises(InputError, match="30 bad rows") as caught:
        read_categories(path)
    assert "line 2:" in str(caught.value)
    assert "line 21:" in str(caught.value)
    assert "and 10 more" in str(caught.value)


def test_byte_order_mark_and_repeated_rows_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, f"\ufeff{HEADER}1,{URL}A\n1,{URL}A\n")
    with caplog.at_level(logging.WARNING):
        assert len(read_categories(path)) == 1
    assert "line 1 begins with a byte order mark" in caplog.text
    assert "1 rows repeat" in caplog.text


def test_real_file(shared: Path) -> None:
    landmarks = read_categories(shared / "wa_gldv2" / "train_label_to_category.csv")
    assert len(landmarks) == 844
    assert landmarks[0].title == "Category:Lime Kiln Point State Park"

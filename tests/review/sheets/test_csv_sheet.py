from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.io.csv_files import escape_formula, unescape_formula
from hgld.review.sheets.csv_sheet import read_csv_sheet, write_csv_sheet
from hgld.review.sheets.entries import Entry, read_entries
from hgld.review.sheets.rows import COLUMNS, label_rows
from tests.review.conftest import LABELS, Label, clean_table, clusters_table

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
#: Texts that begin with what matters here far more often than chance has it.
TRICKY = st.text("'=+-@\t\r\n＝;,\"aש😀", max_size=6)


@given(TRICKY)
def test_escaping_is_reversible_and_leaves_no_formula(text: str) -> None:
    assert unescape_formula(escape_formula(text)) == text
    assert not escape_formula(text).startswith(FORMULA_STARTS)


@given(st.text())
def test_ordinary_text_is_not_escaped(text: str) -> None:
    if not text.startswith(("'", "＝", "＋", "－", "＠", *FORMULA_STARTS)):
        assert escape_formula(text) == unescape_formula(text) == text


def test_round_trip(tmp_path: Path) -> None:
    labels = [
        *LABELS,
        Label("Q5", "=SUM(A1)", 2),
        Label("Q6", 'בית כנסת, "q"; 😀\u2028', 2),
        Label("Q7", "-\nx", 2),
    ]
    rows = label_rows(clusters_table(labels), clean_table(labels))
    entries = {
        "Q5": Entry("Q5", "=SUM(A1)", "lake", "group", '=x\n\'tis; "so"'),
        "Q1": Entry("Q1", "lake", decision="drop"),
    }
    path = tmp_path / "a.csv"
    write_csv_sheet(path, rows, entries)
    lines = read_csv_sheet(path)
    assert [line.values["label"] for line in lines] == [row.label for row in rows]
    assert [line.number for line in lines] == list(range(2, len(rows) + 2))
    assert read_entries(path, lines) == entries
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for record in csv.reader(stream):
            assert not any(value.startswith(FORMULA_STARTS) for value in record)
    # Each example is an address.
    assert lines[0].values["example 1"] == "https://commons.wikimedia.org/wiki/Category:Q1_train_0"


@pytest.mark.parametrize(("delimiter", "quoting"), [(";", csv.QUOTE_MINIMAL), ("\t", csv.QUOTE_ALL)])
def test_other_delimiters_are_read(tmp_path: Path, delimiter: str, quoting: Literal[0, 1]) -> None:
    path = tmp_path / "a.csv"
    rows = label_rows(clusters_table(LABELS), clean_table(LABELS))
    entry = Entry("Q3", "church building", "church", "", "a, b; c\u2028d\x85e")
    write_csv_sheet(path, rows, {"Q3": entry})
    with path.open(encoding="utf-8-sig", newline="") as stream:
        records = list(csv.reader(stream))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter, quoting=quoting, lineterminator="\n")
        writer.writerows(records)
    assert read_entries(path, read_csv_sheet(path)) == {"Q3": entry}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a review sheet: line 1 has no column label_id"),
        (b"landmark_id,category\n1,x\n", "line 1 has no column label_id, label"),
        (",".join(COLUMNS).encode() + b"\nQ1,caf\xe9\n", "not UTF-8"),
        (",".join(COLUMNS).encode() + b'\n"Q1,lake\n', "not a readable CSV file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_csv_sheet(path)


def test_libreoffice_keeps_escaped_text(tmp_path: Path, soffice: Callable[..., Path]) -> None:
    labels = [Label("Q1", "=1+1"), Label("Q2", "-5"), Label("Q3", "'=x"), Label("Q4", "@é")]
    path = tmp_path / "a.csv"
    write_csv_sheet(path, label_rows(clusters_table(labels), clean_table(labels)), {})
    saved = soffice(path, "csv", "Text - txt - csv (StarCalc):44,34,76")
    assert [line.values["label"] for line in read_csv_sheet(saved)] == ["=1+1", "-5", "'=x", "@é"]

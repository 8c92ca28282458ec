import codecs
import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.io.columns import escape_formula, unescape_formula
from hgld.review.labels import review_labels
from hgld.review.sheets.csv_sheet import read_csv_sheet, write_csv_sheet
from hgld.review.sheets.entries import COLUMNS, Entries, Entry, collect_entries, read_entries
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
    labels = [*LABELS, Label("Q5", "=SUM(A1)", 2), Label("Q6", 'בית כנסת, "q"; 😀\u2028', 2), Label("Q7", "-\nx", 2)]
    rows = review_labels(clusters_table(labels), clean_table(labels))
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
    rows = review_labels(clusters_table(LABELS), clean_table(LABELS))
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
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "not a review sheet: line 1 has no column label_id"),
        (b"landmark_id,category\n1,x\n", "line 1 has no column label_id, label"),
        (",".join(COLUMNS).encode() + b"\nQ1,caf\xe9\n", "line 2: not UTF-8"),
        (",".join(COLUMNS).encode() + b'\n"Q1,lake\n', "line 2: not readable as CSV, perhaps cut off"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_csv_sheet(path)


ENTRIES = {
    "Q1": Entry("Q1", "lake", "lake", "", 'a, b; "c"\nsecond line\td'),
    "Q4": Entry("Q4", "chapel", decision="drop"),
}


def sheet_records(tmp_path: Path, labels: Sequence[Label] = LABELS, entries: Entries = ENTRIES) -> list[list[str]]:
    """Return the records of a sheet that hgld wrote."""
    write_csv_sheet(tmp_path / "written.csv", review_labels(clusters_table(labels), clean_table(labels)), entries)
    with (tmp_path / "written.csv").open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.reader(stream))


def to_text(records: Sequence[Sequence[str]], delimiter: str = ",", line_end: str = "\r\n") -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator=line_end).writerows(records)
    return stream.getvalue()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("line_end", ["\r\n", "\n", "\r"])
def test_files_of_spreadsheet_programs_are_read(tmp_path: Path, encoding: str, delimiter: str, line_end: str) -> None:
    """With a separator line if need be, Excel's "Unicode text", and line ends of Windows, Linux and old Macs."""
    text = to_text(sheet_records(tmp_path), delimiter, line_end)
    if delimiter in ";|":
        text = f"sep={delimiter}{line_end}{text}"
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    path = tmp_path / "a.txt"
    path.write_bytes(mark + text.encode(encoding))
    rows = read_csv_sheet(path)
    assert [row.number for row in rows] == [2, 3, 4, 5]
    assert read_entries(path, rows) == ENTRIES


def problems_of(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8", newline="")
    return [text for _, text in collect_entries(read_csv_sheet(path))[1]]


def test_rows_cut_short_are_problems_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    records = sheet_records(tmp_path)
    cause = "is the row cut off, or a value with a comma not in quotes?"
    short = [*records[:2], records[2][:7], *records[3:]]
    # The first row has a line end in its comment.
    assert problems_of(path, to_text(short)) == [f"row 3: line 4 has 7 cells, not 13; {cause}"]
    assert problems_of(path, "sep=,\r\n" + to_text(short)) == [f"row 3: line 5 has 7 cells, not 13; {cause}"]
    long = [*records[:3], [*records[3], "not in quotes"], records[4]]
    assert problems_of(path, to_text(long)) == [f"row 4: line 5 has 14 cells, not 13; {cause}"]
    blank = [*records[:3], [], ["", ""], [*records[3], "", ""], records[4]]
    assert problems_of(path, to_text(blank)) == []


@given(length=st.integers(min_value=0, max_value=2000))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_file_that_was_cut_off_is_refused_or_has_fewer_rows(tmp_path: Path, length: int) -> None:
    """A cut between rows is found by the labels that have no row."""
    path = tmp_path / "cut.csv"
    text = to_text(sheet_records(tmp_path))
    path.write_text(text[:length], encoding="utf-8", newline="")
    try:
        rows = read_csv_sheet(path)
        entries = read_entries(path, rows)
    except InputError:
        return
    whole_comment = ENTRIES["Q1"].comment
    assert {row.label_id for row in rows} < {"Q1", "Q2", "Q3", "Q4"} or entries == ENTRIES
    assert "Q1" not in entries or entries["Q1"].comment in (whole_comment, "")


def test_columns_that_excel_omits_are_blank(tmp_path: Path) -> None:
    """Excel omits columns at the end that are blank in 16 rows."""
    labels = [Label(f"Q{number}", f"label {number}") for number in range(100, 145)]
    entries = {f"Q{number}": Entry(f"Q{number}", f"label {number}", "lake") for number in (103, 140)}
    records = sheet_records(tmp_path, labels, entries)
    omitted = []
    for first in range(0, len(records), 16):
        block = records[first : first + 16]
        width = max(number for record in block for number, text in enumerate(record, 1) if text)
        omitted += [record[:width] for record in block]
    assert [len(record) for record in omitted[::16]] == [13, 7, 11]
    path = tmp_path / "a.csv"
    path.write_text(to_text(omitted), encoding="utf-8", newline="")
    rows = read_csv_sheet(path)
    assert read_entries(path, rows) == entries
    assert len(rows) == 45
    omitted[20] = omitted[20][:4]
    assert problems_of(path, to_text(omitted))[0].startswith("row 21: line 21 has 4 cells, not 13")


@pytest.mark.slow
def test_libreoffice_keeps_escaped_text(tmp_path: Path, soffice: Callable[..., Path]) -> None:
    labels = [Label("Q1", "=1+1"), Label("Q2", "-5"), Label("Q3", "'=x"), Label("Q4", "@é")]
    path = tmp_path / "a.csv"
    write_csv_sheet(path, review_labels(clusters_table(labels), clean_table(labels)), {})
    saved = soffice(path, "csv", "Text - txt - csv (StarCalc):44,34,76")
    assert [line.values["label"] for line in read_csv_sheet(saved)] == ["=1+1", "-5", "'=x", "@é"]

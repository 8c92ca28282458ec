"""Rows and entries of sheets, sheets as CSV, and facts about labels."""

import codecs
import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.io.table_rows import escape_formula, unescape_formula
from hgld.review.labels import MAX_UNITS, FactBook, fit_for_cell, review_labels
from hgld.review.sheets.entries import (
    COLUMNS,
    Entries,
    Entry,
    SheetRow,
    collect_entries,
    entries_digest,
    merge_entries,
    normalise_entry,
    read_csv_sheet,
    read_entries,
    write_csv_sheet,
)
from hgld.tables import CLASSES, CLEAN
from hgld.taxonomy.label_identity import label_id
from tests.review.conftest import COMMONS, LABELS, Label, clean_table, clusters_table

CELL = st.sampled_from(["", "", "church", "drop", "why?"])
ENTRIES = st.dictionaries(st.sampled_from(["Q1", "Q2", "Q3"]), st.tuples(CELL, CELL, CELL)).map(
    lambda drawn: {key: Entry(key, "", *cells) for key, cells in drawn.items() if any(cells)}
)


def test_columns() -> None:
    assert ",".join(COLUMNS) == (
        "label_id,label,landmarks,parents,cluster,sub-cluster,example 1,example 2,example 3,"
        "suggested group,group,decision,comment"
    )


def test_rows_are_sorted_by_cluster_subcluster_and_landmarks() -> None:
    labels = [
        Label("Q7", "f", 1, 5),
        Label("Q6", "e", 0, 4, train=1, index=8),
        Label("Q5", "d", 0, 4, train=9),
        Label("Q4", "c", 0, 3, train=1),
        Label("Q30", "b", 0, 3, train=2),
    ]
    rows = review_labels(clusters_table(labels), clean_table(labels))
    assert [row.label_id for row in rows] == ["Q30", "Q4", "Q5", "Q6", "Q7"]
    assert [row.landmarks for row in rows] == [2, 1, 9, 9, 1]


def test_examples_come_from_train_then_index() -> None:
    rows = {row.label_id: row.examples for row in review_labels(clusters_table(LABELS), clean_table(LABELS))}
    assert rows["Q1"] == tuple(f"Category:Q1 train {n}" for n in range(3))
    assert rows["Q3"] == ("Category:Q3 train 0", "Category:Q3 train 1", "Category:Q3 index 0")
    assert rows["Q2"] == ("Category:Q2 train 0",)


def test_category_in_both_splits_is_one_example() -> None:
    row = {"landmark_id": 1, "category": f"{COMMONS}Seen_twice", "supercategory": "lake", "class_item": "Q1"}
    clean = pa.Table.from_pylist([row | {"split": "train"}, row | {"split": "index"}], CLEAN.schema)
    assert review_labels(clusters_table(LABELS[:1]), clean)[0].examples == ("Category:Seen twice",)


def test_labels_without_an_item_have_examples() -> None:
    labels = [Label(label_id("Lake ", None), "lake"), Label("Q1", "lake")]
    rows = review_labels(clusters_table(labels), clean_table(labels))
    assert all(len(row.examples) == 1 for row in rows)
    assert rows[0].examples != rows[1].examples


def test_invalid_category_url_is_reported() -> None:
    clean = clean_table(LABELS)
    clean = clean.set_column(2, "category", pa.array(["Lake"] * len(clean)))
    with pytest.raises(InputError, match='"Lake" is not a URL of Wikimedia Commons'):
        review_labels(clusters_table(LABELS), clean)


def test_parents_are_labelled_from_the_first_table() -> None:
    def classes(*rows: tuple[str, str, list[str]]) -> pa.Table:
        columns = ("item", "label", "subclass_of")
        named = [dict(zip(columns, row, strict=True)) | {"language": "en"} for row in rows]
        return pa.Table.from_pylist(named, CLASSES.schema)

    tables = [classes(("Q1", "lake", ["Q10", "Q11"])), classes(("Q1", "lake", []), ("Q10", "body of water", []))]
    rows = {row.label_id: row for row in review_labels(clusters_table(LABELS), clean_table(LABELS), tables)}
    assert rows["Q1"].parents == "body of water, Q11"
    assert rows["Q2"].parents == ""


@given(st.text())
def test_ordinary_text_is_unchanged(text: str) -> None:
    fitted = fit_for_cell(text)
    assert fit_for_cell(fitted) == fitted
    assert len(fitted) == len(text)
    legal = [char for char in text if char in "\t\n\r" or (char >= " " and char not in "\ufffe\uffff")]
    assert [char for char in fitted if char != "\ufffd"] == [char for char in legal if char != "\ufffd"]


@pytest.mark.parametrize("char", ["a", "é", "😀", "ש"])
@pytest.mark.parametrize("excess", [-1, 0, 1, 2])
def test_long_text_is_cut_to_fit_a_cell(char: str, excess: int) -> None:
    units = len(char.encode("utf-16-le")) // 2
    text = "x" + char * ((MAX_UNITS + excess) // units)
    fitted = fit_for_cell(text)
    assert len(fitted.encode("utf-16-le")) // 2 <= MAX_UNITS
    if fitted != text:
        assert fitted.endswith("…")
        assert text.startswith(fitted[:-1])
        assert len(fitted) > len(text) - 4


def test_entries_are_keyed_by_label_id() -> None:
    rows = [
        SheetRow(2, {"label_id": "Q1", "label": "lake", "group": " lake ", "decision": "", "comment": ""}),
        SheetRow(3, {"label_id": "Q2", "label": "x", "group": " ", "decision": "", "comment": "\n"}),
        SheetRow(4, {"label_id": "", "label": "", "group": "", "decision": "", "comment": ""}),
    ]
    assert read_entries(Path("a.csv"), rows) == {"Q1": Entry("Q1", "lake", group="lake")}


def test_unreadable_rows_are_reported() -> None:
    rows = [
        SheetRow(2, {"label_id": "Q1", "label": "lake", "group": "lake"}),
        SheetRow(3, {"label_id": "Q1", "label": "lake", "decision": "drop"}),
        SheetRow(4, {"label_id": "", "comment": "hm"}),
    ]
    with pytest.raises(InputError) as error:
        read_entries(Path("a.csv"), rows)
    assert str(error.value).splitlines() == [
        "a.csv: 2 problems to fix before it can be read:",
        '  row 3, label_id: Q1 ("lake") has the decision "drop" here, but the group "lake" in row 2; '
        "remove one of the rows",
        "  row 4, label_id: the row has an entry, but no label_id",
    ]
    entries, _ = collect_entries(rows)
    assert "Q1" not in entries, "of two rows for Q1 neither is taken"


def test_line_ends_are_normalised() -> None:
    assert normalise_entry(" a_x000D_\nb\r\nc ") == normalise_entry("a\nb\nc") == "a\nb\nc"


@given(ENTRIES, ENTRIES)
def test_merging_keeps_every_entry_or_fails(first: dict[str, Entry], second: dict[str, Entry]) -> None:
    cells = [
        (key, column, getattr(entry, column))
        for entries in (first, second)
        for key, entry in entries.items()
        for column in ("group", "decision", "comment")
        if getattr(entry, column)
    ]
    wanted = {(key, column): text for key, column, text in cells}
    if any(wanted[key, column] != text for key, column, text in cells):
        with pytest.raises(InputError, match="contradictions? between entries"):
            merge_entries(first, second)
    else:
        combined = merge_entries(first, second)
        assert {
            (key, column): getattr(entry, column)
            for key, entry in combined.items()
            for column in ("group", "decision", "comment")
            if getattr(entry, column)
        } == wanted
        assert entries_digest(combined) == entries_digest(merge_entries(second, first))


@given(ENTRIES, ENTRIES)
def test_digests_differ_if_and_only_if_entries_do(first: dict[str, Entry], second: dict[str, Entry]) -> None:
    assert (entries_digest(first) == entries_digest(second)) == (first == second)


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


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


FILLED = {
    "Q1": Entry("Q1", "lake", "lake", "", 'a, b; "c"\nsecond line\td\u2028e\x85f'),
    "Q4": Entry("Q4", "chapel", decision="drop"),
}


def sheet_records(tmp_path: Path, labels: Sequence[Label] = LABELS, entries: Entries = FILLED) -> list[list[str]]:
    """Return the records of a sheet that hgld wrote."""
    write_csv_sheet(tmp_path / "written.csv", review_labels(clusters_table(labels), clean_table(labels)), entries)
    with (tmp_path / "written.csv").open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.reader(stream))


def to_text(
    records: Sequence[Sequence[str]], delimiter: str = ",", line_end: str = "\r\n", quoting: Literal[0, 1] = 0
) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator=line_end, quoting=quoting).writerows(records)
    return stream.getvalue()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_files_of_spreadsheet_programs_are_read(
    tmp_path: Path, encoding: str, delimiter: str, line_end: str, quoting: Literal[0, 1]
) -> None:
    """Also Excel's "Unicode text", and line ends of Windows, Linux and old Macs."""
    text = to_text(sheet_records(tmp_path), delimiter, line_end, quoting)
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    path = tmp_path / "a.txt"
    path.write_bytes(mark + text.encode(encoding))
    rows = read_csv_sheet(path)
    assert [row.number for row in rows] == [2, 3, 4, 5]
    assert read_entries(path, rows) == FILLED


def problems_of(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8", newline="")
    return [text for _, text in collect_entries(read_csv_sheet(path))[1]]


@pytest.mark.parametrize("delimiter", [";", ",", "\t", "|"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_first_line_that_names_the_separator_is_no_header(tmp_path: Path, delimiter: str, quote: str) -> None:
    """Excel reads it, and some programs write it."""
    path = tmp_path / "ada.csv"
    write_csv_sheet(
        path, review_labels(clusters_table(LABELS), clean_table(LABELS)), {"Q1": Entry("Q1", "lake", "lake")}
    )
    expected = read_csv_sheet(path)
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(csv.reader(path.read_text("utf-8-sig").splitlines()))
    path.write_text(f"{quote}sep={delimiter}{quote}\n{text.getvalue()}", "utf-8-sig")
    assert read_csv_sheet(path) == expected
    path.write_text(f"sep={delimiter}\n", "utf-8-sig")
    with pytest.raises(InputError, match="not a review sheet"):
        read_csv_sheet(path)


@pytest.mark.parametrize(
    ("delimiter", "name"), [(",", "a comma"), (";", "a semicolon"), ("\t", "a tab"), ("|", '"|"')]
)
def test_long_rows_are_explained_by_the_separator_of_the_file(tmp_path: Path, delimiter: str, name: str) -> None:
    records = sheet_records(tmp_path)
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([*records[:3], [*records[3], "x"]])
    (problem,) = problems_of(tmp_path / "a.csv", f"sep={delimiter}\n{text.getvalue()}")
    assert problem.endswith(f" cells, not 13; is a value with {name} not in quotes?")


def test_rows_with_too_many_cells_are_problems_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    records = sheet_records(tmp_path)
    cause = "is a value with a comma not in quotes?"
    # The first row has a line end in its comment.
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
    whole_comment = FILLED["Q1"].comment
    assert {row.label_id for row in rows} < {"Q1", "Q2", "Q3", "Q4"} or entries == FILLED
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


@pytest.mark.slow
def test_libreoffice_keeps_escaped_text(tmp_path: Path, soffice: Callable[..., Path]) -> None:
    labels = [Label("Q1", "=1+1"), Label("Q2", "-5"), Label("Q3", "'=x"), Label("Q4", "@é")]
    path = tmp_path / "a.csv"
    write_csv_sheet(path, review_labels(clusters_table(labels), clean_table(labels)), {})
    saved = soffice(path, "csv", "Text - txt - csv (StarCalc):44,34,76")
    assert [line.values["label"] for line in read_csv_sheet(saved)] == ["=1+1", "-5", "'=x", "@é"]


def classes(*rows: tuple[str, str, str | None, list[str]]) -> pa.Table:
    names = ("item", "label", "description", "subclass_of")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], CLASSES.schema)


def test_class_with_superclasses_known_and_unknown() -> None:
    tables = [
        classes(("Q2", "glacial lake", "lake made by a glacier", ["Q1", "Q99"])),
        classes(("Q1", "lake", None, []), ("Q2", "another label", None, [])),
    ]
    facts = FactBook(clean_table([]), tables)
    url = "https://www.wikidata.org/wiki/"
    above = [("lake", f"{url}Q1"), ("Q99", f"{url}Q99")]
    description = "lake made by a glacier"
    assert facts.facts("Q2") == {"description": description, "url": f"{url}Q2", "superclasses": above}
    assert facts.facts("Q1") == {"description": "", "url": f"{url}Q1", "superclasses": []}


def test_label_without_an_item_has_no_links() -> None:
    identity = label_id("lookout", None)
    facts = FactBook(clean_table([])).facts(identity)
    assert facts == {"description": "", "url": "", "superclasses": []}


def test_all_landmarks_of_a_label_by_name() -> None:
    rows = [
        {"split": split, "landmark_id": number, "category": category, "supercategory": text, "class_item": item}
        for split, number, category, text, item in [
            ("train", 1, f"{COMMONS}Zig_Zag_Lake", "lake", "Q1"),
            ("index", 2, f"{COMMONS}aqua", "Lake", "Q1"),
            ("train", 3, "no address", "lake", "Q1"),
            ("train", 4, f"{COMMONS}Pond", "pond", None),
        ]
    ]
    facts = FactBook(pa.Table.from_pylist(rows, CLEAN.schema))
    assert [name for name, _ in facts.landmarks("Q1")] == ["Aqua", "landmark 3", "Zig Zag Lake"]
    assert facts.landmarks("Q1")[1][1] == ""
    assert facts.landmarks(label_id("pond", None)) == [("Pond", f"{COMMONS}Pond")]
    assert facts.landmarks("Q404") == []

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.review.labels import MAX_UNITS, fit_for_cell, review_labels
from hgld.review.sheets.entries import (
    COLUMNS,
    Entry,
    SheetRow,
    collect_entries,
    entries_digest,
    merge_entries,
    normalise_entry,
    read_entries,
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
        SheetRow(5, {"label_id": "Q5", "label": "x", "comment": "nul\x00"}),
        SheetRow(6, {"label_id": "Q6", "label": "x", "comment": "x" * (MAX_UNITS + 1)}),
    ]
    with pytest.raises(InputError) as error:
        read_entries(Path("a.csv"), rows)
    assert str(error.value).splitlines() == [
        "a.csv: 4 problems to fix before it can be read:",
        '  row 3, label_id: Q1 ("lake") has the decision "drop" here, but the group "lake" in row 2; '
        "remove one of the rows",
        "  row 4, label_id: the row has an entry, but no label_id",
        *(
            f"  row {row}, comment: control characters or more than 32,767 characters, which no workbook can hold"
            for row in (5, 6)
        ),
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

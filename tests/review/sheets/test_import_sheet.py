import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import load_workbook
from openpyxl.worksheet.formula import ArrayFormula

from hgld.cli.review import format_import
from hgld.errors import ConfigurationError, InputError
from hgld.names import stored_name
from hgld.review.labels import fit_for_cell
from hgld.review.settings import ExportConfig, ImportConfig
from hgld.review.sheets.entries import SheetRow
from hgld.review.sheets.export import export_sheets
from hgld.review.sheets.import_sheet import ImportSummary, check_sheet, default_output, import_sheet
from hgld.taxonomy.decisions import Decision, decision_problem, read_decisions, write_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.review.conftest import NOON, Label
from tests.sheet_files import csv_rows, fill, write_xlsx

TABLES = Callable[..., Path]
ADA = ImportConfig("ada")
VALID_ROWS = ImportConfig("ada", valid_rows_only=True)
CHECKOUT = Path(__file__).parents[3]
GROUPS = {group.name for group in read_taxonomy(CHECKOUT / "annotations/taxonomy.csv")}
#: Labels that a spreadsheet program could change.
NASTY = ("=1+1", "-1", "1862", "1862.0", "3-4", "TRUE", "a\nb", "a\tb", "a  b", "בית כנסת", "😀\u2028x", "nul\x00")


def run(
    sheet: Path, config: ImportConfig = ADA, *, now: datetime = NOON, force: bool = False
) -> ImportSummary | None:
    return import_sheet(sheet, default_output(sheet, config.annotator), config, now=now, force=force)


def problems(sheet: Path) -> list[str]:
    """Return the lines of the message with which a sheet is refused."""
    with pytest.raises(InputError) as error:
        run(sheet)
    return str(error.value).splitlines()


def imported(review: Path) -> dict[str, Decision]:
    rows = read_decisions(review.parent / "decisions/ada.csv", GROUPS)
    return {row.label_id: row for row in rows}


def add_mistakes(path: Path) -> None:
    """Make every kind of mistake in a workbook of ``LABELS``, whose order is Q1, Q2, Q4, Q3."""
    book = load_workbook(path)
    sheet = book["Labels"]
    sheet["K2"], sheet["L2"] = "lake", "drop"
    sheet["A3"], sheet["K3"] = "Q77", "lake"
    sheet["B4"], sheet["K4"] = "lake", "church"
    sheet["L5"] = "group"
    for row, (label_id, label, *entries) in enumerate(
        [("Q1", "lake", "river", None, None), (None, None, "lake", None, None), ("Q9", "gone", None, None, None)], 6
    ):
        sheet.cell(row, 1).value, sheet.cell(row, 2).value = label_id, label
        for column, entry in enumerate(entries, 11):
            sheet.cell(row, column).value = entry
    book.save(path)


MISTAKES = {
    "A3": 'there is no label_id "Q77"',
    "B4": 'the label is "lake", but Q4 is "chapel"',
    "K5": "decided as group, but no group is given",
    "A6": 'Q1 ("lake") has the group "river" here, but the group "lake", the decision "drop" in row 2; '
    "remove one of the rows",
    "A7": "the row has an entry, but no label_id",
    "A8": 'there is no label_id "Q9"',
}
#: Q2 was made Q77.
MISSING = ["  1 label without a row:", '    Q2 ("glacial lake")']


@pytest.mark.parametrize("suffix", ["xlsx", "csv"])
@pytest.mark.parametrize(
    "entered",
    ["castle\u00a0/ fort", "castle\u202f/\u00a0fort", " castle / fort\u00a0", "castle  / fort", "castle\u2007/ fort"],
)
def test_white_space_in_entries_is_any(review: Path, suffix: str, entered: str) -> None:
    """Web pages, word processors and French keyboards put no-break spaces into names."""
    fill(review / f"ada.{suffix}", Q1=entered, Q2={"decision": "drop\u00a0"})
    run(review / f"ada.{suffix}")
    assert {key: row.group or row.decision for key, row in imported(review).items()} == {
        "Q1": "castle / fort",
        "Q2": "drop",
    }


def test_groups_with_no_break_spaces_are_chosen_from_the_list(review: Path) -> None:
    """The drop-down list has the name of the taxonomy."""
    taxonomy = review / "taxonomy.csv"
    write_taxonomy(
        taxonomy, [Group("castle\u00a0/ fort", "human-made", "Walls."), Group("lake", "natural", "Water.")]
    )
    for entered in ("castle\u00a0/ fort", "castle / fort"):
        fill(review / "ada.xlsx", Q1=entered)
        out = review / "out.csv"
        import_sheet(review / "ada.xlsx", out, ADA, taxonomy=taxonomy, force=True)
        assert [row.group for row in read_decisions(out, None)] == [read_taxonomy(taxonomy)[0].key]


def test_entries_become_decisions(review: Path) -> None:
    fill(
        review / "ada.xlsx",
        Q1={"group": "lake", "comment": "sure"},
        Q2={"group": "lake", "decision": "group"},
        Q3={"decision": "drop"},
        Q4={"group": "church", "decision": "unsure", "comment": "two\nlines"},
    )
    summary = not_none(run(review / "ada.xlsx", now=NOON.replace(microsecond=5)))
    assert format_import(summary) == (
        "4 of 4 labels decided (15 of 15 landmarks): 2 into 1 group, 1 dropped, 1 unsure\n"
        "  4 new, 0 changed, 0 withdrawn"
    )
    assert imported(review) == {
        "Q1": Decision("Q1", "lake", "group", "lake", "ada", NOON, "sure", blind=False),
        "Q2": Decision("Q2", "glacial lake", "group", "lake", "ada", NOON, blind=False),
        "Q3": Decision("Q3", "church building", "drop", None, "ada", NOON, blind=False),
        "Q4": Decision("Q4", "chapel", "unsure", "church", "ada", NOON, "two\nlines", blind=False),
    }


def test_sheets_show_names_and_decisions_hold_keys(tables: TABLES, tmp_path: Path) -> None:
    taxonomy, clusters = tmp_path / "taxonomy.csv", tables()
    write_taxonomy(taxonomy, [Group("still water", "natural", "Lakes.", key="lake")])
    export_sheets(clusters, tmp_path / "review", ExportConfig(("ada",)), taxonomy=taxonomy)
    labels = load_workbook(tmp_path / "review/ada.xlsx")["Labels"]
    header = [cell.value for cell in labels[1]]
    assert labels.cell(2, 1 + header.index("suggested group")).value == "still water"
    fill(tmp_path / "review/ada.xlsx", Q1="still water")
    for _ in range(2):
        import_sheet(tmp_path / "review/ada.xlsx", tmp_path / "ada.csv", ADA, taxonomy=taxonomy)
        assert [row.group for row in read_decisions(tmp_path / "ada.csv", {"lake"})] == ["lake"]


def test_a_decision_keeps_its_time_until_it_changes(review: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(review / "ada.xlsx", Q1="lake", Q2="lake", Q3="church")
    run(review / "ada.xlsx")
    out = review.parent / "decisions/ada.csv"
    before = out.read_bytes()
    later = NOON + timedelta(days=1)
    assert run(review / "ada.xlsx", now=later) is None
    assert out.read_bytes() == before

    fill(review / "ada.xlsx", Q2="river", Q3={"group": None}, Q4={"decision": "drop"})
    summary = not_none(run(review / "ada.xlsx", now=later))
    assert (summary.new, summary.changed, summary.withdrawn) == (1, 1, 1)
    assert 'Q3 ("church building")' in caplog.text
    assert {key: row.decided_at for key, row in imported(review).items()} == {"Q1": NOON, "Q2": later, "Q4": later}

    summary = not_none(run(review / "ada.xlsx", now=later, force=True))
    assert summary.new == 3
    assert {row.decided_at for row in imported(review).values()} == {later}


def test_all_problems_are_reported_and_nothing_is_imported(review: Path) -> None:
    add_mistakes(review / "ada.xlsx")
    lines = problems(review / "ada.xlsx")
    assert lines[0] == f"{review}/ada.xlsx: 7 problems, nothing was imported:"
    assert lines[1:-1] == [f"  Labels!{cell}: {text}" for cell, text in MISTAKES.items()] + MISSING
    assert "`valid_rows_only`" in lines[-1]
    assert not (review.parent / "decisions").exists()


def test_valid_rows_only(review: Path) -> None:
    add_mistakes(review / "ada.xlsx")
    fill(review / "ada.xlsx", Q3={"decision": "drop"})
    summary = not_none(run(review / "ada.xlsx", VALID_ROWS))
    assert len(summary.problems) == 6
    assert "  Labels!A8: there is no label_id" in format_import(summary)
    assert set(imported(review)) == {"Q3"}, "of two rows for Q1 neither is taken"
    again = run(review / "ada.xlsx", VALID_ROWS)
    assert again is not None, "skipped rows are reported every time"
    assert again.problems == summary.problems


@pytest.mark.parametrize(
    ("entries", "cell", "text"),
    [
        ({"group": "lake", "decision": "drop"}, "K2", 'dropped, but it has the group "lake"'),
        ({"group": "Lake"}, "K2", 'the taxonomy has no group "Lake"'),
        ({"group": "puddle", "decision": "unsure"}, "K2", 'the taxonomy has no group "puddle"'),
        ({"decision": "yes"}, "L2", 'the decision is "yes"; expected one of group, drop, unsure'),
        ({"comment": "hm"}, "M2", "a comment without a decision"),
        ({"decision": "drop", "comment": "x" * 2001}, "M2", "the comment has 2,001 characters"),
    ],
)
def test_invalid_entries_are_reported(review: Path, entries: dict[str, str], cell: str, text: str) -> None:
    fill(review / "ada.xlsx", Q1=entries)
    first, second, *_ = problems(review / "ada.xlsx")
    assert first.endswith(": 1 problem, nothing was imported:")
    assert second.startswith(f"  Labels!{cell}: {text}")
    fill(review / "ada.csv", Q1=entries)
    column = {"K": "group", "L": "decision", "M": "comment"}[cell[0]]
    assert problems(review / "ada.csv")[1].startswith(f"  row 2, {column}: {text}")


@pytest.mark.slow
def test_merged_cells(review: Path, soffice: Callable[..., Path]) -> None:
    book = load_workbook(review / "ada.xlsx")
    sheet = book["Labels"]
    sheet["K2"], sheet["K5"] = "lake", "church"
    sheet.merge_cells("K2:K3")
    sheet.merge_cells("G4:H4")
    sheet.merge_cells("P5:Q6")  # beside the table
    book.save(review / "ada.xlsx")
    for path in (review / "ada.xlsx", soffice(review / "ada.xlsx", "xlsx")):
        clusters, out = review.parent / "clusters.parquet", review / "out.csv"
        with pytest.raises(InputError) as error:
            import_sheet(path, out, ADA, clusters=clusters, now=NOON)
        assert str(error.value).splitlines()[1:-1] == [
            "  Labels!K2:K3: merged cells; separate them and fill in each",
            "  Labels!G4:H4: merged cells; separate them and fill in each",
        ]
        import_sheet(path, out, VALID_ROWS, clusters=clusters, now=NOON, force=True)
        assert [row.label_id for row in read_decisions(out, GROUPS)] == ["Q3"]


@pytest.mark.slow
def test_libreoffice_round_trip_changes_nothing(tables: TABLES, tmp_path: Path, soffice: Callable[..., Path]) -> None:
    """All decisions that come with hgld, and labels that a program could change, in every format."""
    seed = read_decisions(CHECKOUT / "annotations/decisions/final.csv", GROUPS)
    texts = [
        Decision(f"label-{n}", stored_name(text), "unsure", None, "seed", NOON, text) for n, text in enumerate(NASTY)
    ]
    entered = {row.label_id: row for row in (*seed, *texts)}
    labels = [Label(row.label_id, row.label, n // 30, n // 5) for n, row in enumerate(entered.values())]
    clusters = tables(labels)
    export_sheets(clusters, tmp_path / "review", ExportConfig(("ada",)))
    sheet, out = tmp_path / "review/ada.xlsx", tmp_path / "ada.csv"
    book = load_workbook(sheet)
    for row in book["Labels"].iter_rows(min_row=2):
        decision = entered[str(row[0].value)]
        row[10].value = decision.group
        row[11].value = None if decision.decision == "group" else decision.decision
        row[12].value, row[12].data_type = fit_for_cell(decision.comment), "s"
    book.save(sheet)
    import_sheet(sheet, out, ADA, clusters=clusters, now=NOON)
    imported_rows = {row.label_id: row for row in read_decisions(out, GROUPS)}
    assert imported_rows == {
        key: replace(
            row,
            label=fit_for_cell(row.label),
            annotator="ada",
            decided_at=NOON,
            comment=fit_for_cell(row.comment),
            blind=False,
        )
        for key, row in entered.items()
    }
    assert import_sheet(soffice(sheet, "xlsx"), out, ADA, clusters=clusters) is None


def test_only_the_label_of_another_row_is_a_problem(review: Path) -> None:
    fill(review / "ada.csv", Q1={"label": "01. Mrz", "group": "lake"})
    assert run(review / "ada.csv") is not None
    assert imported(review)["Q1"].label == "lake"
    # The label of another row, as after sorting a single column.
    fill(review / "ada.csv", Q1={"label": "chapel"})
    with pytest.raises(InputError, match='row 2, label: the label is "chapel", but Q1 is "lake"'):
        run(review / "ada.csv")


@pytest.mark.slow
def test_csv_saved_by_libreoffice(review: Path, soffice: Callable[..., Path]) -> None:
    fill(review / "ada.csv", Q3={"group": "church", "comment": "a, b\nc"})
    saved = soffice(review / "ada.csv", "csv", "Text - txt - csv (StarCalc):59,34,76")
    import_sheet(saved, review / "out.csv", ADA, clusters=review.parent / "clusters.parquet", now=NOON)
    (row,) = read_decisions(review / "out.csv", GROUPS)
    assert (row.label_id, row.group, row.comment) == ("Q3", "church", "a, b\nc")


def delete_row(path: Path, label_id: str) -> None:
    """Delete the row of a label in a workbook or a CSV file, as an annotator does by mistake."""
    if path.suffix == ".csv":
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if f'"{label_id}"'.encode() not in line))
        return
    book = load_workbook(path)
    (number,) = (cell.row for cell in book["Labels"]["A"] if cell.value == label_id)
    book["Labels"].delete_rows(number)
    book.save(path)


@pytest.mark.parametrize("name", ["ada.xlsx", "ada.csv"])
def test_missing_rows_are_named_and_restored_by_merge(review: Path, name: str) -> None:
    fill(review / name, Q1="lake", Q2="lake", Q3="lake")
    run(review / name)
    delete_row(review / name, "Q2")
    delete_row(review / name, "Q4")
    fill(review / name, Q3="")
    lines = problems(review / name)
    assert lines[1:4] == ["  2 labels without a row:", '    Q2 ("glacial lake")', '    Q4 ("chapel")']
    assert "export it again with `merge`, which keeps its entries" in lines[4]

    summary = not_none(run(review / name, VALID_ROWS))
    assert (summary.kept, summary.withdrawn) == (1, 1)
    assert "1 earlier decision kept, whose rows are missing or were skipped" in format_import(summary)
    assert set(imported(review)) == {"Q1", "Q2"}, "a missing row does not withdraw a decision, an empty one does"

    export_sheets(review.parent / "clusters.parquet", review, ExportConfig(("ada",), merge=True))
    summary = not_none(run(review / name))
    assert (summary.problems, summary.withdrawn) == ((), 1)
    assert set(imported(review)) == {"Q1"}


def test_skipped_rows_keep_their_decisions(review: Path) -> None:
    fill(review / "ada.xlsx", Q1="lake", Q2="lake")
    run(review / "ada.xlsx")
    fill(review / "ada.xlsx", Q2="puddle")
    summary = not_none(run(review / "ada.xlsx", VALID_ROWS))
    assert (summary.kept, summary.withdrawn) == (1, 0)
    assert imported(review)["Q2"].group == "lake"


def test_equal_rows_are_taken_once_and_different_ones_never(review: Path) -> None:
    path = review / "ada.xlsx"
    fill(path, Q1={"group": "lake", "comment": "sure"})
    book = load_workbook(path)
    for column, text in ((1, "Q1"), (2, "lake"), (11, "lake"), (13, "sure")):
        book["Labels"].cell(6, column).value = text
    book.save(path)
    assert run(path) is not None
    assert imported(review)["Q1"].comment == "sure"
    book["Labels"]["M6"] = "really"
    book.save(path)
    assert problems(path)[1:-1] == [
        '  Labels!A6: Q1 ("lake") has the group "lake", the comment "really" here, but the group "lake", '
        'the comment "sure" in row 2; remove one of the rows'
    ]


@pytest.mark.parametrize("group", ["PARKS", " parks ", "“parks”", "'Parks'", "park s", "parsk", "parks."])
@pytest.mark.parametrize("name", ["ada.xlsx", "ada.csv"])
def test_similar_groups_are_suggested(review: Path, name: str, group: str) -> None:
    fill(review / name, Q1=group)
    if group == " parks ":
        assert run(review / name) is not None, "white space around an entry is ignored"
        return
    with pytest.raises(InputError, match=f'the taxonomy has no group "{group}"; did you mean "parks"'):
        run(review / name)


@pytest.mark.slow
def test_formulas_are_named(review: Path, soffice: Callable[..., Path]) -> None:
    """Whatever a program calculated last is not taken."""
    book = load_workbook(review / "ada.xlsx")
    sheet = book["Labels"]
    sheet["K2"], sheet["M5"] = '="la"&"ke"', "=VLOOKUP(A5,lists!A:B,2,FALSE)&REPT(LEFT(A5),3)&REPT(LEFT(B5),3)"
    sheet["K3"] = ArrayFormula("K3:K4", '=IF(B3:B4="","","church")')
    sheet["C2"], sheet["N2"] = "=1+1", "=LEN(B2)"  # beside the entries and beside the table
    book.save(review / "ada.xlsx")
    for path in (review / "ada.xlsx", soffice(review / "ada.xlsx", "xlsx")):
        with pytest.raises(InputError) as error:
            import_sheet(path, review / "out.csv", ADA, clusters=review.parent / "clusters.parquet")
        lines = str(error.value).splitlines()[1:-1]
        assert [line.partition(":")[0] for line in lines] == [f"  Labels!{cell}" for cell in ("K2", "K3", "M5")]
        assert all("a formula, not a text: =" in line and line.endswith("with its value") for line in lines)
        assert '="la"&"ke"' in lines[0]
        assert "…" in lines[2]


def test_formulas_with_cached_values_are_named(review: Path) -> None:
    """Excel writes a formula that was filled down once, with the number of its range in the other cells."""

    def row(number: int, label_id: str, label: str, formula: str) -> str:
        texts = "".join(f'<c t="str"><v>{text}</v></c>' for text in (label_id, label))
        return f'<row r="{number}">{texts}<c r="K{number}" t="str">{formula}<v>lake</v></c></row>'

    header = "".join(f'<c t="str"><v>{name}</v></c>' for name in csv_rows(review / "ada.csv")[0])
    path = write_xlsx(
        review / "excel.xlsx",
        f"<row>{header}</row>"
        + row(2, "Q1", "lake", '<f t="shared" ref="K2:K3" si="0">J2</f>')
        + row(3, "Q2", "glacial lake", '<f t="shared" si="0"/>')
        + row(4, "Q3", "church building", "")
        + row(5, "Q4", "chapel", ""),
    )
    assert problems(path)[1:-1] == [
        f"  Labels!K{number}: a formula, not a text: =J{number}; replace it with its value" for number in (2, 3)
    ]


def test_formulas_in_csv_are_named(review: Path) -> None:
    fill(review / "ada.csv", Q1={"group": "=J2", "comment": "= see Q2"})
    with pytest.raises(InputError, match="row 2, group: a formula, not a text: =J2"):
        run(review / "ada.csv")
    fill(review / "ada.csv", Q1="lake")
    run(review / "ada.csv")
    assert imported(review)["Q1"].comment == "= see Q2"


def test_rearranged_workbook_is_read(review: Path) -> None:
    """Rows sorted by label, hidden and filtered; columns moved, added, and spelt in other case."""
    path = review / "ada.xlsx"
    fill(path, Q1="lake", Q2="lake", Q3="church", Q4="church")
    assert run(path) is not None
    book = load_workbook(path)
    sheet = book["Labels"]
    header, *rows = ([cell.value for cell in row] for row in sheet.iter_rows())
    rows.sort(key=lambda row: str(row[1]))
    header[10] = " GROUP "
    for number, row in enumerate([header, *rows], 1):
        for column, value in enumerate(["note", *reversed(row)], 1):
            sheet.cell(number, column).value = value
    sheet.row_dimensions[3].hidden = sheet.column_dimensions["B"].hidden = True
    sheet.auto_filter.add_filter_column(3, ["lake"])
    book.save(path)
    assert run(path) is None, "the decisions are the same"


def test_doubled_columns_are_refused(review: Path) -> None:
    book = load_workbook(review / "ada.xlsx")
    book["Labels"]["N1"] = "group"
    book.save(review / "ada.xlsx")
    with pytest.raises(InputError, match='row 1 of the sheet "Labels" has two columns group; remove one of them'):
        run(review / "ada.xlsx")


def test_sheet_of_an_earlier_clustering(tables: TABLES, review: Path) -> None:
    fill(review / "ada.xlsx", Q1="lake", Q4="church")
    tables([Label("Q1", "lake"), Label("Q3", "church building"), Label("Q2", "tarn")])
    *lines, last = problems(review / "ada.xlsx")
    assert lines[1:] == ['  Labels!A4: there is no label_id "Q4"']
    assert "export it again with `merge`" in last


def test_sheet_of_another_annotator_is_refused(review: Path) -> None:
    fill(review / "ben.xlsx", Q1="lake")
    with pytest.raises(ConfigurationError, match='exported for "ben", not for "ada"'):
        run(review / "ben.xlsx")
    run(review / "ben.xlsx", config=ImportConfig())
    assert default_output(review / "ben.xlsx", None) == review.parent / "decisions" / "ben.csv"
    with pytest.raises(ConfigurationError, match="ben.csv: does not say for whom it was exported"):
        run(review / "ben.csv", config=ImportConfig())
    with pytest.raises(ConfigurationError, match="cannot name a file"):
        ImportConfig("../ada")


def test_a_sheet_of_another_taxonomy_is_refused_in_one_line(review: Path, tmp_path: Path) -> None:
    fill(review / "ada.xlsx", Q1="lake", Q3="church", Q4="river")
    cheeses = tmp_path / "cheeses.csv"
    write_taxonomy(cheeses, [Group("soft", "cheese", "")])
    out = default_output(review / "ada.xlsx", "ada")
    with pytest.raises(InputError) as error:
        import_sheet(review / "ada.xlsx", out, ADA, taxonomy=cheeses)
    assert str(error.value) == (
        f"{review / 'ada.xlsx'}: 3 of its 3 groups are not in the taxonomy, such as church, lake, river; give the "
        "taxonomy that these decisions were made with as `taxonomy`"
    )
    fill(review / "ada.xlsx", Q4="soft")
    with pytest.raises(InputError, match="2 problems, nothing was imported"):
        import_sheet(review / "ada.xlsx", out, ADA, taxonomy=cheeses)


def test_decisions_of_others_are_not_overwritten(review: Path) -> None:
    fill(review / "ada.xlsx", Q1="lake")
    out = review.parent / "decisions/ada.csv"
    write_decisions(out, [Decision("Q3", "church building", "group", "church", "ben", NOON)])
    before = out.read_bytes()
    with pytest.raises(ConfigurationError, match="holds decisions by ben, which would be lost"):
        run(review / "ada.xlsx")
    assert out.read_bytes() == before
    run(review / "ada.xlsx", force=True)
    assert set(imported(review)) == {"Q1"}


def test_unreadable_files_are_refused(review: Path) -> None:
    with pytest.raises(InputError, match="no label is decided in it"):
        run(review / "ada.xlsx")
    with pytest.raises(InputError, match="no such file"):
        run(review / "cyd.xlsx")
    (review / "ben.xlsx").write_bytes(b"PK, but no more")
    with pytest.raises(InputError, match="not a readable workbook"):
        run(review / "ben.xlsx")
    (review / "ada.numbers").write_bytes(b"IWA")
    with pytest.raises(InputError, match="save it as .xlsx or .csv"):
        run(review / "ada.numbers")
    (review.parent / "clusters.parquet").unlink()
    with pytest.raises(ConfigurationError, match="`clusters`"):
        run(review / "ada.xlsx")


ENTRIES = st.tuples(
    st.sampled_from(["", "", "lake", "church", "puddle"]),
    st.sampled_from(["", "", "group", "drop", "unsure", "maybe"]),
    st.sampled_from(["", "why?"]),
)


@given(st.lists(ENTRIES, max_size=6))
def test_row_is_imported_if_and_only_if_it_is_a_decision(rows: list[tuple[str, str, str]]) -> None:
    labels = {f"Q{number}": f"label {number}" for number in range(1, len(rows) + 1)}
    sheet_rows = [
        SheetRow(number, {"label_id": key, "label": label, "group": group, "decision": choice, "comment": comment})
        for number, ((key, label), (group, choice, comment)) in enumerate(zip(labels.items(), rows, strict=True), 2)
    ]
    keys = {name: f"key of {name}" for name in GROUPS}
    checked = check_sheet(sheet_rows, labels=labels, groups=keys, annotator="ada", now=NOON)
    taken = {row.label_id: (row.group or "", row.decision, row.comment) for row in checked.decisions}
    for key, (group, choice, comment) in zip(labels, rows, strict=True):
        whole = (keys.get(group, group), choice or "group", comment)
        sound = (group or choice) and decision_problem(whole[1], group or None, GROUPS) is None
        assert taken.get(key) == (whole if sound else None)
    bad = {number for number, _ in checked.problems}
    assert len(taken) + len(bad) == sum(any(entries) for entries in rows)


def test_import_sheet_command(review: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    fill(review / "ada.xlsx", Q1="lake")
    command = ["import-sheet", str(review / "ada.xlsx"), "--annotator", "ada"]
    result = run_hgld(*command)
    out = review.parent.resolve() / "decisions/ada.csv"
    assert result.stdout.startswith("1 of 4 labels decided (5 of 15 landmarks): 1 into 1 group,")
    assert result.stdout.endswith(f"{out}\n")
    assert run_hgld(*command).stdout == f"{out}: up to date\n"
    fill(review / "ada.xlsx", Q2={"comment": "?"})
    assert "Labels!M3: a comment without a decision" in run_hgld(*command, code=1).stderr
    run_hgld(*command, "--valid-rows-only")

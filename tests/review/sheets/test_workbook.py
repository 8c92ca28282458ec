import sys
import zipfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl import load_workbook

from hgld.errors import InputError
from hgld.review.labels import MAX_UNITS, ReviewLabel, example_link, fit_for_cell, review_labels
from hgld.review.sheets.entries import COLUMNS, Entries, Entry, read_csv_sheet, read_entries, write_csv_sheet
from hgld.review.sheets.workbook import read_workbook, write_workbook
from hgld.review.sheets.worksheets import LABELS as LABELS_SHEET
from hgld.tables import Provenance
from hgld.taxonomy.groups import Group
from tests.child_processes import run_child, single_thread_environment
from tests.review.conftest import LABELS, Label, clean_table, clusters_table

GROUPS = [Group(f"group {n}", "natural", f"What belongs to group {n}, and what does not.") for n in range(78)]
MADE = Provenance("export", {"annotator": "ada"}, {"clusters": "abc"})
NASTY = (
    *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1", '=HYPERLINK("http://x","y")'),
    *("#N/A", "TRUE", "1862", "3-4", "<b>&amp;</b>", '"q"', "a\nb", " padded ", "{=A1}"),
    *("кирха", "בית כנסת", "מסגד & جامع", "神社", "café", "😀👨‍👩‍👧", "\u202eevil\u2028", "nul\x00bell\x07\ufffe"),
    *("same text", "same text", "x" * 40_000, "😀" * 20_000),
)
NASTY_LABELS = [Label(f"Q{n}", label, n // 5, n // 2) for n, label in enumerate(NASTY, 1)]


def write(path: Path, labels: Sequence[Label] = LABELS, entries: Entries | None = None, **options: Entries) -> Path:
    rows = review_labels(clusters_table(labels), clean_table(labels))
    set_aside = options.get("set_aside", {})
    write_workbook(path, rows, entries or {}, set_aside=set_aside, groups=GROUPS, annotator="ada", provenance=MADE)
    return path


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("nasty") / "ada.xlsx", NASTY_LABELS)


def test_special_labels_are_read_back_as_text(nasty: Path) -> None:
    lines = read_workbook(nasty).rows
    assert {line.values["label_id"]: line.values["label"] for line in lines} == {
        label.label_id: fit_for_cell(label.label) for label in NASTY_LABELS
    }
    sheet = load_workbook(nasty)[LABELS_SHEET]
    kinds = {cell.data_type for row in sheet.iter_rows(min_row=2, max_col=2) for cell in row}
    assert kinds == {"s"}
    quoted = {cell.value for (cell,) in sheet.iter_rows(min_row=2, min_col=2, max_col=2) if cell.quotePrefix}
    assert quoted == {text for text in NASTY if text.startswith(("=", "+", "-", "@", "\t", "\r"))}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(label=st.text(min_size=1), comment=st.text())
def test_any_text_survives_a_round_trip(tmp_path: Path, label: str, comment: str) -> None:
    comment = fit_for_cell(comment).replace("\r", "\n").strip()
    entries = {"Q1": Entry("Q1", fit_for_cell(label), comment=comment)} if comment else {}
    path = write(tmp_path / "ada.xlsx", [Label("Q1", label)], entries)
    lines = read_workbook(path).rows
    assert [line.values["label"] for line in lines] == [fit_for_cell(label)]
    assert read_entries(path, lines) == entries


@pytest.mark.slow
def test_libreoffice_keeps_labels_and_provenance(nasty: Path, soffice: Callable[..., Path]) -> None:
    written = {line.values["label_id"]: line.values["label"] for line in read_workbook(nasty).rows}
    saved = read_workbook(soffice(nasty, "xlsx"))
    for line in saved.rows:
        assert line.values["label"].replace("\r", "\n") == written[line.values["label_id"]].replace("\r", "\n")
    assert len(saved.rows) == len(NASTY_LABELS)
    assert saved.provenance == MADE


@pytest.mark.slow
def test_libreoffice_keeps_entries(tmp_path: Path, soffice: Callable[..., Path]) -> None:
    entries = {
        "Q1": Entry("Q1", "lake", "group 1", "group", "=1+1"),
        "Q3": Entry("Q3", "church building", decision="drop", comment="two\nlines"),
    }
    gone = {"Q9": Entry("Q9", "gone", "group 3")}
    path = write(tmp_path / "ada.xlsx", entries=entries, set_aside=gone)
    for form in (path, soffice(path, "xlsx")):
        saved = read_workbook(form)
        assert read_entries(form, saved.rows) == entries
        assert saved.set_aside == gone
        assert saved.exported == read_workbook(path).exported


@pytest.mark.slow
def test_libreoffice_converts_to_pdf(nasty: Path, soffice: Callable[..., Path]) -> None:
    assert soffice(nasty, "pdf").read_bytes().startswith(b"%PDF")


def test_only_entries_are_unlocked(tmp_path: Path) -> None:
    book = load_workbook(write(tmp_path / "ada.xlsx"))
    assert book.sheetnames == ["Read me", "Labels", "Groups", "lists", "about"]
    assert [sheet.sheet_state for sheet in book] == ["visible"] * 3 + ["hidden"] * 2
    for sheet in book:
        assert sheet.protection.sheet
        assert sheet.protection.password is None
        assert not sheet.protection.autoFilter
        assert not sheet.protection.formatColumns
        assert sheet.protection.deleteRows
    sheet = book[LABELS_SHEET]
    for number, row in enumerate(sheet.iter_rows(), 1):
        for column, cell in zip(COLUMNS, row, strict=True):
            is_entry = number > 1 and column in ("group", "decision", "comment")
            assert cell.protection.locked is not is_entry
    assert sheet.freeze_panes == "C2"
    assert sheet.auto_filter.ref == "A1:M5"


def test_drop_down_lists(tmp_path: Path) -> None:
    book = load_workbook(write(tmp_path / "ada.xlsx"))
    lists = {str(item.sqref): item for item in book[LABELS_SHEET].data_validations.dataValidation}
    assert lists["K2:K5"].formula1 == "lists!$A$1:$A$78"
    assert lists["L2:L5"].formula1 == '"group,drop,unsure"'
    assert all(item.showErrorMessage and not item.showDropDown for item in lists.values())
    assert [cell.value for cell in book["lists"]["A"]] == [group.name for group in GROUPS]
    guidelines = [[cell.value for cell in row] for row in book["Groups"].iter_rows(min_row=2)]
    assert guidelines == [[group.name, group.root, group.guideline] for group in GROUPS]


def test_examples_are_links(tmp_path: Path) -> None:
    sheet = load_workbook(write(tmp_path / "ada.xlsx"))[LABELS_SHEET]
    shown = [(cell.value, cell.hyperlink.target) for cell in sheet["G2:I2"][0]]
    address = "https://commons.wikimedia.org/wiki/Category:Q1_train_{}"
    assert shown == [(f"Q1 train {n}", address.format(n)) for n in range(3)]
    assert sheet["H3"].value is None
    assert sheet["H3"].hyperlink is None


def test_any_title_is_a_link_and_no_formula(tmp_path: Path) -> None:
    titles = ("Category:=SUM(A1)", 'Category:A & B <"C">', "Category:nul\x00")
    row = ReviewLabel("Q1", "lake", 5, "", 0, "cluster", 0, titles, "")
    path = tmp_path / "ada.xlsx"
    write_workbook(path, [row], {}, set_aside={}, groups=GROUPS, annotator="ada", provenance=MADE)
    cells = load_workbook(path)[LABELS_SHEET]["G2:I2"][0]
    assert [cell.value for cell in cells] == ["=SUM(A1)", 'A & B <"C">', "nul\ufffd"]
    assert [(cell.data_type, cell.quotePrefix) for cell in cells] == [("s", True), ("s", False), ("s", False)]
    assert [cell.hyperlink.target for cell in cells] == [example_link(title)[1] for title in titles]
    assert {(cell.font.underline, cell.fill.fgColor.rgb) for cell in cells} == {("single", "00DCE9F7")}


def test_row_colours_follow_clusters_and_subclusters(tmp_path: Path) -> None:
    labels = [Label(f"Q{n}", f"label {n}", n // 4, n // 2) for n in range(1, 40)]
    sheet = load_workbook(write(tmp_path / "ada.xlsx", labels))[LABELS_SHEET]
    rows = [
        (sheet.cell(row, 5).value, sheet.cell(row, 6).value, sheet.cell(row, 1).fill.fgColor.rgb)
        for row in range(2, sheet.max_row + 1)
    ]
    for (cluster, sub, colour), (next_cluster, next_sub, next_colour) in pairwise(rows):
        assert (colour == next_colour) == ((cluster, sub) == (next_cluster, next_sub))


def test_texts_fit_into_excel_cells(nasty: Path) -> None:
    sheet = load_workbook(nasty)[LABELS_SHEET]
    longest = max(len(str(cell.value).encode("utf-16-le")) // 2 for row in sheet.iter_rows() for cell in row)
    assert longest == MAX_UNITS


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ada.xlsx"
    path.write_bytes(b"PK, but no more")
    with pytest.raises(InputError, match="not a readable workbook"):
        read_workbook(path)
    book = load_workbook(write(path))
    book[LABELS_SHEET]["K1"] = "gruppe"
    book.save(path)
    with pytest.raises(InputError, match='"Labels" has no column group'):
        read_workbook(path)
    book[LABELS_SHEET].title = "Etiketten"
    book.save(path)
    with pytest.raises(InputError, match='it has no sheet "Labels"'):
        read_workbook(path)


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.review.sheets.test_workbook import NASTY_LABELS, write;"
        "write(Path(sys.argv[1]), NASTY_LABELS)"
    )
    times = {"1": "Asia/Tokyo", "2": "America/Lima"}
    for seed, zone in times.items():
        run_child(
            [sys.executable, "-c", script, tmp_path / f"{seed}.xlsx"],
            environment=single_thread_environment() | {"PYTHONHASHSEED": seed, "TZ": zone},
        )
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    write(tmp_path / "later.xlsx", NASTY_LABELS)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    with zipfile.ZipFile(tmp_path / "later.xlsx") as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_sheets_speak_of_the_things_of_the_list(tmp_path: Path) -> None:
    rows = review_labels(clusters_table(LABELS), clean_table(LABELS))
    write_workbook(
        tmp_path / "a.xlsx",
        rows,
        {},
        set_aside={},
        groups=GROUPS,
        annotator="ada",
        provenance=MADE,
        nouns=("ship", "ships"),
        counts_title="counted ships",
    )
    write_csv_sheet(tmp_path / "a.csv", rows, {}, counts_title="counted ships")
    book = load_workbook(tmp_path / "a.xlsx")
    texts = [str(cell) for sheet in book for row in sheet.iter_rows(values_only=True) for cell in row if cell]
    assert any(text.startswith("Many ships have a label such as “") for text in texts)
    assert "counted ships" in texts
    assert not [text for text in texts if "landmark" in text or "arch bridge" in text]
    assert "landmark" not in (tmp_path / "a.csv").read_text(encoding="utf-8-sig")
    assert [row.values["label"] for row in read_workbook(tmp_path / "a.xlsx").rows] == [row.label for row in rows]
    assert [row.values["label"] for row in read_csv_sheet(tmp_path / "a.csv")] == [row.label for row in rows]

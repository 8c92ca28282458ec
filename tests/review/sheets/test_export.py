"""Export of sheets: entries are kept, also if an export is killed or a sheet is changed meanwhile."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from openpyxl import load_workbook

from hgld.cli.review import format_export
from hgld.errors import BusyError, ConfigurationError, ConflictError, InputError
from hgld.io.locks import exclusive_lock
from hgld.review.settings import ExportConfig
from hgld.review.sheets.entries import REQUIRED_COLUMNS, Entry, read_csv_sheet, read_entries
from hgld.review.sheets.export import export_sheets
from hgld.review.sheets.workbook import read_workbook, write_workbook
from hgld.review.sheets.worksheets import SET_ASIDE
from tests.assertions import not_none
from tests.child_processes import run_script
from tests.commands import run_hgld
from tests.review.conftest import LABELS
from tests.sheet_files import fill

TABLES = Callable[..., Path]
ONE = ExportConfig(("ada",))
MERGE = ExportConfig(("ada",), merge=True)


def entries(path: Path) -> dict[str, tuple[str, str, str]]:
    """Return group, decision and comment by label_id."""
    rows = read_workbook(path).rows if path.suffix == ".xlsx" else read_csv_sheet(path)
    return {key: (entry.group, entry.decision, entry.comment) for key, entry in read_entries(path, rows).items()}


def both(out: Path, name: str = "ada") -> dict[str, tuple[str, str, str]]:
    """Return the entries, which must be the same in both files."""
    in_workbook = entries(out / f"{name}.xlsx")
    assert entries(out / f"{name}.csv") == in_workbook
    return in_workbook


@pytest.fixture
def out(review: Path) -> Path:
    return review


@pytest.fixture
def clusters(out: Path) -> Path:
    return out.with_name("clusters.parquet")


def test_every_annotator_gets_the_same_rows(tables: TABLES, tmp_path: Path) -> None:
    out = tmp_path / "review"
    summary = not_none(export_sheets(tables(), out, ExportConfig(("ada", "Ben-2"))))
    assert format_export(summary) == (
        f"4 labels of 15 landmarks in 2 clusters\n  {out}/ada.xlsx and ada.csv\n  {out}/Ben-2.xlsx and Ben-2.csv"
    )
    assert sorted(path.name for path in out.iterdir()) == ["Ben-2.csv", "Ben-2.xlsx", "ada.csv", "ada.xlsx"]
    assert (out / "ada.csv").read_bytes() == (out / "Ben-2.csv").read_bytes()
    in_csv = [line.values for line in read_csv_sheet(out / "ada.csv")]
    assert [row["label_id"] for row in in_csv] == ["Q1", "Q2", "Q4", "Q3"]
    assert in_csv[0]["suggested group"] == "lake"
    assert in_csv[1]["parents"] == "lake, Q99"
    for name in ("ada", "Ben-2"):
        in_workbook = [line.values for line in read_workbook(out / f"{name}.xlsx").rows]
        for workbook_row, csv_row in zip(in_workbook, in_csv, strict=True):
            shown = {column for column in REQUIRED_COLUMNS if not column.startswith("example")}
            assert {column: workbook_row[column] for column in shown} == {column: csv_row[column] for column in shown}


def test_sheet_without_entries_is_up_to_date_or_rewritten(tables: TABLES, clusters: Path, out: Path) -> None:
    written = (out / "ada.xlsx").stat().st_mtime_ns
    assert export_sheets(clusters, out, ONE) is None
    assert export_sheets(clusters, out, MERGE) is None
    assert (out / "ada.xlsx").stat().st_mtime_ns == written

    summary = not_none(export_sheets(clusters, out, ExportConfig(("ada", "cyd"))))
    assert summary.workbooks == (out / "cyd.xlsx",)

    summary = not_none(export_sheets(tables(LABELS[:2]), out, ONE))
    assert len(read_workbook(out / "ada.xlsx").rows) == 2
    (out / "ada.csv").unlink()
    assert export_sheets(clusters, out, ONE) is not None
    assert (out / "ada.csv").exists()


@pytest.mark.parametrize("name", ["ada.xlsx", "ada.csv"])
@pytest.mark.parametrize("column", ["group", "decision", "comment"])
def test_entries_are_only_discarded_on_request(
    tables: TABLES, clusters: Path, out: Path, name: str, column: str
) -> None:
    fill(out / name, Q3={column: "drop"})
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert export_sheets(clusters, out, ExportConfig(("ada", "ben"))) is None, "the sheets are those of the clusters"
    tables(LABELS[1:])
    with pytest.raises(ConfigurationError, match=r"ada\.xlsx: 1 label\n`merge` .*`force`"):
        export_sheets(clusters, out, ExportConfig(("ada", "ben")))
    assert {path: path.read_bytes() for path in out.iterdir()} == before

    tables()
    wanted = tuple("drop" if name == column else "" for name in ("group", "decision", "comment"))
    summary = not_none(export_sheets(clusters, out, MERGE))
    assert summary.kept == 1
    assert both(out) == {"Q3": wanted}
    assert export_sheets(clusters, out, MERGE) is None

    assert export_sheets(clusters, out, ONE, force=True) is not None
    assert both(out) == {}


def test_merge_uses_the_file_that_was_changed(clusters: Path, out: Path) -> None:
    fill(out / "ada.xlsx", Q1={"group": "lake", "comment": "sure"}, Q2={"decision": "drop"})
    export_sheets(clusters, out, MERGE)
    # The CSV file now has the first decision; a later change in the workbook does not contradict it.
    fill(out / "ada.xlsx", Q1={"group": "river", "comment": None}, Q2={"decision": None})
    export_sheets(clusters, out, MERGE)
    assert both(out) == {"Q1": ("river", "", "")}
    # The same with a change in the CSV file.
    fill(out / "ada.csv", Q1="dam")
    export_sheets(clusters, out, MERGE)
    assert both(out) == {"Q1": ("dam", "", "")}


def test_merge_combines_both_files_unless_they_contradict(clusters: Path, out: Path) -> None:
    fill(out / "ada.xlsx", Q1="lake")
    fill(out / "ada.csv", Q1={"comment": "sure"}, Q2={"decision": "drop"})
    export_sheets(clusters, out, MERGE)
    assert both(out) == {"Q1": ("lake", "", "sure"), "Q2": ("", "drop", "")}

    fill(out / "ada.xlsx", Q2={"decision": "unsure"})
    fill(out / "ada.csv", Q2={"decision": "group"})
    before = (out / "ada.xlsx").read_bytes()
    with pytest.raises(InputError) as error:
        export_sheets(clusters, out, MERGE)
    assert f"{out}/ada.xlsx and ada.csv: 1 contradiction between entries" in str(error.value)
    assert 'Q2 ("glacial lake"): decision is "unsure" and "group"' in str(error.value)
    assert (out / "ada.xlsx").read_bytes() == before


@pytest.mark.parametrize("missing", ["ada.xlsx", "ada.csv"])
def test_merge_needs_only_one_file(clusters: Path, out: Path, missing: str) -> None:
    fill(out / "ada.xlsx", Q1="lake")
    export_sheets(clusters, out, MERGE)
    (out / missing).unlink()
    export_sheets(clusters, out, MERGE)
    assert both(out) == {"Q1": ("lake", "", "")}


def test_entries_of_removed_labels_are_set_aside_and_restored(tables: TABLES, out: Path) -> None:
    fill(out / "ada.xlsx", Q1="lake", Q4={"group": "church", "comment": "small"})

    summary = not_none(export_sheets(tables(LABELS[:3]), out, MERGE))
    assert (summary.kept, summary.set_aside) == (1, 1)
    assert both(out) == {"Q1": ("lake", "", "")}
    kept = {"Q4": Entry("Q4", "chapel", "church", "", "small")}
    assert read_workbook(out / "ada.xlsx").set_aside == kept
    assert export_sheets(tables(LABELS[:3]), out, MERGE) is None

    export_sheets(tables(LABELS[1:3]), out, MERGE)
    assert set(read_workbook(out / "ada.xlsx").set_aside) == {"Q1", "Q4"}
    with pytest.raises(ConfigurationError, match=r"ada\.xlsx: 2 labels"):
        export_sheets(tables(), out, ONE)
    export_sheets(tables(), out, MERGE)
    assert both(out) == {"Q1": ("lake", "", ""), "Q4": ("church", "", "small")}
    assert SET_ASIDE not in load_workbook(out / "ada.xlsx").sheetnames


def test_unknown_groups_are_reported(clusters: Path, out: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(out / "ada.xlsx", Q1="puddle")
    export_sheets(clusters, out, MERGE)
    assert 'Q1 ("lake"): puddle' in caplog.text
    assert both(out) == {"Q1": ("puddle", "", "")}


@pytest.mark.slow
def test_merge_of_a_workbook_saved_by_libreoffice(clusters: Path, out: Path, soffice: Callable[..., Path]) -> None:
    fill(out / "ada.xlsx", Q1={"group": "lake", "comment": "- see map"})
    (out / "ada.xlsx").write_bytes(soffice(out / "ada.xlsx", "xlsx").read_bytes())
    export_sheets(clusters, out, MERGE)
    assert both(out)["Q1"] == ("lake", "", "- see map")
    assert export_sheets(clusters, out, MERGE) is None


@pytest.mark.parametrize("lock", [".~lock.ada.xlsx#", ".~lock.ada.csv#", "~$ada.xlsx"])
@pytest.mark.parametrize("force", [True, False])
def test_open_sheet_is_not_overwritten(clusters: Path, out: Path, lock: str, force: bool) -> None:
    (out / lock).write_text("")
    with pytest.raises(BusyError, match="close it there"):
        export_sheets(clusters, out, ONE, force=force)


def test_other_file_is_only_replaced_by_force(tables: TABLES, tmp_path: Path) -> None:
    (tmp_path / "ada.xlsx").write_text("my thesis")
    for config in (ONE, MERGE):
        with pytest.raises(InputError, match="nor another format of review sheets"):
            export_sheets(tables(), tmp_path, config)
    assert export_sheets(tables(), tmp_path, ONE, force=True) is not None


def test_failed_export_leaves_nothing_behind(clusters: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in out.iterdir()}
    monkeypatch.setattr("hgld.review.sheets.workbook.ExcelWriter", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_sheets(clusters, out, ONE, force=True)
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "`annotators` is empty"),
        (("",), "cannot name a file"),
        (("../ada",), "cannot name a file"),
        (("a b",), "cannot name a file"),
        (("ada\n",), "cannot name a file"),
        (("zoë",), "cannot name a file"),
        (("a" * 65,), "cannot name a file"),
        (("ada", "ben", "Ada"), "two annotators have the same name"),
    ],
)
def test_invalid_annotator_names_are_refused(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ExportConfig(names)


def test_missing_inputs_are_reported(tables: TABLES, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clusters = tables()
    out = tmp_path / "review"
    with pytest.raises(ConfigurationError, match="give only one of them"):
        export_sheets(clusters, out, MERGE, force=True)
    (tmp_path / "clean.parquet").rename(tmp_path / "other.parquet")
    with pytest.raises(ConfigurationError, match=r"clean\.parquet: no such file; .* `clean`"):
        export_sheets(clusters, out, ONE)
    (tmp_path / "scraped.classes.parquet").unlink()
    caplog.set_level(logging.INFO)
    assert export_sheets(clusters, out, ONE, clean=tmp_path / "other.parquet") is not None
    assert "labels are shown without parents" in caplog.text
    with pytest.raises(InputError, match="no labels to review"):
        export_sheets(tables([]), out, ONE)


def test_export_command(tables: TABLES, tmp_path: Path) -> None:
    out = tmp_path / "review"
    command = ["export", str(tables()), "-o", str(out), "--annotators"]
    assert run_hgld(*command, "ada, ben").stdout.startswith("4 labels of 15 landmarks in 2 clusters\n")
    assert run_hgld(*command, "ada,ben").stdout == f"{out}: up to date\n"
    fill(out / "ben.xlsx", Q1="lake")
    assert run_hgld(*command, "ada,ben").stdout == f"{out}: up to date\n"
    tables(LABELS[:3])
    assert "--merge" in run_hgld(*command, "ada,ben", code=1).stderr
    assert "entries of 1 label kept" in run_hgld(*command, "ada,ben", "--merge").stdout


BOTH = ExportConfig(("ada", "ben"), merge=True)

KILLED = """
import shutil, sys
from pathlib import Path
from hgld.review.sheets.export import export_sheets
from tests.kill_points import kill_points, killed_before_change
from tests.review.sheets.test_export import BOTH, contents, known_entries

clusters, before, expected, home = map(Path, sys.argv[1:])
out = home / "review"

def prepare():
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    if before.exists():
        shutil.copytree(before, out)

def write():
    export_sheets(clusters, out, BOTH)

entries = known_entries(expected)
for number in kill_points(write, home, prepare):
    if before.exists():
        assert known_entries(out) >= entries, number
    else:
        assert not out.exists() or contents(out) == contents(expected), number
    assert not killed_before_change(10_000, write, home)
    assert contents(out) == contents(expected), number
    assert [path.name for path in home.iterdir()] == ["review"], number
print(number)
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def known_entries(folder: Path) -> set[tuple[str, str, str, str]]:
    """Return annotator, label_id, group and decision of all entries in the sheets that annotators see."""
    entries = set()
    for path in folder.glob("*.csv"):
        for label_id, entry in read_entries(path, read_csv_sheet(path)).items():
            entries.add((path.stem, label_id, entry.group, entry.decision))
    for path in folder.glob("*.xlsx"):
        saved = read_workbook(path)
        for label_id, entry in {**read_entries(path, saved.rows), **saved.set_aside}.items():
            entries.add((path.stem, label_id, entry.group, entry.decision))
    return entries


@pytest.mark.slow
@pytest.mark.parametrize("state", ["new", "merged", "filled"])
def test_killed_export_loses_nothing_and_is_finished_by_the_next(tables: TABLES, tmp_path: Path, state: str) -> None:
    clusters, before, expected = tables(), tmp_path / "before", tmp_path / "expected"
    if state != "new":
        export_sheets(clusters, before, BOTH)
        fill(before / "ada.xlsx", Q1="lake", Q4="church")
        fill(before / "ben.csv", Q4={"decision": "drop"})
        if state == "merged":
            export_sheets(clusters, before, BOTH)
        tables(LABELS[:3])
        shutil.copytree(before, expected)
    export_sheets(clusters, expected, BOTH)
    kills = int(run_script(KILLED, clusters, before, expected, tmp_path / "home"))
    assert kills >= 8
    if state != "new":
        assert known_entries(expected) == {
            ("ada", "Q1", "lake", ""),
            ("ada", "Q4", "church", ""),
            ("ben", "Q4", "", "drop"),
        }


def test_entries_saved_while_the_sheets_are_written_are_kept(
    tables: TABLES, clusters: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_while_ada_saves(path: Path, *arguments: object, **options: object) -> None:
        write_workbook(path, *arguments, **options)  # type: ignore[arg-type]
        fill(out / "ada.xlsx", Q1="lake")

    tables(LABELS[:3])
    with monkeypatch.context() as patch:
        patch.setattr("hgld.review.sheets.workbook.write_workbook", write_while_ada_saves)
        with pytest.raises(
            ConflictError, match=r"ada\.xlsx: changed while its new version was written; run the same"
        ):
            export_sheets(clusters, out, BOTH)
    assert known_entries(out) == {("ada", "Q1", "lake", "")}
    assert export_sheets(clusters, out, BOTH) is not None
    assert known_entries(out) == {("ada", "Q1", "lake", "")}


def test_exports_at_the_same_time_do_not_disturb_each_other(tables: TABLES, tmp_path: Path) -> None:
    out = tmp_path / "review"
    with exclusive_lock(out), pytest.raises(BusyError, match="another run is writing"):
        export_sheets(tables(), out, BOTH)
    assert export_sheets(tables(), out, BOTH) is not None


def test_sheets_in_the_working_folder(tables: TABLES, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = tables()
    (tmp_path / "review").mkdir()
    monkeypatch.chdir(tmp_path / "review")
    assert export_sheets(clusters, Path(), BOTH) is not None
    assert sorted(contents(tmp_path / "review")) == ["ada.csv", "ada.xlsx", "ben.csv", "ben.xlsx"]

"""Exports that are killed, or that meet somebody at work, lose no entry and leave no half set of sheets."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hgld.errors import BusyError, ConflictError
from hgld.io.files import exclusive_lock
from hgld.review.sheets.csv_sheet import read_csv_sheet
from hgld.review.sheets.entries import read_entries
from hgld.review.sheets.export import ExportConfig, export_sheets
from hgld.review.sheets.workbook import read_workbook, write_workbook
from tests.child_processes import run_script
from tests.review.conftest import LABELS
from tests.sheet_files import fill_csv, fill_workbook

TABLES = Callable[..., Path]
BOTH = ExportConfig(("ada", "ben"), merge=True)

KILLED = """
import shutil, sys
from pathlib import Path
from hgld.review.sheets.export import export_sheets
from tests.kill_points import kill_points, killed_before_change
from tests.review.sheets.test_killed_export import BOTH, contents, known_entries

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
        fill_workbook(before / "ada.xlsx", "Q1", group="lake")
        fill_workbook(before / "ada.xlsx", "Q4", group="church")
        fill_csv(before / "ben.csv", "Q4", decision="drop")
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
    tables: TABLES, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "review"
    clusters = tables()
    export_sheets(clusters, out, BOTH)

    def write_while_ada_saves(path: Path, *arguments: object, **options: object) -> None:
        write_workbook(path, *arguments, **options)  # type: ignore[arg-type]
        fill_workbook(out / "ada.xlsx", "Q1", group="lake")

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

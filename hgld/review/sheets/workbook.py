"""A review sheet as a workbook for one annotator, to be filled in with LibreOffice Calc or Excel.

All cells but those for entries are locked, without a password, against mistakes. What hgld has to know when it reads
the file back (provenance, and a digest of the exported entries) is on a hidden sheet, because every spreadsheet
program keeps sheets, but not document properties.

The same input gives the same bytes with the same versions of openpyxl and zlib: nothing records the time of writing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from openpyxl import Workbook
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet
from openpyxl.writer.excel import ExcelWriter

from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.review.labels import ReviewLabel
from hgld.review.sheets import worksheets
from hgld.review.sheets.entries import COLUMNS, Entries, Entry, SheetRow, check_header, entries_digest, read_entries
from hgld.review.sheets.spreadsheet import SheetCells, read_spreadsheet
from hgld.review.sheets.worksheets import LABELS, SET_ASIDE
from hgld.tables import Provenance
from hgld.taxonomy.groups import Group

_ABOUT = "about"


@dataclass(frozen=True, slots=True)
class SavedWorkbook:
    """A workbook read back.

    Args:
        set_aside: Entries for labels that the sheet no longer has.
        exported: Digest of the entries with which the file was written, if it is still there.
    """

    rows: list[SheetRow]
    set_aside: dict[str, Entry]
    provenance: Provenance | None
    exported: str | None


def write_workbook(
    path: Path,
    rows: Sequence[ReviewLabel],
    entries: Entries,
    *,
    set_aside: Entries,
    groups: Sequence[Group],
    annotator: str,
    provenance: Provenance,
) -> None:
    """Write a workbook, atomically."""
    book = Workbook()
    book.properties.creator = "hgld"
    book.properties.title = f"Labels to review, {annotator}"
    first_sheet = book.active
    assert isinstance(first_sheet, Worksheet)
    worksheets.add_styles(book)
    worksheets.fill_read_me(first_sheet, annotator)
    worksheets.fill_labels(book.create_sheet(LABELS), rows, entries, len(groups))
    worksheets.fill_clusters(book.create_sheet(worksheets.CLUSTERS), rows)
    worksheets.fill_groups(book.create_sheet(worksheets.GROUPS), groups)
    if set_aside:
        worksheets.fill_set_aside(book.create_sheet(SET_ASIDE), set_aside)
    worksheets.fill_hidden(book.create_sheet(worksheets.LISTS), [(group.name,) for group in groups])
    about = (
        ("annotator", annotator),
        ("provenance", provenance.to_json()),
        ("exported entries", entries_digest(entries)),
    )
    worksheets.fill_hidden(book.create_sheet(_ABOUT), about)
    with atomic_write(path) as draft:
        _save(book, draft)


def _save(book: Workbook, path: Path) -> None:
    """Save a workbook whose properties and members have the earliest time of ZIP archives in place of the present."""
    book.properties.created = book.properties.modified = datetime(*ZipInfo().date_time)
    timed = BytesIO()
    # Unlike Workbook.save, the writer does not change the properties.
    ExcelWriter(book, ZipFile(timed, "w")).save()
    with ZipFile(timed) as members, ZipFile(path, "w") as archive:
        for name in members.namelist():
            archive.writestr(ZipInfo(name), members.read(name), ZIP_DEFLATED)


def read_workbook(path: Path) -> SavedWorkbook:
    """Read a workbook as hgld wrote it or as a spreadsheet program saved it.

    Raises:
        InputError: The file is not a workbook, or lacks the sheet or a column of a review sheet.
    """
    sheets = read_spreadsheet(path, (LABELS, SET_ASIDE, _ABOUT))
    if LABELS not in sheets:
        raise InputError(f'{path}: not a review sheet: it has no sheet "{LABELS}"')
    about = {row[0]: row[1] for row in sheets[_ABOUT].rows.values() if len(row) > 1} if _ABOUT in sheets else {}
    provenance = about.get("provenance")
    set_aside = (
        _sheet_rows(path, SET_ASIDE, sheets[SET_ASIDE], worksheets.SET_ASIDE_COLUMNS) if SET_ASIDE in sheets else []
    )
    return SavedWorkbook(
        rows=_sheet_rows(path, LABELS, sheets[LABELS], COLUMNS),
        set_aside=read_entries(path, set_aside),
        provenance=Provenance.from_json(provenance) if provenance else None,
        exported=about.get("exported entries"),
    )


def _sheet_rows(path: Path, sheet: str, cells: SheetCells | None, columns: Sequence[str]) -> list[SheetRow]:
    """Return the rows below the header, with the addresses of columns, merged cells and formulas."""
    if cells is None:
        return []
    header = check_header(path, f'row 1 of the sheet "{sheet}"', cells.rows.get(1, ()), columns)
    letters = {name: f"{sheet}!{get_column_letter(number)}" for number, name in enumerate(header, 1) if name}
    last_row = max(cells.rows, default=0)
    merged: defaultdict[int, list[str]] = defaultdict(list)
    for area in cells.merged:
        if area.min_col <= len(header):
            for number in range(area.min_row, min(area.max_row, last_row) + 1):
                merged[number].append(f"{sheet}!{area.coord}")
    formulas: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for area, formula in cells.formulas:
        calculated = header[area.min_col - 1 : area.max_col]
        for number in range(area.min_row, min(area.max_row, last_row) + 1):
            formulas[number] |= dict.fromkeys(calculated, formula)
    return [
        SheetRow(
            number,
            {name: text for name, text in zip(header, chain(texts, repeat("")), strict=False) if name},
            letters,
            tuple(merged.get(number, ())),
            formulas.get(number, {}),
        )
        for number, texts in cells.rows.items()
        if number > 1
    ]

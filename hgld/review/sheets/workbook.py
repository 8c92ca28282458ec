"""A review sheet as a workbook for one annotator, to be filled in with LibreOffice Calc or Excel.

All cells except the cells for entries are locked, without a password, against mistakes. The provenance and a digest
of the exported entries are on a hidden sheet, because every spreadsheet program keeps sheets, but not document
properties.

The same input gives the same bytes with the same versions of openpyxl and zlib: nothing records the time of writing.
"""

from __future__ import annotations

import warnings
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from openpyxl import Workbook, load_workbook
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.formula import ArrayFormula
from openpyxl.worksheet.worksheet import Worksheet
from openpyxl.writer.excel import ExcelWriter

from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.review.labels import ReviewLabel
from hgld.review.sheets import worksheets
from hgld.review.sheets.entries import (
    LANDMARKS,
    REQUIRED_COLUMNS,
    Entries,
    Entry,
    SheetRow,
    check_header,
    entries_digest,
    read_bytes,
    read_entries,
)
from hgld.review.sheets.worksheets import LABELS, SET_ASIDE
from hgld.tables import Provenance
from hgld.taxonomy.groups import Group

_ABOUT = "about"

#: A workbook of 5,700 labels unpacks to 10 MB; formats on a million empty rows unpack to 120 MB.
MAX_UNPACKED_BYTES = 256 * 2**20

#: Beginning of the names of elements in workbooks of Excel's format "Strict Open XML", which openpyxl cannot read.
_STRICT = b"http://purl.oclc.org/ooxml/spreadsheetml"
_SAVE_AS = "save it as .xlsx or .csv"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@dataclass(frozen=True, slots=True)
class SavedWorkbook:
    """A workbook read back.

    Args:
        set_aside: Entries for labels that the sheet no longer has.
        exported: Digest of the entries at the time of the export; None if a program removed it.
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
    nouns: tuple[str, str] = LANDMARKS,
    counts_title: str = LANDMARKS[1],
) -> None:
    """Write a workbook, atomically.

    Args:
        nouns: Words for one and for several things of the list.
        counts_title: Title of the column with the number of each label.
    """
    book = Workbook()
    book.properties.creator = "hgld"
    book.properties.title = f"Labels to review, {annotator}"
    first_sheet = book.active
    assert isinstance(first_sheet, Worksheet)
    worksheets.add_styles(book)
    examples = [row.label for row in sorted(rows, key=lambda row: -row.landmarks)]
    worksheets.fill_read_me(first_sheet, annotator, nouns, examples)
    worksheets.fill_labels(book.create_sheet(LABELS), rows, entries, len(groups), counts_title)
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
    """Save a workbook with the earliest time of ZIP archives in its properties and members, not the present."""
    book.properties.created = book.properties.modified = datetime(*ZipInfo().date_time)
    timed = BytesIO()
    # Unlike Workbook.save, the writer does not change the properties.
    ExcelWriter(book, ZipFile(timed, "w")).save()
    with ZipFile(timed) as members, ZipFile(path, "w") as archive:
        for name in members.namelist():
            archive.writestr(ZipInfo(name), members.read(name), ZIP_DEFLATED)


def read_workbook(path: Path) -> SavedWorkbook:
    """Read a workbook that hgld wrote or a program saved; raise an InputError if it is not a review sheet."""
    book = _load(path)
    if LABELS not in book.sheetnames:
        raise InputError(f'{path}: not a review sheet: it has no sheet "{LABELS}"')
    about: dict[Any, Any] = {}
    if _ABOUT in book.sheetnames:
        for name, text in book[_ABOUT].iter_rows(max_col=2, values_only=True):
            about[name] = text
    set_aside = []
    if SET_ASIDE in book.sheetnames:
        set_aside = _sheet_rows(path, book[SET_ASIDE], worksheets.SET_ASIDE_COLUMNS)
    provenance = about.get("provenance")
    return SavedWorkbook(
        rows=_sheet_rows(path, book[LABELS], REQUIRED_COLUMNS),
        set_aside=read_entries(path, set_aside),
        provenance=Provenance.from_json(provenance) if provenance else None,
        exported=about.get("exported entries"),
    )


def _load(path: Path) -> Workbook:
    """Return the workbook in a file.

    Raises:
        InputError: The file cannot be read, is encrypted, or is larger than any review sheet.
    """
    data = read_bytes(path)
    if not data.startswith(b"PK"):
        raise InputError(f"{path}: {_describe_other_format(data)}")
    try:
        with ZipFile(BytesIO(data)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > MAX_UNPACKED_BYTES:
                raise InputError(
                    f"{path}: unpacks to {unpacked >> 20:,} MB, more than the {MAX_UNPACKED_BYTES >> 20} MB that a "
                    "review sheet may have; copy its sheets into a new workbook"
                )
            if _STRICT in archive.read("xl/workbook.xml"):
                raise InputError(
                    f'{path}: in the format "Strict Open XML Spreadsheet"; save it as "Excel Workbook" (.xlsx) or as '
                    ".csv"
                )
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # about unsupported parts, which a review sheet does not need
            return load_workbook(BytesIO(data))
    except (BadZipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{path}: not a readable workbook, probably damaged or cut off; copy it again ({error})"
        ) from error
    except (LookupError, ValueError, TypeError, AttributeError, SyntaxError, RuntimeError) as error:
        raise InputError(f"{path}: not a readable workbook ({error}); {_SAVE_AS}") from error


def _describe_other_format(data: bytes) -> str:
    if data.startswith(_OLE):
        # The directory of the container holds the names of its streams.
        if "EncryptedPackage".encode("utf-16-le") in data:
            return "protected by a password; save it without one"
        return f"an old Excel workbook; {_SAVE_AS}"
    return f"not a readable workbook, nor another format of review sheets; {_SAVE_AS}"


def _sheet_rows(path: Path, sheet: Worksheet, columns: Sequence[str]) -> list[SheetRow]:
    """Return the rows below the header that are not blank."""
    place = f'row 1 of the sheet "{sheet.title}"'
    header = check_header(path, place, [_text(cell.value) for cell in sheet[1]], columns)
    while header and not header[-1]:
        header.pop()
    letters = {}
    for number, name in enumerate(header, 1):
        if name:
            letters[name] = f"{sheet.title}!{get_column_letter(number)}"
    merged: defaultdict[int, list[str]] = defaultdict(list)
    for area in sheet.merged_cells.ranges:
        if area.min_col > len(header):
            continue
        problem = f"{sheet.title}!{area.coord}: merged cells; separate them and fill in each"
        for number in range(area.min_row, min(area.max_row, sheet.max_row) + 1):
            merged[number].append(problem)
    rows = []
    for number, cells in enumerate(sheet.iter_rows(min_row=2), 2):
        texts = {name: _text(cell.value) for name, cell in zip(header, cells, strict=False)}
        row = SheetRow(number, texts, letters, merged[number])
        for name, cell in zip(header, cells, strict=False):
            if cell.data_type == "f":
                row.refuse_formula(name, texts[name])
        if any(texts.values()):
            rows.append(row)
    return rows


def _text(value: object) -> str:
    """Return the text of the value of a cell; a formula is written as a formula."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, ArrayFormula):
        return value.text or "="
    if isinstance(value, (date, datetime)):
        return str(value).removesuffix(" 00:00:00")
    return str(value)

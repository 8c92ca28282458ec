"""A review sheet as a workbook for one annotator, to be filled in with LibreOffice Calc or Excel.

All cells but those for entries are locked, without a password, against mistakes. What hgld has to know when it reads
the file back (provenance, and a digest of the exported entries) is on a hidden sheet, because every spreadsheet
program keeps sheets, but not document properties.

The same input gives the same bytes with the same versions of openpyxl and zlib: nothing records the time of writing.

Cells are read as text, unless the file is damaged, encrypted or unreasonably large: a small archive can unpack to any
size. Its directory states the sizes of its members; an archive whose directory understates them fails as damaged,
because no more than the stated size is unpacked.
"""

from __future__ import annotations

import warnings
import zlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError, iterparse
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from openpyxl import Workbook, load_workbook
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.cell_range import CellRange
from openpyxl.worksheet.worksheet import Worksheet
from openpyxl.writer.excel import ExcelWriter

from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.review.labels import ReviewLabel
from hgld.review.sheets import worksheets
from hgld.review.sheets.entries import (
    COLUMNS,
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


MAX_UNPACKED_BYTES = 256 * 2**20
MAX_MEMBERS = 10_000
#: Beginnings and ends of elements in an XML file; a sheet of 5,700 labels has 500,000.
MAX_TAGS = 5_000_000
#: Limits of Excel and LibreOffice.
MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384
#: Limits of a sheet: cells up to the last one with text of each row, characters, and formulas and merged cells. One
#: of 5,700 labels has 74,000 cells of 2 million characters.
MAX_CELLS, MAX_CHARACTERS, MAX_RANGES = 2_000_000, 100_000_000, 20_000

#: Beginning of the names of elements in workbooks of Excel's format "Strict Open XML", which openpyxl cannot read.
_STRICT = b"http://purl.oclc.org/ooxml/spreadsheetml"
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_ENCRYPTED = "protected by a password; save it without one"
_SAVE_AS = "save it as .xlsx or .csv"
_HEADER_OF_MEMBER = b"PK\x01\x02"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


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
    """Read a workbook as hgld wrote it or a program saved it; raise an InputError if it is no review sheet."""
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


@dataclass
class SheetCells:
    """Cells of one sheet.

    Args:
        rows: Texts from column A to the last cell that is not blank, by row number from 1; blank rows are omitted.
        formulas: Ranges of cells that are calculated, and their formulas. The texts of these cells are what a program
            calculated last, or empty.
    """

    rows: dict[int, list[str]] = field(default_factory=dict)
    formulas: list[tuple[CellRange, str]] = field(default_factory=list)
    merged: list[CellRange] = field(default_factory=list)


def read_spreadsheet(path: Path, names: Collection[str]) -> dict[str, SheetCells]:
    """Return the sheets of a .xlsx file with one of the names.

    Raises:
        InputError: The file cannot be read, is encrypted, or is larger than any review sheet.
    """
    try:
        parts = _unpack(path)
        # Packed again without compression and with true sizes, for openpyxl, which does not limit what it unpacks.
        unpacked = BytesIO()
        with ZipFile(unpacked, "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that do not matter here
            book = load_workbook(unpacked, read_only=True, data_only=True)
            sheets = {sheet.title: sheet for sheet in book if sheet.title in names}
            return {name: _read_sheet(sheet, parts) for name, sheet in sheets.items()}
    except (BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: damaged, perhaps cut off; copy it again ({error})") from error
    except (LookupError, ValueError, OverflowError, TypeError, AttributeError, SyntaxError) as error:
        raise InputError(f"{path}: not a readable workbook ({error})") from error


def _unpack(path: Path) -> dict[str, bytes]:
    """Return the parts of a workbook by name.

    Raises:
        BadZipFile: A part has a wrong checksum, as it has if it is larger than the directory states.
        ValueError: A part has too many elements, or a document type. Workbooks have none, and its entities could grow
            without limit.
    """
    data = read_bytes(path)
    if not data.startswith(b"PK"):
        raise InputError(f"{path}: {_describe_other_format(data)}")
    if data.count(_HEADER_OF_MEMBER) > MAX_MEMBERS:
        raise InputError(f"{path}: an archive of more than {MAX_MEMBERS:,} files; no review sheet is")
    try:
        archive = ZipFile(BytesIO(data))
    except (BadZipFile, ValueError) as error:
        raise InputError(f"{path}: not a readable workbook, probably cut off; copy it again ({error})") from error
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if unpacked > MAX_UNPACKED_BYTES:
        raise InputError(
            f"{path}: unpacks to {unpacked >> 20:,} MB, more than the {MAX_UNPACKED_BYTES >> 20} MB that a review "
            f"sheet may have; copy its sheets into a new workbook"
        )
    if any(member.flag_bits & 1 for member in members):
        raise InputError(f"{path}: {_ENCRYPTED}")
    if any(member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for member in members):
        raise InputError(f"{path}: not packed as workbooks are; {_SAVE_AS}")
    if "xl/workbook.xml" not in archive.NameToInfo:
        raise InputError(f"{path}: not a workbook that can be read; {_SAVE_AS}")
    parts = {}
    for member in members:
        with archive.open(member) as stream:
            # Without a size, and in ZipFile.read, everything is unpacked before it is cut to the stated size.
            content = stream.read(max(member.file_size, 1))
        parts[member.filename] = content
        if member.filename == "xl/workbook.xml" and _STRICT in content:
            raise InputError(
                f'{path}: in the format "Strict Open XML Spreadsheet"; save it as "Excel Workbook" (.xlsx) or as .csv'
            )
        if b"<!DOCTYPE" in content:
            raise ValueError(f"{member.filename} has a document type")
        if content.count(b"<") > MAX_TAGS:
            raise ValueError(f"{member.filename} has more than {MAX_TAGS:,} tags; are many empty cells formatted?")
    return parts


def _describe_other_format(data: bytes) -> str:
    if data.startswith(_OLE):
        # The directory of the container holds the names of its streams.
        return _ENCRYPTED if "EncryptedPackage".encode("utf-16-le") in data else f"an old Excel workbook; {_SAVE_AS}"
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return f"a web page or XML, not a workbook; open it in a spreadsheet program and {_SAVE_AS}"
    return f"not a readable workbook, nor another format of review sheets; {_SAVE_AS}"


def _read_sheet(sheet: Any, parts: dict[str, bytes]) -> SheetCells:
    cells = SheetCells()
    _find_ranges(parts[sheet._worksheet_path.lstrip("/")], cells)
    sheet.reset_dimensions()  # what the file says of its size may be wrong
    n_cells = n_characters = 0
    for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
        texts = [_text(value) for value in values]
        while texts and not texts[-1]:
            texts.pop()
        if number > MAX_ROWS or len(texts) > MAX_COLUMNS:
            raise ValueError(f"more than {MAX_ROWS:,} rows or {MAX_COLUMNS:,} columns")
        n_cells += len(texts)
        n_characters += sum(map(len, texts))
        if n_cells > MAX_CELLS or n_characters > MAX_CHARACTERS:
            raise ValueError(f"more than {MAX_CELLS:,} cells or {MAX_CHARACTERS:,} characters in a sheet")
        if texts:
            cells.rows[number] = texts
    return cells


def _find_ranges(content: bytes, cells: SheetCells) -> None:
    """Find formulas and merged cells, which openpyxl omits beside values."""
    shared: dict[str, str] = {}
    try:
        for _, element in iterparse(BytesIO(content)):  # noqa: S314 - without document types
            if element.tag == f"{_MAIN}c" and (found := element.find(f"{_MAIN}f")) is not None:
                formula, key = f"={found.text or ''}", found.get("si")
                if key is not None:
                    # Only the first cell has the text, but each cell of the range is marked.
                    formula = shared.setdefault(key, formula)
                reference = (None if key is not None else found.get("ref")) or element.get("r")
                if reference:
                    cells.formulas.append((CellRange(reference), formula))
            elif element.tag == f"{_MAIN}mergeCell":
                cells.merged.append(CellRange(element.attrib["ref"]))
            elif element.tag == f"{_MAIN}row":
                element.clear()
            if len(cells.formulas) + len(cells.merged) > MAX_RANGES:
                raise ValueError(f"more than {MAX_RANGES:,} formulas and merged cells in a sheet")
    except ParseError as error:
        raise ValueError(str(error)) from error


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).removesuffix(" 00:00:00") if isinstance(value, (date, datetime)) else str(value)

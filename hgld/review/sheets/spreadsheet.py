"""Read the cells of a spreadsheet as text: .xlsx with openpyxl, .ods from its XML."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lxml import etree
from openpyxl import load_workbook
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.worksheet.cell_range import CellRange

from hgld.errors import InputError

_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_WHITE_SPACE = {f"{_TEXT}s": " ", f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}


@dataclass(frozen=True, slots=True)
class SheetCells:
    """Cells of one sheet.

    Args:
        rows: Texts from column A to the last cell that is not blank, by row number from 1; blank rows are omitted.
        merged: Ranges of merged cells.
    """

    rows: Mapping[int, Sequence[str]]
    merged: Sequence[CellRange]


def read_spreadsheet(path: Path) -> dict[str, SheetCells]:
    """Return the sheets of a .xlsx or .ods file, by name.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        return _read_ods(path) if path.suffix == ".ods" else _read_xlsx(path)
    except (InvalidFileException, zipfile.BadZipFile, etree.LxmlError, KeyError, ValueError, OSError) as error:
        raise InputError(f"{path}: not a readable workbook ({error})") from error


def _read_xlsx(path: Path) -> dict[str, SheetCells]:
    with warnings.catch_warnings():
        # openpyxl warns of extensions of other programs, which it ignores.
        warnings.simplefilter("ignore", UserWarning)
        book = load_workbook(path)
    return {
        sheet.title: SheetCells(
            rows={
                number: texts
                for number, row in enumerate(sheet.iter_rows(values_only=True), 1)
                if (texts := _without_trailing_blanks(row))
            },
            merged=list(sheet.merged_cells.ranges),
        )
        for sheet in book.worksheets
    }


def _without_trailing_blanks(row: Sequence[Any]) -> list[str]:
    texts = ["" if value is None else str(value) for value in row]
    while texts and not texts[-1]:
        texts.pop()
    return texts


def _read_ods(path: Path) -> dict[str, SheetCells]:
    with zipfile.ZipFile(path) as archive:
        content = etree.fromstring(archive.read("content.xml"), etree.XMLParser(resolve_entities=False))
    return {table.get(f"{_TABLE}name", ""): _ods_cells(table) for table in content.iter(f"{_TABLE}table")}


def _ods_cells(table: etree._Element) -> SheetCells:
    """Return the cells of a table; the file holds equal neighbouring rows or cells once, with a count."""
    rows: dict[int, list[str]] = {}
    merged = []
    number = 1
    for row in table.iter(f"{_TABLE}table-row"):
        texts: dict[int, str] = {}
        column = 1
        for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
            last_column = column + _count(cell, "number-columns-spanned") - 1
            last_row = number + _count(cell, "number-rows-spanned") - 1
            if (column, number) != (last_column, last_row):
                merged.append(CellRange(min_col=column, min_row=number, max_col=last_column, max_row=last_row))
            next_column = column + _count(cell, "number-columns-repeated")
            if text := "\n".join(_ods_text(paragraph) for paragraph in cell.iterchildren(f"{_TEXT}p")):
                texts |= dict.fromkeys(range(column, next_column), text)
            column = next_column
        next_number = number + _count(row, "number-rows-repeated")
        if texts:
            values = [texts.get(column, "") for column in range(1, max(texts) + 1)]
            rows |= dict.fromkeys(range(number, next_number), values)
        number = next_number
    return SheetCells(rows, merged)


def _count(element: etree._Element, attribute: str) -> int:
    return int(element.get(f"{_TABLE}{attribute}", "1"))


def _ods_text(node: etree._Element) -> str:
    """Return the text of a paragraph, in which tabs, line ends and runs of spaces are elements."""
    white_space = _WHITE_SPACE.get(node.tag, "") * int(node.get(f"{_TEXT}c", "1"))
    return white_space + (node.text or "") + "".join(_ods_text(child) + (child.tail or "") for child in node)

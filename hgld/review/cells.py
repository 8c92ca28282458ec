"""The cells of a workbook as texts, whatever program saved it: .xlsx through openpyxl, .ods as the XML it is."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
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
_MARKS = {f"{_TEXT}s": " ", f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}


@dataclass(frozen=True, slots=True)
class SheetCells:
    """What stands in a sheet.

    Args:
        rows: the texts of each row from column A to its last cell that is not blank, by the row's number from 1;
            blank rows are left out.
        merged: the ranges of merged cells.
    """

    rows: Mapping[int, Sequence[str]]
    merged: Sequence[CellRange]


def read_cells(path: Path) -> dict[str, SheetCells]:
    """The sheets of a workbook, .ods or .xlsx by its suffix, by name.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return _ods_sheets(path) if path.suffix == ".ods" else _xlsx_sheets(path)
    except (InvalidFileException, zipfile.BadZipFile, etree.LxmlError, KeyError, ValueError, OSError) as error:
        raise InputError(f"{path}: not a workbook that can be read ({error})") from error


def _xlsx_sheets(path: Path) -> dict[str, SheetCells]:
    with warnings.catch_warnings():
        # openpyxl warns of extensions by other programs, which it leaves out.
        warnings.simplefilter("ignore", UserWarning)
        book = load_workbook(path)
    return {
        sheet.title: SheetCells(
            rows=_without_blanks(enumerate((map(_text, row) for row in sheet.iter_rows(values_only=True)), 1)),
            merged=list(sheet.merged_cells.ranges),
        )
        for sheet in book.worksheets
    }


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _ods_sheets(path: Path) -> dict[str, SheetCells]:
    with zipfile.ZipFile(path) as archive:
        content = etree.fromstring(archive.read("content.xml"), etree.XMLParser(resolve_entities=False))
    return {table.get(f"{_TABLE}name", ""): _ods_cells(table) for table in content.iter(f"{_TABLE}table")}


def _ods_cells(table: etree._Element) -> SheetCells:
    """Equal neighbours, rows or cells, stand in the file once, with a count; at the end thousands of blank ones."""
    rows: dict[int, list[str]] = {}
    merged = []
    number = 1
    for row in table.iter(f"{_TABLE}table-row"):
        texts: list[str] = []
        for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
            wide, high = _count(cell, "number-columns-spanned"), _count(cell, "number-rows-spanned")
            if wide > 1 or high > 1:
                left = len(texts) + 1
                right, low = left + wide - 1, number + high - 1
                merged.append(CellRange(min_col=left, min_row=number, max_col=right, max_row=low))
            text = "\n".join(_ods_text(paragraph) for paragraph in cell.iterchildren(f"{_TEXT}p"))
            texts += [text] * _count(cell, "number-columns-repeated")
        repeated = _count(row, "number-rows-repeated")
        if any(texts):
            rows |= dict.fromkeys(range(number, number + repeated), texts)
        number += repeated
    return SheetCells(_without_blanks(rows.items()), merged)


def _count(element: etree._Element, attribute: str) -> int:
    return int(element.get(f"{_TABLE}{attribute}", "1"))


def _ods_text(node: etree._Element) -> str:
    """The text of a paragraph, in which tabs, line ends and runs of spaces are elements."""
    mark = _MARKS.get(node.tag, "") * int(node.get(f"{_TEXT}c", "1"))
    return mark + (node.text or "") + "".join(_ods_text(child) + (child.tail or "") for child in node)


def _without_blanks(rows: Iterable[tuple[int, Iterable[str]]]) -> dict[int, list[str]]:
    """The rows without their blank cells at the end, and without blank rows."""
    found = {}
    for number, row in rows:
        texts = list(row)
        while texts and not texts[-1]:
            texts.pop()
        if texts:
            found[number] = texts
    return found

"""The cells of a workbook as texts, whatever program saved it: .xlsx through openpyxl, .ods as the XML it is."""

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
            rows={
                number: texts
                for number, row in enumerate(sheet.iter_rows(values_only=True), 1)
                if (texts := _up_to_last(row))
            },
            merged=list(sheet.merged_cells.ranges),
        )
        for sheet in book.worksheets
    }


def _up_to_last(row: Sequence[Any]) -> list[str]:
    """The texts of a row without the blank ones at its end."""
    texts = ["" if value is None else str(value) for value in row]
    while texts and not texts[-1]:
        texts.pop()
    return texts


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
        texts: dict[int, str] = {}
        column = 1
        for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
            right = column + _count(cell, "number-columns-spanned") - 1
            low = number + _count(cell, "number-rows-spanned") - 1
            if (column, number) != (right, low):
                merged.append(CellRange(min_col=column, min_row=number, max_col=right, max_row=low))
            after = column + _count(cell, "number-columns-repeated")
            if text := "\n".join(_ods_text(paragraph) for paragraph in cell.iterchildren(f"{_TEXT}p")):
                texts |= dict.fromkeys(range(column, after), text)
            column = after
        after_row = number + _count(row, "number-rows-repeated")
        if texts:
            up_to_last = [texts.get(column, "") for column in range(1, max(texts) + 1)]
            rows |= dict.fromkeys(range(number, after_row), up_to_last)
        number = after_row
    return SheetCells(rows, merged)


def _count(element: etree._Element, attribute: str) -> int:
    return int(element.get(f"{_TABLE}{attribute}", "1"))


def _ods_text(node: etree._Element) -> str:
    """The text of a paragraph, in which tabs, line ends and runs of spaces are elements."""
    mark = _MARKS.get(node.tag, "") * int(node.get(f"{_TEXT}c", "1"))
    return mark + (node.text or "") + "".join(_ods_text(child) + (child.tail or "") for child in node)

"""Colours, fonts and page setup that the sheets of a workbook share."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.styles import Alignment, Border, Font, NamedStyle, PatternFill, Protection, Side
from openpyxl.worksheet.properties import PageSetupProperties
from openpyxl.worksheet.worksheet import Worksheet

#: Two tints per cluster, alternating between its sub-clusters; neighbouring clusters differ in hue.
_BANDS = (
    ("DCE9F7", "C6DBF0"),
    ("FCE8D5", "F8D8B8"),
    ("E0F0DC", "CBE5C4"),
    ("F1E2F2", "E4CDE6"),
    ("FBF3CF", "F4E8AE"),
    ("DDF1F0", "C3E4E3"),
)
ENTRY_STYLE = "entry"
#: Styles of the rows of groups and of their first cells. Styling each cell by itself takes much longer.
GROUP_STYLE, GROUP_NAME_STYLE = "group", "group name"

ENTRY_HEADER_FILL = PatternFill("solid", fgColor="B45309")
DECIDED_FILL = PatternFill("solid", bgColor="D1F0D1")
INVALID_FILL = PatternFill("solid", bgColor="F8C4C0")
_HEADER_FILL = PatternFill("solid", fgColor="2F3E4E")
BORDER = Border(*(Side("thin", color="D5D9DE"),) * 4)
BOLD = Font(name="Calibri", size=11, bold=True)
LINK = Font(name="Calibri", size=11, color="1F4E9E", underline="single")
TITLE = Font(name="Calibri", size=18, bold=True, color="2F3E4E")
_PLAIN = Font(name="Calibri", size=11)
_HEADER_FONT = Font(name="Calibri", size=11, bold=True, color="FFFFFF")
WRAPPED = Alignment(wrap_text=True, vertical="top")
CENTRED = Alignment(horizontal="center", vertical="center")


def add_styles(book: Workbook) -> None:
    """Register the named styles of label rows, entry cells and groups."""
    for band, tints in enumerate(_BANDS):
        for tint, colour in enumerate(tints):
            book.add_named_style(_style(band_style(band, tint), fill=PatternFill("solid", fgColor=colour)))
    book.add_named_style(_style(ENTRY_STYLE, protection=Protection(locked=False)))
    for name, font in ((GROUP_STYLE, _PLAIN), (GROUP_NAME_STYLE, BOLD)):
        book.add_named_style(NamedStyle(name, font=font, border=BORDER, alignment=WRAPPED))


def band_style(cluster: int, subcluster: int) -> str:
    """Return the style for rows of the n-th cluster and its m-th sub-cluster, both counted from 0.

    >>> band_style(7, 3)
    'band 1.1'
    """
    return f"band {cluster % len(_BANDS)}.{subcluster % 2}"


def put_text(sheet: Worksheet, row: int, column: int, text: str) -> Cell:
    """Write a text that no program takes for a formula or an error value, whatever it begins with."""
    cell = sheet.cell(row, column)
    assert isinstance(cell, Cell)  # not covered by merged cells
    cell.value = text
    cell.data_type = "s"
    if is_like_formula(text):
        cell.quotePrefix = True
    return cell


def is_like_formula(text: str) -> bool:
    """Return whether a spreadsheet program would take a text for a formula if it was typed."""
    return text.startswith(("=", "+", "-", "@", "\t", "\r"))


def write_header(sheet: Worksheet, names: Sequence[str]) -> None:
    """Write the names of the columns into row 1 and repeat them on every printed page."""
    for column, name in enumerate(names, 1):
        cell = sheet.cell(1, column, name)
        cell.font, cell.fill = _HEADER_FONT, _HEADER_FILL
        cell.alignment = Alignment(vertical="center")
    sheet.row_dimensions[1].height = 22
    sheet.print_title_rows = "1:1"


def set_widths(sheet: Worksheet, widths: Sequence[int]) -> None:
    """Set the widths of the first columns, in characters."""
    for letter, width in zip("ABCDEFGHIJKLM", widths, strict=False):
        sheet.column_dimensions[letter].width = width


def fit_height(sheet: Worksheet, row: int, text: str, width: int) -> None:
    """Make room for a text that wraps in a column of this width, which Calc does not do by itself."""
    sheet.row_dimensions[row].height = 16 * max(1, ceil(0.9 * len(text) / width))


def finish_sheet(sheet: Worksheet) -> None:
    """Fit the sheet to the width of a page, and lock everything but filters and the sizes of rows and columns."""
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.paperSize = sheet.PAPERSIZE_A4
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
    sheet.page_setup.fitToHeight = 0
    protection = sheet.protection
    protection.sheet = True
    # True means locked.
    protection.autoFilter = protection.formatColumns = protection.formatRows = False


def _style(name: str, **details: Any) -> NamedStyle:
    return NamedStyle(name, font=_PLAIN, border=BORDER, alignment=Alignment(vertical="center"), **details)

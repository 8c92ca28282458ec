"""Read the cells of a .xlsx file as text. The format is that of ECMA-376, part 1, clause 18.

openpyxl writes workbooks but does not read them here: it does not limit what it unpacks, and it looks up each link of
a sheet among all others, which took 12 s for 17,000 links.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from zipfile import ZipFile

from openpyxl.styles.numbers import BUILTIN_FORMATS, is_date_format
from openpyxl.utils import column_index_from_string, range_boundaries
from openpyxl.utils.datetime import CALENDAR_MAC_1904, CALENDAR_WINDOWS_1900, from_excel

from hgld.review.sheets.archive import XmlHandler, parse_xml
from hgld.review.sheets.cells import MAX_COLUMNS, MAX_ROWS, CellRange, SheetCells

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_STRICT = "http://purl.oclc.org/ooxml/spreadsheetml/main"  # as saved as "Strict Open XML Spreadsheet"
_TAGS = ("workbookPr", "sheet", "cellXfs", "xf", "numFmt", "si", "rPh", "row", "c", "v", "f", "t", "mergeCell")
#: Extensions have elements of the same names in other namespaces.
_TAG = {f"{namespace} {tag}": tag for namespace in (_MAIN, _STRICT) for tag in _TAGS}


def read_xlsx(archive: ZipFile, names: Collection[str]) -> dict[str, SheetCells]:
    """Return the sheets with one of the names.

    Raises:
        ValueError: A part of the file is invalid, or a sheet has too many cells.
        KeyError: A part of the file is missing.
        xml.parsers.expat.ExpatError: A part of the file is not XML.
    """
    book = _Workbook()
    parse_xml(archive, "xl/workbook.xml", book)
    relations = _Relations()
    parse_xml(archive, "xl/_rels/workbook.xml.rels", relations)
    strings, styles = _SharedStrings(), _Styles()
    for handler, kind in ((strings, "sharedStrings"), (styles, "styles")):
        if kind in relations.path_by_kind:
            parse_xml(archive, relations.path_by_kind[kind], handler)
    sheets = {}
    for name, relation in book.relation_by_sheet.items():
        if name in names:
            sheet = _Sheet(strings.strings, styles.dates, book.epoch)
            parse_xml(archive, relations.path_by_id[relation], sheet)
            sheets[name] = sheet.cells
    return sheets


class _Workbook(XmlHandler):
    """Names of the sheets, and the day from which dates count."""

    def __init__(self) -> None:
        self.relation_by_sheet: dict[str, str] = {}
        self.epoch: datetime = CALENDAR_WINDOWS_1900

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = _TAG.get(name)
        if tag == "sheet":
            (relation,) = (value for key, value in attributes.items() if key.endswith("relationships id"))
            self.relation_by_sheet[attributes["name"]] = relation
        elif tag == "workbookPr" and attributes.get("date1904") in ("1", "true"):
            self.epoch = CALENDAR_MAC_1904


class _Relations(XmlHandler):
    """Paths of the parts of the workbook in the archive."""

    def __init__(self) -> None:
        self.path_by_id: dict[str, str] = {}
        self.path_by_kind: dict[str, str] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name.endswith(" Relationship"):
            # Absolute, or relative to the folder of the workbook.
            path = posixpath.normpath(posixpath.join("/xl", attributes["Target"])).lstrip("/")
            self.path_by_id[attributes["Id"]] = path
            self.path_by_kind[attributes["Type"].rpartition("/")[2]] = path


class _Styles(XmlHandler):
    """Numbers of the cell styles that show a number as a date or time."""

    def __init__(self) -> None:
        self.dates: set[int] = set()
        self._formats = dict(BUILTIN_FORMATS)
        self._n_styles = 0
        self._in_cell_styles = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = _TAG.get(name)
        if tag == "numFmt":
            self._formats[int(attributes["numFmtId"])] = attributes["formatCode"]
        elif tag == "cellXfs":
            self._in_cell_styles = True
        elif tag == "xf" and self._in_cell_styles:
            if is_date_format(self._formats.get(int(attributes.get("numFmtId", 0)))):
                self.dates.add(self._n_styles)
            self._n_styles += 1

    def end(self, name: str) -> None:
        if _TAG.get(name) == "cellXfs":
            self._in_cell_styles = False


class _Texts(XmlHandler):
    """Collects the text of values (``v``), formulas (``f``) and runs (``t``), without phonetic readings (``rPh``)."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._in_text = self._in_phonetic = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = _TAG.get(name)
        if tag == "rPh":
            self._in_phonetic = True
        elif tag in ("t", "v", "f"):
            self._in_text = not self._in_phonetic

    def end(self, name: str) -> None:
        tag = _TAG.get(name)
        if tag == "rPh":
            self._in_phonetic = False
        elif tag in ("t", "v", "f"):
            self._in_text = False

    def text(self, text: str) -> None:
        if self._in_text:
            self._pieces.append(text)

    def take_text(self) -> str:
        """Return the text since the last call."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return text


class _SharedStrings(_Texts):
    """Texts to which cells refer by number."""

    def __init__(self) -> None:
        super().__init__()
        self.strings: list[str] = []

    def end(self, name: str) -> None:
        super().end(name)
        if _TAG.get(name) == "si":
            self.strings.append(self.take_text())


class _Sheet(_Texts):
    """Cells of a sheet.

    Args:
        strings: Shared strings.
        date_styles: Numbers of the styles that show a number as a date.
        epoch: Day from which dates count.
    """

    def __init__(self, strings: Sequence[str], date_styles: Collection[int], epoch: datetime) -> None:
        super().__init__()
        self.cells = SheetCells()
        self._strings, self._date_styles, self._epoch = strings, date_styles, epoch
        self._row = self._column = 0
        self._type, self._style = "n", 0
        self._texts: dict[int, str] = {}
        self._formula_range: str | None = None
        self._shared_formula: str | None = None
        self._formulas: dict[str, str] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        super().start(name, attributes)
        tag = _TAG.get(name)
        if tag == "c":
            reference = attributes.get("r")
            self._column = _column_number(reference.rstrip("0123456789")) if reference else self._column + 1
            self._type, self._style = attributes.get("t", "n"), int(attributes.get("s", 0))
        elif tag == "f":
            self._formula_range, self._shared_formula = attributes.get("ref"), attributes.get("si")
        elif tag == "row":
            self._row, self._column = int(attributes.get("r", self._row + 1)), 0
            if self._row > MAX_ROWS:
                raise ValueError(f"more than {MAX_ROWS:,} rows")
        elif tag == "mergeCell":
            self.cells.add_merged(_range(attributes["ref"]))

    def end(self, name: str) -> None:
        super().end(name)
        tag = _TAG.get(name)
        if tag == "c":
            if text := self._cell_text(self.take_text()):
                self._texts[self._column] = text
        elif tag == "f":
            self._add_formula(f"={self.take_text()}")
        elif tag == "row":
            self.cells.add_rows(self._row, 1, self._texts)
            self._texts = {}

    def _cell_text(self, value: str) -> str:
        if self._type == "s" and value:
            return self._strings[int(value)]
        if self._type == "b" and value:
            return "TRUE" if value == "1" else "FALSE"
        if self._type == "n" and value:
            number = float(value)
            if self._style in self._date_styles:
                return str(from_excel(number, self._epoch)).removesuffix(" 00:00:00")
            return str(int(number)) if number.is_integer() else str(number)
        return value

    def _add_formula(self, formula: str) -> None:
        """Add the formula of the present cell, or of a range that begins there."""
        cells = CellRange(self._row, self._row, self._column, self._column)
        if self._shared_formula is not None:
            # Only the first cell has the text, but each cell of the range is marked.
            formula = self._formulas.setdefault(self._shared_formula, formula)
        elif self._formula_range is not None:
            cells = _range(self._formula_range)
        self.cells.add_formula(cells, formula)
        self._texts[self._column] = ""  # unless a value follows


@lru_cache(MAX_COLUMNS)
def _column_number(letters: str) -> int:
    return column_index_from_string(letters)


def _range(reference: str) -> CellRange:
    first_column, first_row, last_column, last_row = range_boundaries(reference)
    return CellRange(first_row or 1, last_row or MAX_ROWS, first_column or 1, last_column or MAX_COLUMNS)

"""Read the cells of a .ods file as text. The format is that of OpenDocument 1.3, part 3, clause 9."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from zipfile import ZipFile

from hgld.review.sheets.archive import XmlHandler, parse_xml
from hgld.review.sheets.cells import MAX_CHARACTERS, MAX_COLUMNS, CellRange, SheetCells

_TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0 "
_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0 "
_CELLS = (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell")
_WHITE_SPACE = {f"{_TEXT}s": " ", f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}


def read_ods(archive: ZipFile, names: Collection[str]) -> dict[str, SheetCells]:
    """Return the sheets with one of the names.

    Raises:
        ValueError: The file is invalid, or a sheet has too many cells.
        KeyError: The file has no content.
        xml.parsers.expat.ExpatError: The content is not XML.
    """
    content = _Content()
    parse_xml(archive, "content.xml", content)
    return {name: cells for name, cells in content.sheets.items() if name in names}


class _Content(XmlHandler):
    """Cells of all sheets. The file holds equal neighbouring rows or cells once, with a count."""

    def __init__(self) -> None:
        self.sheets: dict[str, SheetCells] = {}
        self._cells = SheetCells()  # of the present sheet
        self._row = self._column = self._n_rows = self._n_columns = 1
        self._texts: dict[int, str] = {}
        self._has_formula = False
        #: Paragraphs of the present cell, in pieces.
        self._paragraphs: list[list[str]] = []
        #: Number of open elements from the present cell on; 0 outside of cells.
        self._depth = 0
        self._in_paragraph = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._depth:
            self._start_in_cell(name, attributes)
        elif name in _CELLS:
            self._start_cell(attributes)
        elif name == f"{_TABLE}table-row":
            self._column, self._texts = 1, {}
            self._n_rows = _count(attributes, "number-rows-repeated")
        elif name == f"{_TABLE}table":
            self._row = 1
            self._cells = self.sheets[attributes[f"{_TABLE}name"]] = SheetCells()

    def _start_cell(self, attributes: Mapping[str, str]) -> None:
        self._depth, self._paragraphs = 1, []
        self._n_columns = _count(attributes, "number-columns-repeated")
        merged = self._range(_count(attributes, "number-rows-spanned"), _count(attributes, "number-columns-spanned"))
        if len(merged.rows) > 1 or len(merged.columns) > 1:
            self._cells.add_merged(merged)
        formula = attributes.get(f"{_TABLE}formula")
        self._has_formula = formula is not None
        if formula is not None:
            # Either the cell is repeated, or a formula fills a range of cells, of which only the first has it.
            rows = max(self._n_rows, _count(attributes, "number-matrix-rows-spanned"))
            columns = max(self._n_columns, _count(attributes, "number-matrix-columns-spanned"))
            self._cells.add_formula(self._range(rows, columns), formula[formula.index("=") :])

    def _range(self, rows: int, columns: int) -> CellRange:
        """Return a range that begins at the present cell."""
        return CellRange(self._row, self._row + rows - 1, self._column, self._column + columns - 1)

    def _start_in_cell(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if name == f"{_TEXT}p" and self._depth == 2:  # those below are of annotations and drawings
            self._in_paragraph = True
            self._paragraphs.append([])
        elif self._in_paragraph and name in _WHITE_SPACE:
            count = min(int(attributes.get(f"{_TEXT}c", "1")), MAX_CHARACTERS)
            self._paragraphs[-1].append(_WHITE_SPACE[name] * count)

    def text(self, text: str) -> None:
        if self._in_paragraph:
            self._paragraphs[-1].append(text)

    def end(self, name: str) -> None:
        if self._depth:
            self._depth -= 1
            self._in_paragraph &= self._depth > 1
            if not self._depth:
                self._end_cell()
        elif name == f"{_TABLE}table-row":
            self._cells.add_rows(self._row, self._n_rows, self._texts)
            self._row += self._n_rows

    def _end_cell(self) -> None:
        text = "\n".join(map("".join, self._paragraphs))
        next_column = self._column + self._n_columns
        if text or self._has_formula:
            if next_column > MAX_COLUMNS + 1:
                raise ValueError(f"more than {MAX_COLUMNS:,} columns")
            self._texts.update(dict.fromkeys(range(self._column, next_column), text))
        self._column = next_column


def _count(attributes: Mapping[str, str], name: str) -> int:
    return int(attributes.get(f"{_TABLE}{name}", "1"))

"""Cells of a spreadsheet as text, whatever the format of the file, within the limits of a review sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from openpyxl.utils import get_column_letter

#: Limits of Excel and LibreOffice.
MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384
#: Limits of what is read: cells up to the last one with text of each row, and ranges. A sheet of 5,700 labels has
#: 74,000 cells of 2 million characters.
MAX_CELLS, MAX_CHARACTERS = 2_000_000, 100_000_000


class CellRange(NamedTuple):
    """A range of cells; rows and columns are counted from 1."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int

    def __str__(self) -> str:
        first, last = get_column_letter(self.first_column), get_column_letter(self.last_column)
        return f"{first}{self.first_row}:{last}{self.last_row}"

    @property
    def rows(self) -> range:
        """Numbers of the rows."""
        return range(self.first_row, self.last_row + 1)

    @property
    def columns(self) -> range:
        """Numbers of the columns."""
        return range(self.first_column, self.last_column + 1)


@dataclass
class SheetCells:
    """Cells of one sheet.

    Args:
        rows: Texts from column A to the last cell that is not blank, by row number from 1; blank rows are omitted.
        formulas: Ranges of cells that are calculated, and their formulas. The texts of these cells are what a program
            calculated last, or empty.
        merged: Ranges of merged cells.
    """

    rows: dict[int, Sequence[str]] = field(default_factory=dict)
    formulas: list[tuple[CellRange, str]] = field(default_factory=list)
    merged: list[CellRange] = field(default_factory=list)
    _cells: int = 0
    _characters: int = 0

    def add_rows(self, first: int, count: int, texts: Mapping[int, str]) -> None:
        """Add equal rows.

        Args:
            first: Number of the first row.
            count: Number of rows.
            texts: Texts by column number, without blank cells.

        Raises:
            ValueError: No spreadsheet can hold the rows, or there are too many cells.
        """
        if not texts:
            return
        last_column = max(texts)
        if first + count - 1 > MAX_ROWS or last_column > MAX_COLUMNS:
            raise ValueError(f"more than {MAX_ROWS:,} rows or {MAX_COLUMNS:,} columns")
        self._count(count * last_column, count * sum(map(len, texts.values())))
        values = [texts.get(column, "") for column in range(1, last_column + 1)]
        self.rows.update(dict.fromkeys(range(first, first + count), values))

    def add_formula(self, cells: CellRange, formula: str) -> None:
        """Add a formula that begins with "=".

        Raises:
            ValueError: There are too many cells.
        """
        self._count(len(cells.rows))
        self.formulas.append((cells, formula))

    def add_merged(self, cells: CellRange) -> None:
        """Add a range of merged cells.

        Raises:
            ValueError: There are too many cells.
        """
        self._count(len(cells.rows))
        self.merged.append(cells)

    def _count(self, cells: int, characters: int = 0) -> None:
        self._cells += cells
        self._characters += characters
        if self._cells > MAX_CELLS or self._characters > MAX_CHARACTERS:
            raise ValueError(f"more than {MAX_CELLS:,} cells or {MAX_CHARACTERS:,} characters in a sheet")

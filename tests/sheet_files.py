"""Read and fill in review sheets as an annotator would, without the code under test."""

from __future__ import annotations

import csv
from pathlib import Path

from openpyxl import load_workbook


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a sheet as dictionaries."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def fill_csv(path: Path, label_id: str, **cells: str) -> None:
    """Fill in cells of a label in a CSV sheet; everything else stays as it is."""
    rows = csv_rows(path)
    (row,) = (row for row in rows if row["label_id"] == label_id)
    row.update(cells)
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(row), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)


def fill_workbook(path: Path, label_id: str, **cells: str | None) -> None:
    """Fill in cells of a label in a workbook."""
    book = load_workbook(path)
    sheet = book["Labels"]
    columns = {cell.value: column for column, cell in enumerate(sheet[1], 1)}
    (row,) = (row for row in range(2, sheet.max_row + 1) if sheet.cell(row, columns["label_id"]).value == label_id)
    for name, value in cells.items():
        sheet.cell(row, columns[name]).value = value
    book.save(path)

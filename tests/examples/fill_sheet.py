"""Fill in a review sheet as an annotator would, with the decisions that come with hgld.

Usage: python fill_sheet.py WORKBOOK [CELL=VALUE | FIRST:LAST]...
Values replace those of cells, and ranges are merged.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from openpyxl import load_workbook

from hgld.resources import annotation_file
from hgld.taxonomy.decisions import DecisionIndex, read_decisions


def main(workbook: Path, changes: Sequence[str]) -> None:
    """Decide on the labels of a workbook from ``hgld export``, and then make mistakes in single cells."""
    shipped = DecisionIndex(read_decisions(annotation_file("decisions/final.csv"), None))
    book = load_workbook(workbook)
    sheet = book["Labels"]
    columns = {cell.value: column for column, cell in enumerate(sheet[1], 1)}
    for row in range(2, sheet.max_row + 1):
        label_id, label = (str(sheet.cell(row, columns[name]).value) for name in ("label_id", "label"))
        decision = shipped.find(label_id, label)
        if decision is not None:
            name, value = ("group", decision.group) if decision.group else ("decision", decision.decision)
            sheet.cell(row, columns[name]).value = value
    for change in changes:
        cell, equals, value = change.partition("=")
        if equals:
            sheet[cell] = value or None
        else:
            sheet.merge_cells(cell)
    book.save(workbook)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

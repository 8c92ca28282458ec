"""A review sheet as CSV: UTF-8 with a byte order mark, by which Excel knows the encoding; every value quoted.

Spreadsheet programs take a value that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end for a formula,
quoted or not. Such values are written after an apostrophe, which is removed on reading
(:func:`hgld.io.csv_files.escape_formula`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from hgld.errors import InputError
from hgld.io.csv_files import escape_formula, unescape_formula
from hgld.io.files import atomic_write
from hgld.review.sheets.entries import Entries, Entry, SheetRow
from hgld.review.sheets.rows import COLUMNS, N_EXAMPLES, LabelRow, example_link

_DELIMITERS = (",", ";", "\t")


def write_csv_sheet(path: Path, rows: Sequence[LabelRow], entries: Entries) -> None:
    """Write a sheet as CSV, atomically.

    Args:
        path: File to write.
        rows: Labels, in the order of the sheet.
        entries: Earlier entries to fill in.
    """
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerow(COLUMNS)
        for row in rows:
            entry = entries.get(row.label_id) or Entry(row.label_id, row.label)
            links = [example_link(title)[1] for title in row.examples]
            values = (
                *(row.label_id, row.label, str(row.landmarks), row.parents),
                *(str(row.cluster), str(row.subcluster)),
                *links,
                *("" for _ in range(N_EXAMPLES - len(links))),
                *(row.suggested_group, entry.group, entry.decision, entry.comment),
            )
            writer.writerow([escape_formula(value) for value in values])


def read_csv_sheet(path: Path) -> list[SheetRow]:
    """Read a sheet as hgld wrote it or as a spreadsheet program saved it, e.g. with semicolons or tabs.

    Raises:
        InputError: The file is not UTF-8 or not CSV, or lacks a column of a review sheet.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f'{path}: not UTF-8; save it as "CSV UTF-8", or use the workbook') from error
    header = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=header.count)
    rows = []
    try:
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names = [name.strip() for name in next(records, [])]
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise InputError(f"{path}: not a review sheet: line 1 has no column {', '.join(missing)}")
        for number, record in enumerate(records, 2):
            rows.append(SheetRow(number, dict(zip(names, map(unescape_formula, record), strict=False))))
    except csv.Error as error:
        raise InputError(f"{path}: not a readable CSV file: {error}") from error
    return rows

"""A review sheet as CSV: UTF-8 with a byte order mark, by which Excel knows the encoding; every value quoted.

Spreadsheets take a value that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end for a formula, in
quotes or not. Such values are written with an apostrophe before them and read back without it; so are those
that already have apostrophes before such a character, which makes the writing reversible for any text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from hgld.errors import InputError
from hgld.io.csv_files import escape_formula, unescape_formula
from hgld.io.files import atomic_write
from hgld.review.sheets.rows import COLUMNS, N_EXAMPLES, Entries, Entry, LabelRow, SheetLine, example_link

_DELIMITERS = (",", ";", "\t")


def write_csv(path: Path, rows: Sequence[LabelRow], entries: Entries) -> None:
    """Write a sheet, atomically, with what was entered before."""
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


def read_csv(path: Path) -> list[SheetLine]:
    """Read a sheet back, as hgld wrote it or as a spreadsheet saved it (with semicolons or tabs, say).

    Raises:
        InputError: the file is not UTF-8, not CSV, or has not the columns of a sheet.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f'{path}: not UTF-8; save it as "CSV UTF-8", or work in the workbook') from error
    header = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=header.count)
    lines = []
    try:
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names = [name.strip() for name in next(records, [])]
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise InputError(f"{path}: not a review sheet: line 1 has no column {', '.join(missing)}")
        for number, record in enumerate(records, 2):
            lines.append(SheetLine(number, dict(zip(names, map(unescape_formula, record), strict=False))))
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file that can be read: {error}") from error
    return lines

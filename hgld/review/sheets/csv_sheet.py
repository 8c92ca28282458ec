"""A review sheet as CSV: UTF-8 with a byte order mark, by which Excel knows the encoding; every value quoted.

Spreadsheet programs take a value that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end for a formula,
quoted or not. Such values are written after an apostrophe, which is removed on reading
(:func:`hgld.io.columns.escape_formula`).
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from hgld.errors import InputError
from hgld.io.columns import escape_formula, locate_invalid_byte, unescape_formula
from hgld.io.files import atomic_write
from hgld.review.labels import N_EXAMPLES, ReviewLabel, example_link
from hgld.review.sheets.entries import COLUMNS, Entries, Entry, SheetRow, check_header, read_bytes

_DELIMITERS = (",", ";", "\t")
#: A first line with which Excel is told the separator.
_SEPARATOR_LINE = re.compile('"?sep=([^"\r\n])"?(?:\r\n|\r|\n)', re.IGNORECASE)
_ROWS_OF_EXCEL = 16
_NEVER_FORMULAS = ("label_id", "group", "decision")
_CAUSE = "is the row cut off, or a value with a comma not in quotes?"


def write_csv_sheet(path: Path, rows: Sequence[ReviewLabel], entries: Entries) -> None:
    """Write a sheet as CSV, atomically."""
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


def is_text(path: Path) -> bool:
    """Return whether a sheet is a text file, not a workbook, by its name; Excel calls "Unicode text" .txt."""
    return path.suffix.lower() in (".csv", ".tsv", ".txt")


def read_csv_sheet(path: Path) -> list[SheetRow]:
    """Read a sheet as hgld wrote it or as a spreadsheet program saved it.

    The file may be in UTF-8 or UTF-16 ("Unicode text" of Excel). Cells are separated by commas, semicolons or tabs,
    or by the character in a first line such as ``sep=;``.

    Raises:
        InputError: The file cannot be decoded, is not CSV, ends within quotes, or lacks a column of a review sheet.
    """
    text = _decode(path)
    separator_line = _SEPARATOR_LINE.match(text)
    if separator_line:
        text, delimiter = text[separator_line.end() :], separator_line[1]
    else:
        delimiter = max(_DELIMITERS, key=re.split(r"[\r\n]", text, maxsplit=1)[0].count)
    first_line = 2 if separator_line else 1
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records, lines = [], []
    try:
        for record in reader:
            records.append(record)
            lines.append(first_line - 1 + reader.line_num)
    except csv.Error as error:
        line = first_line - 1 + reader.line_num
        raise InputError(f"{path}: line {line}: not readable as CSV, perhaps cut off ({error})") from error
    header = check_header(path, f"line {first_line}", records[0] if records else (), COLUMNS)
    wrong_length = _find_wrong_lengths(records)
    return [
        SheetRow(
            number,
            {name: unescape_formula(value) for name, value in zip(header, record, strict=False) if name},
            formulas=_formulas(header, record),
            damage=f"line {line} has {len(record)} cells, not {len(header)}; {_CAUSE}"
            if number in wrong_length
            else "",
        )
        for number, (record, line) in enumerate(zip(records[1:], lines[1:], strict=True), 2)
    ]


def _decode(path: Path) -> str:
    data = read_bytes(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: UTF-16 that is damaged, perhaps cut off; save the sheet again") from error
    if b"\0" in data:
        raise InputError(f"{path}: not CSV; if it is a workbook, call it .xlsx")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f'{path}: {locate_invalid_byte(path)}; save it as "CSV UTF-8", or use the workbook'
        ) from error


def _find_wrong_lengths(records: Sequence[Sequence[str]]) -> set[int]:
    """Return the numbers, from 1, of the rows with fewer or more cells than the header.

    Excel omits columns at the end where they are blank in 16 rows, counted from the first (Microsoft, "Column
    delimiters are missing in an Excel spreadsheet that is saved as text"). Rows like these are not cut short.
    """
    numbers: set[int] = set()
    for first in range(0, len(records), _ROWS_OF_EXCEL):
        block = records[first : first + _ROWS_OF_EXCEL]
        lengths = [len(record) for record in block]
        longest = max(lengths)
        width = longest if longest < len(records[0]) and lengths.count(longest) > 1 else len(records[0])
        for number, record in enumerate(block, first + 1):
            if (len(record) < width and any(record)) or any(record[width:]):
                numbers.add(number)
    return numbers


def _formulas(header: Sequence[str], record: Sequence[str]) -> dict[str, str]:
    """Return formulas that a program saved in place of values. Comments may begin with "=", other texts never do."""
    cells = zip(header, record, strict=False)
    return {name: value for name, value in cells if name in _NEVER_FORMULAS and value.startswith("=")}

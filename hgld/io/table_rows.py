"""Read tables row by row, report all invalid rows together, and escape texts for spreadsheets."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from hgld.errors import InputError, bad_rows
from hgld.io.columns import (
    PARQUET,
    ZIP,
    locate_invalid_byte,
    read_text_columns,
    require_commas,
    starts_with,
)

R = TypeVar("R")
T = TypeVar("T")
#: Begin of a text that a spreadsheet runs as a formula, after any escapes. With East Asian
#: settings, spreadsheets accept full-width signs as well.
_FORMULA = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")


def read_table_rows(
    path: Path, wanted: Sequence[str], parse: Callable[[int, Mapping[str, str]], T]
) -> list[T]:
    """Read a CSV or Parquet file; see :func:`read_rows`.

    Rows of Parquet files are numbered from 1, and missing values are empty texts.
    """
    if path.suffix != ".parquet":
        return read_rows(path, wanted, parse)
    rows = []
    for row in read_text_columns(path, wanted, may_be_missing=wanted).to_pylist():
        rows.append({name: text or "" for name, text in row.items()})
    return parse_rows(path, enumerate(rows, 1), parse, "row")


def read_rows(
    path: Path,
    columns: Sequence[str],
    parse: Callable[[int, Mapping[str, str]], T],
    *,
    parse_header: Callable[[list[str]], list[list[str]]] = lambda values: [values],
    may_be_empty: bool = False,
) -> list[T]:
    """Read a CSV file in UTF-8.

    Additional columns are ignored; blank lines and a byte order mark are skipped.

    Args:
        path: The CSV file.
        columns: Columns that the file must have, in any order.
        parse: Called for each row with its line number and its values by column. A ValueError that
            it raises is reported as the problem of the row.
        parse_header: Called with the values of the first line; returns the header, followed by any
            rows that stand in the same line.
        may_be_empty: Accept a file without rows below the header.

    Returns:
        The results of ``parse`` in the order of the file.

    Raises:
        InputError: The file is missing, not UTF-8 or not CSV; it lacks the header, a column, or
            (unless it may be empty) rows; or rows are invalid.
    """
    problem = _describe_other_file(path)
    if problem:
        raise InputError(
            f"{path}: {problem}; expected a CSV file with the columns {','.join(columns)}"
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            first_line = next(rows, None)
            if first_line is None:
                raise InputError(
                    f"{path}: the file is empty; expected the header {','.join(columns)} and rows below it"
                )
            names, *rows_in_first_line = parse_header(first_line)
            header = _check_header(path, names, columns)

            def parse_row(line: int, row: Sequence[str]) -> T:
                return parse(line, _by_column(row, header))

            all_rows = chain(rows_in_first_line, rows)
            # Rows are read while they are parsed, so line_num is the line of each row.
            numbered = ((rows.line_num, row) for row in all_rows if "".join(row).strip())
            parsed = parse_rows(path, numbered, parse_row, "line")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {locate_invalid_byte(path)}; save the file as UTF-8") from error
    except csv.Error as error:
        raise InputError(
            f"{path}: line {rows.line_num}: cannot be read as CSV: {_csv_problem(error)}"
        ) from error
    if not parsed and not may_be_empty:
        raise InputError(f"{path}: no rows below the header")
    return parsed


def _describe_other_file(path: Path) -> str:
    """Describe a path that cannot be a text file; "" if it can."""
    if path.is_dir():
        return "a folder"
    if not path.is_file():
        return "no such file"
    if starts_with(path, PARQUET):
        return "a Parquet file"
    if starts_with(path, ZIP):
        return "a spreadsheet"
    return ""


def _csv_problem(error: csv.Error) -> str:
    """Return in plain words why the module csv cannot read a line."""
    if "expected after" in str(error):
        return "a value in quotation marks is followed by other characters, such as a space; remove them"
    if "unexpected end of data" in str(error):
        return "a quotation mark is not closed, in this line or in one above it"
    return str(error)


def parse_rows(
    path: Path, rows: Iterable[tuple[int, R]], parse: Callable[[int, R], T], unit: str
) -> list[T]:
    """Parse numbered rows.

    Args:
        path: The file, for the error message.
        rows: Rows with their numbers.
        parse: Called with the number and the row; raises a ValueError if the row is invalid.
        unit: What the numbers count, such as "line".

    Raises:
        InputError: Rows are invalid; the message lists them.
    """
    parsed = []
    problems = []
    for number, row in rows:
        try:
            parsed.append(parse(number, row))
        except ValueError as problem:
            problems.append(f"{unit} {number}: {problem}")
    if problems:
        raise InputError(f"{path}: {bad_rows(problems, ', nothing was done')}")
    return parsed


def parse_whole_number(column: str, text: str) -> int:
    """Parse a non-negative whole number in a column.

    Raises:
        ValueError: The text has other characters than the digits 0 to 9, or more than 18 digits,
            which might not fit into int64.

    >>> parse_whole_number("landmark_id", "6347")
    6347
    """
    # int() alone takes "1_000", "+7" and digits of any script.
    digits = text.strip()
    if not (text.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise ValueError(f'the {column} is "{text}"; expected a whole number such as 6347')
    return int(text)


def escape_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    >>> escape_formula("=1+1"), escape_formula("lake"), escape_formula("'-5")
    ("'=1+1", 'lake', "''-5")
    """
    if _FORMULA.match(text):
        return f"'{text}"
    return text


def unescape_formula(text: str) -> str:
    """Undo :func:`escape_formula`.

    >>> unescape_formula("'=1+1"), unescape_formula("'tis"), unescape_formula("=1+1")
    ('=1+1', "'tis", '=1+1')
    """
    if text.startswith("'") and _FORMULA.match(text):
        return text[1:]
    return text


def unify_line_breaks(text: str) -> str:
    r"""Replace carriage returns by line feeds.

    Writers with ``lineterminator="\n"`` quote line feeds, but not carriage returns.

    >>> unify_line_breaks("one\r\ntwo\rthree")
    'one\ntwo\nthree'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_control_characters(text: str) -> str:
    r"""Return a text without control characters, except white space; many readers of CSV refuse them.

    >>> without_control_characters("a\x00b\tc")
    'ab\tc'
    """
    return "".join(c for c in text if c.isspace() or unicodedata.category(c) != "Cc")


def _check_header(path: Path, names: list[str], columns: Sequence[str]) -> list[str]:
    """Return the column names of a header; raise an InputError if a column is missing."""
    require_commas(path, names)
    header = [name.strip() for name in names]
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"{path}: line 1: no column {', '.join(missing)}; found {','.join(names)}, "
            f"expected {','.join(columns)}"
        )
    return header


def _by_column(row: Sequence[str], header: Sequence[str]) -> Mapping[str, str]:
    """Return the values of a row by column; raise a ValueError if the row is too long or too short."""
    if len(row) != len(header):
        raise ValueError(
            f"{len(row)} values, expected {len(header)} ({','.join(header)}); is a value with a comma not in quotes?"
        )
    return dict(zip(header, row, strict=True))

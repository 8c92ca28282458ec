"""Read CSV files that people write or edit: by column name, with all invalid rows reported together by line."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from hgld.errors import InputError, bad_rows

T = TypeVar("T")

#: Text that a spreadsheet runs as a formula, after any escapes; with East Asian settings full-width signs count, too.
_FORMULA = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")


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
        path: CSV file.
        columns: Columns that the file must have, in any order.
        parse: Called for each row with its line number and its values by column. A ValueError that it raises is
            reported as the problem of the row.
        parse_header: Called with the values of the first line; returns the header, followed by any rows that stand
            in the same line.
        may_be_empty: Accept a file without rows below the header.

    Returns:
        The results of ``parse`` in the order of the file.

    Raises:
        InputError: The file is missing, not UTF-8, not CSV, lacks the header, a column or (unless it may be empty)
            any row; or rows are invalid, in which case none is used.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a CSV file with the columns {','.join(columns)}")
    parsed: list[T] = []
    problems: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            first = next(rows, None)
            names, *rows_in_first_line = [first] if first is None else parse_header(first)
            header = _check_header(path, names, columns)
            for row in chain(rows_in_first_line, rows):
                if not (row and "".join(row).strip()):  # a blank line
                    continue
                try:
                    parsed.append(parse(rows.line_num, _by_column(row, header)))
                except ValueError as problem:
                    problems.append(f"line {rows.line_num}: {problem}")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {locate_invalid_byte(path)}; save the file as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from error
    if problems:
        raise InputError(f"{path}: {bad_rows(problems, ', nothing was done')}")
    if not parsed and not may_be_empty:
        raise InputError(f"{path}: no rows below the header")
    return parsed


def parse_whole_number(column: str, text: str) -> int:
    """Parse a non-negative whole number in a column.

    Raises:
        ValueError: The text has other characters than the digits 0 to 9, or more than 18 digits, which might not fit
            into int64.

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
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_formula(text: str) -> str:
    """Undo :func:`escape_formula`.

    >>> unescape_formula("'=1+1"), unescape_formula("'tis"), unescape_formula("=1+1")
    ('=1+1', "'tis", '=1+1')
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def unify_line_breaks(text: str) -> str:
    r"""Return a text with line feeds for carriage returns, which writers with ``lineterminator="\n"`` do not quote.

    >>> unify_line_breaks("one\r\ntwo\rthree")
    'one\ntwo\nthree'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_control_characters(text: str) -> str:
    r"""Return a text without control characters, which many readers of CSV refuse, but for white space.

    >>> without_control_characters("a\x00b\tc")
    'ab\tc'
    """
    return "".join(c for c in text if c.isspace() or unicodedata.category(c) != "Cc")


def _check_header(path: Path, names: list[str] | None, columns: Sequence[str]) -> list[str]:
    expected = ",".join(columns)
    if names is None:
        raise InputError(f"{path}: the file is empty; expected the header {expected} and rows below it")
    header = [name.strip() for name in names]
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"{path}: line 1: no column {' and no column '.join(missing)}; found {','.join(names)}, "
            f"expected {expected}"
        )
    return header


def _by_column(row: Sequence[str], header: Sequence[str]) -> Mapping[str, str]:
    if len(row) != len(header):
        raise ValueError(
            f"{len(row)} values, expected {len(header)} ({','.join(header)}); is a value with a comma not in quotes?"
        )
    return dict(zip(header, row, strict=True))


def locate_invalid_byte(path: Path) -> str:
    """Describe where a file is not UTF-8: the line and the byte; empty if it is."""
    for line, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return f"line {line}: not UTF-8 (byte 0x{raw[error.start]:02x})"
    return ""

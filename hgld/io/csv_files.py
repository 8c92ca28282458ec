"""CSV files that people write or edit: read by column name, all bad rows reported together by their line."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from hgld.errors import InputError, listing

T = TypeVar("T")

#: The full-width forms are formulas too in some East Asian settings.
_GUARDED = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")


def read_rows(
    path: Path,
    columns: Sequence[str],
    parse: Callable[[int, Mapping[str, str]], T],
    *,
    first_line: Callable[[list[str]], list[list[str]]] = lambda values: [values],
) -> list[T]:
    """Read a CSV file in UTF-8.

    Further columns are ignored, blank lines and a byte order mark skipped.

    Args:
        path: the file.
        columns: the columns that it must have, in any order.
        parse: makes something of a row, given the number of its line and its values by column; a ValueError
            that it raises is what is wrong with the row.
        first_line: makes the header of the values of the first line, and rows where some stand in that line, too.

    Returns:
        What ``parse`` made, in the file's order; never empty.

    Raises:
        InputError: the file is missing, empty, not UTF-8, not CSV or without the columns, has no rows, or rows
            are bad; nothing of a file with a bad row is used.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a CSV file with the columns {','.join(columns)}")
    parsed: list[T] = []
    problems: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            first = next(rows, None)
            names, *early = [first] if first is None else first_line(first)
            header = _header(path, names, columns)
            for row in chain(early, rows):
                if not row:  # a blank line
                    continue
                try:
                    parsed.append(parse(rows.line_num, _by_column(row, header)))
                except ValueError as problem:
                    problems.append(f"line {rows.line_num}: {problem}")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {_undecodable(path)}; save the file as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file that can be read: {error}") from error
    if problems:
        raise InputError(f"{path}: {len(problems):,} bad rows, nothing was done:\n{listing(problems)}")
    if not parsed:
        raise InputError(f"{path}: no rows below the header")
    return parsed


def whole_number(column: str, text: str) -> int:
    """The number that a value stands for.

    Raises:
        ValueError: it is not written in the digits 0 to 9 alone, or in more than 18 of them, too many for int64.
    """
    # int() alone takes "1_000", "+7" and digits of any script.
    digits = text.strip()
    if not (text.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise ValueError(f'the {column} is "{text}"; expected a whole number such as 6347')
    return int(text)


def _header(path: Path, found: list[str] | None, columns: Sequence[str]) -> list[str]:
    expected = ",".join(columns)
    if found is None:
        raise InputError(f"{path}: the file is empty; expected the header {expected} and rows below it")
    header = [name.strip() for name in found]
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"{path}: line 1: no column {' and no column '.join(missing)}; found {','.join(found)}, "
            f"expected {expected}"
        )
    return header


def _by_column(row: Sequence[str], header: Sequence[str]) -> Mapping[str, str]:
    if len(row) != len(header):
        raise ValueError(
            f"{len(row)} values, expected {len(header)} ({','.join(header)}); is a value with a comma not in quotes?"
        )
    return dict(zip(header, row, strict=True))


def _undecodable(path: Path) -> str:
    """Where the first byte is that is not UTF-8; the decoder only knows its place within a buffer."""
    for line, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return f"line {line}: not UTF-8 (byte 0x{raw[error.start]:02x})"
    return "not UTF-8"


def guard(text: str) -> str:
    """The text as no spreadsheet takes it for a formula.

    >>> guard("=1+1"), guard("lake"), guard("'-5")
    ("'=1+1", 'lake', "''-5")
    """
    return f"'{text}" if _GUARDED.match(text) else text


def unguard(text: str) -> str:
    """The inverse of :func:`guard`.

    >>> unguard("'=1+1"), unguard("'tis"), unguard("=1+1")
    ('=1+1', "'tis", '=1+1')
    """
    return text[1:] if text.startswith("'") and _GUARDED.match(text) else text

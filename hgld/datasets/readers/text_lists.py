"""Lists in text files, with values separated by blanks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgld.errors import InputError, bad_rows


def read_text_list(path: Path, columns: Sequence[str], *, header_lines: int = 0) -> list[list[str]]:
    """Read the columns of a text file with one row per line.

    Args:
        path: The file.
        columns: Names of the columns, for messages.
        header_lines: Number of lines before the first row.

    Returns:
        The values of each column.

    Raises:
        InputError: The file is missing, not UTF-8 or has no rows, or a row has another number of values.
    """
    expected = " ".join(columns)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected lines with {expected}; is this the folder of the dataset?")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[header_lines:]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start:,}); expected a text file") from error
    rows = [(number, line.split()) for number, line in enumerate(lines, header_lines + 1) if line.strip()]
    problems = [
        f"line {number}: {len(values)} values, expected {len(columns)} ({expected})"
        for number, values in rows
        if len(values) != len(columns)
    ]
    if problems:
        raise InputError(f"{path}: {bad_rows(problems)}")
    if not rows:
        raise InputError(f"{path}: no rows; expected lines with {expected}")
    return [list(column) for column in zip(*(values for _, values in rows), strict=True)]


def parse_ranges(text: str) -> list[int]:
    """Parse integers and inclusive ranges of integers.

    >>> parse_ranges("1 4-6")
    [1, 4, 5, 6]
    """
    ends = [[int(end) for end in item.split("-")] for item in text.split()]
    return [number for first, *last in ends for number in range(first, (last or [first])[0] + 1)]

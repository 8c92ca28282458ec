"""The groups that annotators choose from, and the root each belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.csv_files import read_rows

ROOTS = ("natural", "human-made")
_COLUMNS = ("group", "root", "guideline")


@dataclass(frozen=True, slots=True)
class Group:
    """A super-category: its name, its root, and in one line what belongs to it and what does not."""

    name: str
    root: str
    guideline: str


def read_taxonomy(path: Path) -> list[Group]:
    """Read and check a taxonomy: a CSV file in UTF-8 with the columns group, root and guideline.

    Returns:
        The groups in the file's order.

    Raises:
        InputError: see :func:`hgld.csv_files.read_rows`; a row is bad that has no group or no guideline, a root
            other than natural and human-made, or a group that stands in an earlier row.
    """
    first_lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> Group:
        group = Group(*(row[name].strip() for name in _COLUMNS))
        if not group.name:
            raise ValueError("the group is empty")
        first_line = first_lines.setdefault(group.name.casefold(), line)
        if first_line != line:
            raise ValueError(f'the group "{group.name}" stands in line {first_line} already')
        if group.root not in ROOTS:
            raise ValueError(f'the root of "{group.name}" is "{group.root}"; expected {" or ".join(ROOTS)}')
        if not group.guideline:
            raise ValueError(f'the group "{group.name}" has no guideline')
        return group

    return read_rows(path, _COLUMNS, parse)

"""The groups that annotators choose from, and the root each belongs to."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.io.csv_files import read_rows
from hgld.io.files import atomic_write
from hgld.taxonomy.label_identity import ITEM_ID

ROOTS = ("natural", "human-made")
_REQUIRED = ("group", "root", "guideline")
_COLUMNS = ("group", "root", "items", "guideline")


@dataclass(frozen=True, slots=True)
class Group:
    """A super-category.

    Args:
        name: what it is called.
        root: natural or human-made.
        guideline: in one line what belongs to it and what does not.
        items: Wikidata classes whose subclasses belong to it, as far as nothing narrower says otherwise.
    """

    name: str
    root: str
    guideline: str
    items: tuple[str, ...] = ()


def read_taxonomy(path: Path) -> list[Group]:
    """Read and check a taxonomy: a CSV file in UTF-8 with the columns group, root and guideline.

    A column ``items`` may say which classes of Wikidata a group holds, with spaces between them.

    Returns:
        The groups in the file's order.

    Raises:
        InputError: see :func:`hgld.io.csv_files.read_rows`; a row is bad that has no group or no guideline, a root
            other than natural and human-made, an item that is none, or a group or an item that stands in an
            earlier row.
    """
    first_lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> Group:
        items = tuple(row.get("items", "").split())
        group = Group(row["group"].strip(), row["root"].strip(), row["guideline"].strip(), items)
        if not group.name:
            raise ValueError("the group is empty")
        first_line = first_lines.setdefault(group.name.casefold(), line)
        if first_line != line:
            raise ValueError(f'the group "{group.name}" stands in line {first_line} already')
        if group.root not in ROOTS:
            raise ValueError(f'the root of "{group.name}" is "{group.root}"; expected {" or ".join(ROOTS)}')
        if not group.guideline:
            raise ValueError(f'the group "{group.name}" has no guideline')
        for item in items:
            if not ITEM_ID.fullmatch(item):
                raise ValueError(
                    f'"{item}" is no item of Wikidata; expected e.g. Q23397, several with spaces between'
                )
            first_line = first_lines.setdefault(item, line)
            if first_line != line:
                raise ValueError(f"the item {item} stands in line {first_line} already")
        return group

    return read_rows(path, _REQUIRED, parse)


def write_taxonomy(path: Path, groups: Iterable[Group]) -> None:
    """Write a taxonomy as :func:`read_taxonomy` reads it, atomically."""
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for group in groups:
            writer.writerow([group.name, group.root, " ".join(group.items), group.guideline])

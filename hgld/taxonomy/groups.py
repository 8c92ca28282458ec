"""Groups that annotators choose from, and the root of each."""

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
    """A group of labels, called hierarchical label in the released files.

    Args:
        name: Name of the group.
        root: One of ``ROOTS``.
        guideline: One line about what belongs to the group and what does not.
        items: Ids of Wikidata classes whose subclasses belong to the group, unless a narrower class belongs to
            another.
    """

    name: str
    root: str
    guideline: str
    items: tuple[str, ...] = ()


def read_taxonomy(path: Path) -> list[Group]:
    """Read and validate a taxonomy: a CSV file in UTF-8 with the columns group, root and guideline.

    An optional column ``items`` holds the ids of each group's Wikidata classes, separated by spaces.

    Returns:
        Groups in the order of the file.

    Raises:
        InputError: See :func:`hgld.io.csv_files.read_rows`. A row is invalid if it has no group or no guideline, a
            root that is not in ``ROOTS``, an invalid item, or a group or an item of an earlier row.
    """
    first_lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> Group:
        items = tuple(row.get("items", "").split())
        group = Group(row["group"].strip(), row["root"].strip(), row["guideline"].strip(), items)
        if not group.name:
            raise ValueError("the group is empty")
        first_line = first_lines.setdefault(group.name.casefold(), line)
        if first_line != line:
            raise ValueError(f'the group "{group.name}" is in line {first_line} already')
        if group.root not in ROOTS:
            raise ValueError(f'the root of "{group.name}" is "{group.root}"; expected {" or ".join(ROOTS)}')
        if not group.guideline:
            raise ValueError(f'the group "{group.name}" has no guideline')
        for item in items:
            if not ITEM_ID.fullmatch(item):
                raise ValueError(
                    f'"{item}" is not a Wikidata item; expected e.g. Q23397, several separated by spaces'
                )
            first_line = first_lines.setdefault(item, line)
            if first_line != line:
                raise ValueError(f"the item {item} is in line {first_line} already")
        return group

    return read_rows(path, _REQUIRED, parse)


def write_taxonomy(path: Path, groups: Iterable[Group]) -> None:
    """Write a taxonomy atomically, in the format of :func:`read_taxonomy`."""
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for group in groups:
            writer.writerow([group.name, group.root, " ".join(group.items), group.guideline])

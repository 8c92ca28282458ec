"""Groups that annotators choose from, and the root of each.

A group has a key that never changes and a name that may. The key of a group is the first name that it had: decisions,
suggestions and events refer to the key, so they stay valid when the group is renamed, and two annotators mean the
same group whatever each of them calls it. Names are for people, and are what a built hierarchy holds.

A taxonomy file needs the column ``key`` only for groups whose key differs from their name. Changed groups travel with
decisions in a taxonomy beside them: ``ada.taxonomy.csv`` beside ``ada.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.io.csv_files import read_rows, unify_line_breaks
from hgld.io.files import atomic_write
from hgld.resources import annotation_file
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
        key: Key of the group; its name if empty.

    >>> Group("still water", "natural", "Lakes.", key="lake").key, Group("lake", "natural", "Lakes.").key
    ('lake', 'lake')
    """

    name: str
    root: str
    guideline: str
    items: tuple[str, ...] = ()
    key: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.name)


def taxonomy_beside(decisions: Path) -> Path:
    """Return where the changed taxonomy of a file of decisions is, if it has one.

    >>> taxonomy_beside(Path("decisions/ada.csv")).as_posix()
    'decisions/ada.taxonomy.csv'
    """
    return decisions.with_suffix(".taxonomy.csv")


def find_taxonomy(taxonomy: Path | None, decisions: Path | None = None) -> Path:
    """Return the taxonomy given, else the one beside the decisions if it exists, else that which comes with hgld."""
    if taxonomy is not None:
        return taxonomy
    if decisions is not None and taxonomy_beside(decisions).is_file():
        return taxonomy_beside(decisions)
    return annotation_file("taxonomy.csv")


def read_taxonomy(path: Path) -> list[Group]:
    """Read and validate a taxonomy: a CSV file in UTF-8 with the columns group (the name), root and guideline.

    An optional column ``items`` holds the ids of each group's Wikidata classes, separated by spaces, an optional
    column ``key`` the key of each group that has another name by now.

    Returns:
        Groups in the order of the file.

    Raises:
        InputError: See :func:`hgld.io.csv_files.read_rows`. A row is invalid if it has no group or no guideline, a
            root that is not in ``ROOTS``, an invalid item, or a group, a key or an item of an earlier row.
    """
    first_lines: dict[str, int] = {}

    def require_new(value: str, line: int) -> None:
        first_line = first_lines.setdefault(value.casefold(), line)
        if first_line != line:
            raise ValueError(f"the {value} is in line {first_line} already")

    def parse(line: int, row: Mapping[str, str]) -> Group:
        values = {name: value.strip() for name, value in row.items()}
        items = tuple(values.get("items", "").split())
        group = Group(values["group"], values["root"], values["guideline"], items, values.get("key", ""))
        if not group.name:
            raise ValueError("the group is empty")
        require_new(f'group "{group.name}"', line)
        require_new(f'key "{group.key}"', line)
        if group.root not in ROOTS:
            raise ValueError(f'the root of "{group.name}" is "{group.root}"; expected {" or ".join(ROOTS)}')
        if not group.guideline:
            raise ValueError(f'the group "{group.name}" has no guideline')
        for item in items:
            if not ITEM_ID.fullmatch(item):
                raise ValueError(
                    f'"{item}" is not a Wikidata item; expected e.g. Q23397, several separated by spaces'
                )
            require_new(f"item {item}", line)
        return group

    return read_rows(path, _REQUIRED, parse)


def write_taxonomy(path: Path, groups: Iterable[Group]) -> None:
    """Write a taxonomy atomically, in the format of :func:`read_taxonomy`."""
    groups = list(groups)
    with_keys = any(group.key != group.name for group in groups)
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow((*_COLUMNS, "key") if with_keys else _COLUMNS)
        for group in groups:
            row = [group.name, group.root, " ".join(group.items), unify_line_breaks(group.guideline)]
            writer.writerow([*row, group.key if group.key != group.name else ""] if with_keys else row)

"""The taxonomy: groups that annotators choose from, and the levels above them. And the vocabulary: terms of groups.

A taxonomy is a CSV file with a row for each group and a column for each level, the groups first and the coarsest
last. That of H-GLDv2 has two levels, ``group`` and ``root``::

    group,root,items,guideline
    dam,human-made,Q12323,"What holds water back: dam, weir, barrage, dyke, levee."

``items`` are classes of Wikidata, and ``guideline`` says what belongs to the group. In a taxonomy without these two
levels, all columns are levels but these two, ``key`` and ``merged``.

A group has a name for people, which may change, and a key, which never does: the first name that it had. Decisions,
suggestions and events of a review name the key. So they stay valid when somebody renames the group, and two
annotators mean the same group whatever each of them calls it. The column ``key`` has the keys that differ from the
name, and ``merged`` the keys of the groups that were merged into a group. Annotators who changed groups have a
taxonomy of their own beside their decisions: ``ada.taxonomy.csv`` beside ``ada.csv``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hgld.errors import ConfigurationError, InputError
from hgld.io.files import write_csv
from hgld.io.table_rows import escape_formula, read_rows, unescape_formula, unify_line_breaks
from hgld.names import stored_name
from hgld.taxonomy.label_identity import ITEM_ID, normalise_label
from hgld.taxonomy.project import PROJECT_FILE, project_file_of
from hgld.taxonomy.settings import FURTHER_COLUMNS, RESERVED

_LEVELS = ("group", "root")
_VOCABULARY_COLUMNS = ("term", "group", "items")


@dataclass(frozen=True, slots=True)
class Group:
    """A group of labels, called hierarchical label in the released files.

    Args:
        root: Name above it at the coarsest level; its own name if the groups are that level.
        guideline: One line about what belongs to the group and what does not.
        items: Ids of Wikidata classes whose subclasses belong to the group, unless a narrower class belongs to
            another.
        key: Key of the group; its name if empty.
        merged: Keys of groups that were merged into the group; decisions for them are decisions for the group.
        between: Names above it at the levels between group and root, finest first.
        levels: Names of all levels of the taxonomy, finest first.

    >>> Group("still water", "natural", "Lakes.", key="lake").key, Group("lake", "natural", "Lakes.").key
    ('lake', 'lake')
    """

    name: str
    root: str
    guideline: str
    items: tuple[str, ...] = ()
    key: str = ""
    merged: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    levels: tuple[str, ...] = _LEVELS

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.name)

    @property
    def path(self) -> tuple[str, ...]:
        """Its own name and those above it, one for each level."""
        return (self.name, *self.between, self.root)[: len(self.levels)]


class VocabularyTerm(NamedTuple):
    """A kind of landmark.

    Args:
        group: Key of its group; None if labels of this kind are dropped.
    """

    text: str
    group: str | None
    items: tuple[str, ...] = ()


def allows_catch_all(levels: Sequence[str]) -> bool:
    """Return whether a taxonomy of these levels can have groups for labels that are not known more exactly.

    Such a catch-all group repeats the name above it at the finer levels. The levels ``group`` and ``root`` of H-GLDv2
    have none: each of its labels has a group.

    >>> allows_catch_all(("leaf", "shelf", "aisle")), allows_catch_all(("group", "root"))
    (True, False)
    """
    return tuple(levels) != _LEVELS


def survivors(groups: Iterable[Group]) -> dict[str, str]:
    """Return the keys of groups that were merged into others, with the keys of these.

    >>> survivors([Group("lake", "natural", "Standing water.", merged=("pond", "tarn"))])
    {'pond': 'lake', 'tarn': 'lake'}
    """
    return {key: group.key for group in groups for key in group.merged}


def taxonomy_beside(decisions: Path) -> Path:
    """Return where the changed taxonomy of a file of decisions is, if it has one.

    >>> taxonomy_beside(Path("decisions/ada.csv")).as_posix()
    'decisions/ada.taxonomy.csv'
    """
    return decisions.with_suffix(".taxonomy.csv")


def find_taxonomy(taxonomy: Path | None, near: Path, decisions: Path | None = None) -> Path:
    """Return the taxonomy of a table or of decisions.

    Args:
        taxonomy: The taxonomy, if it is given.
        near: Table or other file that the taxonomy is for, beside which or above which its project file may be.
        decisions: CSV file of decisions; a taxonomy beside it comes before that of the project.

    Returns:
        The taxonomy given, beside the decisions, or of the project; for GLDv2's tables the one that comes with hgld.

    Raises:
        ConfigurationError: The table is of another list, for which no taxonomy is known.
    """
    if taxonomy is not None:
        return taxonomy
    if decisions is not None and taxonomy_beside(decisions).is_file():
        return taxonomy_beside(decisions)
    found = project_file_of("taxonomy", near)
    if found is None:
        raise ConfigurationError(
            f"{near}: no taxonomy is known for this list; give it as `taxonomy`, or name it in {PROJECT_FILE} beside "
            "the table"
        )
    return found


def read_taxonomy(path: Path) -> list[Group]:
    """Read and validate a taxonomy: a CSV file in UTF-8 with a column per level, groups first, and guideline.

    An optional column ``items`` holds the ids of each group's Wikidata classes, separated by spaces, an optional
    column ``key`` the key of each group that has another name by now, an optional column ``merged`` the keys of the
    groups that were merged into it, one per line. In trees of other levels, a row without a name at the first ones is
    a group at the first level where it has one, for labels that are not known more exactly; the finer levels repeat
    its name.
    """
    first_lines: dict[str, int] = {}
    parents: dict[tuple[int, str], tuple[int, str]] = {}

    def parse(line: int, row: Mapping[str, str]) -> Group:
        levels = _levels([*row])
        if not levels:
            raise ValueError("there is no level; expected a column for each, before guideline")
        if wrong := [name for name in levels if name in RESERVED]:
            raise ValueError(
                f'"{wrong[0]}" is a column of every hierarchy; give the level another name'
            )
        values = {name: unescape_formula(value).strip() for name, value in row.items()}
        for name in (*levels, "key"):
            values[name] = stored_name(values.get(name, ""))
        path = [values[level] for level in levels]
        first = path[0]
        if allows_catch_all(levels):
            first = next((name for name in path if name), "")
        path = [first] * path.index(first) + path[path.index(first) :]
        items = tuple(values.get("items", "").split())
        merged = tuple(map(stored_name, values.get("merged", "").splitlines()))
        key = values.get("key", "")
        group = Group(
            first, path[-1], values["guideline"], items, key, merged, tuple(path[1:-1]), levels
        )
        if not group.name:
            raise ValueError(f"the {levels[0]} is empty")
        _require_new(
            [f'group "{group.name}"', *(f'key "{key}"' for key in (group.key, *merged))],
            line,
            first_lines,
        )
        if "" in path:
            raise ValueError(f'the {levels[path.index("")]} of "{group.name}" is empty')
        for level, (name, parent) in enumerate(pairwise(path)):
            first_line, known = parents.setdefault((level, name), (line, parent))
            if known != parent:
                raise ValueError(
                    f'the {levels[level + 1]} of "{name}" is "{parent}", but in line {first_line} it is "{known}"'
                )
        _check_items(items)
        _require_new([f"item {item}" for item in items], line, first_lines)
        return group

    def check_header(names: list[str]) -> list[list[str]]:
        columns = [name.strip() for name in names]
        levels = _levels(columns)
        if "path" in levels:
            raise InputError(
                f"{path}: a tree of paths, not yet a taxonomy; make one with hgld taxonomy import {path} -o "
                "taxonomy.csv"
            )
        if "guideline" not in columns:
            raise InputError(
                f"{path}: line 1: no column guideline; found {','.join(names)}; a taxonomy has a column for each "
                "level, then guideline, and hgld taxonomy import makes one of a tree"
            )
        return [names]

    return read_rows(path, ("guideline",), parse, parse_header=check_header)


def write_taxonomy(path: Path, groups: Iterable[Group]) -> None:
    """Write a taxonomy atomically, in the format of :func:`read_taxonomy`.

    Values that a spreadsheet would run as formulas are escaped (:func:`hgld.io.table_rows.escape_formula`).
    """
    groups = list(groups)
    optional = {
        "key": [group.key if group.key != group.name else "" for group in groups],
        "merged": ["\n".join(group.merged) for group in groups],
    }
    columns = {name: values for name, values in optional.items() if any(values)}
    rows = (
        (*group.path, " ".join(group.items), unify_line_breaks(group.guideline), *values)
        for group, *values in zip(groups, *columns.values(), strict=True)
    )
    header = (*(groups[0].levels if groups else _LEVELS), "items", "guideline", *columns)
    write_csv(path, header, ([*map(escape_formula, row)] for row in rows))


def _levels(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the levels of a taxonomy with these columns: from group to root if there are both, else all that can be.

    >>> _levels(["number", "group", "root", "guideline"]), _levels(["genus", "family", "order", "items", "guideline"])
    (('group', 'root'), ('genus', 'family', 'order'))
    """
    levels = tuple(name for name in columns if name not in FURTHER_COLUMNS)
    if not {*_LEVELS} <= {*levels}:
        return levels
    first, last = map(levels.index, _LEVELS)
    return levels[first : last + 1] if first < last else _LEVELS


def read_vocabulary(path: Path, groups: Collection[str]) -> list[VocabularyTerm]:
    """Read and validate a vocabulary: a CSV file in UTF-8 with the columns term, group and items.

    An empty group means that labels of this kind are dropped. Items are separated by spaces.

    Returns:
        Terms in the order of the file, without those of groups that the taxonomy does not have.

    Raises:
        InputError: See :func:`hgld.io.table_rows.read_rows`. A row is invalid if it has no term, the term or an item
            of an earlier row, or an invalid item.
    """
    first_lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> VocabularyTerm:
        group = stored_name(row["group"]) or None
        term = VocabularyTerm(stored_name(row["term"]), group, tuple(row["items"].split()))
        if not term.text:
            raise ValueError("the term is empty")
        _check_items(term.items)
        names = [f'term "{normalise_label(term.text)}"', *(f"item {item}" for item in term.items)]
        _require_new(names, line, first_lines)
        return term

    return [
        term
        for term in read_rows(path, _VOCABULARY_COLUMNS, parse)
        if term.group is None or term.group in groups
    ]


def _check_items(items: Iterable[str]) -> None:
    for item in items:
        if not ITEM_ID.fullmatch(item):
            raise ValueError(
                f'"{item}" is not a Wikidata item; expected e.g. Q23397, several separated by spaces'
            )


def _require_new(values: Iterable[str], line: int, first_lines: dict[str, int]) -> None:
    """Raise if a value was in an earlier line, and enter it in ``first_lines``."""
    for value in values:
        first_line = first_lines.setdefault(value.casefold(), line)
        if first_line != line:
            raise ValueError(f"the {value} is in line {first_line} already")

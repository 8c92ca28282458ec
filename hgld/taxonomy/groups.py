"""Read and write the taxonomy, the groups with the levels above them, and the vocabulary, the terms of groups.

A taxonomy is a CSV file with a row for each group and a column for each level, from the groups to the coarsest
level. The taxonomy of H-GLDv2 has two levels, ``group`` and ``root``::

    group,root,items,guideline
    dam,human-made,Q12323,"What holds water back: dam, weir, barrage, dyke, levee."

``items`` are classes of Wikidata, and ``guideline`` defines the group. If there are columns ``group`` and ``root``,
the levels are the columns from ``group`` to ``root``. Otherwise all columns are levels, except ``items``,
``guideline``, ``key`` and ``merged``.

A group has a name for people, which may change, and a key, which never changes: its first name. Decisions,
suggestions and events of a review refer to the key. They stay valid when a group is renamed, and annotators who give
a group different names still refer to the same group. The column ``key`` has a value only for groups whose key
differs from their name. The column ``merged`` has the keys of the groups that were merged into the group. Annotators
who changed groups have a taxonomy of their own beside their decisions: ``ada.taxonomy.csv`` beside ``ada.csv``.
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

_H_GLDV2_LEVELS = ("group", "root")
_VOCABULARY_COLUMNS = ("term", "group", "items")


@dataclass(frozen=True, slots=True)
class Group:
    """A group of labels, called hierarchical label in the released files.

    Args:
        name: Name of the group at the finest level.
        root: Name above the group at the coarsest level; the same name if the taxonomy has one level.
        guideline: Definition of the group in one line.
        items: Ids of Wikidata classes whose subclasses belong to the group, except subclasses of a narrower class
            of another group.
        key: Key of the group; empty: its name.
        merged: Keys of groups that were merged into the group; decisions for these count for the group.
        between: Names above the group at the levels between group and root, finest first.
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
    levels: tuple[str, ...] = _H_GLDV2_LEVELS

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.name)

    @property
    def path(self) -> tuple[str, ...]:
        """Name of the group and the names above it, one for each level."""
        return (self.name, *self.between, self.root)[: len(self.levels)]


class VocabularyTerm(NamedTuple):
    """A kind of landmark.

    Args:
        group: Key of the group of the term; None if labels of this kind are dropped.
    """

    text: str
    group: str | None
    items: tuple[str, ...] = ()


def allows_catch_all(levels: Sequence[str]) -> bool:
    """Return whether a taxonomy with these levels can have catch-all groups.

    A catch-all group has labels that are known only at a coarser level, and repeats its name at the finer levels.
    The levels ``group`` and ``root`` of H-GLDv2 have no catch-all groups: each of its labels has a group.

    >>> allows_catch_all(("leaf", "shelf", "aisle")), allows_catch_all(("group", "root"))
    (True, False)
    """
    return tuple(levels) != _H_GLDV2_LEVELS


def survivors(groups: Iterable[Group]) -> dict[str, str]:
    """Return the key of the group into which each merged group was merged, by the key of the merged group.

    >>> survivors([Group("lake", "natural", "Standing water.", merged=("pond", "tarn"))])
    {'pond': 'lake', 'tarn': 'lake'}
    """
    return {key: group.key for group in groups for key in group.merged}


def taxonomy_beside(decisions: Path) -> Path:
    """Return the path of the changed taxonomy of a file of decisions.

    >>> taxonomy_beside(Path("decisions/ada.csv")).as_posix()
    'decisions/ada.taxonomy.csv'
    """
    return decisions.with_suffix(".taxonomy.csv")


def find_taxonomy(taxonomy: Path | None, near: Path, decisions: Path | None = None) -> Path:
    """Return the taxonomy of a table or of decisions.

    Args:
        taxonomy: Explicit path of the taxonomy.
        near: Table or other file; its project file is in the same folder or above.
        decisions: CSV file of decisions.

    Returns:
        The explicit path, the taxonomy beside the decisions, the taxonomy of the project, or for GLDv2's tables the
        bundled taxonomy, in this order of preference.

    Raises:
        ConfigurationError: No taxonomy is known for the table.
    """
    if taxonomy is not None:
        return taxonomy
    if decisions is not None and taxonomy_beside(decisions).is_file():
        return taxonomy_beside(decisions)
    project_taxonomy = project_file_of("taxonomy", near)
    if project_taxonomy is None:
        raise ConfigurationError(
            f"{near}: no taxonomy is known for this list; give it as `taxonomy`, or name it in {PROJECT_FILE} beside "
            "the table"
        )
    return project_taxonomy


def read_taxonomy(path: Path) -> list[Group]:
    """Read and validate a taxonomy: a CSV file in UTF-8 with a column for each level, finest first, and guideline.

    Optional columns are ``items``, the ids of the group's Wikidata classes separated by spaces; ``key``, the key of a
    renamed group; and ``merged``, the keys of the groups that were merged into the group, one per line. In taxonomies
    with other levels than ``group`` and ``root``, a row may lack names at the finest levels. It is then a catch-all
    group: its name at the missing levels is the name at the finest level that it has.

    Raises:
        InputError: See :func:`hgld.io.table_rows.read_rows`. A row is invalid if it lacks a name, if a group, key or
            item is in an earlier row, if a name has another name above it than in an earlier row, or if an item is
            invalid.
    """
    first_lines: dict[str, int] = {}
    parents: dict[tuple[int, str], tuple[int, str]] = {}

    def parse(line: int, row: Mapping[str, str]) -> Group:
        group = _group_of_row(row)
        identifiers = [f'group "{group.name}"', f'key "{group.key}"']
        identifiers += [f'key "{key}"' for key in group.merged]
        _require_new(identifiers, line, first_lines)
        _require_complete_path(group)
        _require_same_parents(group, line, parents)
        _check_items(group.items)
        _require_new([f"item {item}" for item in group.items], line, first_lines)
        return group

    def check_header(names: list[str]) -> list[list[str]]:
        _require_header_of_taxonomy(path, names)
        return [names]

    return read_rows(path, ("guideline",), parse, parse_header=check_header)


def _require_header_of_taxonomy(path: Path, names: Sequence[str]) -> None:
    """Raise an InputError for the header of another file than a taxonomy."""
    columns = [name.strip() for name in names]
    if "path" in _level_columns(columns):
        raise InputError(
            f"{path}: a tree of paths, not yet a taxonomy; make one with hgld taxonomy import {path} -o "
            "taxonomy.csv"
        )
    if "guideline" not in columns:
        raise InputError(
            f"{path}: line 1: no column guideline; found {','.join(names)}; a taxonomy has a column for each "
            "level, then guideline, and hgld taxonomy import makes one of a tree"
        )


def _group_of_row(row: Mapping[str, str]) -> Group:
    """Return the group of a row; raise a ValueError if a level has a reserved name, or the group has no name."""
    levels = _level_columns([*row])
    if not levels:
        raise ValueError("there is no level; expected a column for each, before guideline")
    for name in levels:
        if name in RESERVED:
            raise ValueError(
                f'"{name}" is a column of every hierarchy; give the level another name'
            )
    values = {name: unescape_formula(value).strip() for name, value in row.items()}
    path = [stored_name(values[level]) for level in levels]
    if allows_catch_all(levels):
        path = _catch_all_path(path)
    if not path[0]:
        raise ValueError(f"the {levels[0]} is empty")
    merged = [stored_name(key) for key in values.get("merged", "").splitlines()]
    return Group(
        name=path[0],
        root=path[-1],
        guideline=values["guideline"],
        items=tuple(values.get("items", "").split()),
        key=stored_name(values.get("key", "")),
        merged=tuple(merged),
        between=tuple(path[1:-1]),
        levels=levels,
    )


def _catch_all_path(path: Sequence[str]) -> list[str]:
    """Return a path whose missing names at the finest levels are the first name that is there.

    >>> _catch_all_path(["", "shelf", "aisle"])
    ['shelf', 'shelf', 'aisle']
    """
    for position, name in enumerate(path):
        if name:
            return [name] * position + [*path[position:]]
    return [*path]


def _require_complete_path(group: Group) -> None:
    for level, name in zip(group.levels, group.path, strict=True):
        if not name:
            raise ValueError(f'the {level} of "{group.name}" is empty')


def _require_same_parents(
    group: Group, line: int, parents: dict[tuple[int, str], tuple[int, str]]
) -> None:
    """Record the name above each name of a group; raise if an earlier line has another one.

    Args:
        group: Group of the line.
        line: Number of the line.
        parents: Line and name above, by number of the level and name.
    """
    for level, (name, parent) in enumerate(pairwise(group.path)):
        first_line, first_parent = parents.setdefault((level, name), (line, parent))
        if first_parent != parent:
            raise ValueError(
                f'the {group.levels[level + 1]} of "{name}" is "{parent}", but in line {first_line} it is '
                f'"{first_parent}"'
            )


def write_taxonomy(path: Path, groups: Iterable[Group]) -> None:
    """Write a taxonomy atomically, in the format of :func:`read_taxonomy`.

    Values that a spreadsheet would run as formulas are escaped (:func:`hgld.io.table_rows.escape_formula`).
    """
    groups = list(groups)
    has_keys = any(group.key != group.name for group in groups)
    has_merged = any(group.merged for group in groups)
    levels = groups[0].levels if groups else _H_GLDV2_LEVELS
    header = [*levels, "items", "guideline"]
    if has_keys:
        header.append("key")
    if has_merged:
        header.append("merged")
    rows = []
    for group in groups:
        row = [*group.path, " ".join(group.items), unify_line_breaks(group.guideline)]
        if has_keys:
            row.append(group.key if group.key != group.name else "")
        if has_merged:
            row.append("\n".join(group.merged))
        rows.append([escape_formula(value) for value in row])
    write_csv(path, header, rows)


def _level_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of levels in the order of the file.

    If there are columns ``group`` and ``root``, these are the columns from ``group`` to ``root``, or only the two if
    ``root`` comes first. Otherwise all columns are levels, except the further columns of taxonomies.

    >>> _level_columns(["number", "group", "root", "guideline"])
    ('group', 'root')
    >>> _level_columns(["genus", "family", "order", "items", "guideline"])
    ('genus', 'family', 'order')
    """
    levels = tuple(name for name in columns if name not in FURTHER_COLUMNS)
    if "group" not in levels or "root" not in levels:
        return levels
    first = levels.index("group")
    last = levels.index("root")
    if first > last:
        return _H_GLDV2_LEVELS
    return levels[first : last + 1]


def read_vocabulary(path: Path, groups: Collection[str]) -> list[VocabularyTerm]:
    """Read and validate a vocabulary: a CSV file in UTF-8 with the columns term, group and items.

    An empty group means that labels of this kind are dropped. Items are separated by spaces.

    Returns:
        Terms in the order of the file, without terms of groups that the taxonomy lacks.

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
        new = [f'term "{normalise_label(term.text)}"']
        new += [f"item {item}" for item in term.items]
        _require_new(new, line, first_lines)
        return term

    terms = read_rows(path, _VOCABULARY_COLUMNS, parse)
    return [term for term in terms if term.group is None or term.group in groups]


def _check_items(items: Iterable[str]) -> None:
    for item in items:
        if not ITEM_ID.fullmatch(item):
            raise ValueError(
                f'"{item}" is not a Wikidata item; expected e.g. Q23397, several separated by spaces'
            )


def _require_new(values: Iterable[str], line: int, first_lines: dict[str, int]) -> None:
    """Record the line of each value in ``first_lines``; raise if a value is in an earlier line."""
    for value in values:
        first_line = first_lines.setdefault(value.casefold(), line)
        if first_line != line:
            raise ValueError(f"the {value} is in line {first_line} already")

"""The groups that annotators choose from, and the root each belongs to."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import InputError, listing

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

    Further columns are ignored.

    Returns:
        The groups in the file's order.

    Raises:
        InputError: the file is missing, not UTF-8, empty or without the columns, or rows have no group or no
            guideline, a root other than natural and human-made, or a group that stands twice. All bad rows
            are reported together, by their line in the file.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a taxonomy with the columns {','.join(_COLUMNS)}")
    groups: dict[str, Group] = {}
    first_lines: dict[str, int] = {}
    problems = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream, strict=True)
            missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                raise InputError(
                    f"{path}: line 1: no column {' and no column '.join(missing)}; "
                    f"found {','.join(rows.fieldnames or ())}, expected {','.join(_COLUMNS)}"
                )
            for row in rows:
                group = Group(*((row[name] or "").strip() for name in _COLUMNS))
                wrong = _problem(group, first_lines.get(group.name.casefold()))
                if wrong:
                    problems.append(f"line {rows.line_num}: {wrong}")
                else:
                    groups[group.name] = group
                    first_lines[group.name.casefold()] = rows.line_num
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8; save the file as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file that can be read: {error}") from error
    if problems:
        raise InputError(f"{path}: {len(problems):,} bad rows:\n{listing(problems)}")
    if not groups:
        raise InputError(f"{path}: no groups below the header")
    return list(groups.values())


def _problem(group: Group, earlier_line: int | None) -> str | None:
    if not group.name:
        return "the group is empty"
    if earlier_line is not None:
        return f'the group "{group.name}" stands in line {earlier_line} already'
    if group.root not in ROOTS:
        return f'the root of "{group.name}" is "{group.root}"; expected {" or ".join(ROOTS)}'
    if not group.guideline:
        return f'the group "{group.name}" has no guideline'
    return None

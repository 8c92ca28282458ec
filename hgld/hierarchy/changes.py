"""The landmarks that were added, lost or moved between two hierarchies, one by one."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hgld.hierarchy.checks import GROUP, ROOT
from hgld.hierarchy.tree import Hierarchy
from hgld.io.csv_files import escape_formula
from hgld.io.files import atomic_write
from hgld.tables import SPLITS

ChangeKind = Literal["moved", "root", "added", "lost"]
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)


@dataclass(frozen=True)
class LandmarkChange:
    """A landmark whose place differs; what is unknown is None or empty.

    Args:
        split: Split of the landmark.
        landmark_id: Id of the landmark.
        change: ``moved`` to another group, ``root`` if only the group's root is another, ``added`` or ``lost``.
        before: Group in the first hierarchy, or root; empty for an added landmark.
        after: Group in the second hierarchy, or root; empty for a lost landmark.
        cause: One of :data:`hgld.hierarchy.causes.CAUSES`, or two joined by ``+`` if both were needed or either would
            have done.
        label_before: Label of the landmark, or in parentheses why ``clean`` removed it.
        label_after: The same for the second hierarchy.
        item_before: Item of the landmark on Wikidata.
        item_after: The same for the second hierarchy.
        revision_before: Revision of that item.
        revision_after: The same for the second hierarchy.
    """

    split: str
    landmark_id: int
    change: ChangeKind
    before: str
    after: str
    cause: str = "unknown"
    label_before: str = ""
    label_after: str = ""
    item_before: str | None = None
    item_after: str | None = None
    revision_before: int | None = None
    revision_after: int | None = None


def list_changes(before: Hierarchy, after: Hierarchy) -> list[LandmarkChange]:
    """Return the landmarks whose place differs between two hierarchies, sorted by split and id, without causes."""
    in_before, in_after = rows_in_both(before, after)
    groups, roots = (
        (names(before, level, in_before), names(after, level, in_after), in_before) for level in (GROUP, ROOT)
    )
    changes = [
        LandmarkChange(*_key(before, row), "moved", source, target)
        for source, target, row in zip(*groups, strict=True)
        if source != target
    ]
    changes += [
        LandmarkChange(*_key(before, row), "root", source, target)
        for source, target, row, moved in zip(*roots, groups[0] != groups[1], strict=True)
        if source != target and not moved
    ]
    lost, added = (np.setdiff1d(np.arange(len(one)), both) for one, both in ((before, in_before), (after, in_after)))
    for row, group in zip(lost, names(before, GROUP, lost), strict=True):
        changes.append(LandmarkChange(*_key(before, row), "lost", group, ""))
    for row, group in zip(added, names(after, GROUP, added), strict=True):
        changes.append(LandmarkChange(*_key(after, row), "added", "", group))
    return sorted(changes, key=lambda change: (change.split, change.landmark_id))


def write_changes(path: Path, changes: Sequence[LandmarkChange]) -> None:
    """Write a CSV file with the fields of :class:`LandmarkChange` as columns.

    Values that a spreadsheet would run as formulas are escaped (:func:`hgld.io.csv_files.escape_formula`).
    """
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in fields(LandmarkChange)])
        for change in changes:
            writer.writerow(escape_formula(value) if isinstance(value, str) else value for value in astuple(change))


def rows_in_both(before: Hierarchy, after: Hierarchy) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row in each hierarchy of the landmarks in both, in the same order."""
    keys = [hierarchy.landmark_ids * len(SPLITS) + (hierarchy.splits == SPLITS[1]) for hierarchy in (before, after)]
    _, in_before, in_after = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    return in_before, in_after


def names(hierarchy: Hierarchy, level: str, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    """Return the names of rows at a level as an array."""
    return np.array(hierarchy.names_by_row(level, rows), object)


def _key(hierarchy: Hierarchy, row: int) -> tuple[str, int]:
    return str(hierarchy.splits[row]), int(hierarchy.landmark_ids[row])

"""The landmarks that were added, lost or moved between two hierarchies, and why: Wikidata changed, or decisions did.

The place of a landmark follows from its label, which comes from Wikidata, and the decision on that label. If both
have changed, each is tried alone: the new label in the earlier hierarchy, and the earlier label in the new one. The
one that leads to the new place without the other is the cause; if both do so, or neither, both are.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from hgld.hierarchy.build_inputs import BuildInputs, Key, rows_of
from hgld.hierarchy.checks import GROUP, ROOT
from hgld.hierarchy.tree import Hierarchy
from hgld.io.csv_files import escape_formula
from hgld.io.files import atomic_write
from hgld.taxonomy.label_identity import label_id

ChangeKind = Literal["moved", "root", "added", "lost"]
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
#: Causes, with a description for users.
CAUSES: Mapping[str, str] = {
    "wikidata": 'other "instance of" values, or other labels of their classes',
    "list": "in one of the lists only, or with another category",
    "cleaning": "the same values, but another choice among them",
    "decisions": "another decision on the label",
    "taxonomy": "another name or root of the group",
    "settings": "other settings or further inputs of hgld build",
    "unknown": "tables are missing",
}
_EXAMPLES = 3


@dataclass(frozen=True)
class LandmarkChange:
    """A landmark whose place differs; what is unknown is None or empty.

    Args:
        split: Split of the landmark.
        landmark_id: Id of the landmark.
        change: ``moved`` to another group, ``root`` if only the group's root is another, ``added`` or ``lost``.
        before: Group in the first hierarchy, or root; empty for an added landmark.
        after: Group in the second hierarchy, or root; empty for a lost landmark.
        cause: One of :data:`CAUSES`, or two joined by ``+`` if both were needed or either would
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


def join_hierarchies(before: Hierarchy, after: Hierarchy) -> pd.DataFrame:
    """Return the landmarks of two hierarchies, sorted by split and id.

    Returns:
        Columns split, landmark_id, ``change`` (see :class:`LandmarkChange`; empty for no change), and row, group and
        root with the suffixes ``_before`` and ``_after``, which are missing in the hierarchy that lacks the landmark.
    """
    sides = [
        pd.DataFrame(
            {
                "split": hierarchy.splits,
                "landmark_id": hierarchy.landmark_ids,
                "row": np.arange(len(hierarchy)),
                "group": hierarchy.names_by_row(GROUP),
                "root": hierarchy.names_by_row(ROOT),
            }
        )
        for hierarchy in (before, after)
    ]
    keys = ["split", "landmark_id"]
    joined = sides[0].merge(sides[1], "outer", keys, suffixes=("_before", "_after")).sort_values(keys)
    conditions: dict[ChangeKind, pd.Series[bool]] = {
        "added": joined["group_before"].isna(),
        "lost": joined["group_after"].isna(),
        "moved": joined["group_before"] != joined["group_after"],
        "root": joined["root_before"] != joined["root_after"],
    }
    result: pd.DataFrame = joined.assign(change=np.select([*conditions.values()], [*conditions], ""))
    return result


def list_changes(before: Hierarchy, after: Hierarchy) -> list[LandmarkChange]:
    """Return the landmarks whose place differs between two hierarchies, sorted by split and id, without causes."""
    joined = join_hierarchies(before, after)
    places = joined.filter(regex="^(group|root)_").fillna("")
    joined = joined[["split", "landmark_id", "change"]].join(places)
    return [
        LandmarkChange(
            row.split,
            row.landmark_id,
            row.change,
            row.root_before if row.change == "root" else row.group_before,
            row.root_after if row.change == "root" else row.group_after,
        )
        for row in joined[joined["change"] != ""].itertuples()
    ]


def write_changes(path: Path, changes: Sequence[LandmarkChange]) -> None:
    """Write a CSV file with the fields of :class:`LandmarkChange` as columns.

    Values that a spreadsheet would run as formulas are escaped (:func:`hgld.io.csv_files.escape_formula`).
    """
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in fields(LandmarkChange)])
        for change in changes:
            writer.writerow(escape_formula(value) if isinstance(value, str) else value for value in astuple(change))


@dataclass(frozen=True)
class CauseCounts:
    """Numbers of landmarks with one cause, by kind of change (see :class:`LandmarkChange`)."""

    cause: str
    moved: int
    root: int
    added: int
    lost: int


@dataclass(frozen=True)
class Explanation:
    """The causes of all changes.

    Args:
        causes: Counts of each cause that occurs, the most frequent first.
        examples: The first changes of each cause.
        same_place: Number of landmarks with another label, but in the same group; None if labels are unknown.
        missing: What could not be found, in words.
    """

    causes: tuple[CauseCounts, ...]
    examples: tuple[LandmarkChange, ...]
    same_place: int | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Label:
    """A label; two are equal if they are of the same class and have the same text."""

    identity: str
    text: str


class _Side:
    """One of the hierarchies: the labels of its landmarks, and the group of each label."""

    def __init__(self, hierarchy: Hierarchy, inputs: BuildInputs, *, by_class: bool) -> None:
        self.inputs = inputs
        keys = list(zip(hierarchy.splits.tolist(), hierarchy.landmark_ids.tolist(), strict=True))
        self.groups: dict[Key, str] = dict(zip(keys, hierarchy.names_by_row(GROUP), strict=True))
        self.labels: dict[Key, _Label] = {}
        if inputs.clean is not None:
            names = ("split", "landmark_id", "supercategory", "class_item")
            for split, number, text, item in zip(*(inputs.clean[name].to_pylist() for name in names), strict=True):
                self.labels[split, number] = _Label(label_id(text, item if by_class else None), text)
        elif hierarchy.supercategories is not None:
            for key, text in zip(keys, hierarchy.supercategories, strict=True):
                self.labels[key] = _Label(label_id(text, None), text)
        sources = hierarchy.label_sources
        completed = set() if sources is None else {keys[row] for row in (sources == "photographs").nonzero()[0]}
        self._places: dict[str, str] = {}
        for key, label in self.labels.items():
            group = "" if key in completed else self.groups.get(key, "")
            self._places[label.identity] = self._places.get(label.identity) or group

    def place(self, label: _Label | None) -> str | None:
        """Return the group of a label, "" if landmarks with it are left out, or None if that is unknown."""
        if label is None:
            return ""
        if label.identity in self._places or self.inputs.decisions is None:
            return self._places.get(label.identity)
        decision = self.inputs.decisions.find(label.identity, label.text)
        if decision is None:
            return None
        return decision.group or "" if decision.decision == "group" else ""


def explain_changes(
    changes: Sequence[LandmarkChange], before: tuple[Hierarchy, BuildInputs], after: tuple[Hierarchy, BuildInputs]
) -> tuple[list[LandmarkChange], Explanation]:
    """Find the causes of changes.

    Returns:
        The changes with their causes, labels, items and revisions; and a summary.
    """
    keys = [(change.split, change.landmark_id) for change in changes]
    by_class = before[1].clean is not None and after[1].clean is not None
    sides = _Side(*before, by_class=by_class), _Side(*after, by_class=by_class)
    scraped = [rows_of(side.inputs.scraped, keys) for side in sides]
    removed = [rows_of(side.inputs.removed, keys) for side in sides]
    explained = []
    for key, change in zip(keys, changes, strict=True):
        rows = scraped[0].get(key), scraped[1].get(key)
        labels = [_label_text(side.labels.get(key), gone.get(key)) for side, gone in zip(sides, removed, strict=True)]
        (item_before, revision_before), (item_after, revision_after) = map(_item, rows)
        explained.append(
            replace(
                change,
                cause=_cause(change, key, *sides, _cause_of_label(*sides, *rows)),
                label_before=labels[0],
                label_after=labels[1],
                item_before=item_before,
                item_after=item_after,
                revision_before=revision_before,
                revision_after=revision_after,
            )
        )
    return explained, _summary(explained, *sides)


def _cause(change: LandmarkChange, key: Key, before: _Side, after: _Side, cause_of_label: str) -> str:
    if change.change == "root":
        return "taxonomy"
    first, second = before.labels.get(key), after.labels.get(key)
    cause_of_group = _cause_of_group(before, after)
    if first == second and (first is not None or cause_of_label == "cleaning"):
        return cause_of_group
    if cause_of_label == "unknown" or cause_of_group == "settings":
        return cause_of_label
    # A label that the earlier hierarchy never met gives no answer there: its first decision followed from the label.
    by_label = before.place(second) in (change.after, None)
    by_decision = after.place(first) == change.after
    if by_label != by_decision:
        return cause_of_label if by_label else cause_of_group
    return f"{cause_of_label}+{cause_of_group}"


def _cause_of_group(before: _Side, after: _Side) -> str:
    """Return what would give a label another group."""
    if not _same_input(before, after, "decisions"):
        return "decisions"
    return "settings" if _same_input(before, after, "taxonomy") else "taxonomy"


def _cause_of_label(
    before: _Side, after: _Side, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None
) -> str:
    """Return what would give a landmark another label, from its rows in the scraped tables."""
    if before.inputs.scraped is None or after.inputs.scraped is None:
        return "unknown"
    if first is None or second is None or first["title"] != second["title"]:
        return "list"
    return "cleaning" if first["instance_of"] == second["instance_of"] else "wikidata"


def _same_input(before: _Side, after: _Side, role: str) -> bool:
    """Return whether both hierarchies are known to have been built from the same file."""
    digest = before.inputs.digests.get(role)
    return digest is not None and digest == after.inputs.digests.get(role)


def _label_text(label: _Label | None, removed: Mapping[str, Any] | None) -> str:
    if label is not None:
        return label.text
    return f"({removed['reason']})" if removed is not None else ""


def _item(row: Mapping[str, Any] | None) -> tuple[str | None, int | None]:
    return (row["item"], row["revision"]) if row is not None else (None, None)


def _summary(changes: Sequence[LandmarkChange], before: _Side, after: _Side) -> Explanation:
    counts: dict[str, Counter[str]] = {}
    for change in changes:
        counts.setdefault(change.cause, Counter())[change.change] += 1
    ordered = sorted(counts, key=lambda cause: (-counts[cause].total(), cause))
    same_place = None
    if before.inputs.clean is not None and after.inputs.clean is not None:
        same_place = sum(
            before.labels[key] != after.labels.get(key) and group == after.groups.get(key)
            for key, group in before.groups.items()
            if key in before.labels
        )
    return Explanation(
        tuple(CauseCounts(cause, *(counts[cause][kind] for kind in CHANGE_KINDS)) for cause in ordered),
        tuple(change for cause in ordered for change in [c for c in changes if c.cause == cause][:_EXAMPLES]),
        same_place,
        (*before.inputs.missing, *after.inputs.missing),
    )

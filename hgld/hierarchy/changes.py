"""The landmarks that were added, lost or moved between two hierarchies, and why: Wikidata changed, or decisions did.

The place of a landmark follows from its label, which comes from Wikidata, and the decision on that label. If both
have changed, each is tried alone: the new label in the earlier hierarchy, and the earlier label in the new one. The
one that leads to the new place without the other is the cause; if both do so, or neither, both are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hgld.hierarchy.build_inputs import BuildInputs, rows_of
from hgld.hierarchy.tree import Hierarchy
from hgld.io.columns import escape_formula
from hgld.io.files import atomic_write
from hgld.taxonomy.label_identity import label_id

CHANGE_KINDS = ("moved", "root", "added", "lost")
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
_KEY = ["split", "landmark_id"]
_SIDES = ("before", "after")
_EXAMPLES = 3


@dataclass(frozen=True)
class LandmarkChange:
    """A landmark that was added, lost or moved.

    Args:
        change: ``moved`` to another group, ``root`` if only the group's root is another, ``added`` or ``lost``.
        before: Group in the first hierarchy, or root; empty if the landmark is not in it.
        cause: One of :data:`CAUSES`, or two joined by ``+`` if both were needed or either would have done.
        label_before: Label of the landmark, or in parentheses why ``clean`` removed it; empty if unknown.
    """

    split: str
    landmark_id: int | str
    change: str
    before: str
    after: str
    cause: str
    label_before: str
    label_after: str
    item_before: str | None
    item_after: str | None
    revision_before: int | None
    revision_after: int | None


@dataclass(frozen=True)
class CauseCounts:
    """Numbers of landmarks that changed for one cause, by kind of change."""

    cause: str
    moved: int
    root: int
    added: int
    lost: int


@dataclass(frozen=True)
class Explanation:
    """The causes of all changes.

    Args:
        same_place: Number of landmarks with another label, but in the same group; None if labels are unknown.
    """

    causes: tuple[CauseCounts, ...]
    examples: tuple[LandmarkChange, ...]
    same_place: int | None
    missing: tuple[str, ...]


def join_hierarchies(before: Hierarchy, after: Hierarchy) -> pd.DataFrame:
    """Return the landmarks of two hierarchies, sorted by split and id.

    Returns:
        Columns split, landmark_id, ``change`` (empty for no change), and row, group and root with the suffixes
        ``_before`` and ``_after``, which are missing in the hierarchy that lacks the landmark.
    """
    joined = _places(before).merge(_places(after), "outer", _KEY, suffixes=("_before", "_after")).sort_values(_KEY)
    conditions = {
        "added": joined["group_before"].isna(),
        "lost": joined["group_after"].isna(),
        "moved": joined["group_before"] != joined["group_after"],
        "root": joined["root_before"] != joined["root_after"],
    }
    result: pd.DataFrame = joined.assign(change=np.select([*conditions.values()], [*conditions], ""))
    return result


def _places(hierarchy: Hierarchy) -> pd.DataFrame:
    columns = {
        "split": hierarchy.splits,
        "landmark_id": hierarchy.landmark_ids,
        "row": np.arange(len(hierarchy)),
        "group": hierarchy.names_by_row(hierarchy.group_level),
        "root": hierarchy.names_by_row(hierarchy.root_level),
    }
    places: pd.DataFrame = pd.DataFrame(columns)
    return places


def write_changes(path: Path, changes: pd.DataFrame) -> None:
    """Write changes as CSV.

    Values that a spreadsheet would run as formulas are escaped (:func:`hgld.io.columns.escape_formula`).
    """
    known = changes.where(changes.notna(), "")  # None among whole numbers would make them floats
    escaped = known.map(lambda value: escape_formula(value) if isinstance(value, str) else value)
    with atomic_write(path) as draft:
        escaped.to_csv(draft, index=False, lineterminator="\n")


#: Id and text of a label; None if the landmark has none.
_Label = tuple[str, str] | None


class _Side(NamedTuple):
    """One of the hierarchies: what it was made from, and the group of each label, by its id; "" if it has none."""

    inputs: BuildInputs
    groups: Mapping[str, str]

    def group_of(self, label: _Label) -> str | None:
        """Return the group of a label, "" if landmarks with it are left out, or None if that is unknown."""
        if label is None:
            return ""
        if label[0] in self.groups or self.inputs.decisions is None:
            return self.groups.get(label[0])
        decision = self.inputs.decisions.find(*label)
        if decision is None:
            return None
        return decision.group or "" if decision.decision == "group" else ""


def explain_changes(
    before: tuple[Hierarchy, BuildInputs], after: tuple[Hierarchy, BuildInputs]
) -> tuple[pd.DataFrame, Explanation]:
    """Return the changes between two hierarchies with their causes, and a summary."""
    joined = join_hierarchies(before[0], after[0])
    by_class = before[1].clean is not None and after[1].clean is not None
    sides = []
    for name, (hierarchy, inputs) in zip(_SIDES, (before, after), strict=True):
        labels = _labels(hierarchy, inputs, by_class=by_class)
        joined = joined.merge(labels[[*_KEY, "label"]].rename(columns={"label": f"label_{name}"}), "left", _KEY)
        # The first group of landmarks with the label, if any has a group.
        groups = labels.groupby(labels["label"].str[0])["group"].first().fillna("")
        sides.append(_Side(inputs, {str(label): str(group) for label, group in groups.items()}))
    first, second = sides
    changed = joined[joined["change"] != ""].astype(object)
    changed = changed.where(changed.notna(), None)
    keys = list(zip(changed["split"], changed["landmark_id"], strict=True))
    scraped = [rows_of(side.inputs.scraped, keys) for side in sides]
    removed = [rows_of(side.inputs.removed, keys) for side in sides]
    records = []
    for key, row in zip(keys, changed.to_dict("records"), strict=True):
        level = "root" if row["change"] == "root" else "group"
        record = {name: row[name] for name in (*_KEY, "change")}
        record |= {side: row[f"{level}_{side}"] or "" for side in _SIDES}
        own = row["label_before"], row["label_after"]
        cause_of_label = _cause_of_label(first, second, scraped[0].get(key), scraped[1].get(key))
        record["cause"] = _cause(row["change"], record["after"], own, first, second, cause_of_label)
        for number, side in enumerate(_SIDES):
            gone, item = removed[number].get(key), scraped[number].get(key, {})
            text = f"({gone['reason']})" if gone is not None else ""
            record[f"label_{side}"] = own[number][1] if own[number] is not None else text
            record |= {f"{name}_{side}": item.get(name) for name in ("item", "revision")}
        records.append(record)
    changes = pd.DataFrame(records, columns=[field.name for field in fields(LandmarkChange)], dtype=object)
    same_place = None
    if by_class:
        relabelled = joined["label_before"].notna() & (joined["label_before"] != joined["label_after"])
        same_place = int((relabelled & (joined["group_before"] == joined["group_after"])).sum())
    return changes, _summary(changes, same_place, (*first.inputs.missing, *second.inputs.missing))


def _labels(hierarchy: Hierarchy, inputs: BuildInputs, *, by_class: bool) -> pd.DataFrame:
    """Return split, landmark_id, label (its id and text) and group of the landmarks with labels.

    Two labels are equal if they are of the same class and have the same text. The group is missing where the label
    does not lead to one.
    """
    places = _places(hierarchy)
    if hierarchy.label_sources is not None:
        places = places[hierarchy.label_sources != "photographs"]
    if inputs.clean is not None:
        labels = inputs.clean.select([*_KEY, "supercategory", "class_item"]).to_pandas()
    elif hierarchy.supercategories is not None:
        columns = dict(zip(_KEY, (hierarchy.splits, hierarchy.landmark_ids), strict=True))
        labels = pd.DataFrame({**columns, "supercategory": hierarchy.supercategories})
    else:
        labels = places[_KEY].iloc[:0].assign(supercategory="")
    items = labels["class_item"] if by_class else [None] * len(labels)
    pairs = [(label_id(text, item), text) for text, item in zip(labels["supercategory"], items, strict=True)]
    labels = labels.assign(label=pd.Series(pairs, labels.index, dtype=object))
    result: pd.DataFrame = labels.merge(places[[*_KEY, "group"]], "left", _KEY)
    return result


def _cause(
    change: str, group: str, labels: tuple[_Label, _Label], before: _Side, after: _Side, cause_of_label: str
) -> str:
    if change == "root":
        return "taxonomy"
    # What would give a label another group.
    cause_of_group = "settings" if _same_input(before, after, "taxonomy") else "taxonomy"
    corrections = [side.inputs.digests.get("corrections") for side in (before, after)]
    if not _same_input(before, after, "decisions") or corrections[0] != corrections[1]:
        cause_of_group = "decisions"
    first, second = labels
    if first == second and (first is not None or cause_of_label == "cleaning"):
        return cause_of_group
    if cause_of_label == "unknown" or cause_of_group == "settings":
        return cause_of_label
    # A label that the earlier hierarchy never met gives no answer there: its first decision followed from the label.
    by_label = before.group_of(second) in (group, None)
    by_decision = after.group_of(first) == group
    if by_label != by_decision:
        return cause_of_label if by_label else cause_of_group
    return f"{cause_of_label}+{cause_of_group}"


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


def _summary(changes: pd.DataFrame, same_place: int | None, missing: tuple[str, ...]) -> Explanation:
    counts = pd.crosstab(changes["cause"], changes["change"]).reindex(columns=CHANGE_KINDS, fill_value=0)
    counts = counts.loc[sorted(counts.index, key=lambda cause: (-counts.loc[cause].sum(), cause))]
    examples = changes.groupby("cause").head(_EXAMPLES)
    examples = examples.sort_values("cause", key=lambda causes: causes.map(counts.index.get_loc), kind="stable")
    return Explanation(
        tuple(CauseCounts(*row) for row in counts.itertuples()),
        tuple(LandmarkChange(*row) for row in examples.to_numpy()),
        same_place,
        missing,
    )

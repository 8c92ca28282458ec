"""Landmarks that changed between two hierarchies, and the causes of their changes.

The place of a landmark follows from its label, which comes from Wikidata, and the decision on that
label. If both have changed, each change is tried alone: the new label in the earlier hierarchy, and
the earlier label in the new hierarchy. The change that leads to the new place without the other
change is the cause. If both changes do so, or neither does, both are causes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hgld.hierarchy.build_inputs import BuildInputs, rows_of
from hgld.hierarchy.tree import Hierarchy
from hgld.io.files import write_csv
from hgld.io.table_rows import escape_formula
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
#: Number of example changes per cause.
_EXAMPLES = 3


@dataclass(frozen=True)
class LandmarkChange:
    """A landmark that was added, lost or moved.

    Args:
        change: ``moved`` to another group, ``root`` if only the root of the group changed,
            ``added`` or ``lost``.
        before: Group in the first hierarchy, or root if ``change`` is ``root``; empty if the
            landmark is missing.
        after: Group or root in the second hierarchy; empty if the landmark is missing.
        cause: One of :data:`CAUSES`, or two joined by ``+`` if both were necessary or either was
            sufficient.
        label_before: Label in the first hierarchy, or the reason in parentheses why ``clean``
            removed the landmark; empty if unknown.
        label_after: Label in the second hierarchy, or the reason in parentheses.
        item_before: Wikidata item of the first scrape; None if unknown.
        item_after: Wikidata item of the second scrape; None if unknown.
        revision_before: Revision of the item of the first scrape; None if unknown.
        revision_after: Revision of the item of the second scrape; None if unknown.
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
    """Causes of all changes between two hierarchies.

    Args:
        causes: Counts by cause, the most frequent first.
        examples: The first few changes of each cause.
        same_place: Number of landmarks with another label, but in the same group; None if labels
            are unknown.
        missing: Sentences that name the tables that were not found.
    """

    causes: tuple[CauseCounts, ...]
    examples: tuple[LandmarkChange, ...]
    same_place: int | None
    missing: tuple[str, ...]


def join_hierarchies(before: Hierarchy, after: Hierarchy) -> pd.DataFrame:
    """Return the landmarks of two hierarchies, sorted by split and id.

    Returns:
        Columns split, landmark_id, ``change`` (empty for no change), and row, group and root with
        the suffixes ``_before`` and ``_after``, which are missing in the hierarchy that lacks the
        landmark.
    """
    places = _places(before).merge(_places(after), "outer", _KEY, suffixes=("_before", "_after"))
    joined = places.sort_values(_KEY)
    conditions = {
        "added": joined["group_before"].isna(),
        "lost": joined["group_after"].isna(),
        "moved": joined["group_before"] != joined["group_after"],
        "root": joined["root_before"] != joined["root_after"],
    }
    change = np.select(list(conditions.values()), list(conditions), "")
    result: pd.DataFrame = joined.assign(change=change)
    return result


def _places(hierarchy: Hierarchy) -> pd.DataFrame:
    """Return the columns split, landmark_id, row, group and root."""
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

    Values that a spreadsheet would run as formulas are escaped
    (:func:`hgld.io.table_rows.escape_formula`).

    Raises:
        ConfigurationError: The file exists and has other columns.
    """
    texts = changes.where(changes.notna(), "")  # None among whole numbers would make them floats
    escaped = texts.map(lambda value: escape_formula(value) if isinstance(value, str) else value)
    write_csv(path, list(escaped.columns), escaped.itertuples(index=False))


#: Id and text of a label; None for a landmark without a label.
_Label = tuple[str, str] | None


class _Side(NamedTuple):
    """One of the two hierarchies.

    Args:
        inputs: Tables that the hierarchy was made from.
        groups: Group by label id; empty if landmarks with the label have no group.
    """

    inputs: BuildInputs
    groups: Mapping[str, str]

    def group_of(self, label: _Label) -> str | None:
        """Return the group of a label, "" if the label is excluded, or None if it is unknown."""
        if label is None:
            return ""
        identity, text = label
        if identity in self.groups or self.inputs.decisions is None:
            return self.groups.get(identity)
        decision = self.inputs.decisions.find(identity, text)
        if decision is None:
            return None
        if decision.decision != "group":
            return ""
        return decision.group or ""


def explain_changes(
    before: tuple[Hierarchy, BuildInputs], after: tuple[Hierarchy, BuildInputs]
) -> tuple[pd.DataFrame, Explanation]:
    """Return the changes between two hierarchies with their causes, and a summary."""
    hierarchy_before, inputs_before = before
    hierarchy_after, inputs_after = after
    by_class = inputs_before.clean is not None and inputs_after.clean is not None
    labels_before = _labels(hierarchy_before, inputs_before, by_class=by_class)
    labels_after = _labels(hierarchy_after, inputs_after, by_class=by_class)
    joined = join_hierarchies(hierarchy_before, hierarchy_after)
    joined = _with_label(joined, labels_before, "label_before")
    joined = _with_label(joined, labels_after, "label_after")
    side_before = _Side(inputs_before, _groups_of_labels(labels_before))
    side_after = _Side(inputs_after, _groups_of_labels(labels_after))
    changed = joined[joined["change"] != ""].astype(object)
    changes = _with_causes(changed.where(changed.notna(), None), side_before, side_after)
    same_place = None
    if by_class:
        is_labelled = joined["label_before"].notna()
        is_relabelled = joined["label_before"] != joined["label_after"]
        in_same_group = joined["group_before"] == joined["group_after"]
        same_place = int((is_labelled & is_relabelled & in_same_group).sum())
    return changes, _summary(changes, same_place, inputs_before.missing + inputs_after.missing)


def _with_label(joined: pd.DataFrame, labels: pd.DataFrame, name: str) -> pd.DataFrame:
    """Add the labels of landmarks as a column of a given name."""
    column = labels[[*_KEY, "label"]].rename(columns={"label": name})
    result: pd.DataFrame = joined.merge(column, "left", _KEY)
    return result


def _groups_of_labels(labels: pd.DataFrame) -> dict[str, str]:
    """Return the first group of the landmarks with each label by label id; "" without one."""
    groups = labels.groupby(labels["label"].str[0])["group"].first().fillna("")
    return {str(label): str(group) for label, group in groups.items()}


def _with_causes(changed: pd.DataFrame, before: _Side, after: _Side) -> pd.DataFrame:
    """Return a row with the fields of :class:`LandmarkChange` for each changed landmark.

    Args:
        changed: Columns of :func:`join_hierarchies`, and ``label_before`` and ``label_after``, ids
            and texts.
    """
    keys = list(zip(changed["split"], changed["landmark_id"], strict=True))
    scraped_before = rows_of(before.inputs.scraped, keys)
    scraped_after = rows_of(after.inputs.scraped, keys)
    removed_before = rows_of(before.inputs.removed, keys)
    removed_after = rows_of(after.inputs.removed, keys)
    records = []
    for key, row in zip(keys, changed.to_dict("records"), strict=True):
        split, landmark_id = key
        level = "root" if row["change"] == "root" else "group"
        place_after = row[f"{level}_after"] or ""
        label_before = row["label_before"]
        label_after = row["label_after"]
        row_before = scraped_before.get(key, {})
        row_after = scraped_after.get(key, {})
        cause_of_label = _cause_of_label(before, after, row_before, row_after)
        cause = "taxonomy"
        if row["change"] != "root":
            cause = _cause(place_after, label_before, label_after, before, after, cause_of_label)
        record = LandmarkChange(
            split=split,
            landmark_id=landmark_id,
            change=row["change"],
            before=row[f"{level}_before"] or "",
            after=place_after,
            cause=cause,
            label_before=_label_text(label_before, removed_before.get(key)),
            label_after=_label_text(label_after, removed_after.get(key)),
            item_before=row_before.get("item"),
            item_after=row_after.get("item"),
            revision_before=row_before.get("revision"),
            revision_after=row_after.get("revision"),
        )
        records.append(asdict(record))
    columns = [field.name for field in fields(LandmarkChange)]
    changes: pd.DataFrame = pd.DataFrame(records, columns=columns, dtype=object)
    return changes


def _label_text(label: _Label, removed: Mapping[str, Any] | None) -> str:
    """Return the text of a label, or in parentheses the reason why the landmark was removed."""
    if label is not None:
        return label[1]
    if removed is not None:
        return f"({removed['reason']})"
    return ""


def _labels(hierarchy: Hierarchy, inputs: BuildInputs, *, by_class: bool) -> pd.DataFrame:
    """Return split, landmark_id, label (its id and text) and group of the landmarks with labels.

    Labels are equal if they have the same class and the same text. The group is missing if the
    label has no group.
    """
    places = _places(hierarchy)
    if hierarchy.label_sources is not None:
        places = places[hierarchy.label_sources != "photographs"]
    if inputs.clean is not None:
        labels = inputs.clean.select([*_KEY, "supercategory", "class_item"]).to_pandas()
    else:
        labels = pd.DataFrame({"split": hierarchy.splits, "landmark_id": hierarchy.landmark_ids})
        if hierarchy.supercategories is None:
            labels = labels.iloc[:0].assign(supercategory="")
        else:
            labels["supercategory"] = hierarchy.supercategories
    items = labels["class_item"] if by_class else [None] * len(labels)
    pairs = []
    for text, item in zip(labels["supercategory"], items, strict=True):
        pairs.append((label_id(text, item), text))
    labels["label"] = pd.Series(pairs, labels.index, dtype=object)
    result: pd.DataFrame = labels.merge(places[[*_KEY, "group"]], "left", _KEY)
    return result


def _cause(
    new_group: str,
    label_before: _Label,
    label_after: _Label,
    before: _Side,
    after: _Side,
    cause_of_label: str,
) -> str:
    """Return the cause of a new group, one of :data:`CAUSES` or two joined by ``+``.

    Args:
        new_group: Group in the second hierarchy; empty if the landmark is lost.
        label_before: Label in the first hierarchy.
        label_after: Label in the second hierarchy.
        cause_of_label: Cause of another label.
    """
    cause_of_group = _cause_of_group(before, after)
    if label_before == label_after and (label_before is not None or cause_of_label == "cleaning"):
        return cause_of_group
    if cause_of_label == "unknown" or cause_of_group == "settings":
        return cause_of_label
    # A label that the earlier hierarchy does not have was decided because it appeared.
    label_suffices = before.group_of(label_after) in (new_group, None)
    decision_suffices = after.group_of(label_before) == new_group
    if label_suffices and not decision_suffices:
        return cause_of_label
    if decision_suffices and not label_suffices:
        return cause_of_group
    return f"{cause_of_label}+{cause_of_group}"


def _cause_of_group(before: _Side, after: _Side) -> str:
    """Return the cause that would give the same label another group."""
    corrections_before = before.inputs.digests.get("corrections")
    corrections_after = after.inputs.digests.get("corrections")
    if not _same_input(before, after, "decisions") or corrections_before != corrections_after:
        return "decisions"
    if not _same_input(before, after, "taxonomy"):
        return "taxonomy"
    return "settings"


def _cause_of_label(
    before: _Side,
    after: _Side,
    scraped_before: Mapping[str, Any],
    scraped_after: Mapping[str, Any],
) -> str:
    """Return the cause that would give a landmark another label.

    Args:
        before: First hierarchy.
        after: Second hierarchy.
        scraped_before: Row of the landmark in the first scrape; empty without a row.
        scraped_after: Row of the landmark in the second scrape; empty without a row.
    """
    if before.inputs.scraped is None or after.inputs.scraped is None:
        return "unknown"
    if not scraped_before or not scraped_after:
        return "list"
    if scraped_before["title"] != scraped_after["title"]:
        return "list"
    if scraped_before["instance_of"] == scraped_after["instance_of"]:
        return "cleaning"
    return "wikidata"


def _same_input(before: _Side, after: _Side, role: str) -> bool:
    """Return whether both hierarchies are known to have been built from the same file."""
    digest = before.inputs.digests.get(role)
    return digest is not None and digest == after.inputs.digests.get(role)


def _summary(
    changes: pd.DataFrame, same_place: int | None, missing: tuple[str, ...]
) -> Explanation:
    counts = pd.crosstab(changes["cause"], changes["change"])
    counts = counts.reindex(columns=CHANGE_KINDS, fill_value=0)
    totals = counts.sum(axis=1)
    causes = []
    examples = []
    for cause in sorted(counts.index, key=lambda cause: (-totals[cause], cause)):
        causes.append(CauseCounts(cause, *counts.loc[cause].tolist()))
        for record in changes[changes["cause"] == cause].head(_EXAMPLES).to_dict("records"):
            examples.append(LandmarkChange(**record))
    return Explanation(tuple(causes), tuple(examples), same_place, missing)

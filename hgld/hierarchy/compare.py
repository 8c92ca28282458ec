"""Compare two hierarchies: landmarks added, lost and moved, why, and the agreement of their levels.

The place of a landmark follows from its label, which comes from Wikidata, and the decision on that label. If both
have changed, each is tried alone: the new label in the earlier hierarchy, and the earlier label in the new one. The
one that leads to the new place without the other is the cause; if both do so, or neither, both are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hgld.arrays import Integers
from hgld.hierarchy.build_inputs import BuildInputs, find_build_inputs, rows_of
from hgld.hierarchy.files import load_hierarchy
from hgld.hierarchy.tree import Hierarchy
from hgld.io.columns import escape_formula
from hgld.io.files import write_csv
from hgld.tables import in_order
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
        before: Group in the first hierarchy, or root if ``change`` is ``root``; empty if the landmark is not in it.
        after: The same in the second hierarchy.
        cause: One of :data:`CAUSES`, or two joined by ``+`` if both were needed or either would have done.
        label_before: Label in the first hierarchy, or in parentheses why ``clean`` removed the landmark; empty if
            unknown. ``label_after`` is that in the second one.
        item_before: Wikidata item that the first scrape found; None if unknown. ``item_after`` is that of the second.
        revision_before: Revision of that item; None if unknown. ``revision_after`` is that of the second scrape.
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
        causes: Counts by cause, the most frequent first.
        examples: The first few changes of each cause.
        same_place: Number of landmarks with another label, but in the same group; None if labels are unknown.
        missing: Sentences that name the tables that were not found.
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
    joined = (
        _places(before)
        .merge(_places(after), "outer", _KEY, suffixes=("_before", "_after"))
        .sort_values(_KEY)
    )
    conditions = {
        "added": joined["group_before"].isna(),
        "lost": joined["group_after"].isna(),
        "moved": joined["group_before"] != joined["group_after"],
        "root": joined["root_before"] != joined["root_after"],
    }
    result: pd.DataFrame = joined.assign(
        change=np.select([*conditions.values()], [*conditions], "")
    )
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

    Raises:
        ConfigurationError: The file exists and has other columns.
    """
    known = changes.where(changes.notna(), "")  # None among whole numbers would make them floats
    escaped = known.map(lambda value: escape_formula(value) if isinstance(value, str) else value)
    write_csv(path, list(escaped.columns), escaped.itertuples(index=False))


#: Id and text of a label; None if the landmark has none.
_Label = tuple[str, str] | None


class _Side(NamedTuple):
    """One of the two hierarchies.

    Args:
        inputs: What it was made from.
        groups: Group of each label, by the id of the label; empty if landmarks with it have none.
    """

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
        joined = joined.merge(
            labels[[*_KEY, "label"]].rename(columns={"label": f"label_{name}"}), "left", _KEY
        )
        # The first group of landmarks with the label, if any has a group.
        groups = labels.groupby(labels["label"].str[0])["group"].first().fillna("")
        sides.append(_Side(inputs, {str(label): str(group) for label, group in groups.items()}))
    first, second = sides
    changed = joined[joined["change"] != ""].astype(object)
    changes = _with_causes(changed.where(changed.notna(), None), first, second)
    same_place = None
    if by_class:
        relabelled = joined["label_before"].notna() & (
            joined["label_before"] != joined["label_after"]
        )
        same_place = int((relabelled & (joined["group_before"] == joined["group_after"])).sum())
    return changes, _summary(changes, same_place, (*first.inputs.missing, *second.inputs.missing))


def _with_causes(changed: pd.DataFrame, before: _Side, after: _Side) -> pd.DataFrame:
    """Return a row with the fields of :class:`LandmarkChange` for each changed landmark.

    Args:
        changed: Columns of :func:`join_hierarchies`, and ``label_before`` and ``label_after``, ids and texts.
    """
    keys = list(zip(changed["split"], changed["landmark_id"], strict=True))
    scraped = [rows_of(side.inputs.scraped, keys) for side in (before, after)]
    removed = [rows_of(side.inputs.removed, keys) for side in (before, after)]
    records = []
    for key, row in zip(keys, changed.to_dict("records"), strict=True):
        level = "root" if row["change"] == "root" else "group"
        record = {name: row[name] for name in (*_KEY, "change")}
        record |= {name: row[f"{level}_{name}"] or "" for name in _SIDES}
        labels = row["label_before"], row["label_after"]
        cause_of_label = _cause_of_label(before, after, scraped[0].get(key), scraped[1].get(key))
        record["cause"] = _cause(
            row["change"], record["after"], labels, before, after, cause_of_label
        )
        for number, name in enumerate(_SIDES):
            removed_row, scraped_row = removed[number].get(key), scraped[number].get(key, {})
            without_label = "" if removed_row is None else f"({removed_row['reason']})"
            label = labels[number]
            record[f"label_{name}"] = without_label if label is None else label[1]
            record |= {f"{field}_{name}": scraped_row.get(field) for field in ("item", "revision")}
        records.append(record)
    columns = [field.name for field in fields(LandmarkChange)]
    changes: pd.DataFrame = pd.DataFrame(records, columns=columns, dtype=object)
    return changes


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
    pairs = [
        (label_id(text, item), text)
        for text, item in zip(labels["supercategory"], items, strict=True)
    ]
    labels = labels.assign(label=pd.Series(pairs, labels.index, dtype=object))
    result: pd.DataFrame = labels.merge(places[[*_KEY, "group"]], "left", _KEY)
    return result


def _cause(
    change: str,
    new_group: str,
    labels: tuple[_Label, _Label],
    before: _Side,
    after: _Side,
    cause_of_label: str,
) -> str:
    """Return the cause of the change of one landmark, one of :data:`CAUSES` or two joined by ``+``.

    A landmark that is lost has the new group "".
    """
    if change == "root":
        return "taxonomy"
    # The cause that would give the same label another group.
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
    by_label = before.group_of(second) in (new_group, None)
    by_decision = after.group_of(first) == new_group
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


def _summary(
    changes: pd.DataFrame, same_place: int | None, missing: tuple[str, ...]
) -> Explanation:
    counts = pd.crosstab(changes["cause"], changes["change"]).reindex(
        columns=CHANGE_KINDS, fill_value=0
    )
    counts = counts.loc[sorted(counts.index, key=lambda cause: (-counts.loc[cause].sum(), cause))]
    examples = changes.groupby("cause").head(_EXAMPLES)
    examples = examples.sort_values(
        "cause", key=lambda causes: causes.map(counts.index.get_loc), kind="stable"
    )
    return Explanation(
        tuple(CauseCounts(*row) for row in counts.itertuples()),
        tuple(LandmarkChange(*row) for row in examples.to_numpy()),
        same_place,
        missing,
    )


@dataclass(frozen=True)
class SplitChange:
    """Numbers of landmarks of one split before and after."""

    split: str
    before: int
    after: int
    added: int
    lost: int
    moved: int
    other_root: int


@dataclass(frozen=True)
class GroupFlow:
    """Landmarks that moved from one group to another.

    Args:
        renamed: Whether these are all landmarks of both groups, the source being gone and the target new.
    """

    source: str
    target: str
    landmarks: int
    renamed: bool


@dataclass(frozen=True)
class PartitionAgreement:
    """Agreement of two partitions of the same landmarks; the measures are defined in :func:`partition_agreement`."""

    ari: float
    ami: float
    v_measure: float
    homogeneity: float
    completeness: float
    purity_after: float
    purity_before: float


@dataclass(frozen=True)
class HierarchyComparison:
    """Differences between two hierarchies.

    Args:
        flows: Landmarks that moved between groups, the largest flow first.
        agreement: Agreement over the landmarks in both by level, finest first; empty if there are none.
        explanation: Causes of the changes; None if they were not looked for.
    """

    before: str
    after: str
    splits: tuple[SplitChange, ...]
    common: int
    flows: tuple[GroupFlow, ...]
    agreement: dict[str, PartitionAgreement]
    explanation: Explanation | None = None

    @property
    def identical(self) -> bool:
        """Whether the same landmarks are in the same groups, below the same roots."""
        return not any(
            split.added or split.lost or split.moved or split.other_root for split in self.splits
        )

    def to_json(self) -> str:
        """Return all fields, and whether the hierarchies are identical, as JSON."""
        return json.dumps(
            {**asdict(self), "identical": self.identical}, indent=2, ensure_ascii=False
        )


def compare_files(
    before: str | Path,
    after: str | Path,
    *,
    before_tables: Path | None = None,
    after_tables: Path | None = None,
    changes: Path | None = None,
) -> HierarchyComparison:
    """Compare two hierarchies from files, and explain the changes from the tables that they were made from.

    Args:
        before: First hierarchy: a Parquet file, an official CSV file, or a folder with these.
        after: Second hierarchy, in any of these formats.
        before_tables: Folder of the tables that ``before`` was made from. Default: that of ``before``.
        after_tables: Folder of the tables that ``after`` was made from. Default: that of ``after``.
        changes: CSV file to write, of the landmarks added, lost or moved, with cause and revisions; see
            :class:`hgld.hierarchy.compare.LandmarkChange`.
    """
    first, second = load_hierarchy(before), load_hierarchy(after)
    comparison = compare_hierarchies(first, second, before_name=str(before), after_name=str(after))
    inputs = find_build_inputs(before, before_tables), find_build_inputs(after, after_tables)
    explained, explanation = explain_changes((first, inputs[0]), (second, inputs[1]))
    comparison = replace(comparison, explanation=explanation)
    if changes is not None:
        write_changes(changes, explained)
    return comparison


def compare_hierarchies(
    before: Hierarchy, after: Hierarchy, *, before_name: str = "before", after_name: str = "after"
) -> HierarchyComparison:
    """Compare two hierarchies at the levels that both have."""
    joined = join_hierarchies(before, after)
    splits = []
    for split in in_order(joined["split"]):
        rows = joined[joined["split"] == split]
        counts = rows["change"].value_counts()
        added, lost, moved = (int(counts.get(kind, 0)) for kind in ("added", "lost", "moved"))
        other_root = int((rows["root_before"] != rows["root_after"]).sum()) - added - lost
        splits.append(
            SplitChange(split, len(rows) - added, len(rows) - lost, added, lost, moved, other_root)
        )
    both = joined[~joined["change"].isin(["added", "lost"])]
    rows_before, rows_after = (both[f"row_{side}"].to_numpy(np.int64) for side in _SIDES)
    agreement = {
        name: partition_agreement(
            before.labels[rows_before, before.column(name)],
            after.labels[rows_after, after.column(name)],
        )
        for name in before.level_names[1:]
        if name in after.level_names and len(both)
    }
    return HierarchyComparison(
        before=before_name,
        after=after_name,
        splits=tuple(splits),
        common=len(both),
        flows=_flows(before, after, both),
        agreement=agreement,
    )


def partition_agreement(before: Integers, after: Integers) -> PartitionAgreement:
    """Measure the agreement of two partitions; all measures are 1 if they differ in names at most.

    With n items, n_ij of them in part i before and part j after:

    - ``ari``: adjusted Rand index, the share of pairs of items that are together in both partitions or apart in
      both, adjusted for chance (Hubert and Arabie 1985);
    - ``ami``: adjusted mutual information, normalised by the mean of both entropies (Vinh et al. 2010);
    - ``homogeneity``: 1 - H(before | after) / H(before), 1 if no part after has items of several parts before;
      ``completeness``: 1 - H(after | before) / H(after); ``v_measure``: their harmonic mean (Rosenberg and
      Hirschberg 2007);
    - ``purity_after``: sum over j of max over i of n_ij, divided by n: the share of items in the majority part before
      of their part after; ``purity_before``: the same with i and j exchanged.

    >>> partition_agreement(np.array([0, 0, 1, 1]), np.array([5, 5, 7, 7])).ari
    1.0
    """
    from sklearn.metrics import (
        adjusted_mutual_info_score,
        adjusted_rand_score,
        homogeneity_completeness_v_measure,
    )
    from sklearn.metrics.cluster import contingency_matrix

    homogeneity, completeness, v_measure = homogeneity_completeness_v_measure(before, after)
    counts = contingency_matrix(before, after, sparse=True)
    return PartitionAgreement(
        ari=float(adjusted_rand_score(before, after)),
        ami=float(adjusted_mutual_info_score(before, after)),
        v_measure=float(v_measure),
        homogeneity=float(homogeneity),
        completeness=float(completeness),
        purity_after=float(counts.max(axis=0).sum() / len(before)),
        purity_before=float(counts.max(axis=1).sum() / len(before)),
    )


def _flows(before: Hierarchy, after: Hierarchy, both: pd.DataFrame) -> tuple[GroupFlow, ...]:
    source_sizes, target_sizes = (
        both["group_before"].value_counts(),
        both["group_after"].value_counts(),
    )
    groups = [set(hierarchy.names(hierarchy.group_level)) for hierarchy in (before, after)]
    removed, new = groups[0] - groups[1], groups[1] - groups[0]
    moved = both.loc[both["change"] == "moved", ["group_before", "group_after"]].value_counts()
    flows = [
        GroupFlow(
            source,
            target,
            count,
            renamed=source in removed
            and target in new
            and bool(source_sizes[source] == target_sizes[target] == count),
        )
        for (source, target), count in moved.to_dict().items()
    ]
    return tuple(sorted(flows, key=lambda flow: (-flow.landmarks, flow.source, flow.target)))

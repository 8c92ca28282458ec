"""Compare two hierarchies: changed landmarks, moves between groups, and agreement of levels."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.arrays import Integers
from hgld.hierarchy.build_inputs import find_build_inputs
from hgld.hierarchy.changes import Explanation, explain_changes, join_hierarchies, write_changes
from hgld.hierarchy.files import load_hierarchy
from hgld.hierarchy.tree import Hierarchy
from hgld.tables import in_order


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
        renamed: Whether the group was renamed: the source no longer exists, the target is new, and
            all landmarks of both groups moved.
    """

    source: str
    target: str
    landmarks: int
    renamed: bool


@dataclass(frozen=True)
class PartitionAgreement:
    """Agreement of two partitions of the same landmarks, see :func:`partition_agreement`."""

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
        before: Name of the first hierarchy.
        after: Name of the second hierarchy.
        splits: Changes by split.
        common: Number of landmarks in both hierarchies.
        flows: Landmarks that moved between groups, the largest flow first.
        agreement: Agreement by level over the landmarks in both hierarchies, finest first; empty
            without landmarks.
        explanation: Causes of the changes; None if not requested.
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
        n_changes = 0
        for split in self.splits:
            n_changes += split.added + split.lost + split.moved + split.other_root
        return n_changes == 0

    def to_json(self) -> str:
        """Return all fields, and whether the hierarchies are identical, as JSON."""
        document = {**asdict(self), "identical": self.identical}
        return json.dumps(document, indent=2, ensure_ascii=False)


def compare_files(
    before: str | Path,
    after: str | Path,
    *,
    before_tables: Path | None = None,
    after_tables: Path | None = None,
    changes: Path | None = None,
) -> HierarchyComparison:
    """Compare two hierarchies from files, and explain changes by the tables they were made from.

    Args:
        before: First hierarchy: a Parquet file, an official CSV file, or a folder with these.
        after: Second hierarchy, in any of these formats.
        before_tables: Folder of the tables that ``before`` was made from. Default: the folder of
            ``before``.
        after_tables: Folder of the tables that ``after`` was made from. Default: the folder of
            ``after``.
        changes: CSV file to write, of the landmarks added, lost or moved, with cause and revisions;
            see :class:`hgld.hierarchy.changes.LandmarkChange`.
    """
    first = load_hierarchy(before)
    second = load_hierarchy(after)
    comparison = compare_hierarchies(first, second, before_name=str(before), after_name=str(after))
    first_inputs = find_build_inputs(before, before_tables)
    second_inputs = find_build_inputs(after, after_tables)
    explained, explanation = explain_changes((first, first_inputs), (second, second_inputs))
    if changes is not None:
        write_changes(changes, explained)
    return replace(comparison, explanation=explanation)


def compare_hierarchies(
    before: Hierarchy, after: Hierarchy, *, before_name: str = "before", after_name: str = "after"
) -> HierarchyComparison:
    """Compare two hierarchies at the levels that both have."""
    joined = join_hierarchies(before, after)
    splits = []
    for split in in_order(joined["split"]):
        rows = joined[joined["split"] == split]
        counts = rows["change"].value_counts()
        added = int(counts.get("added", 0))
        lost = int(counts.get("lost", 0))
        n_other_root = int((rows["root_before"] != rows["root_after"]).sum())
        change = SplitChange(
            split=split,
            before=len(rows) - added,
            after=len(rows) - lost,
            added=added,
            lost=lost,
            moved=int(counts.get("moved", 0)),
            other_root=n_other_root - added - lost,
        )
        splits.append(change)
    both = joined[~joined["change"].isin(["added", "lost"])]
    labels_before = before.labels[both["row_before"].to_numpy(np.int64)]
    labels_after = after.labels[both["row_after"].to_numpy(np.int64)]
    agreement = {}
    for name in before.level_names[1:]:
        if name in after.level_names and len(both):
            agreement[name] = partition_agreement(
                labels_before[:, before.column(name)], labels_after[:, after.column(name)]
            )
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

    For n items, with n_ij items in part i before and part j after:

    - ``ari``: adjusted Rand index, the share of pairs of items that are together in both partitions
      or apart in both, adjusted for chance (Hubert and Arabie 1985);
    - ``ami``: adjusted mutual information, normalised by the mean of both entropies (Vinh et al.
      2010);
    - ``homogeneity``: 1 - H(before | after) / H(before), 1 if no part after has items of several
      parts before; ``completeness``: 1 - H(after | before) / H(after); ``v_measure``: their
      harmonic mean (Rosenberg and Hirschberg 2007);
    - ``purity_after``: sum over j of max over i of n_ij, divided by n: the share of items in the
      majority part before of their part after; ``purity_before``: the same with i and j exchanged.

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
    source_sizes = both["group_before"].value_counts()
    target_sizes = both["group_after"].value_counts()
    old_groups = set(before.names(before.group_level))
    new_groups = set(after.names(after.group_level))
    moved = both.loc[both["change"] == "moved", ["group_before", "group_after"]].value_counts()
    flows = []
    for (source, target), count in moved.to_dict().items():
        renamed = (
            source not in new_groups
            and target not in old_groups
            and source_sizes[source] == count
            and target_sizes[target] == count
        )
        flows.append(GroupFlow(source, target, count, bool(renamed)))
    return tuple(sorted(flows, key=lambda flow: (-flow.landmarks, flow.source, flow.target)))

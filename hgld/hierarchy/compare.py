"""Compare two hierarchies: landmarks added, lost and moved, why, and the agreement of their levels."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hgld.figures.groups import draw_flows
from hgld.hierarchy.build_inputs import find_build_inputs
from hgld.hierarchy.changes import Explanation, explain_changes, join_hierarchies, write_changes
from hgld.hierarchy.load import load_hierarchy
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
class Comparison:
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
        return not any(split.added or split.lost or split.moved or split.other_root for split in self.splits)

    def to_json(self) -> str:
        """Return all fields, and whether the hierarchies are identical, as JSON."""
        return json.dumps({**asdict(self), "identical": self.identical}, indent=2, ensure_ascii=False)


def compare_files(
    before: str | Path,
    after: str | Path,
    *,
    before_tables: Path | None = None,
    after_tables: Path | None = None,
    picture: Path | None = None,
    changes: Path | None = None,
) -> Comparison:
    """Compare two hierarchies from files, and explain the changes from the tables that they were made from.

    Args:
        before: First hierarchy; any path or name that :func:`hgld.hierarchy.load_hierarchy` accepts.
        before_tables: Folder with the tables that ``before`` was made from; its own folder by default.
        picture: Image file for the flows between groups; none by default.
        changes: CSV file for the landmarks added, lost or moved, with the fields of
            :class:`hgld.hierarchy.changes.LandmarkChange` as columns; none by default.
    """
    first, second = load_hierarchy(before), load_hierarchy(after)
    comparison = compare(first, second, before_name=str(before), after_name=str(after))
    inputs = find_build_inputs(before, before_tables), find_build_inputs(after, after_tables)
    explained, explanation = explain_changes((first, inputs[0]), (second, inputs[1]))
    comparison = replace(comparison, explanation=explanation)
    if changes is not None:
        write_changes(changes, explained)
    if picture is not None:
        flows = [(flow.source, flow.target, flow.landmarks) for flow in comparison.flows]
        draw_flows(picture, flows, n_landmarks=comparison.common, nouns=second.nouns)
    return comparison


def compare(
    before: Hierarchy, after: Hierarchy, *, before_name: str = "before", after_name: str = "after"
) -> Comparison:
    """Compare two hierarchies at the levels that both have."""
    joined = join_hierarchies(before, after)
    splits = []
    for split, rows in joined.groupby("split"):
        counts = rows["change"].value_counts()
        added, lost, moved = (int(counts.get(kind, 0)) for kind in ("added", "lost", "moved"))
        other_root = int((rows["root_before"] != rows["root_after"]).sum()) - added - lost
        splits.append(SplitChange(str(split), len(rows) - added, len(rows) - lost, added, lost, moved, other_root))
    order = in_order(change.split for change in splits)
    both = joined[~joined["change"].isin(["added", "lost"])]
    rows_before, rows_after = (both[f"row_{side}"].to_numpy(np.int64) for side in ("before", "after"))
    agreement = {
        name: partition_agreement(
            before.labels[rows_before, before.column(name)], after.labels[rows_after, after.column(name)]
        )
        for name in before.level_names[1:]
        if name in after.level_names and len(both)
    }
    return Comparison(
        before=before_name,
        after=after_name,
        splits=tuple(sorted(splits, key=lambda change: order.index(change.split))),
        common=len(both),
        flows=_flows(before, after, both),
        agreement=agreement,
    )


def partition_agreement(before: NDArray[np.int64], after: NDArray[np.int64]) -> PartitionAgreement:
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
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, homogeneity_completeness_v_measure
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
    source_sizes, target_sizes = both["group_before"].value_counts(), both["group_after"].value_counts()
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

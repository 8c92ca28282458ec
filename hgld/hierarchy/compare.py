"""What changed between two hierarchies: landmarks added, lost and moved, and how far the two agree."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.figures.flows import draw_flows
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.checks import GROUP, ROOT
from hgld.io.files import atomic_write
from hgld.tables import SPLITS


@dataclass(frozen=True)
class SplitChange:
    """The landmarks of one split, before and after.

    Args:
        split: the split.
        before: landmarks in the first hierarchy.
        after: landmarks in the second one.
        added: those that only the second has.
        lost: those that only the first has.
        moved: of those in both, the ones in another group.
        other_root: of those in both, the ones below another root.
    """

    split: str
    before: int
    after: int
    added: int
    lost: int
    moved: int
    other_root: int


@dataclass(frozen=True)
class Flow:
    """Landmarks that were in one group and are in another.

    Args:
        source: the group before.
        target: the group after.
        landmarks: how many.
        renamed: they are all of both groups, one of which is gone and the other new.
    """

    source: str
    target: str
    landmarks: int
    renamed: bool


@dataclass(frozen=True)
class Agreement:
    """How far two partitions of the same landmarks agree; what each number is, :func:`agreement` says."""

    ari: float
    ami: float
    v_measure: float
    homogeneity: float
    completeness: float
    purity_after: float
    purity_before: float


@dataclass(frozen=True)
class Comparison:
    """What changed from one hierarchy to another.

    Args:
        before: what the first is called.
        after: what the second is called.
        splits: the counts, one entry per split that occurs.
        common: landmarks in both.
        flows: landmarks that moved between groups, most first.
        agreement: by level, finest first, over the landmarks in both; empty where there are none.
    """

    before: str
    after: str
    splits: tuple[SplitChange, ...]
    common: int
    flows: tuple[Flow, ...]
    agreement: dict[str, Agreement]

    @property
    def identical(self) -> bool:
        """Whether the same landmarks are in the same groups, below the same roots."""
        return not any(part.added or part.lost or part.moved or part.other_root for part in self.splits)

    def to_json(self) -> str:
        """All of it, for programs."""
        return json.dumps({**asdict(self), "identical": self.identical}, indent=2, ensure_ascii=False)


def compare_files(
    before: str | Path, after: str | Path, *, picture: Path | None = None, changes: Path | None = None
) -> Comparison:
    """Compare two hierarchies.

    Args:
        before: whatever :func:`hgld.hierarchy.load_hierarchy` reads.
        after: the same.
        picture: where to draw the flows between groups.
        changes: where to write a CSV file with a row for every landmark added, lost or moved.

    Raises:
        InputError, ConfigurationError: see :func:`hgld.hierarchy.load_hierarchy`.
    """
    first, second = load_hierarchy(before), load_hierarchy(after)
    comparison = compare(first, second, before_name=str(before), after_name=str(after))
    if changes is not None:
        write_changes(changes, first, second)
    if picture is not None:
        flows = [(flow.source, flow.target, flow.landmarks) for flow in comparison.flows]
        draw_flows(picture, flows, common=comparison.common)
    return comparison


def compare(
    before: Hierarchy, after: Hierarchy, *, before_name: str = "before", after_name: str = "after"
) -> Comparison:
    """Compare two hierarchies; levels that only one of them has are not compared."""
    in_before, in_after = _rows_in_both(before, after)
    levels = [name for name in before.level_names[1:] if name in after.level_names]
    found = {
        name: agreement(_codes(before, name)[in_before], _codes(after, name)[in_after])
        for name in levels
        if len(in_before)
    }
    moved, other_root = (
        _texts(before, level, in_before) != _texts(after, level, in_after) for level in (GROUP, ROOT)
    )
    common = before.splits[in_before]
    splits = []
    for split in SPLITS:
        n_before, n_after = int(np.sum(before.splits == split)), int(np.sum(after.splits == split))
        both = common == split
        if n_before or n_after:
            added, lost = n_after - int(both.sum()), n_before - int(both.sum())
            counts = (int(moved[both].sum()), int(other_root[both].sum()))
            splits.append(SplitChange(split, n_before, n_after, added, lost, *counts))
    return Comparison(
        before=before_name,
        after=after_name,
        splits=tuple(splits),
        common=len(in_before),
        flows=_flows(before, after, in_before, in_after),
        agreement=found,
    )


def agreement(before: NDArray[np.int64], after: NDArray[np.int64]) -> Agreement:
    """How far two partitions agree; 1 in all of it means that they differ in names at most.

    With n items, n_ij of them in the part i before and j after:

    - ``ari``: adjusted Rand index, the share of pairs of items that both partitions put together or both put
      apart, scaled so that chance gives 0 (Hubert and Arabie 1985);
    - ``ami``: adjusted mutual information, scaled in the same way by the mean of both entropies (Vinh et al.
      2010);
    - ``homogeneity``: 1 - H(before | after) / H(before), 1 if no part after holds items of several parts before;
      ``completeness``: 1 - H(after | before) / H(after); ``v_measure``: their harmonic mean (Rosenberg and
      Hirschberg 2007);
    - ``purity_after``: sum over j of max over i of n_ij, divided by n: the share of items that come from the
      part before that most of their part after come from; ``purity_before``: the same with i and j exchanged.

    Args:
        before: int64, shape (n,): the part of each item; n at least 1.
        after: int64, shape (n,).
    """
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, homogeneity_completeness_v_measure
    from sklearn.metrics.cluster import contingency_matrix

    homogeneity, completeness, v_measure = homogeneity_completeness_v_measure(before, after)
    table = contingency_matrix(before, after, sparse=True)
    return Agreement(
        ari=float(adjusted_rand_score(before, after)),
        ami=float(adjusted_mutual_info_score(before, after)),
        v_measure=float(v_measure),
        homogeneity=float(homogeneity),
        completeness=float(completeness),
        purity_after=float(table.max(axis=0).sum() / len(before)),
        purity_before=float(table.max(axis=1).sum() / len(before)),
    )


def write_changes(path: Path, before: Hierarchy, after: Hierarchy) -> None:
    """Write a CSV file with a row for every landmark added, lost or moved: split, landmark_id, change, groups."""
    in_before, in_after = _rows_in_both(before, after)
    groups = _texts(before, GROUP, in_before), _texts(after, GROUP, in_after)
    rows = [
        (str(before.splits[row]), int(before.landmark_ids[row]), "moved", one, other)
        for row, one, other in zip(in_before, *groups, strict=True)
        if one != other
    ]
    for hierarchy, both, change in ((before, in_before, "lost"), (after, in_after, "added")):
        only = np.setdiff1d(np.arange(len(hierarchy)), both)
        for row, group in zip(only, _texts(hierarchy, GROUP, only), strict=True):
            place = ("", group) if change == "added" else (group, "")
            rows.append((str(hierarchy.splits[row]), int(hierarchy.landmark_ids[row]), change, *place))
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["split", "landmark_id", "change", "before", "after"])
        writer.writerows(sorted(rows))


def _rows_in_both(before: Hierarchy, after: Hierarchy) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of the landmarks that both have, pairwise."""
    keys = [hierarchy.landmark_ids * len(SPLITS) + (hierarchy.splits == SPLITS[1]) for hierarchy in (before, after)]
    _, in_before, in_after = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    return in_before, in_after


def _codes(hierarchy: Hierarchy, level: str) -> NDArray[np.int64]:
    return hierarchy.labels[:, hierarchy.column(level)]


def _texts(hierarchy: Hierarchy, level: str, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    """The names at a level of some landmarks."""
    return np.array(hierarchy.names(level), object)[_codes(hierarchy, level)[rows]]


def _flows(
    before: Hierarchy, after: Hierarchy, in_before: NDArray[np.int64], in_after: NDArray[np.int64]
) -> tuple[Flow, ...]:
    sources, targets = _texts(before, GROUP, in_before), _texts(after, GROUP, in_after)
    from_source, into_target = Counter(sources), Counter(targets)
    gone = set(before.names(GROUP)) - set(after.names(GROUP))
    new = set(after.names(GROUP)) - set(before.names(GROUP))
    flows = []
    for (source, target), count in Counter(zip(sources, targets, strict=True)).items():
        if source != target:
            renamed = source in gone and target in new and from_source[source] == into_target[target] == count
            flows.append(Flow(source, target, count, renamed))
    return tuple(sorted(flows, key=lambda flow: (-flow.landmarks, flow.source, flow.target)))

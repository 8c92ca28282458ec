"""Read decisions of several annotators and merge their taxonomies; the stage ``decisions`` of one annotator.

The groups that annotators renamed or proposed become one list. A group is identified by its key. A renamed
group keeps its key, and the key of a proposed group is made from its first name, so that two annotators who
propose the same name propose the same group. Decisions refer to keys, so names cause no conflict between
decisions. The name of a group is chosen in this order:

1. the name in an earlier adjudication;
2. the new name, if all annotators who changed the name chose the same name up to capitals and spaces;
3. the new name given by the preferred annotator.

Otherwise the different names are a conflict for people to settle, and the group keeps the name in the
original taxonomy, or the name given by the first annotator if the group is proposed. The same rules apply to
the root of a proposed group, and to two groups that would have the same name.

A group is merged into another group if an earlier adjudication or the preferred annotator merged it, or if
all annotators who had the group merged it into the same group. If only some annotators merged it, the group
stays, and this is a conflict as well: the other annotators did not decide for the surviving group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import ConfigurationError, InputError, counted, indented_list
from hgld.io.columns import preview
from hgld.io.writable import require_other_file
from hgld.review.labels import Candidate, ReviewLabel
from hgld.review.state import (
    ReviewState,
    apply_group_values,
    current_decisions,
    current_groups,
    group_values,
    surviving_group,
)
from hgld.review.store import read_store
from hgld.taxonomy.decisions import (
    MACHINE,
    Category,
    Decision,
    format_time,
    read_decisions,
    with_groups,
    write_decisions,
)
from hgld.taxonomy.groups import (
    Group,
    find_taxonomy,
    read_taxonomy,
    survivors,
    taxonomy_beside,
    write_taxonomy,
)
from hgld.taxonomy.label_identity import normalise_label

#: Categories of labels without a group.
DROPPED = Category("drop")
UNSURE = Category("unsure")


@dataclass(frozen=True)
class Opinions:
    """All decisions of one annotator."""

    annotator: str
    decisions: Mapping[str, Decision]

    @property
    def is_machine(self) -> bool:
        """Whether the annotator is a model."""
        return self.annotator.startswith(MACHINE)

    def on(self, label_id: str) -> Candidate:
        """Return the decision on a label as a candidate."""
        row = self.decisions.get(label_id)
        if row is None:
            return Candidate(None, None, annotator=self.annotator)
        return Candidate(row.decision, row.group, row.comment, annotator=self.annotator)

    def with_groups(self, groups: Mapping[str, str]) -> Opinions:
        """Return the decisions with other keys or names of groups, given by the present keys."""
        rows = with_groups(self.decisions.values(), groups)
        return Opinions(self.annotator, {row.label_id: row for row in rows})


def read_opinions(
    paths: Sequence[Path],
    taxonomy: Sequence[Group],
    *,
    settled: Sequence[Group] = (),
    preferred: str | None = None,
    may_be_unseen: bool = False,
) -> tuple[list[Opinions], MergedTaxonomy]:
    """Read decisions of several annotators.

    Args:
        paths: Two or more files. A CSV file is named after its annotator, or names a model in its rows; the
            taxonomy is beside the file if the annotator changed groups. Or an event store (``.sqlite``).
        taxonomy: Groups before the review.
        settled: Groups in the taxonomy of an earlier adjudication.
        preferred: Annotator whose names of groups are preferred.
        may_be_unseen: Whether decisions of models, which no person has seen, are allowed.

    Returns:
        Decisions of each annotator, which refer to groups by key, and the groups of all annotators.
    """
    if len(paths) < 2:
        raise ConfigurationError(
            "agreement needs the decisions of two annotators; give two or more files"
        )
    states: list[ReviewState | None] = []
    groups_by_annotator: dict[str, list[Group]] = {}
    for path in paths:
        if is_store(path):
            name, state = read_store(path)
            states.append(state)
            groups = list(current_groups(state, taxonomy).values())
        else:
            name = path.stem
            states.append(None)
            groups = changed_groups(path)
        if name in groups_by_annotator:
            raise ConfigurationError(
                f'two files are called "{name}", after an annotator; rename one'
            )
        groups_by_annotator[name] = groups
    merged = merge_taxonomies(taxonomy, groups_by_annotator, settled=settled, preferred=preferred)
    opinions = []
    for name, path, saved in zip(groups_by_annotator, paths, states, strict=True):
        if saved is None:
            rows = read_decisions(path, merged.keys, may_be_unseen=may_be_unseen)
        else:
            rows = current_decisions(saved, taxonomy)
            unknown = {row.group for row in rows if row.group} - merged.keys
            if unknown:
                raise InputError(
                    f"{path}: the taxonomy has no group {preview(sorted(unknown))}; give it as `taxonomy`"
                )
        models = {row.annotator for row in rows if row.unseen}
        if len(models) == 1:
            name = models.pop()
        decisions = {row.label_id: row for row in merged.with_survivors(rows)}
        opinions.append(Opinions(name, decisions))
    return opinions, merged


def is_store(path: Path) -> bool:
    """Return whether a file has the suffix of an event store."""
    return path.suffix == ".sqlite"


def category(decision: Decision | Candidate) -> Category:
    """Return the category of a decision: its group, ``DROPPED`` or ``UNSURE``; a guess does not count."""
    if decision.decision == "group":
        assert decision.group is not None
        return Category("group", decision.group)
    if decision.decision == "drop":
        return DROPPED
    return UNSURE


def landmarks_by_label(clusters: pa.Table) -> dict[str, int]:
    """Return the number of landmarks of each label in a ``clusters`` table, both splits together, by label_id."""
    rows = clusters.select(["label_id", "landmarks_train", "landmarks_index"]).to_pylist()
    return {row["label_id"]: row["landmarks_train"] + row["landmarks_index"] for row in rows}


def require_landmark_counts(
    label_ids: Sequence[str], opinions: Sequence[Opinions], landmarks: Mapping[str, int]
) -> None:
    """Check that the number of landmarks of every label is known."""
    unknown = []
    for label_id in label_ids:
        if label_id not in landmarks:
            decisions = [annotator.decisions.get(label_id) for annotator in opinions]
            labels = [decision.label for decision in decisions if decision is not None]
            unknown.append(f'{label_id} ("{labels[-1]}")')
    if unknown:
        raise InputError(
            f"the table of clusters lacks {counted(len(unknown), 'label')}, which cannot be counted:\n"
            f"{indented_list(unknown)}\ngive the table that the sheets were made from"
        )


def require_nothing_lost(out: Path, lost: Sequence[Decision]) -> None:
    """Check that writing ``out`` loses no decision."""
    if lost:
        annotators = ", ".join(sorted({row.annotator for row in lost}))
        raise ConfigurationError(
            f"{out}: holds decisions by {annotators}, which would be lost ({len(lost):,} of its labels, such as "
            f'"{lost[0].label}"); write to another file, or replace them with `force`'
        )


def made_by_others(decision: Decision, annotators: Collection[str]) -> bool:
    """Return whether somebody who is not among ``annotators`` signed the decision."""
    return not set(decision.annotator.split("+")) <= set(annotators)


def with_opinions(
    labels: Iterable[ReviewLabel], opinions: Sequence[Opinions], label_ids: Collection[str]
) -> list[ReviewLabel]:
    """Return the labels among ``label_ids``, each with the decisions of all annotators in the order given."""
    to_review = []
    for label in labels:
        if label.label_id in label_ids:
            candidates = tuple(annotator.on(label.label_id) for annotator in opinions)
            to_review.append(replace(label, opinions=candidates))
    return to_review


@dataclass(frozen=True)
class GroupConflict:
    """A group on which annotators differ.

    Args:
        name: Name of the group until the conflict is settled.
        problem: Description of the proposals, with their annotators.
    """

    key: str
    name: str
    problem: str


@dataclass(frozen=True)
class MergedTaxonomy:
    """Groups of several annotators.

    Args:
        groups: Groups of the original taxonomy in its order, then proposed groups; names and keys are unique.
        conflicts: Groups on which annotators differ.
    """

    groups: Sequence[Group]
    conflicts: Sequence[GroupConflict] = ()

    @property
    def keys(self) -> set[str]:
        """Keys of the groups, and of groups that were merged into them."""
        return {group.key for group in self.groups} | survivors(self.groups).keys()

    def with_survivors(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Return decisions with merged groups replaced by their survivors."""
        return with_groups(decisions, survivors(self.groups))


def changed_groups(decisions: Path) -> list[Group]:
    """Return the groups of the taxonomy beside a file of decisions; empty if the file is missing."""
    path = taxonomy_beside(decisions)
    if path.is_file():
        return read_taxonomy(path)
    return []


def write_changed_taxonomy(
    groups: Sequence[Group], original: Sequence[Group], decisions: Path
) -> bool:
    """Write the taxonomy beside a file of decisions unless it is up to date; return whether it was written."""
    present = changed_groups(decisions) or original
    if list(groups) == list(present):
        return False
    write_taxonomy(taxonomy_beside(decisions), groups)
    return True


def merge_taxonomies(
    taxonomy: Sequence[Group],
    by_annotator: Mapping[str, Sequence[Group]],
    *,
    settled: Sequence[Group] = (),
    preferred: str | None = None,
) -> MergedTaxonomy:
    """Merge the taxonomies of annotators by the rules in the docstring of this module.

    Args:
        taxonomy: Groups before the review.
        by_annotator: Groups of each annotator; empty for an annotator who changed no group.
        settled: Groups in the taxonomy of an earlier adjudication.
        preferred: Annotator whose names of groups are preferred.
    """
    original = {group.key: group for group in taxonomy}
    proposals: defaultdict[str, dict[str, Group]] = defaultdict(dict)
    for annotator, groups in by_annotator.items():
        for group in _changed(groups, original):
            proposals[group.key][annotator] = group
    settled_groups = {group.key: group for group in _changed(settled, original)}

    merged = dict(original)
    problems: dict[str, str] = {}
    for key in dict.fromkeys([*proposals, *settled_groups]):
        proposed = proposals.get(key, {})
        chosen = settled_groups.get(key) or proposed.get(preferred or "")
        if chosen is None:
            chosen = _unanimous(list(proposed.values()))
        if chosen is None:
            problems[key] = _differences(proposed, with_roots=key not in original)
            chosen = original.get(key) or next(iter(proposed.values()))
        if key in original:
            merged[key] = replace(original[key], name=chosen.name)
        else:
            merged[key] = replace(chosen, items=(), merged=())
    values, differences = _merges(original, by_annotator, settled, preferred)
    for key, problem in differences.items():
        problems.setdefault(key, problem)
    merged = apply_group_values(values, list(merged.values()))
    for key, name in _unique_names(merged, original).items():
        if name != merged[key].name:
            problems.setdefault(key, f'the new name "{merged[key].name}" is that of another group')
            merged[key] = replace(merged[key], name=name)
    conflicts = []
    for key, problem in problems.items():
        if key in merged:
            conflicts.append(GroupConflict(key, merged[key].name, problem))
    return MergedTaxonomy(list(merged.values()), conflicts)


def _changed(groups: Iterable[Group], original: Mapping[str, Group]) -> list[Group]:
    """Return the groups that are not in the original taxonomy, or have another name there."""
    changed = []
    for group in groups:
        if group.key not in original or group.name != original[group.key].name:
            changed.append(group)
    return changed


def after_review(taxonomy: MergedTaxonomy, state: ReviewState) -> MergedTaxonomy:
    """Return the groups after renames, proposals and merges in a review, with the remaining conflicts.

    Renaming a group settles its conflict, also if the name stays the same.
    """
    values = group_values(state, taxonomy.groups)
    groups = apply_group_values(values, taxonomy.groups)
    conflicts = [conflict for conflict in taxonomy.conflicts if conflict.key not in values]
    return MergedTaxonomy(list(groups.values()), conflicts)


def _merges(
    original: Mapping[str, Group],
    by_annotator: Mapping[str, Sequence[Group]],
    settled: Sequence[Group],
    preferred: str | None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the merges of groups as values of group fields, and the conflicts about merges, both by key."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    before = survivors(original.values())
    settled_merges = survivors(settled)
    names: dict[str, dict[str, str]] = {}
    merges: defaultdict[str, dict[str, str]] = defaultdict(
        dict, {key: {} for key in settled_merges}
    )
    for annotator, groups in by_annotator.items():
        names[annotator] = {group.key: group.name for group in groups or original.values()}
        for key, survivor in survivors(groups).items():
            merges[key][annotator] = survivor
    for key, targets in merges.items():
        kept_by = [annotator for annotator in by_annotator if key in names[annotator]]
        into = settled_merges.get(key) or targets.get(preferred or "")
        if into is None and not kept_by and len(set(targets.values())) == 1:
            into = next(iter(targets.values()))
        if key in before or (preferred in kept_by and key not in settled_merges):
            continue
        if into is None or surviving_group(values, into) == key:
            texts = []
            for annotator, target in targets.items():
                texts.append(f'merged into "{names[annotator][target]}" by {annotator}')
            texts += [f"kept by {annotator}" for annotator in kept_by]
            problems[key] = ", ".join(texts)
        else:
            values[key] = {"merged_into": into}
    return values, problems


def _unanimous(proposals: Sequence[Group]) -> Group | None:
    """Return the first proposal if all have the same name and root; otherwise None."""
    if len({(normalise_label(group.name), group.root) for group in proposals}) == 1:
        return proposals[0]
    return None


def _differences(proposals: Mapping[str, Group], *, with_roots: bool) -> str:
    """Return the proposals for a group in words, given by annotator."""
    texts = []
    for annotator, group in proposals.items():
        root = f" ({group.root})" if with_roots else ""
        texts.append(f'"{group.name}"{root} by {annotator}')
    return ", ".join(texts)


def _unique_names(groups: Mapping[str, Group], original: Mapping[str, Group]) -> dict[str, str]:
    """Return a unique name for every group by key; unchanged groups keep their names."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for key in sorted(groups, key=lambda key: groups[key] != original.get(key)):
        name = groups[key].name
        if name.casefold() in taken:
            name = original[key].name if key in original else key
        number = 2
        while name.casefold() in taken:
            name = f"{key} ({number})"
            number += 1
        names[key] = name
        taken.add(name.casefold())
    return names


@dataclass(frozen=True)
class DecisionsSummary:
    """Result of :func:`export_decisions`."""

    annotator: str
    decisions: int
    taxonomy: Path | None = None


def export_decisions(
    store: Path, out: Path, *, taxonomy: Path | None = None, force: bool = False
) -> DecisionsSummary:
    """Write the decisions in an event store as CSV; the review page may be open meanwhile.

    Args:
        store: SQLite file from hgld review, e.g. review/ada.sqlite.
        out: CSV file of decisions to write. If groups were proposed or renamed, the changed taxonomy is
            written beside it, as ``a.taxonomy.csv`` beside ``a.csv``.
        taxonomy: File of the groups that the page offered. Default: the file of the list's project; for
            GLDv2 the file in hgld.
        force: Replace decisions in the output that never were in ``store``.

    Raises:
        ConfigurationError: ``out`` is an input, holds decisions that never were in the store, or is beside
            a taxonomy with groups that never were in the store.
    """
    require_other_file(out, [path for path in (store, taxonomy) if path is not None])
    annotator, state = read_store(store)
    if out.exists() and not force:
        require_nothing_lost(out, _never_stored(read_decisions(out, None), state))
    original = read_taxonomy(find_taxonomy(taxonomy, store))
    groups = list(current_groups(state, original).values())
    if not force:
        _require_known_groups(out, state, original)
    write_changed_taxonomy(groups, original, out)
    decisions = current_decisions(state, original)
    write_decisions(out, decisions)
    changed_taxonomy = None if groups == original else taxonomy_beside(out)
    return DecisionsSummary(annotator, len(decisions), changed_taxonomy)


def _never_stored(decisions: Sequence[Decision], state: ReviewState) -> list[Decision]:
    """Return the decisions that the store holds neither now nor in its history."""
    stored = set()
    for event in state.events_after(0):
        if event.kind == "decision":
            stored.add((event.key, event.annotator, format_time(event.at)))
    missing = []
    for row in decisions:
        if (row.label_id, row.annotator, format_time(row.decided_at)) not in stored:
            missing.append(row)
    return missing


def _require_known_groups(out: Path, state: ReviewState, original: Sequence[Group]) -> None:
    """Check that groups and merges in the taxonomy beside the output are original or were in the store."""
    stored_names = {(group.key, group.name) for group in original}
    stored_merges = set(survivors(original))
    for event in state.events_after(0):
        if event.kind != "group" or event.new is None:
            continue
        if "merged_into" in event.new:
            stored_merges.add(event.key)
        else:
            stored_names.add((event.key, event.new["name"]))
    lost = []
    for group in changed_groups(out):
        is_stored = (group.key, group.name) in stored_names
        if not is_stored or not stored_merges.issuperset(group.merged):
            lost.append(group.name)
    if lost:
        raise ConfigurationError(
            f"{taxonomy_beside(out)}: holds groups that never were in the store ({', '.join(lost)}); "
            "write to another file, or replace them with `force`"
        )

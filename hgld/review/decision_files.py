"""Decisions of annotators in files: those of several on the same labels, and the stage ``decisions`` of one.

The groups that each annotator renamed or proposed become one list. Groups are the same if their keys are. A renamed
group keeps its key, and the key of a proposed group is made from its first name, so that two annotators who propose
the same name propose the same group. Decisions refer to keys; they are never in conflict because of a name. The name
of a group is chosen in this order:

1. the name that an earlier adjudication settled on;
2. the new name, if all annotators who changed the name chose the same, but for capitals and spaces;
3. the new name given by the preferred annotator, if there is one.

Otherwise the group keeps the name that it has in the original taxonomy (a group that is not in it, the name given by
the first annotator), and the different names are a conflict for people to settle. The same holds for the root of a
proposed group, and for two groups that would have the same name.

A group is merged into another one if an earlier adjudication or the preferred annotator did so, or if all annotators
who had the group merged it into the same one. If only some of them did, it stays a group of its own, and this is a
conflict as well: the labels of the others were not decided for the group that it was merged into.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
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
DROPPED, UNSURE = Category("drop"), Category("unsure")


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
        """Return the decisions with the values of ``groups`` in place of their groups."""
        return Opinions(
            self.annotator,
            {row.label_id: row for row in with_groups(self.decisions.values(), groups)},
        )


def read_opinions(
    paths: Sequence[Path],
    taxonomy: Sequence[Group],
    *,
    settled: Sequence[Group] = (),
    preferred: str | None = None,
    may_be_unseen: bool = False,
) -> tuple[list[Opinions], MergedTaxonomy]:
    """Read decisions of several annotators; a model has the name in its file.

    Args:
        paths: Two or more files: CSV, named after the annotator, with the taxonomy beside it if the annotator changed
            groups; or event stores (``.sqlite``).

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
            if unknown := {row.group for row in rows if row.group} - merged.keys:
                raise InputError(
                    f"{path}: the taxonomy has no group {preview(sorted(unknown))}; give it as `taxonomy`"
                )
        models = {row.annotator for row in rows if row.unseen}
        annotator = models.pop() if len(models) == 1 else name
        opinions.append(
            Opinions(annotator, {row.label_id: row for row in merged.with_survivors(rows)})
        )
    return opinions, merged


def is_store(path: Path) -> bool:
    """Return whether a file is called like an event store, and not like a table of decisions."""
    return path.suffix == ".sqlite"


def category(decision: Decision | Candidate) -> Category:
    """Return the category of a decision: its group, ``DROPPED`` or ``UNSURE``; a guess does not count."""
    if decision.decision == "group":
        assert decision.group is not None
        return Category("group", decision.group)
    return DROPPED if decision.decision == "drop" else UNSURE


def landmarks_by_label(clusters: pa.Table) -> dict[str, int]:
    """Return the number of landmarks of each label in a ``clusters`` table, both splits together, by label_id."""
    columns = (
        clusters[name].to_pylist() for name in ("label_id", "landmarks_train", "landmarks_index")
    )
    return {label_id: train + index for label_id, train, index in zip(*columns, strict=True)}


def require_landmark_counts(
    label_ids: Sequence[str], opinions: Sequence[Opinions], landmarks: Mapping[str, int]
) -> None:
    """Check that the number of landmarks of every label is known."""
    labels = {key: row.label for annotator in opinions for key, row in annotator.decisions.items()}
    unknown = [
        f'{label_id} ("{labels[label_id]}")' for label_id in label_ids if label_id not in landmarks
    ]
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
    return [
        replace(label, opinions=tuple(each.on(label.label_id) for each in opinions))
        for label in labels
        if label.label_id in label_ids
    ]


@dataclass(frozen=True)
class GroupConflict:
    """A group on which annotators differ; ``name`` is that until this is settled, ``problem`` who wants what."""

    key: str
    name: str
    problem: str


@dataclass(frozen=True)
class MergedTaxonomy:
    """Groups of several annotators.

    Args:
        groups: Those of the original taxonomy in its order, then proposed ones; names and keys are unique.
    """

    groups: Sequence[Group]
    conflicts: Sequence[GroupConflict] = ()

    @property
    def keys(self) -> set[str]:
        """Keys of the groups, and of groups that were merged into them."""
        return {group.key for group in self.groups} | survivors(self.groups).keys()

    def with_survivors(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Return decisions with the groups that theirs were merged into, if they were."""
        return with_groups(decisions, survivors(self.groups))


def changed_groups(decisions: Path) -> list[Group]:
    """Return the groups of the taxonomy beside a file of decisions; none if there is no such file."""
    path = taxonomy_beside(decisions)
    return read_taxonomy(path) if path.is_file() else []


def write_changed_taxonomy(
    groups: Sequence[Group], original: Sequence[Group], decisions: Path
) -> bool:
    """Write the taxonomy beside a file of decisions if groups are not those there; return whether it was written."""
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
    """Merge the taxonomies of annotators; see this module."""
    original = {group.key: group for group in taxonomy}

    def is_changed(group: Group) -> bool:
        return group.key not in original or group.name != original[group.key].name

    proposals: defaultdict[str, dict[str, Group]] = defaultdict(dict)
    for annotator, groups in by_annotator.items():
        for group in filter(is_changed, groups):
            proposals[group.key][annotator] = group
    settled_groups = {group.key: group for group in filter(is_changed, settled)}

    merged = dict(original)
    problems: dict[str, str] = {}
    for key in (*proposals, *(key for key in settled_groups if key not in proposals)):
        by = proposals.get(key, {})
        chosen = settled_groups.get(key) or by.get(preferred or "") or _unanimous(list(by.values()))
        if chosen is None:
            problems[key] = _differences(by, with_roots=key not in original)
            chosen = original.get(key) or next(iter(by.values()))
        merged[key] = (
            replace(original[key], name=chosen.name)
            if key in original
            else replace(chosen, items=(), merged=())
        )
    values, differences = _merges(original, by_annotator, settled, preferred)
    for key, problem in differences.items():
        problems.setdefault(key, problem)
    merged = apply_group_values(values, list(merged.values()))
    for key, name in _unique_names(merged, original).items():
        if name != merged[key].name:
            problems.setdefault(key, f'the new name "{merged[key].name}" is that of another group')
            merged[key] = replace(merged[key], name=name)
    conflicts = [
        GroupConflict(key, merged[key].name, problem)
        for key, problem in problems.items()
        if key in merged
    ]
    return MergedTaxonomy(list(merged.values()), conflicts)


def after_review(taxonomy: MergedTaxonomy, state: ReviewState) -> MergedTaxonomy:
    """Return the groups as they were renamed, proposed and merged in a review, without the conflicts that it settled.

    Renaming a group settles its conflict, also if the name stays the same.
    """
    values = group_values(state, taxonomy.groups)
    return MergedTaxonomy(
        list(apply_group_values(values, taxonomy.groups).values()),
        [conflict for conflict in taxonomy.conflicts if conflict.key not in values],
    )


def _merges(
    original: Mapping[str, Group],
    by_annotator: Mapping[str, Sequence[Group]],
    settled: Sequence[Group],
    preferred: str | None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return which groups are merged, as values of group fields by key, and the problem of those that are not."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    before = survivors(original.values())
    settled_merges = survivors(settled)
    merges = {annotator: survivors(groups) for annotator, groups in by_annotator.items()}
    keepers = {
        annotator: {group.key for group in groups} if groups else original.keys()
        for annotator, groups in by_annotator.items()
    }
    for key in dict.fromkeys(
        key for merged in (settled_merges, *merges.values()) for key in merged
    ):
        by = {annotator: merged[key] for annotator, merged in merges.items() if key in merged}
        kept_by = [annotator for annotator, keys in keepers.items() if key in keys]
        into = settled_merges.get(key) or by.get(preferred or "")
        if into is None and not kept_by and len(set(by.values())) == 1:
            into = next(iter(by.values()))
        if key in before or (preferred in kept_by and key not in settled_merges):
            continue
        if into is None or surviving_group(values, into) == key:
            names = {
                name: {group.key: group.name for group in groups}
                for name, groups in by_annotator.items()
            }
            texts = [
                f'merged into "{names[name][target]}" by {name}' for name, target in by.items()
            ]
            problems[key] = ", ".join([*texts, *(f"kept by {annotator}" for annotator in kept_by)])
        else:
            values[key] = {"merged_into": into}
    return values, problems


def _unanimous(proposals: Sequence[Group]) -> Group | None:
    return (
        proposals[0]
        if len({(normalise_label(group.name), group.root) for group in proposals}) == 1
        else None
    )


def _differences(proposals: Mapping[str, Group], *, with_roots: bool) -> str:
    return ", ".join(
        f'"{group.name}"{f" ({group.root})" if with_roots else ""} by {annotator}'
        for annotator, group in proposals.items()
    )


def _unique_names(groups: Mapping[str, Group], original: Mapping[str, Group]) -> dict[str, str]:
    """Return a name for every group: the present one, unless another group has it; unchanged groups come first."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for key in sorted(groups, key=lambda key: groups[key] != original.get(key)):
        fallbacks = [original[key].name if key in original else key]
        candidates = chain(
            [groups[key].name], fallbacks, (f"{key} ({number})" for number in count(2))
        )
        names[key] = next(name for name in candidates if name.casefold() not in taken)
        taken.add(names[key].casefold())
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
        out: CSV file of decisions to write. If groups were proposed or renamed, the changed taxonomy is written
            beside it, as ``a.taxonomy.csv`` beside ``a.csv``.
        taxonomy: File of the groups that the page offered; by default that of the list's project, for GLDv2 the one
            in hgld.
        force: Replace decisions in the output that never were in ``store``.

    Raises:
        ConfigurationError: ``out`` is an input, or it holds decisions, or the taxonomy beside it groups, that never
            were in the store.
    """
    require_other_file(out, [store, *filter(None, [taxonomy])])
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
    return DecisionsSummary(
        annotator, len(decisions), None if groups == original else taxonomy_beside(out)
    )


def _never_stored(decisions: Sequence[Decision], state: ReviewState) -> list[Decision]:
    """Return the decisions that the store holds neither now nor in its history."""
    stored = {
        (event.key, event.annotator, format_time(event.at))
        for events in state.steps.values()
        for event in events
        if event.kind == "decision"
    }
    return [
        row
        for row in decisions
        if (row.label_id, row.annotator, format_time(row.decided_at)) not in stored
    ]


def _require_known_groups(out: Path, state: ReviewState, original: Sequence[Group]) -> None:
    """Check that all groups and merges in the taxonomy beside the output are original ones or were in the store."""
    known = {(group.key, group.name) for group in original}
    merged = set(survivors(original))
    for event in (
        event for events in state.steps.values() for event in events if event.kind == "group"
    ):
        value = event.new or {}
        known.add((event.key, value.get("name", "")))
        merged |= {event.key} if "merged_into" in value else set()
    lost = [
        group.name
        for group in changed_groups(out)
        if (group.key, group.name) not in known or not merged.issuperset(group.merged)
    ]
    if lost:
        raise ConfigurationError(
            f"{taxonomy_beside(out)}: holds groups that never were in the store ({', '.join(lost)}); "
            "write to another file, or replace them with `force`"
        )

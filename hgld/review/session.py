"""A review session: the actions of an annotator on labels, clusters and groups, with their checks.

Every action is one step in the event store. An action that names the versions which the annotator
saw is refused if a version has changed since.

A candidate is a decision that a label can take over with one key. In an adjudication, candidates are
the opinions of the annotators. In a review, candidates are the suggested groups. An undecided label
also has the earlier decision on a label with the same text that is no longer in the table: the id of a
class changes when its Wikidata item becomes known.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hgld.errors import ConflictError, InputError, counted
from hgld.io.table_rows import without_control_characters
from hgld.names import stored_name
from hgld.review.decision_files import UNSURE, category
from hgld.review.group_tree import GroupTree, TreePath
from hgld.review.labels import LIKELY_SCORE, SURE_SCORE, Candidate, ReviewLabel
from hgld.review.state import (
    Change,
    DecidedLabel,
    DecidedLabels,
    FieldState,
    apply_group_values,
    current_decisions,
    current_groups,
    group_values,
    surviving_group,
)
from hgld.review.store import EventStore
from hgld.taxonomy.decisions import Decision, DecisionIndex, decision_problem
from hgld.taxonomy.groups import Group, allows_catch_all, survivors
from hgld.taxonomy.label_identity import normalise_label

#: Returned instead of a decision for a label that has no such candidate.
NO_CANDIDATE = object()

#: Candidates that an action takes, by its kind.
_CERTAINTIES = {
    "take": ("sure", "likely", "unlikely"),
    "accept": ("sure", "likely"),
    "accept_sure": ("sure",),
}
#: Number of suggestions of a label that a page shows at once.
_N_SHOWN = 3
#: Smallest score of a suggestion that is shown at once; the first suggestion is always shown.
_MIN_SCORE = 0.02

#: Longest texts in characters. The fields of the page have the same limits.
MAX_CLUSTER_NAME = 200
MAX_GROUP_NAME = 100
MAX_GUIDELINE = 500
MAX_COMMENT = 2000


class InvalidActionError(ValueError):
    """An action that is impossible in the present state; the message gives the reason."""


class StaleError(ConflictError):
    """Labels changed after the annotator saw them.

    Attributes:
        label_ids: Ids of the labels.
        with_other_candidates: Whether the action takes a candidate and the candidates of a label have
            changed.
    """

    def __init__(self, label_ids: Sequence[str], *, with_other_candidates: bool = False) -> None:
        verb = "was" if len(label_ids) == 1 else "were"
        super().__init__(f"{counted(len(label_ids), 'label')} {verb} changed in the meantime")
        self.label_ids = label_ids
        self.with_other_candidates = with_other_candidates


@dataclass(frozen=True, slots=True)
class LabelAction:
    """Action that an annotator takes on labels.

    Args:
        kind: ``group``, ``drop``, ``unsure``, ``accept`` (take the first candidate if it is likely),
            ``accept_sure`` (take the first candidate if it is a sure suggestion), ``take`` (take the
            candidate with this number), ``clear`` (remove the decision) or ``comment`` (keep the
            decision).
        group: Key of the group; a guess if the kind is ``unsure``.
        candidate: Number of the candidate to take, counted from 1.
        comment: New comment; None keeps the present one.
    """

    kind: str
    group: str | None = None
    candidate: int = 1
    comment: str | None = None


def is_folded(candidates: Sequence[Candidate], number: int) -> bool:
    """Return whether a page shows a candidate only after a request for more suggestions.

    Args:
        number: Number of the candidate, counted from 1.
    """
    n_decisions = sum(bool(candidate.annotator) for candidate in candidates)
    candidate = candidates[number - 1]
    rank = number - 1 - n_decisions  # among the suggestions, which follow the decisions
    if candidate.annotator or rank == 0:
        return False
    is_unlikely = candidate.score is not None and candidate.score < _MIN_SCORE
    return rank >= _N_SHOWN or is_unlikely


def candidates_digest(candidates: Sequence[Candidate]) -> str:
    """Return a digest of the decisions of candidates, in order; empty without candidates.

    An action that takes a candidate by its number sends the digest of the candidates that were shown.
    """
    if not candidates:
        return ""
    decided = []
    for candidate in candidates:
        decided.append(
            (candidate.decision, candidate.group, candidate.annotator, candidate.certainty)
        )
    return hashlib.sha256(repr(decided).encode()).hexdigest()[:12]


def clean_name(
    text: str, longest: int, *, what: str = "name", if_empty: str = "enter a name"
) -> str:
    """Return an entered name or guideline in one line.

    >>> clean_name("quay  or wharf ", MAX_GROUP_NAME)
    'quay or wharf'
    """
    text = stored_name(without_control_characters(text))
    if not text:
        raise InvalidActionError(if_empty)
    return require_length(what, text, longest)


def require_length(what: str, text: str, longest: int) -> str:
    """Return a text unless it is too long."""
    if len(text) > longest:
        raise InvalidActionError(
            f"the {what} has {len(text):,} characters; the longest has {longest:,}"
        )
    return text


class ReviewSession:
    """Labels and groups under review, and the store of the annotator's decisions.

    Actions return the id of their step, or None if nothing changes. They raise
    :class:`InvalidActionError` if the action is impossible, e.g. because a label does not exist or a
    name is taken, and :class:`StaleError` or ConflictError if the labels, clusters or groups have changed
    since the annotator saw them.

    Attributes:
        table_names: Names of clusters in the ``clusters`` table, by number.
        clustering: Digest of these names. Cluster numbers are valid for one clustering only.

    Args:
        group_problems: In an adjudication, descriptions of the annotators' differences about groups, by
            key of the group.
        blind: Whether the annotator sees no suggestions.
    """

    def __init__(
        self,
        labels: Iterable[ReviewLabel],
        taxonomy: Sequence[Group],
        store: EventStore,
        *,
        group_problems: Mapping[str, str] | None = None,
        blind: bool = False,
    ) -> None:
        self.labels = {label.label_id: label for label in labels}
        self.taxonomy = taxonomy
        self._original_groups = {group.key for group in taxonomy}
        self._merging_groups = [group for group in taxonomy if group.merged]
        self.store = store
        self.state = store.state
        self._group_problems = group_problems or {}
        self.blind = blind
        self.adjudicating = any(label.opinions for label in self.labels.values())
        self._earlier_decisions: tuple[int, DecisionIndex] = -1, DecisionIndex([])
        self.table_names = {label.cluster: label.cluster_name for label in self.labels.values()}
        names = repr(sorted(self.table_names.items()))
        self.clustering = hashlib.sha256(names.encode()).hexdigest()[:12]
        self._counts = DecidedLabels(self.state, self.labels, self._decided_label)

    # Queries.

    @property
    def counts(self) -> DecidedLabels:
        """The labels with their present decisions, and their numbers."""
        self._counts.update()
        return self._counts

    def groups(self) -> dict[str, Group]:
        """Return the present groups by key."""
        return current_groups(self.state, self.taxonomy)

    def tree(self) -> GroupTree:
        """Return the present groups with the names above them."""
        return GroupTree(self.groups())

    def parents(self) -> dict[str, TreePath]:
        """Return the paths below which groups can be added, by text, with paths that lost all groups."""
        original = {group.key: group for group in self.taxonomy}
        return GroupTree(original | self.groups()).parents()

    def decision_field(self, label_id: str) -> FieldState:
        """Return the field with the decision on a label."""
        return self.state.field("decision", label_id)

    def is_decided(self, label_id: str) -> bool:
        """Return whether a label has a decision, and not only a comment."""
        value = self.decision_field(label_id).value
        return value is not None and value["decision"] is not None

    def is_settled(self, label: ReviewLabel, value: Any) -> bool:
        """Return whether a label needs no further decision, given the value of its decision field.

        In an adjudication, ``unsure`` does not settle a label, and an annotator without a decision
        counts as unsure. Opinions that became equal through a merge of groups settle the label.
        """
        if value is not None and value["decision"] is not None:
            is_in_adjudication = bool(label.opinions)
            return not is_in_adjudication or value["decision"] != "unsure"
        categories = {category(self._with_survivor(opinion)) for opinion in label.opinions}
        return len(categories) == 1 and UNSURE not in categories

    def groups_to_settle(self) -> dict[str, str]:
        """Return the open differences about groups, by key; renaming or merging a group settles them."""
        settled = self.group_values()
        problems = dict(self._group_problems)
        for key in self._group_problems.keys() & settled.keys():
            del problems[key]
        return problems

    def decision_value(self, label_id: str) -> Any:
        """Return the decision and the comment on a label; None if the label has neither."""
        return self.with_present_group(self.decision_field(label_id).value)

    def with_present_group(self, value: Any) -> Any:
        """Return the value of a decision field, with a merged group replaced by its survivor."""
        if value is None or value["group"] is None:
            return value
        return value | {"group": self.survivor(value["group"])}

    def survivor(self, group: str) -> str:
        """Return the key of the group that a group was merged into, or the same key if unmerged."""
        return surviving_group(self.group_values(), group)

    def group_values(self) -> dict[str, Any]:
        """Return the values of group fields by the key of the group."""
        return group_values(self.state, self._merging_groups)

    def version(self, label_id: str) -> int:
        """Return the version of a label, which grows with every change to its decision or cluster."""
        decision_version = self.decision_field(label_id).version
        cluster_version = self.state.field("cluster", label_id).version
        return max(decision_version, cluster_version)

    def clusters(self) -> dict[int, list[ReviewLabel]]:
        """Return the labels by present cluster, in the order of cluster numbers, without empty clusters."""
        clusters = {}
        for number, label_ids in self.counts.members.items():
            clusters[number] = [self.labels[label_id] for label_id in label_ids]
        return clusters

    def cluster(self, label_id: str) -> int:
        """Return the number of a label's present cluster."""
        value = self.state.field("cluster", label_id).value
        if value is not None and self.table_names.get(value["cluster"]) == value["table_name"]:
            return int(value["cluster"])
        return self.labels[label_id].cluster

    def cluster_name(self, cluster: int) -> str:
        """Return the present name of a cluster."""
        value = self.state.field("name", str(cluster)).value
        if value is not None and self.table_names.get(cluster) == value["table_name"]:
            return str(value["name"])
        return self.table_names.get(cluster, f"cluster {cluster}")

    def candidates(self, label: ReviewLabel, groups: Mapping[str, Group]) -> list[Candidate]:
        """Return the decisions that a label can take over.

        Candidates with a group that is not among ``groups`` are skipped. A blind session has no
        suggestions, and no decisions of other annotators.
        """
        offered: list[Candidate] = []
        if label.opinions:
            offered += [opinion for opinion in label.opinions if opinion.decision is not None]
        else:
            if not self.is_decided(label.label_id):
                offered += self._earlier_candidates(label)
            if not self.blind:
                offered += label.suggestions
        candidates = []
        for candidate in offered:
            candidate = self._with_survivor(candidate)
            if candidate.group is None or candidate.group in groups:
                candidates.append(candidate)
        return candidates

    def _with_survivor(self, candidate: Candidate) -> Candidate:
        """Return a candidate, with a merged group replaced by its survivor."""
        if candidate.group is None:
            return candidate
        return replace(candidate, group=self.survivor(candidate.group))

    def _earlier_candidates(self, label: ReviewLabel) -> list[Candidate]:
        """Return the decision on a label with the same text that is no longer in the table.

        The list is empty if such labels have different decisions.
        """
        last_event, index = self._earlier_decisions
        if last_event != self.state.last_event:
            index = self._index_decisions_on_absent_labels()
            self._earlier_decisions = self.state.last_event, index
        decision = index.find("", label.label)
        if decision is None:
            return []
        source = f"{decision.annotator}, on {decision.label_id}"
        return [Candidate(decision.decision, decision.group, decision.comment, annotator=source)]

    def _index_decisions_on_absent_labels(self) -> DecisionIndex:
        """Index decisions on labels that are no longer in the table; own decisions only if blind."""
        if self.state.fields("decision").keys() <= self.labels.keys():
            return DecisionIndex([])
        decisions = []
        for decision in self.decisions():
            is_hidden = self.blind and decision.annotator != self.store.annotator
            if decision.label_id not in self.labels and not is_hidden:
                decisions.append(decision)
        return DecisionIndex(decisions)

    def _decided_label(self, label: ReviewLabel, value: Any) -> DecidedLabel:
        """Return a label with its decision and its counts, given the value of its decision field."""
        is_settled = self.is_settled(label, value)
        suggested = label.suggestions[0].group if label.suggestions else None
        if suggested is not None:
            suggested = self.survivor(suggested)
        counts = {"labels": 1, "landmarks": label.landmarks}
        if is_settled:
            counts |= {"settled": 1, "landmarks_settled": label.landmarks}
        cluster = self.cluster(label.label_id)
        if value is None:
            return DecidedLabel(label, cluster, counts, suggested)
        decision = value["decision"]
        group = self.with_present_group(value)["group"]
        if decision is not None:
            counts |= {"decided": 1, "unsure": int(not is_settled)}
        is_proposed = group is not None and group not in self._original_groups
        return DecidedLabel(
            label, cluster, counts, suggested, decision, group, value["comment"], is_proposed
        )

    def decisions(self) -> list[Decision]:
        """Return the present decisions, with the keys of groups."""
        return current_decisions(self.state, self._merging_groups)

    # Actions.

    def decide(
        self,
        versions: Mapping[str, int],
        action: LabelAction,
        candidates: Mapping[str, str] | None = None,
    ) -> int | None:
        """Apply an action to one or several labels, and skip labels that lack the candidate to take.

        Args:
            versions: Version that the annotator saw, by label_id.
            candidates: Digest of the candidates that the annotator saw (:func:`candidates_digest`), by
                label_id, for actions that take a candidate. Default: take the present candidates.
        """
        self._check_labels(versions)
        groups = self.groups()
        changes = []
        for label_id in versions:
            value = self.resulting_decision(self.labels[label_id], action, groups)
            if value is not NO_CANDIDATE:
                changes.append(Change("decision", label_id, value))
        stale = self._stale(versions)
        with_other_candidates: list[str] = []
        if changes and candidates is not None and action.kind in _CERTAINTIES:
            with_other_candidates = self._labels_with_other_candidates(candidates, groups)
        if stale or with_other_candidates:
            label_ids = list(dict.fromkeys(stale + with_other_candidates))
            raise StaleError(label_ids, with_other_candidates=bool(with_other_candidates))
        if not changes and self.blind:
            raise InvalidActionError("this review is blind: suggestions are hidden; choose a group")
        if not changes:
            missing = {
                "accept": f"of {LIKELY_SCORE:.0%} or more to accept; take the first by its number",
                "accept_sure": f"of {SURE_SCORE:.0%} or more to accept",
                "take": f"{action.candidate} to take",
            }
            raise InvalidActionError(f"there is no suggestion {missing[action.kind]}")
        return self.store.append(changes)

    def resulting_decision(
        self, label: ReviewLabel, action: LabelAction, groups: Mapping[str, Group]
    ) -> Any:
        """Return the value that an action gives to the decision field of a label, or ``NO_CANDIDATE``."""
        current = self.decision_value(label.label_id) or _decision_value(label)
        comment = current["comment"]
        if action.comment is not None:
            comment = without_control_characters(action.comment)
            require_length("comment", comment, MAX_COMMENT)
        if action.kind == "clear":
            return None
        if action.kind == "comment":
            if not comment and current["decision"] is None:
                return None
            decision, group = current["decision"], current["group"]
        elif action.kind in _CERTAINTIES:
            candidates = self.candidates(label, groups)
            if not 1 <= action.candidate <= len(candidates):
                return NO_CANDIDATE
            candidate = candidates[action.candidate - 1]
            if candidate.certainty not in _CERTAINTIES[action.kind]:
                return NO_CANDIDATE
            decision, group = candidate.decision, candidate.group
            if not comment and candidate.annotator:
                comment = candidate.reason
        elif action.kind in ("group", "drop", "unsure"):
            decision, group = action.kind, action.group
            if group is not None and group not in groups:
                raise InvalidActionError("this group does not exist (any more)")
            problem = decision_problem(decision, group, None)
            if problem:
                raise InvalidActionError(problem)
        else:
            raise InvalidActionError(f'"{action.kind}" is not an action on labels')
        blind = self.blind
        if decision == current["decision"] and group == current["group"]:
            blind = current["blind"]
        return _decision_value(label, decision, group, comment, blind)

    def _labels_with_other_candidates(
        self, digests: Mapping[str, str], groups: Mapping[str, Group]
    ) -> list[str]:
        """Return the ids of labels whose candidates have another digest than the given one."""
        label_ids = []
        for label_id, digest in digests.items():
            candidates = self.candidates(self.labels[label_id], groups)
            if candidates_digest(candidates) != digest:
                label_ids.append(label_id)
        return label_ids

    def is_done(self, label_id: str, action: LabelAction) -> bool:
        """Return whether a label already has the decision and the comment that an action gives."""
        value = self.resulting_decision(self.labels[label_id], action, self.groups())
        present = self.decision_value(label_id)
        if value is NO_CANDIDATE:
            return False
        if value is None or present is None:
            return value is None and present is None
        return all(value[key] == present[key] for key in ("decision", "group", "comment"))

    def move(self, versions: Mapping[str, int], cluster: int | None, name: str = "") -> int | None:
        """Move labels to another cluster, or to a new cluster with this name if ``cluster`` is None."""
        self._check_versions(versions)
        clusters = self.clusters()
        changes: list[Change] = []
        if cluster is None:
            renamed = {int(key) for key in self.state.fields("name")}
            cluster = max(clusters.keys() | self.table_names.keys() | renamed) + 1
            changes.append(self._cluster_name_change(cluster, name))
        elif cluster not in clusters:
            raise InvalidActionError(f"cluster {cluster} does not exist (any more)")
        changes += self._cluster_changes(versions, cluster)
        return self.store.append(changes)

    def merge(self, cluster: int, into: int) -> int | None:
        """Move all labels of a cluster to another one."""
        clusters = self.clusters()
        if cluster not in clusters or into not in clusters or cluster == into:
            raise InvalidActionError("choose another cluster to merge this one into")
        label_ids = [label.label_id for label in clusters[cluster]]
        return self.store.append(self._cluster_changes(label_ids, into))

    def rename_cluster(self, cluster: int, name: str, version: int) -> int | None:
        """Rename a cluster."""
        if cluster not in self.clusters():
            raise InvalidActionError(f"cluster {cluster} does not exist (any more)")
        if self.state.field("name", str(cluster)).version != version:
            raise ConflictError(
                f'the cluster was renamed to "{self.cluster_name(cluster)}" in the meantime'
            )
        return self.store.append([self._cluster_name_change(cluster, name)])

    def _cluster_changes(self, label_ids: Iterable[str], cluster: int) -> list[Change]:
        """Return the changes that move labels to a cluster; labels in the cluster do not change."""
        value = {"cluster": cluster, "table_name": self.table_names.get(cluster)}
        changes = []
        for label_id in label_ids:
            if self.cluster(label_id) != cluster:
                changes.append(Change("cluster", label_id, value))
        return changes

    def _cluster_name_change(self, cluster: int, name: str) -> Change:
        value = {
            "name": clean_name(name, MAX_CLUSTER_NAME),
            "table_name": self.table_names.get(cluster),
        }
        return Change("name", str(cluster), value)

    def propose_group(self, name: str, parent: str, guideline: str) -> int | None:
        """Add a group below a path of the tree.

        The key of the group is its normalised name, with a number if another group has that key.

        Args:
            parent: Text of the path (:meth:`parents`); ignored if the taxonomy is a flat list.
        """
        tree = self.tree()
        parents = self.parents()
        path = parents.get(parent) if parents else ()
        if path is None and len(tree.levels) == 2:
            raise InvalidActionError(f"choose a {tree.levels[1]}: {' or '.join(parents)}")
        if path is None:
            raise InvalidActionError(f'choose where the group belongs; the tree has no "{parent}"')
        empty = "describe in one line what belongs to the group"
        guideline = clean_name(guideline, MAX_GUIDELINE, what="guideline", if_empty=empty)
        name = clean_name(name, MAX_GROUP_NAME)
        if tree.is_taken(path, name):
            raise InvalidActionError(f'there is already a group "{name}"')
        return self._add_group(tree.new_value(path, name, guideline))[1]

    def catch_all_group(self, text: str) -> str:
        """Return the key of the catch-all group of a path above groups, and add it if it is missing.

        Args:
            text: Text of the path, as in :meth:`parents`.
        """
        tree = self.tree()
        path = tree.inner_path(text)
        if path is None:
            raise InvalidActionError(f'the tree has no "{text}" (any more)')
        name = path[-1]
        if tree.key_at((*path, name)) is None and tree.is_taken(path, name):
            name = f"{name} (general)"
        key = tree.key_at((*path, name))
        if key is not None:
            return key
        if not allows_catch_all(tree.levels):
            raise InvalidActionError(f'choose a {tree.levels[0]} below "{text}"; labels need one')
        return self._add_group(tree.new_value(path, name, ""))[0]

    def _add_group(self, value: Mapping[str, Any]) -> tuple[str, int | None]:
        """Add a group with this value of its field; return its key and the step."""
        taken = {key.casefold() for key in self.group_values().keys() | self.groups().keys()}
        base = normalise_label(value["name"])
        key = base
        number = 2
        while key in taken:
            key = f"{base} ({number})"
            number += 1
        return key, self._append_checked([Change("group", key, value)])

    def rename_group(self, key: str, name: str, version: int) -> int | None:
        """Rename a group; decisions for it follow."""
        group = self._group_at(key, version)
        name = clean_name(name, MAX_GROUP_NAME)
        return self._append_checked([Change("group", key, _group_value(group, name))])

    def merge_group(self, key: str, into: str, version: int) -> int | None:
        """Merge a group into another; decisions for it follow."""
        self._group_at(key, version)
        if into == key or into not in self.groups():
            raise InvalidActionError("choose another group to merge this one into")
        return self._append_checked([Change("group", key, {"merged_into": into})])

    def _group_at(self, key: str, version: int) -> Group:
        """Return the group with a key; raise if it has changed since this version."""
        groups = self.groups()
        if key not in groups:
            raise InvalidActionError("this group does not exist (any more)")
        if self.state.field("group", key).version != version:
            raise ConflictError(
                f'the group was changed in the meantime, and is called "{groups[key].name}"'
            )
        return groups[key]

    def undo(self, step: int) -> int | None:
        """Undo a step; undoing the resulting step redoes it.

        Raises:
            ConflictError: A later step changed the same fields or depends on the step.
        """
        try:
            return self._append_checked(self.state.inverse_changes(step))
        except InvalidActionError as error:
            raise ConflictError(f"this step cannot be undone: {error}") from error

    def import_decisions(
        self, decisions: Iterable[Decision], groups: Iterable[Group] = ()
    ) -> int | None:
        """Import decisions, with their annotators and times, on labels that were never changed here.

        Args:
            groups: Groups of the decisions. Names and proposals are imported for groups that were never
                changed in this store, and for undone proposals that imported decisions refer to.

        Returns:
            Id of the step with the decisions, or None if nothing is imported.

        Raises:
            InputError: Two groups have the same name.
        """
        index = DecisionIndex(decisions)
        changes: list[Change] = []
        used = set()
        for label_id, label in self.labels.items():
            decision = index.find(label_id, label.label)
            if decision is None or self.decision_field(label_id).version:
                continue
            value = _decision_value(
                label, decision.decision, decision.group, decision.comment, decision.blind
            )
            changes.append(
                Change(
                    "decision",
                    label_id,
                    value,
                    annotator=decision.annotator,
                    at=decision.decided_at,
                )
            )
            used.add(decision.group)
        self._import_groups(groups, used)
        return self.store.append(changes)

    def _import_groups(self, groups: Iterable[Group], used: Collection[str | None]) -> None:
        """Import names, proposals and merges of groups.

        Args:
            used: Keys of the groups that imported decisions refer to.
        """
        present = self.groups()
        groups = list(groups)
        changes = []
        for group in groups:
            field = self.state.field("group", group.key)
            if group.key in present:
                is_new = not field.version and present[group.key].name != group.name
            else:
                is_new = field.value is None and (not field.version or group.key in used)
            if is_new:
                changes.append(Change("group", group.key, _group_value(group, group.name)))
        for key, survivor in survivors(groups).items():
            if not self.state.field("group", key).version and self.survivor(key) != survivor:
                changes.append(Change("group", key, {"merged_into": survivor}))
        try:
            self._append_checked(changes)
        except InvalidActionError as error:
            raise InputError(
                f"the groups of the given decisions cannot be taken over: {error}"
            ) from error

    # Checks.

    def _check_versions(self, versions: Mapping[str, int]) -> None:
        self._check_labels(versions)
        stale = self._stale(versions)
        if stale:
            raise StaleError(stale)

    def _check_labels(self, label_ids: Collection[str]) -> None:
        if not label_ids:
            raise InvalidActionError("no label is selected")
        unknown = [label_id for label_id in label_ids if label_id not in self.labels]
        if unknown:
            raise InvalidActionError(f"there is no label {', '.join(unknown)}")

    def _stale(self, versions: Mapping[str, int]) -> list[str]:
        return [
            label_id for label_id, version in versions.items() if self.version(label_id) != version
        ]

    def _append_checked(self, changes: Sequence[Change]) -> int | None:
        """Append changes that keep group names unique and leave no decision without its group."""
        values = self.group_values()
        decisions = {key: field.value for key, field in self.state.fields("decision").items()}
        for change in changes:
            if change.kind == "decision":
                decisions[change.key] = change.new
            elif change.kind == "group" and change.new is None:
                del values[change.key]
            elif change.kind == "group":
                values[change.key] = change.new
        groups = apply_group_values(values, self.taxonomy)
        names = [group.name for group in groups.values()]
        uses = Counter(name.casefold() for name in names)
        duplicates = [name for name in names if uses[name.casefold()] > 1]
        if duplicates:
            raise InvalidActionError(f'there is already a group "{min(duplicates)}"')
        changed = {change.key for change in changes}

        def is_lost(group: str, holder: str) -> bool:
            # Groups of an earlier taxonomy may be missing, as long as nothing about them is changed.
            survivor = surviving_group(values, group)
            return survivor not in groups and bool(changed & {group, survivor, holder})

        for label_id, value in decisions.items():
            group = value["group"] if value else None
            if group is not None and is_lost(group, label_id):
                raise InvalidActionError(f'the group of "{value["label"]}" would no longer exist')
        for key, value in values.items():
            if "merged_into" in value and is_lost(value["merged_into"], key):
                raise InvalidActionError(
                    "the group that another one was merged into would no longer exist"
                )
        return self.store.append(changes)


def _group_value(group: Group, name: str) -> dict[str, Any]:
    """Return the value of the field of a group with this name."""
    value: dict[str, Any] = {"name": name, "root": group.root, "guideline": group.guideline}
    if group.between:
        value["between"] = list(group.between)
    return value


def _decision_value(
    label: ReviewLabel,
    decision: str | None = None,
    group: str | None = None,
    comment: str = "",
    blind: bool | None = None,
) -> dict[str, Any]:
    """Return the value of the decision field of a label."""
    return {
        "label": label.label,
        "decision": decision,
        "group": group,
        "comment": comment,
        "blind": blind,
    }

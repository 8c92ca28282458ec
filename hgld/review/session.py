"""A review session: the actions of an annotator on labels, clusters and groups, and the checks before each.

Every action is one step in the event store. An action that names the versions which the annotator saw is refused if
one of them is no longer the present version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hgld.errors import ConflictError
from hgld.review.actions import LIKELY_SCORE, Candidate, InvalidActionError, LabelAction, StaleError
from hgld.review.events import AttributedChange, Change
from hgld.review.projections import current_cluster, current_cluster_name, current_decisions, current_groups
from hgld.review.review_labels import ReviewLabel
from hgld.review.state import FieldState
from hgld.review.store import EventStore
from hgld.taxonomy.decisions import Decision, DecisionIndex
from hgld.taxonomy.groups import ROOTS, Group

#: At most this many suggestions are shown, and after the first only those of at least this score.
_MAX_SUGGESTIONS, _MIN_SCORE = 3, 0.02
#: Returned instead of a decision for a label that has no such candidate.
NO_CANDIDATE = object()


class ReviewSession:
    """Labels and groups under review, and the store of what was done with them.

    Attributes:
        adjudicating: Whether the session settles different opinions of other annotators.
        state: State of the review, kept by the store.

    Args:
        labels: Labels in the order of the page.
        taxonomy: Groups at the start.
        store: Event store, open for writing.
    """

    def __init__(self, labels: Iterable[ReviewLabel], taxonomy: Sequence[Group], store: EventStore) -> None:
        self.labels = {label.row.label_id: label for label in labels}
        self.taxonomy = taxonomy
        self.store = store
        self.state = store.state
        self.adjudicating = any(label.opinions for label in self.labels.values())
        self._original_names = {label.row.cluster: label.row.cluster_name for label in self.labels.values()}

    # Queries.

    def groups(self) -> dict[str, Group]:
        """Return the present groups by key."""
        return current_groups(self.state, self.taxonomy)

    def decision_field(self, label_id: str) -> FieldState:
        """Return the field with the decision on a label."""
        return self.state.field("decision", label_id)

    def is_decided(self, label_id: str) -> bool:
        """Return whether a label has a decision, and not only a comment."""
        value = self.decision_field(label_id).value
        return value is not None and value["decision"] is not None

    def version(self, label_id: str) -> int:
        """Return the version of a label, which grows with every change to its decision or cluster."""
        return max(self.decision_field(label_id).version, self.state.field("cluster", label_id).version)

    def clusters(self) -> dict[int, list[ReviewLabel]]:
        """Return the labels by present cluster, in the order of cluster numbers, without empty clusters."""
        members: defaultdict[int, list[ReviewLabel]] = defaultdict(list)
        for label_id, label in self.labels.items():
            members[self.cluster(label_id)].append(label)
        return dict(sorted(members.items()))

    def cluster(self, label_id: str) -> int:
        """Return the number of a label's present cluster."""
        return current_cluster(self.state, label_id, self.labels[label_id].row.cluster)

    def cluster_name(self, cluster: int) -> str:
        """Return the present name of a cluster."""
        return current_cluster_name(self.state, cluster, self._original_names)

    def candidates(self, label: ReviewLabel, groups: Mapping[str, Group]) -> list[Candidate]:
        """Return the decisions that a label can take over: opinions if there are any, else suggestions.

        Candidates with a group that is not among ``groups`` are skipped.
        """
        if label.opinions:
            return [
                Candidate(decision.decision, decision.group, opinion.annotator, decision.comment)
                for opinion in label.opinions
                if (decision := opinion.decision) is not None and (decision.group is None or decision.group in groups)
            ]
        return [
            Candidate("group", suggestion.group, "", suggestion.reason, suggestion.score)
            for rank, suggestion in enumerate(label.suggestions[:_MAX_SUGGESTIONS])
            if suggestion.group in groups
            and (rank == 0 or suggestion.score is None or suggestion.score >= _MIN_SCORE)
        ]

    def decisions(self) -> list[Decision]:
        """Return the present decisions."""
        return current_decisions(self.state, self.groups())

    # Actions.

    def decide(self, versions: Mapping[str, int], action: LabelAction) -> int | None:
        """Apply an action to one or several labels.

        Args:
            versions: Version that the annotator saw, by label_id.
            action: What to do. If it takes a candidate, labels without that candidate are skipped.

        Returns:
            Id of the step, or None if nothing changes.

        Raises:
            InvalidActionError: There is no such label, group or candidate.
            StaleError: A label is no longer at its version.
        """
        self._check_versions(versions)
        groups = self.groups()
        changes = []
        for label_id in versions:
            value = self.resulting_decision(self.labels[label_id], action, groups)
            if value is not NO_CANDIDATE:
                changes.append(Change("decision", label_id, value))
        if not changes:
            raise InvalidActionError(
                f"there is no suggestion of {LIKELY_SCORE:.0%} or more to accept; press 1 to take the first anyway"
                if action.kind == "accept"
                else f"there is no suggestion {action.candidate} to take"
            )
        return self.store.append(changes)

    def resulting_decision(self, label: ReviewLabel, action: LabelAction, groups: Mapping[str, Group]) -> Any:
        """Return the value that an action gives to the decision field of a label, or ``NO_CANDIDATE``.

        Raises:
            InvalidActionError: There is no such group or kind of action.
        """
        current = self.decision_field(label.row.label_id).value or {"decision": None, "group": None, "comment": ""}
        comment = current["comment"] if action.comment is None else action.comment
        if action.kind == "clear":
            return None
        if action.kind == "comment":
            if not comment and current["decision"] is None:
                return None
            decision, group = current["decision"], current["group"]
        elif action.kind in ("take", "accept"):
            candidate = self._candidate(label, action, groups)
            if candidate is None:
                return NO_CANDIDATE
            decision, group = candidate.decision, candidate.group
            comment = comment or (candidate.reason if candidate.annotator else "")
        elif action.kind in ("group", "drop", "unsure"):
            decision, group = action.kind, action.group
            if group is not None and group not in groups:
                raise InvalidActionError("this group does not exist (any more)")
        else:
            raise InvalidActionError(f'"{action.kind}" is not an action on labels')
        return {"label": label.row.label, "decision": decision, "group": group, "comment": comment}

    def _candidate(self, label: ReviewLabel, action: LabelAction, groups: Mapping[str, Group]) -> Candidate | None:
        """Return the candidate that the action takes; None if there is none."""
        candidates = self.candidates(label, groups)
        if not 1 <= action.candidate <= len(candidates):
            return None
        candidate = candidates[action.candidate - 1]
        return candidate if action.kind == "take" or candidate.likely else None

    def move(self, versions: Mapping[str, int], cluster: int | None, name: str = "") -> int | None:
        """Move labels to another cluster, or to a new one called ``name`` if ``cluster`` is None.

        Raises:
            InvalidActionError: There is no such label or cluster, or the new cluster has no name.
            StaleError: A label is no longer at its version.
        """
        self._check_versions(versions)
        clusters = self.clusters()
        changes: list[Change] = []
        if cluster is None:
            numbers = [*clusters, *self._original_names, *map(int, self.state.fields("name"))]
            cluster = max(numbers) + 1
            changes.append(Change("name", str(cluster), _single_line(name)))
        elif cluster not in clusters:
            raise InvalidActionError(f"cluster {cluster} does not exist (any more)")
        return self.store.append(changes + [Change("cluster", label_id, cluster) for label_id in versions])

    def merge(self, cluster: int, into: int) -> int | None:
        """Move all labels of a cluster to another one.

        Raises:
            InvalidActionError: There is no such cluster, or both are the same.
        """
        clusters = self.clusters()
        if cluster not in clusters or into not in clusters or cluster == into:
            raise InvalidActionError("choose another cluster to merge this one into")
        return self.store.append([Change("cluster", label.row.label_id, into) for label in clusters[cluster]])

    def rename_cluster(self, cluster: int, name: str, version: int) -> int | None:
        """Rename a cluster.

        Raises:
            ConflictError: The name is no longer at this version.
            InvalidActionError: There is no such cluster, or the name is empty.
        """
        if cluster not in self.clusters():
            raise InvalidActionError(f"cluster {cluster} does not exist (any more)")
        if self.state.field("name", str(cluster)).version != version:
            raise ConflictError(f'the cluster was renamed to "{self.cluster_name(cluster)}" in the meantime')
        return self.store.append([Change("name", str(cluster), _single_line(name))])

    def propose_group(self, name: str, root: str, guideline: str) -> int | None:
        """Add a group.

        Raises:
            InvalidActionError: A value is missing, or there is a group of that name.
        """
        if root not in ROOTS:
            raise InvalidActionError(f"choose a root: {' or '.join(ROOTS)}")
        guideline = _single_line(guideline, "describe in one line what belongs to the group")
        group = {"name": _single_line(name), "root": root, "guideline": guideline}
        # The id of the event makes the key unique.
        return self._append_checked([Change("group", f"proposed {self.state.last_event + 1}", group)])

    def rename_group(self, key: str, name: str, version: int) -> int | None:
        """Rename a group; decisions for it follow.

        Raises:
            ConflictError: The group is no longer at this version.
            InvalidActionError: There is no such group, the name is empty or taken, or the session adjudicates:
                the labels that annotators agree on are not part of it and would keep the old name.
        """
        if self.adjudicating:
            raise InvalidActionError("groups cannot be renamed during adjudication")
        groups = self.groups()
        if key not in groups:
            raise InvalidActionError("this group does not exist (any more)")
        if self.state.field("group", key).version != version:
            raise ConflictError(f'the group was renamed to "{groups[key].name}" in the meantime')
        group = replace(groups[key], name=_single_line(name))
        values = {name: value for name, value in asdict(group).items() if name != "items"}
        return self._append_checked([Change("group", key, values)])

    def undo(self, step: int) -> int | None:
        """Undo a step; undoing the resulting step redoes it.

        Raises:
            ConflictError: A later step changed the same fields or relies on what the step did.
        """
        try:
            return self._append_checked(self.state.inverse_changes(step))
        except InvalidActionError as error:
            raise ConflictError(f"this step cannot be undone: {error}") from error

    def import_decisions(self, decisions: Iterable[Decision]) -> int | None:
        """Take over decisions, with their annotators and times, on labels that were never touched in this store."""
        index = DecisionIndex(decisions)
        changes = []
        for label_id, label in self.labels.items():
            decision = index.find(label_id, label.row.label)
            if decision is not None and not self.decision_field(label_id).version:
                value = {
                    "label": label.row.label,
                    "decision": decision.decision,
                    "group": decision.group,
                    "comment": decision.comment,
                }
                change = Change("decision", label_id, value)
                changes.append(AttributedChange(change, decision.annotator, decision.decided_at))
        return self.store.append(changes)

    # Checks.

    def _check_versions(self, versions: Mapping[str, int]) -> None:
        if not versions:
            raise InvalidActionError("no label is selected")
        unknown = [label_id for label_id in versions if label_id not in self.labels]
        if unknown:
            raise InvalidActionError(f"there is no label {', '.join(unknown)}")
        stale = [label_id for label_id, version in versions.items() if self.version(label_id) != version]
        if stale:
            raise StaleError(stale)

    def _append_checked(self, changes: Sequence[Change]) -> int | None:
        """Append changes, unless two groups would have the same name or a decision a group that does not exist."""
        names = {key: group.name for key, group in self.groups().items()}
        decisions = {key: field.value for key, field in self.state.fields("decision").items()}
        in_taxonomy = {group.name for group in self.taxonomy}
        for change in changes:
            if change.kind == "decision":
                decisions[change.key] = change.new
            elif change.kind == "group" and change.new is not None:
                names[change.key] = change.new["name"]
            elif change.kind == "group" and change.key in in_taxonomy:
                names[change.key] = change.key
            elif change.kind == "group":
                del names[change.key]
        _check_unique_names(list(names.values()))
        changed_keys = {change.key for change in changes}
        for label_id, value in decisions.items():
            group = value["group"] if value else None
            # Decisions for groups of an earlier taxonomy may stay, as long as they are not touched.
            if group is not None and group not in names and changed_keys & {label_id, group}:
                raise InvalidActionError(f'the group of "{value["label"]}" would no longer exist')
        return self.store.append(changes)


def _check_unique_names(names: Sequence[str]) -> None:
    folded = [name.casefold() for name in names]
    duplicates = sorted({name for name in names if folded.count(name.casefold()) > 1})
    if duplicates:
        raise InvalidActionError(f'there is already a group "{duplicates[0]}"')


def _single_line(text: str, message: str = "enter a name") -> str:
    """Return a text in one line, with single spaces; refuse an empty one with this message."""
    text = " ".join(text.split())
    if not text:
        raise InvalidActionError(message)
    return text

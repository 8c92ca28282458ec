"""What an annotator can do to labels, clusters and groups, and what holds before and after.

Every action is one step of the store. Where it says what the annotator saw (versions), it is refused if that is no
longer how things are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hgld.errors import ConflictError
from hgld.review.events import Cell, Change
from hgld.review.outcome import cluster_name, cluster_of, decisions_of, groups_of
from hgld.review.review_labels import ReviewLabel
from hgld.review.store import Signed, Store
from hgld.taxonomy.decisions import Decision, DecisionIndex
from hgld.taxonomy.groups import ROOTS, Group

#: Suggestions that are offered: so many, and those after the first only if they are that likely.
_MOST_SUGGESTIONS, _LEAST_SCORE = 3, 0.02
#: Suggestions less likely are not accepted in passing, only by their number.
_LIKELY = 0.5
#: What comes of taking an offer that a label has not.
NO_OFFER = object()


class RefusedError(ValueError):
    """What was asked for makes no sense as it stands; the message says why."""


class StaleError(ConflictError):
    """Labels were changed since the annotator saw them.

    Args:
        label_ids: which.
    """

    def __init__(self, label_ids: Sequence[str]) -> None:
        super().__init__(f"{len(label_ids)} of the labels were changed in the meantime")
        self.label_ids = label_ids


@dataclass(frozen=True, slots=True)
class Offer:
    """A decision that a label can take over as it is: another's opinion or a suggestion.

    Args:
        decision: see :class:`hgld.taxonomy.decisions.Decision`.
        group: the group's key.
        by: whose opinion, or empty for a suggestion.
        reason: the opinion's comment, or what speaks for the suggestion.
        score: of a suggestion.
    """

    decision: str
    group: str | None
    by: str
    reason: str
    score: float | None = None

    @property
    def likely(self) -> bool:
        """Whether it can be accepted in passing."""
        return self.score is None or self.score >= _LIKELY


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with labels.

    Args:
        what: ``group``, ``drop``, ``unsure``, ``accept`` (the first offer, if it is likely), ``take`` (an offer),
            ``clear`` (undecided again) or ``comment`` (the decision stays).
        group: the group's key, as a guess if unsure.
        offer: which offer to take, from 1.
        comment: the new comment; None keeps what there is.
    """

    what: str
    group: str | None = None
    offer: int = 1
    comment: str | None = None


class ReviewSession:
    """The labels, the groups, and what was done with them.

    Args:
        labels: in the order of the page.
        taxonomy: the groups to begin with.
        store: what was done, and where more goes.
    """

    def __init__(self, labels: Iterable[ReviewLabel], taxonomy: Sequence[Group], store: Store) -> None:
        self.labels = {label.row.label_id: label for label in labels}
        self.taxonomy = taxonomy
        self.store = store
        self.fold = store.fold
        #: Whether it is about opinions that differ.
        self.settling = any(label.opinions for label in self.labels.values())
        self._names = {label.row.cluster: label.row.cluster_name for label in self.labels.values()}

    # What there is.

    def groups(self) -> dict[str, Group]:
        """The groups by their keys."""
        return groups_of(self.fold, self.taxonomy)

    def decision(self, label_id: str) -> Cell:
        """What is decided about a label."""
        return self.fold.cell("decision", label_id)

    def is_decided(self, label_id: str) -> bool:
        """Whether there is a decision, and not just a comment."""
        value = self.decision(label_id).value
        return value is not None and value["decision"] is not None

    def version(self, label_id: str) -> int:
        """Changes with everything that can be done to a label."""
        return max(self.decision(label_id).version, self.fold.cell("cluster", label_id).version)

    def clusters(self) -> dict[int, list[ReviewLabel]]:
        """The labels by the cluster where they are now, lowest number first; none is empty."""
        members: defaultdict[int, list[ReviewLabel]] = defaultdict(list)
        for label_id, label in self.labels.items():
            members[cluster_of(self.fold, label_id, label.row.cluster)].append(label)
        return dict(sorted(members.items()))

    def cluster(self, label_id: str) -> int:
        """The cluster where a label is now."""
        return cluster_of(self.fold, label_id, self.labels[label_id].row.cluster)

    def cluster_name(self, cluster: int) -> str:
        """What a cluster is called now."""
        return cluster_name(self.fold, cluster, self._names)

    def offers(self, label: ReviewLabel, groups: Mapping[str, Group]) -> list[Offer]:
        """What the label can take over: the opinions to settle, else suggestions; only groups that there are."""
        if label.opinions:
            return [
                Offer(given.decision, given.group, opinion.annotator, given.comment)
                for opinion in label.opinions
                if (given := opinion.decision) is not None and (given.group is None or given.group in groups)
            ]
        return [
            Offer("group", suggestion.group, "", suggestion.reason, suggestion.score)
            for rank, suggestion in enumerate(label.suggestions[:_MOST_SUGGESTIONS])
            if suggestion.group in groups
            and (rank == 0 or suggestion.score is None or suggestion.score >= _LEAST_SCORE)
        ]

    def decisions(self) -> list[Decision]:
        """The decision table."""
        return decisions_of(self.fold, self.groups())

    # What can be done.

    def decide(self, seen: Mapping[str, int], choice: Choice) -> int | None:
        """Do the same with one or several labels.

        Args:
            seen: the labels, each with the version that the annotator saw.
            choice: what to do. Where offers are taken, labels without that offer stay as they are.

        Returns:
            The step, or None if nothing was to change.

        Raises:
            RefusedError: there is no label, no such group, or no offer to take.
            StaleError: a label is no longer at its version.
        """
        self._check_versions(seen)
        groups = self.groups()
        changes = []
        for label_id in seen:
            value = self.outcome(self.labels[label_id], choice, groups)
            if value is not NO_OFFER:
                changes.append(Change("decision", label_id, value))
        if not changes:
            raise RefusedError(
                f"there is no suggestion of {_LIKELY:.0%} or more to accept; press 1 to take the first all the same"
                if choice.what == "accept"
                else f"there is no suggestion {choice.offer} to take"
            )
        return self.store.append(changes)

    def outcome(self, label: ReviewLabel, choice: Choice, groups: Mapping[str, Group]) -> Any:
        """What would be decided about a label: a value of its cell "decision", or ``NO_OFFER``.

        Raises:
            RefusedError: there is no such group, or the choice is none.
        """
        now = self.decision(label.row.label_id).value or {"decision": None, "group": None, "comment": ""}
        comment = now["comment"] if choice.comment is None else choice.comment
        if choice.what == "clear":
            return None
        if choice.what == "comment":
            if not comment and now["decision"] is None:
                return None
            decision, group = now["decision"], now["group"]
        elif choice.what in ("take", "accept"):
            offers = self.offers(label, groups)
            if not 1 <= choice.offer <= len(offers):
                return NO_OFFER
            offer = offers[choice.offer - 1]
            if choice.what == "accept" and not offer.likely:
                return NO_OFFER
            decision, group = offer.decision, offer.group
            comment = comment or (offer.reason if offer.by else "")
        elif choice.what in ("group", "drop", "unsure"):
            decision, group = choice.what, choice.group
            if group is not None and group not in groups:
                raise RefusedError("there is no such group (any more)")
        else:
            raise RefusedError(f'"{choice.what}" is nothing that can be done with a label')
        return {"label": label.row.label, "decision": decision, "group": group, "comment": comment}

    def move(self, seen: Mapping[str, int], cluster: int | None, name: str = "") -> int | None:
        """Move labels to another cluster, or to a new one called ``name``.

        Raises:
            RefusedError: there is no label or no such cluster, or a new one has no name.
            StaleError: a label is no longer at its version.
        """
        self._check_versions(seen)
        clusters = self.clusters()
        changes: list[Change] = []
        if cluster is None:
            numbers = [*clusters, *self._names, *map(int, self.fold.cells("name"))]
            cluster = max(numbers) + 1
            changes.append(Change("name", str(cluster), _named(name)))
        elif cluster not in clusters:
            raise RefusedError(f"there is no cluster {cluster} (any more)")
        return self.store.append(changes + [Change("cluster", label_id, cluster) for label_id in seen])

    def merge(self, cluster: int, into: int) -> int | None:
        """Move every label of a cluster to another one.

        Raises:
            RefusedError: there is no such cluster, or both are the same.
        """
        clusters = self.clusters()
        if cluster not in clusters or into not in clusters or cluster == into:
            raise RefusedError("choose another cluster to merge this one into")
        return self.store.append([Change("cluster", label.row.label_id, into) for label in clusters[cluster]])

    def rename_cluster(self, cluster: int, name: str, seen: int) -> int | None:
        """Call a cluster something else.

        Raises:
            ConflictError: it was renamed since.
            RefusedError: there is no such cluster, or no name.
        """
        if cluster not in self.clusters():
            raise RefusedError(f"there is no cluster {cluster} (any more)")
        if self.fold.cell("name", str(cluster)).version != seen:
            raise ConflictError(f'the cluster was renamed in the meantime, to "{self.cluster_name(cluster)}"')
        return self.store.append([Change("name", str(cluster), _named(name))])

    def propose_group(self, name: str, root: str, guideline: str) -> int | None:
        """Add a group.

        Raises:
            RefusedError: a value is missing, or there is a group of that name.
        """
        if root not in ROOTS:
            raise RefusedError(f"choose a root: {' or '.join(ROOTS)}")
        guideline = _named(guideline, "say in a line what belongs to the group")
        group = {"name": _named(name), "root": root, "guideline": guideline}
        # No two proposals share a key, nor does one with a group of the taxonomy.
        return self._append_checked([Change("group", f"proposed {self.fold.last + 1}", group)])

    def rename_group(self, key: str, name: str, seen: int) -> int | None:
        """Call a group something else; decisions for it follow.

        Raises:
            ConflictError: it was renamed since.
            RefusedError: there is no such group, no name, or another group has it; or opinions are settled, for
                those that agree, which are not on the page, would keep the old name.
        """
        if self.settling:
            raise RefusedError("groups are not renamed while opinions are settled")
        groups = self.groups()
        if key not in groups:
            raise RefusedError("there is no such group (any more)")
        if self.fold.cell("group", key).version != seen:
            raise ConflictError(f'the group was renamed in the meantime, to "{groups[key].name}"')
        group = replace(groups[key], name=_named(name))
        values = {name: value for name, value in asdict(group).items() if name != "items"}
        return self._append_checked([Change("group", key, values)])

    def take_back(self, step: int) -> int | None:
        """Take a step back; taking back that one makes it again.

        Raises:
            ConflictError: something that it did was changed since, or something rests on it.
        """
        try:
            return self._append_checked(self.fold.inverse(step))
        except RefusedError as error:
            raise ConflictError(f"this step cannot be taken back: {error}") from error

    def start_from(self, decisions: Iterable[Decision]) -> int | None:
        """Take over decisions for labels that nothing was ever done with; they stay signed and dated."""
        index = DecisionIndex(decisions)
        changes = []
        for label_id, label in self.labels.items():
            found = index.find(label_id, label.row.label)
            if found is not None and not self.decision(label_id).version:
                value = {
                    "label": label.row.label,
                    "decision": found.decision,
                    "group": found.group,
                    "comment": found.comment,
                }
                changes.append(Signed(Change("decision", label_id, value), found.annotator, found.decided_at))
        return self.store.append(changes)

    # What must hold.

    def _check_versions(self, seen: Mapping[str, int]) -> None:
        if not seen:
            raise RefusedError("no label is chosen")
        unknown = [label_id for label_id in seen if label_id not in self.labels]
        if unknown:
            raise RefusedError(f"there is no label {', '.join(unknown)}")
        stale = [label_id for label_id, version in seen.items() if self.version(label_id) != version]
        if stale:
            raise StaleError(stale)

    def _append_checked(self, changes: Sequence[Change]) -> int | None:
        """Append, unless groups would have the same name or decisions a group that is gone."""
        groups: dict[str, str] = {key: group.name for key, group in self.groups().items()}
        decided = {key: cell.value for key, cell in self.fold.cells("decision").items()}
        known = {group.name for group in self.taxonomy}
        for change in changes:
            if change.kind == "decision":
                decided[change.key] = change.new
            elif change.kind == "group" and change.new is not None:
                groups[change.key] = change.new["name"]
            elif change.kind == "group" and change.key in known:
                groups[change.key] = change.key
            elif change.kind == "group":
                del groups[change.key]
        names = [name.casefold() for name in groups.values()]
        twice = sorted({name for name in groups.values() if names.count(name.casefold()) > 1})
        if twice:
            raise RefusedError(f'there is a group "{twice[0]}" already')
        changed = {change.key for change in changes}
        for label_id, value in decided.items():
            group = value["group"] if value else None
            # A store may hold decisions for groups of an earlier taxonomy; those stay.
            if group is not None and group not in groups and changed & {label_id, group}:
                raise RefusedError(f'"{value["label"]}" is decided for a group that would not be there')
        return self.store.append(changes)


def _named(text: str, otherwise: str = "give a name") -> str:
    """A text in one line, which must not be empty."""
    text = " ".join(text.split())
    if not text:
        raise RefusedError(otherwise)
    return text

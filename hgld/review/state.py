"""Events of a review, and the resulting state: groups, decisions and clusters, with undo and redo.

An event records an action of an annotator. Each event changes one field, which holds one fact of the review.

==========  ===========================  ============================================================
kind        key                          value; None stands for the value in the input tables
==========  ===========================  ============================================================
decision    label_id                     {"label", "decision"?, "group"?, "comment", "blind"?}; group by its key
cluster     label_id                     {"cluster": number that the label was moved to, "table_name"}
name        number of a cluster          {"name": new name of the cluster, "table_name"}
group       key of a group               {"name", "root", "guideline"} of a renamed or proposed group, in deeper
                                         trees with "between", the names in between; or
                                         {"merged_into": key of the group that takes its labels}
==========  ===========================  ============================================================

``blind`` says whether the annotator decided without suggestions; null means unknown. A decision keeps this
value until the decision changes; a new comment does not change it.

``table_name`` is the name of the cluster in the ``clusters`` table, None for a new cluster. A change counts only
as long as the table has the same name there: after clustering again, the number belongs to another cluster.

The key of a group never changes (:mod:`hgld.taxonomy.groups`). The key of a proposed group is made from its
first name, so that all annotators who propose this name propose the same group. Decisions refer to the key.
When a group is renamed or merged into another group, its decisions follow and keep their annotator and time.

All events of one action, such as a decision on several labels, form a step. The log only grows: a step is undone
by another step of inverse events, and each inverse event names the event that it undoes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from hgld.errors import ConflictError
from hgld.review.labels import ReviewLabel
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, survivors

FieldKind = Literal["decision", "cluster", "name", "group"]


@dataclass(frozen=True, slots=True)
class Change:
    """A new value for a field.

    Args:
        new: JSON value, or None for the value in the input tables.
        undoes: Id of the event that this change undoes.
        annotator: Author of the change. Default: the annotator of the session.
        at: Time of the change. Default: now.
    """

    kind: FieldKind
    key: str
    new: Any
    undoes: int | None = None
    annotator: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A recorded change.

    Args:
        id: Number of the event, counted from 1.
        step: Id of the first event of the same step.
    """

    id: int
    step: int
    at: datetime
    annotator: str
    kind: FieldKind
    key: str
    old: Any
    new: Any
    tool: str
    undoes: int | None


@dataclass(frozen=True, slots=True)
class FieldState:
    """Current content of a field.

    Args:
        version: Id of the last event that set the field; 0 before the first event.
        origin: Event that first set the value, which is never an undo or a redo.
    """

    value: Any = None
    version: int = 0
    origin: Event | None = None


_UNSET = FieldState()


class ReviewState:
    """Fields and steps after a sequence of events.

    Attributes:
        steps: Events of each step, by the step's id, in order.
        last_event: Id of the last event; 0 before the first event.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.steps: defaultdict[int, list[Event]] = defaultdict(list)
        self.last_event = 0
        self._events: dict[int, Event] = {}
        self._fields: defaultdict[FieldKind, dict[str, FieldState]] = defaultdict(dict)
        #: Origin of the field's value before and after each event, by the event's id.
        self._origins: dict[int, tuple[Event | None, Event | None]] = {}
        #: Original steps that are in effect, in order.
        self._undo_stack: list[int] = []
        #: Last undo of each original step that can be redone, in order; a new original step clears it.
        self._undoing: dict[int, int] = {}
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        before = self.field(event.kind, event.key).origin
        after = event if event.undoes is None else self._origins[event.undoes][0]
        self._origins[event.id] = before, after
        self._fields[event.kind][event.key] = FieldState(event.new, event.id, after)
        self.steps[event.step].append(event)
        self._events[event.id] = event
        if event.id == event.step:
            self._update_stacks(event.step)
        self.last_event = event.id

    def _update_stacks(self, step: int) -> None:
        """Update the stacks of steps to undo and to redo, given a new step."""
        original, in_effect = self.original(step)
        if original == step:
            self._undo_stack.append(step)
            self._undoing.clear()
        elif in_effect:
            self._undoing.pop(original, None)
            self._undo_stack.append(original)
        else:
            if original in self._undo_stack:
                self._undo_stack.remove(original)
            self._undoing[original] = step

    def original(self, step: int) -> tuple[int, bool]:
        """Return the original step behind a chain of undo and redo steps.

        Returns:
            Id of the original step, the same step if it undoes nothing; and whether the original step is in
            effect after ``step``.
        """
        in_effect = True
        undone = self.steps[step][0].undoes
        while undone is not None:
            step = self._events[undone].step
            in_effect = not in_effect
            undone = self.steps[step][0].undoes
        return step, in_effect

    def field(self, kind: FieldKind, key: str) -> FieldState:
        """Return the current content of a field."""
        return self._fields[kind].get(key, _UNSET)

    def fields(self, kind: FieldKind) -> dict[str, FieldState]:
        """Return all fields of a kind that were ever set, by key."""
        return self._fields[kind]

    def events_after(self, event_id: int) -> list[Event]:
        """Return the events after the event with this id, newest first."""
        events: list[Event] = []
        for step in reversed(self.steps.values()):
            events += [event for event in reversed(step) if event.id > event_id]
            if step[0].id <= event_id:
                break
        return events

    @property
    def next_undo(self) -> int | None:
        """Step that the command "undo" undoes."""
        return self._undo_stack[-1] if self._undo_stack else None

    @property
    def next_redo(self) -> int | None:
        """Step that the command "redo" undoes: the last undo that was not redone."""
        return next(reversed(self._undoing.values()), None)

    def can_undo(self, step: int) -> bool:
        """Return whether all fields that the step set still have their values from this step."""
        for event in self.steps[step]:
            _, origin_after = self._origins[event.id]
            if self.field(event.kind, event.key).origin is not origin_after:
                return False
        return True

    def inverse_changes(self, step: int) -> list[Change]:
        """Return the changes that undo a step.

        Raises:
            ConflictError: There is no such step, it was undone already, or a later step changed one of its fields.
        """
        if step not in self.steps:
            raise ConflictError("there is no such step to undo")
        if not self.can_undo(step):
            raise ConflictError(
                "this step cannot be undone: a later step changed the same, or it was undone already"
            )
        return [Change(event.kind, event.key, event.old, event.id) for event in self.steps[step]]


def current_groups(state: ReviewState, taxonomy: Sequence[Group]) -> dict[str, Group]:
    """Return the groups of the taxonomy with their present names, then proposed groups, by key."""
    return apply_group_values(group_values(state, taxonomy), taxonomy)


def group_values(state: ReviewState, taxonomy: Iterable[Group]) -> dict[str, Any]:
    """Return the values of group fields by the key of the group, also of groups that the taxonomy merged."""
    values: dict[str, Any] = {}
    for key, survivor in survivors(taxonomy).items():
        values[key] = {"merged_into": survivor}
    for key, field in state.fields("group").items():
        if field.value is not None:
            values[key] = field.value
    return values


def apply_group_values(values: Mapping[str, Any], taxonomy: Sequence[Group]) -> dict[str, Group]:
    """Return the groups by key after renames, proposals and merges."""
    groups = {group.key: group for group in taxonomy}
    # A proposed group has the levels of the taxonomy.
    template = replace(taxonomy[0], items=(), merged=()) if taxonomy else Group("", "", "")
    for key, value in values.items():
        if "merged_into" not in value:
            fields = {**value, "key": key}
            if "between" in value:
                fields["between"] = tuple(value["between"])
            groups[key] = replace(groups.get(key, template), **fields)
    for key, value in values.items():
        if "merged_into" not in value:
            continue
        merged = groups.pop(key, template)
        survivor = groups.get(surviving_group(values, key))
        if survivor is not None:
            items = survivor.items + merged.items
            keys = dict.fromkeys((*survivor.merged, key, *merged.merged))
            groups[survivor.key] = replace(survivor, items=items, merged=tuple(keys))
    return groups


def surviving_group(values: Mapping[str, Any], key: str) -> str:
    """Return the key of the group that a group was merged into, directly or in several steps.

    >>> surviving_group({"a": {"merged_into": "b"}, "b": {"merged_into": "c"}}, "a")
    'c'
    """
    seen = set()
    while key not in seen and "merged_into" in values.get(key, {}):
        seen.add(key)
        key = values[key]["merged_into"]
    return key


def current_decisions(state: ReviewState, taxonomy: Iterable[Group]) -> list[Decision]:
    """Return the present decisions with the keys of groups, also on labels that are no longer among the clusters."""
    decisions = []
    merged = group_values(state, taxonomy)
    for label_id, field in state.fields("decision").items():
        value, origin = field.value, field.origin
        if value is None or value["decision"] is None or origin is None:
            continue
        group = value["group"] and surviving_group(merged, value["group"])
        decisions.append(
            Decision(
                label_id,
                value["label"],
                value["decision"],
                group,
                origin.annotator,
                origin.at,
                value["comment"],
                value["blind"],
            )
        )
    return decisions


#: Certainty of a suggestion without a score.
_UNKNOWN_CERTAINTY = 0.5


def certainty(label: ReviewLabel) -> float:
    """Return the score of the first suggestion of a label; 0 without suggestions."""
    if not label.suggestions:
        return 0.0
    score = label.suggestions[0].score
    return _UNKNOWN_CERTAINTY if score is None else score


@dataclass(frozen=True, slots=True)
class DecidedLabel:
    """A label with the decision on it.

    Args:
        counts: Contributions to the counts of :class:`DecidedLabels`.
        suggested: Key of the first suggested group; None without suggestions.
        group: Key of the group of the label, or of the guess on an unsure label; None if missing.
        is_proposed: Whether an annotator proposed the group.
    """

    label: ReviewLabel
    cluster: int
    counts: Mapping[str, int]
    suggested: str | None
    decision: str | None = None
    group: str | None = None
    comment: str = ""
    is_proposed: bool = False

    @property
    def differs(self) -> bool:
        """Whether the label is dropped, or in another group than the first suggested one."""
        return (
            self.suggested is not None
            and self.decision in ("group", "drop")
            and self.group != self.suggested
        )


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """A filter that is on or off.

    Args:
        shows_suggestions: Whether the list reveals suggestions, which a blind review hides.
    """

    title: str
    matches: Callable[[DecidedLabel], bool]
    shows_suggestions: bool = False


#: Filters by their names in addresses.
FILTERS: dict[str, LabelFilter] = {
    "undecided": LabelFilter("Undecided", lambda row: row.decision is None),
    "decided": LabelFilter("Decided", lambda row: row.decision is not None),
    "unsure": LabelFilter("Unsure", lambda row: row.decision == "unsure"),
    "dropped": LabelFilter("Dropped", lambda row: row.decision == "drop"),
    "commented": LabelFilter("Commented", lambda row: bool(row.comment)),
    "proposed": LabelFilter("In a proposed group", lambda row: row.is_proposed),
    "differs": LabelFilter(
        "Unlike the suggestion", lambda row: row.differs, shows_suggestions=True
    ),
}


class DecidedLabels:
    """The labels of a session with their decisions, and counts in total and by cluster.

    The counts are: ``labels`` and their ``landmarks``; ``decided`` labels; ``settled`` labels, which need no
    further decision, and ``landmarks_settled``; ``unsure``: decided labels that are not settled.

    Attributes:
        counts: Counts by present cluster, and by None for all labels.
        members: Ids of the labels by present cluster, in the order of cluster numbers, without empty clusters.
        matches: Number of labels that each filter matches, by its name.
    """

    def __init__(
        self,
        state: ReviewState,
        labels: Mapping[str, ReviewLabel],
        make_row: Callable[[ReviewLabel, Any], DecidedLabel],
    ) -> None:
        self._state, self._labels, self._make_row = state, labels, make_row
        self._last_event = -1
        self._rows: dict[str, DecidedLabel] = {}
        self.members: dict[int, list[str]] = {}
        self.counts: defaultdict[int | None, Counter[str]] = defaultdict(Counter)
        self.matches: Counter[str] = Counter()

    def rows(self, as_of: int | None = None) -> Mapping[str, DecidedLabel]:
        """Return the labels with their decisions after an event, or now, by label_id in the order of the table."""
        if as_of is None or as_of >= self._last_event:
            return self._rows
        earlier = {}
        for event in self._state.events_after(as_of):  # newest first, so the oldest value remains
            if event.kind == "decision" and event.key in self._rows:
                earlier[event.key] = event.old
        rows = dict(self._rows)
        for label_id, value in earlier.items():
            rows[label_id] = self._make_row(self._labels[label_id], value)
        return rows

    def update(self) -> None:
        """Apply the events since the last update to the rows and the counts."""
        if self._last_event == self._state.last_event:
            return
        events = self._state.events_after(self._last_event)
        changed = dict.fromkeys(event.key for event in events if event.key in self._rows)
        is_all = not self._rows or any(event.kind in ("cluster", "group") for event in events)
        if is_all:
            changed = dict.fromkeys(self._labels)
            self._rows = {}
            self.counts.clear()
            self.matches.clear()
        for label_id in changed:
            value = self._state.field("decision", label_id).value
            row = self._make_row(self._labels[label_id], value)
            if label_id in self._rows:
                self._add(self._rows[label_id], -1)
            self._add(row, 1)
            self._rows[label_id] = row
        if is_all:
            clusters = sorted({row.cluster for row in self._rows.values()})
            self.members = {cluster: [] for cluster in clusters}
            for label_id, row in self._rows.items():
                self.members[row.cluster].append(label_id)
        self._last_event = self._state.last_event

    def _add(self, row: DecidedLabel, sign: int) -> None:
        for counts in (self.counts[None], self.counts[row.cluster]):
            for name, count in row.counts.items():
                counts[name] += sign * count
        for name, each in FILTERS.items():
            self.matches[name] += sign * each.matches(row)

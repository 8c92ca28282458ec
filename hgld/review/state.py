"""The state of a review, computed from its events: groups, decisions and clusters, with undo and redo of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hgld.errors import ConflictError
from hgld.review.events import Change, Event, FieldKind
from hgld.review.labels import fit_for_cell
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, survivors


@dataclass(frozen=True, slots=True)
class FieldState:
    """Current content of a field.

    Args:
        value: Current value; None stands for what the input tables say.
        version: Id of the last event that set the field; 0 before the first.
        origin: Event that first set the value; unlike ``version``, it is not an event that undid or redid something.
    """

    value: Any = None
    version: int = 0
    origin: Event | None = None


_UNSET = FieldState()


class ReviewState:
    """Fields and steps after a sequence of events.

    Attributes:
        steps: Events of each step, by the step's id, in order.
        last_event: Id of the last event; 0 before the first.

    Args:
        events: Events in the order of their ids.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.steps: defaultdict[int, list[Event]] = defaultdict(list)
        self.last_event = 0
        self._events: dict[int, Event] = {}
        self._fields: defaultdict[FieldKind, dict[str, FieldState]] = defaultdict(dict)
        #: Origin of the field's value before and after each event, by the event's id.
        self._origins: dict[int, tuple[Event | None, Event | None]] = {}
        #: Steps in effect that undo nothing, and by step the one that undid it since the last such step; in order.
        self._undo_stack: list[int] = []
        self._undoing: dict[int, int] = {}
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        before = self.field(event.kind, event.key).origin
        after = event if event.undoes is None else self._origins[event.undoes][0]
        self._origins[event.id] = before, after
        self._fields[event.kind][event.key] = FieldState(event.new, event.id, after)
        if event.step not in self.steps:
            self._update_stacks(event)
        self.steps[event.step].append(event)
        self._events[event.id] = event
        self.last_event = event.id

    def _update_stacks(self, first: Event) -> None:
        """Update which steps are undone and redone next, given the first event of a new step."""
        undone = self.undone_step(first)
        if undone is None:
            self._undo_stack.append(first.step)
            self._undoing.clear()
            return
        original, is_undo = self._original(undone)
        if is_undo:
            if original in self._undo_stack:
                self._undo_stack.remove(original)
            self._undoing[original] = first.step
        else:
            self._undoing.pop(original, None)
            self._undo_stack.append(original)

    def _original(self, step: int) -> tuple[int, bool]:
        """Return the step that a step is, redoes or undoes, and whether that one is in effect after it."""
        in_effect = True
        while (undone := self.undone_step(self.steps[step][0])) is not None:
            step, in_effect = undone, not in_effect
        return step, in_effect

    def field(self, kind: FieldKind, key: str) -> FieldState:
        """Return the current content of a field."""
        return self._fields[kind].get(key, _UNSET)

    def fields(self, kind: FieldKind) -> dict[str, FieldState]:
        """Return all fields of a kind that were ever set, by key."""
        return self._fields[kind]

    def events_after(self, event_id: int) -> list[Event]:
        """Return the events after the one with this id, newest first."""
        events: list[Event] = []
        for step in reversed(self.steps.values()):
            events += [event for event in reversed(step) if event.id > event_id]
            if step[0].id <= event_id:
                break
        return events

    def undone_step(self, event: Event) -> int | None:
        """Return the step that the event's step undoes, if it undoes one."""
        return None if event.undoes is None else self._events[event.undoes].step

    @property
    def next_undo(self) -> int | None:
        """Step that the command "undo" undoes."""
        return self._undo_stack[-1] if self._undo_stack else None

    @property
    def next_redo(self) -> int | None:
        """Step that the command "redo" undoes: the last one that itself undid something."""
        return next(reversed(self._undoing.values()), None)

    def can_undo(self, step: int) -> bool:
        """Return whether all fields that the step set still have their values from it."""
        return all(
            self.field(event.kind, event.key).origin is self._origins[event.id][1] for event in self.steps[step]
        )

    def inverse_changes(self, step: int) -> list[Change]:
        """Return the changes that undo a step.

        Raises:
            ConflictError: There is no such step, it was undone already, or a later step changed one of its fields.
        """
        if step not in self.steps:
            raise ConflictError("there is no such step to undo")
        if not self.can_undo(step):
            raise ConflictError("this step cannot be undone: a later step changed the same, or it was undone already")
        return [Change(event.kind, event.key, event.old, event.id) for event in self.steps[step]]


def current_groups(state: ReviewState, taxonomy: Sequence[Group]) -> dict[str, Group]:
    """Return the groups by key: those of the taxonomy with their present names, then the proposed ones."""
    return apply_group_values(group_values(state, taxonomy), taxonomy)


def group_values(state: ReviewState, taxonomy: Iterable[Group]) -> dict[str, Any]:
    """Return the values of group fields by the key of the group, also of groups that the taxonomy merged."""
    merged = {key: {"merged_into": survivor} for key, survivor in survivors(taxonomy).items()}
    return merged | {key: field.value for key, field in state.fields("group").items() if field.value is not None}


def apply_group_values(values: Mapping[str, Any], taxonomy: Sequence[Group]) -> dict[str, Group]:
    """Return the groups by key after renames, proposals and merges; see :mod:`hgld.review.events`."""
    groups = {group.key: group for group in taxonomy}
    for key, value in values.items():
        if "merged_into" not in value:
            groups[key] = replace(groups[key], **value) if key in groups else Group(**value, key=key)
    for key in [key for key, value in values.items() if "merged_into" in value]:
        merged, survivor = groups.pop(key, None), groups.get(surviving_group(values, key))
        if survivor is not None:
            items = survivor.items + (merged.items if merged else ())
            keys = (*survivor.merged, key, *(merged.merged if merged else ()))
            groups[survivor.key] = replace(survivor, items=items, merged=tuple(dict.fromkeys(keys)))
    return groups


def surviving_group(values: Mapping[str, Any], key: str) -> str:
    """Return the key of the group that a group was merged into, directly or in several steps.

    >>> surviving_group({"a": {"merged_into": "b"}, "b": {"merged_into": "c"}}, "a")
    'c'
    """
    seen = set()
    while key not in seen and "merged_into" in (value := values.get(key, {})):
        seen.add(key)
        key = value["merged_into"]
    return key


def current_decisions(state: ReviewState, taxonomy: Iterable[Group]) -> list[Decision]:
    """Return the present decisions with the keys of groups, also on labels that are no longer among the clusters."""
    decisions = []
    merged = group_values(state, taxonomy)
    for label_id, field in state.fields("decision").items():
        if field.value is not None and field.value["decision"] is not None:
            assert field.origin is not None
            group = field.value["group"]
            decisions.append(
                Decision(
                    label_id,
                    field.value["label"],
                    field.value["decision"],
                    None if group is None else surviving_group(merged, group),
                    field.origin.annotator,
                    field.origin.at,
                    field.value["comment"],
                    field.value["blind"],
                )
            )
    return decisions


def current_cluster(state: ReviewState, label_id: str, cluster: int, names: Mapping[int, str]) -> int:
    """Return the present cluster of a label that the ``clusters`` table puts into ``cluster``."""
    value = state.field("cluster", label_id).value
    return (
        int(value["cluster"]) if value is not None and names.get(value["cluster"]) == value["table_name"] else cluster
    )


def current_cluster_name(state: ReviewState, cluster: int, names: Mapping[int, str]) -> str:
    """Return the present name of a cluster, given the names in the ``clusters`` table."""
    value = state.field("name", str(cluster)).value
    if value is not None and names.get(cluster) == value["table_name"]:
        return str(value["name"])
    return names.get(cluster, f"cluster {cluster}")


def update_clusters(table: pa.Table, state: ReviewState) -> pa.Table:
    """Return a ``clusters`` table with moved labels and renamed clusters."""
    rows = table.to_pylist()
    names = {row["cluster"]: fit_for_cell(row["cluster_name"]) for row in rows}
    for row in rows:
        row["cluster"] = current_cluster(state, row["label_id"], row["cluster"], names)
        row["cluster_name"] = current_cluster_name(state, row["cluster"], names)
    return pa.Table.from_pylist(rows, table.schema)

"""Events of a review: what an annotator did, one changed field per event.

A field holds one fact of the review. There are four kinds:

==========  ===========================  ============================================================
kind        key                          value; None stands for what the input tables say
==========  ===========================  ============================================================
decision    label_id                     {"label", "decision"?, "group"?, "comment", "blind"?}; group by its key
cluster     label_id                     {"cluster": number that the label was moved to, "table_name"}
name        number of a cluster          {"name": new name of the cluster, "table_name"}
group       key of a group               {"name", "root", "guideline"} of a renamed or proposed group, or
                                         {"merged_into": key of the group that takes its labels}
==========  ===========================  ============================================================

``blind`` is whether the annotator saw no suggestions when deciding, null if that is unknown. A decision keeps it as
long as it stays the same, as when a comment is added.

``table_name`` is the name of the cluster in the ``clusters`` table, None for a new cluster. A change counts only as
long as the table has the same name there: after clustering again, the number belongs to another cluster.

The key of a group never changes (:mod:`hgld.taxonomy.groups`). That of a proposed group is made from its first name,
so that it is the same for every annotator who proposes this name. Decisions refer to the key: when a group is renamed
or merged into another, they follow, and keep their annotator and time.

All events of one action, such as a decision on several labels, form a step. The log only grows: a step is undone by
another step of inverse events, each of which names the event that it undoes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from hgld.errors import InputError
from hgld.taxonomy.decisions import DECISIONS, parse_time

FieldKind = Literal["decision", "cluster", "name", "group"]


@dataclass(frozen=True, slots=True)
class Change:
    """A new value for a field.

    Args:
        kind: Kind of the field.
        key: Key of the field.
        new: JSON value, or None for what the input tables say.
        undoes: Id of the event that the change undoes, if any.
        annotator: Annotator to record; None for the one of the running session.
        at: Time to record; None for the present.
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
        at: Time in UTC.
        annotator: Name of the annotator.
        kind: Kind of the field.
        key: Key of the field.
        old: Value before the change.
        new: Value after the change.
        tool: Version of hgld.
        undoes: Id of the event that this one undoes, if any.
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


#: Types of the items of a field's value, by kind; a value has the items of one of the alternatives.
_VALUE_TYPES: dict[FieldKind, tuple[dict[str, Any], ...]] = {
    "decision": ({"label": str, "decision": str | None, "group": str | None, "comment": str, "blind": bool | None},),
    "cluster": ({"cluster": int, "table_name": str | None},),
    "name": ({"name": str, "table_name": str | None},),
    "group": ({"name": str, "root": str, "guideline": str}, {"merged_into": str}),
}


def event_to_row(event: Event) -> tuple[object, ...]:
    """Return the row of an event, in the order of its fields."""
    old, new = (json.dumps(value, ensure_ascii=False, sort_keys=True) for value in (event.old, event.new))
    return (
        *(event.id, event.step, event.at.isoformat(timespec="milliseconds"), event.annotator, event.kind, event.key),
        *(old, new, event.tool, event.undoes),
    )


def events_from_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[Event]:
    """Yield the events of all rows of a store, in the order of their ids.

    Raises:
        InputError: An event is missing or damaged, or does not follow from those before it. The message lacks the
            name of the file.
    """
    events: dict[int, Event] = {}
    #: Present value of every field, and its text.
    values: dict[tuple[str, str], tuple[Any, str]] = {}
    for number, row in enumerate(rows, 1):
        try:
            old = values.get((row[4], row[5]), (None, "null"))
            event = _event(row, *old)
            _check_order(event, number, events)
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"event {number} is damaged ({error})") from error
        events[event.id] = event
        values[event.kind, event.key] = event.new, row[7]
        yield event


def _event(row: tuple[Any, ...], old: Any, old_text: str) -> Event:
    """Return the event of a row, given the value of its field before it, and the text of this value."""
    event_id, step, at, annotator, kind, key, before, new, tool, undoes = row
    for text in (at, annotator, kind, key, before, new, tool):
        if not isinstance(text, str):
            raise TypeError("a text is missing")
    if kind not in _VALUE_TYPES:
        raise ValueError(f'"{kind}" is no kind of event')
    if kind == "name" and not (key.isascii() and key.isdecimal()):
        raise ValueError(f'"{key}" is no cluster')
    if before != old_text:
        raise ValueError("it does not continue the earlier events of its field")
    value = json.loads(new)
    if value is not None and not _is_value(kind, value):
        raise ValueError(f"its value is not that of a {kind}")
    return Event(event_id, step, parse_time(at), annotator, kind, key, old, value, tool, undoes)


def _is_value(kind: FieldKind, value: object) -> bool:
    if not isinstance(value, dict):
        return False
    if kind == "decision" and value.get("decision") not in (None, *DECISIONS):
        return False
    return any(
        value.keys() == types.keys() and all(isinstance(value[name], allowed) for name, allowed in types.items())
        for types in _VALUE_TYPES[kind]
    )


def _check_order(event: Event, number: int, earlier: dict[int, Event]) -> None:
    """Check the numbers of an event: its own, that of its step, and that of the event that it undoes."""
    if event.id != number:
        raise ValueError("it is missing")
    if event.step != number and (number == 1 or event.step != earlier[number - 1].step):
        raise ValueError("it belongs to no step")
    if event.undoes is not None:
        undone = earlier.get(event.undoes)
        if undone is None or (undone.kind, undone.key) != (event.kind, event.key):
            raise ValueError("it undoes an event of another field, or none")

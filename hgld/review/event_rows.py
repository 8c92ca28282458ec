"""Events as rows of the event store, read with checks that find damage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from hgld.errors import InputError
from hgld.review.events import Event, FieldKind
from hgld.taxonomy.decisions import DECISIONS, parse_time

#: Types of the items of a field's value, by kind; a value has the items of one of the alternatives.
_VALUE_TYPES: dict[FieldKind, tuple[dict[str, tuple[type, ...]], ...]] = {
    "decision": (
        {
            "label": (str,),
            "decision": (str, type(None)),
            "group": (str, type(None)),
            "comment": (str,),
            "blind": (bool, type(None)),
        },
    ),
    "cluster": ({"cluster": (int,), "table_name": (str, type(None))},),
    "name": ({"name": (str,), "table_name": (str, type(None))},),
    "group": ({"name": (str,), "root": (str,), "guideline": (str,)}, {"merged_into": (str,)}),
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

"""The history of a session: its last steps, each described in a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from hgld.review.events import Event
from hgld.review.page.views import DecisionView, decision_view
from hgld.review.session import ReviewSession


@dataclass(frozen=True, slots=True)
class StepView:
    """A step in the history.

    Args:
        step: Id of the step.
        at: Time in UTC.
        text: Description.
        can_undo: Whether the step can be undone now.
    """

    step: int
    at: datetime
    text: str
    can_undo: bool


def history(session: ReviewSession, limit: int) -> list[StepView]:
    """Return the last steps, newest first."""
    steps = islice(reversed(session.state.steps), limit)
    return [
        StepView(step, session.state.steps[step][0].at, describe_step(session, step), session.state.can_undo(step))
        for step in steps
    ]


def describe_step(session: ReviewSession, step: int) -> str:
    """Return a description of what a step did."""
    state = session.state
    events = state.steps[step]
    first = events[0]
    undone = state.undone_step(first)
    if undone is not None:
        was_undone = False
        while (before := state.undone_step(state.steps[undone][0])) is not None:
            undone, was_undone = before, not was_undone
        return f"{'redone' if was_undone else 'undone'}: {describe_step(session, undone)}"
    if first.kind == "decision":
        return f"{_label_names(session, events)}: {_decisions(session, events)}"
    if first.kind == "group":
        return _describe_group(session, first)
    moved = [event for event in events if event.kind == "cluster"]
    if not moved:
        return f"cluster {first.key} renamed to {first.new['name']}"
    return f"{_label_names(session, moved)}: moved to cluster {moved[0].new['cluster']}"


def undo_title(session: ReviewSession, step: int) -> str:
    """Return what the button is called that undoes a step: Redo if the step undid another one."""
    return "Redo" if describe_step(session, step).startswith("undone: ") else "Undo"


def sentence(text: str) -> str:
    """Return a description with a capital letter and a full stop.

    >>> sentence("undone: lake: drop")
    'Undone: lake: drop.'
    """
    return f"{text[:1].upper()}{text[1:]}."


def _describe_group(session: ReviewSession, event: Event) -> str:
    original = {group.key: group.name for group in session.taxonomy}
    old_name = (event.old or {}).get("name") or original.get(event.key)
    if "merged_into" in event.new:
        old_name = old_name or event.key
        into = event.new["merged_into"]
        groups = session.groups()
        return f"group {old_name} merged into {groups[into].name if into in groups else into}"
    if old_name is None:
        return f"group {event.new['name']} added"
    return f"group {old_name} renamed to {event.new['name']}"


def _label_names(session: ReviewSession, events: Sequence[Event]) -> str:
    """Return the label of the first event, and the number of the others."""
    key = events[0].key
    name = session.labels[key].row.label if key in session.labels else key
    return name if len(events) == 1 else f"{name} and {len(events) - 1:,} more"


def _decisions(session: ReviewSession, events: Sequence[Event]) -> str:
    groups = session.groups()
    texts = {_describe_decision(decision_view(session.with_present_group(event.new), groups)) for event in events}
    return texts.pop() if len(texts) == 1 else f"{len(texts)} different decisions"


def _describe_decision(view: DecisionView) -> str:
    if view.decision == "group":
        return view.group
    if view.decision is None:
        return "comment" if view.comment else "undecided"
    return f"{view.decision}, perhaps {view.group}" if view.group else view.decision

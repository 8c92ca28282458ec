"""What an annotator did, as events, and what follows from them: the fold, and taking steps back.

An event sets one cell to a new value and says what stood there before. There are four kinds of cells:

==========  ===========================  ============================================================
kind        key                          value; None is what the tables say
==========  ===========================  ============================================================
decision    label_id                     {"label", "decision"?, "group"?, "comment"}; group by its key
cluster     label_id                     the number of the cluster that the label was moved to
name        number of a cluster          its new name
group       key of a group               {"name", "root", "guideline"}, renamed or proposed
==========  ===========================  ============================================================

A group's key is its name in the taxonomy; a proposed one gets a key of its own. So decisions follow when a group
is renamed. What one action of the annotator did, say on a range of labels, is a step. Events are only ever added:
a step is taken back by a step of inverse events, each of which names the event that it undoes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from hgld.errors import ConflictError

Kind = Literal["decision", "cluster", "name", "group"]


@dataclass(frozen=True, slots=True)
class Change:
    """A cell's new value.

    Args:
        kind: what kind of cell.
        key: which cell.
        new: a JSON value, or None for what the tables say.
        undoes: the event that this takes back.
    """

    kind: Kind
    key: str
    new: Any
    undoes: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A change that was made.

    Args:
        id: counts up.
        step: the id of the first event of its step.
        at: when, in UTC.
        annotator: who.
        kind: what kind of cell.
        key: which cell.
        old: the value before.
        new: the value after.
        tool: hgld's version.
        undoes: the event that this takes back.
    """

    id: int
    step: int
    at: datetime
    annotator: str
    kind: Kind
    key: str
    old: Any
    new: Any
    tool: str
    undoes: int | None


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell holds now.

    Args:
        value: the value; None is what the tables say.
        version: the last event that set it; 0 before the first.
        origin: the event that the value is from: not one that took back or made again, but the one that first did it.
    """

    value: Any = None
    version: int = 0
    origin: Event | None = None


_EMPTY = Cell()


class Fold:
    """The state that events lead to.

    Args:
        events: in order of their ids.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.steps: defaultdict[int, list[Event]] = defaultdict(list)
        self.last = 0
        self._events: dict[int, Event] = {}
        self._cells: defaultdict[Kind, dict[str, Cell]] = defaultdict(dict)
        #: By id, the origins before and after an event.
        self._origins: dict[int, tuple[Event | None, Event | None]] = {}
        self._done: list[int] = []
        self._undone: list[int] = []
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Let an event happen."""
        before = self.cell(event.kind, event.key).origin
        after = event if event.undoes is None else self._origins[event.undoes][0]
        self._origins[event.id] = before, after
        self._cells[event.kind][event.key] = Cell(event.new, event.id, after)
        if event.step not in self.steps:
            self._sort_in(event)
        self.steps[event.step].append(event)
        self._events[event.id] = event
        self.last = event.id

    def _sort_in(self, first: Event) -> None:
        """Keep what undo and redo mean next: a step that takes back something done can be redone by undoing it."""
        undone = self.undone_by(first)
        if undone is None:
            self._done.append(first.step)
            self._undone.clear()
        elif undone in self._undone:
            self._undone.remove(undone)
            self._done.append(first.step)
        else:
            if undone in self._done:
                self._done.remove(undone)
            self._undone.append(first.step)

    def cell(self, kind: Kind, key: str) -> Cell:
        """What a cell holds."""
        return self._cells[kind].get(key, _EMPTY)

    def cells(self, kind: Kind) -> dict[str, Cell]:
        """Every cell of a kind that was ever set, by key."""
        return self._cells[kind]

    def since(self, last: int) -> list[Event]:
        """The events after the one numbered ``last``, newest first."""
        found: list[Event] = []
        for step in reversed(self.steps.values()):
            found += [event for event in reversed(step) if event.id > last]
            if step[0].id <= last:
                break
        return found

    def undone_by(self, event: Event) -> int | None:
        """The step that the step of an event takes back, if it takes one back."""
        return None if event.undoes is None else self._events[event.undoes].step

    @property
    def to_undo(self) -> int | None:
        """The step that "undo" takes back."""
        return self._done[-1] if self._done else None

    @property
    def to_redo(self) -> int | None:
        """The step whose taking back is "redo"."""
        return self._undone[-1] if self._undone else None

    def stands(self, step: int) -> bool:
        """Whether everything that a step set still is as it left it."""
        return all(
            self.cell(event.kind, event.key).origin is self._origins[event.id][1] for event in self.steps[step]
        )

    def inverse(self, step: int) -> list[Change]:
        """What takes a step back.

        Raises:
            ConflictError: there is no such step, or something that it set was set again since or taken back already.
        """
        if step not in self.steps:
            raise ConflictError("there is no such step to take back")
        if not self.stands(step):
            raise ConflictError(
                "this step cannot be taken back: what it did was changed by a later step, or was taken back already"
            )
        return [Change(event.kind, event.key, event.old, event.id) for event in self.steps[step]]

"""Labels with their decisions: filters, and numbers of labels and landmarks, brought up to date with every event.

A page shows these numbers after every decision; counting thousands of labels each time would take longer than all the
rest of the answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgld.review.labels import ReviewLabel
from hgld.review.state import ReviewState

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
        label: The label.
        cluster: Number of its present cluster.
        counts: What it adds to the numbers of :class:`DecidedLabels`.
        suggested: Key of the first suggested group; None if there is none.
        decision: One of :data:`hgld.taxonomy.decisions.DECISIONS`; None if undecided.
        group: Key of the group that takes the label, or of the guess on an unsure one; None if there is none.
        comment: Comment, or empty.
        is_proposed: Whether the group is not in the given taxonomy.
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
        return self.suggested is not None and self.decision in ("group", "drop") and self.group != self.suggested


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """A filter that is on or off.

    Args:
        title: Title in the list of filters.
        matches: Whether a label belongs to the list.
        shows_suggestions: Whether the list tells something about suggestions, which a blind review hides.
    """

    title: str
    matches: Callable[[DecidedLabel], bool]
    shows_suggestions: bool = False


#: Filters by the name that stands in addresses.
FILTERS: dict[str, LabelFilter] = {
    "undecided": LabelFilter("Undecided", lambda row: row.decision is None),
    "decided": LabelFilter("Decided", lambda row: row.decision is not None),
    "unsure": LabelFilter("Unsure", lambda row: row.decision == "unsure"),
    "dropped": LabelFilter("Dropped", lambda row: row.decision == "drop"),
    "commented": LabelFilter("Commented", lambda row: bool(row.comment)),
    "proposed": LabelFilter("In a proposed group", lambda row: row.is_proposed),
    "differs": LabelFilter("Unlike the suggestion", lambda row: row.differs, shows_suggestions=True),
}


class DecidedLabels:
    """The labels of a session with their decisions, counted in all and per cluster.

    The numbers are: ``labels`` and their ``landmarks``; ``decided`` labels; ``settled`` labels, about which nothing
    is left to decide, and ``landmarks_settled``; ``unsure``: decided labels that are not settled; ``suggested``:
    decided labels that had a suggestion, without unsure ones, and ``as_suggested``: those put into that group.
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
        self._members: dict[int, list[str]] = {}
        self._counts: defaultdict[int | None, Counter[str]] = defaultdict(Counter)
        self._matches: Counter[str] = Counter()

    @property
    def total(self) -> Counter[str]:
        """Numbers of all labels."""
        return self.of_cluster(None)

    @property
    def members(self) -> Mapping[int, Sequence[str]]:
        """Ids of the labels by present cluster, in the order of cluster numbers, without empty clusters."""
        self._update()
        return self._members

    @property
    def matches(self) -> Counter[str]:
        """Number of labels that each filter matches, by its name."""
        self._update()
        return self._matches

    def of_cluster(self, cluster: int | None) -> Counter[str]:
        """Return the numbers of the labels in a cluster."""
        self._update()
        return self._counts[cluster]

    def rows(self, as_of: int | None = None) -> Mapping[str, DecidedLabel]:
        """Return the labels by label_id in the order of the table, with their decisions after an event, or now."""
        self._update()
        if as_of is None or as_of >= self._last_event:
            return self._rows
        # Newest first, so that the oldest value remains.
        events = [event for event in self._state.events_after(as_of) if event.kind == "decision"]
        earlier = {event.key: event.old for event in events if event.key in self._rows}
        return {**self._rows, **{key: self._make_row(self._labels[key], value) for key, value in earlier.items()}}

    def _update(self) -> None:
        if self._last_event == self._state.last_event:
            return
        events = self._state.events_after(self._last_event)
        changed = [key for key in dict.fromkeys(event.key for event in events) if key in self._rows]
        is_all = not self._rows or any(event.kind in ("cluster", "group") for event in events)
        if is_all:
            self._rows, changed = {}, list(self._labels)
            self._counts.clear()
            self._matches.clear()
        for label_id in changed:
            row = self._make_row(self._labels[label_id], self._state.field("decision", label_id).value)
            if label_id in self._rows:
                self._add(self._rows[label_id], -1)
            self._add(row, 1)
            self._rows[label_id] = row
        if is_all:
            clusters = sorted({row.cluster for row in self._rows.values()})
            self._members = {cluster: [] for cluster in clusters}
            for label_id, row in self._rows.items():
                self._members[row.cluster].append(label_id)
        self._last_event = self._state.last_event

    def _add(self, row: DecidedLabel, sign: int) -> None:
        for counts in (self._counts[None], self._counts[row.cluster]):
            for name, count in row.counts.items():
                counts[name] += sign * count
        for name, each in FILTERS.items():
            self._matches[name] += sign * each.matches(row)

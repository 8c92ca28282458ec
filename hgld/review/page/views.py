"""What the page shows, worked out for the templates: rows, clusters, progress, history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from hgld.review.events import Event
from hgld.review.review_labels import ReviewLabel
from hgld.review.session import ReviewSession
from hgld.review.sheets.rows import example_link
from hgld.taxonomy.groups import Group

#: Steps that the pace is taken from, and how many there must be to speak of one.
_PACE_STEPS, _FEWEST_STEPS = 40, 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision as it is shown: which it is, the group's name, whose, the comment, and how likely."""

    decision: str | None
    group: str = ""
    by: str = ""
    comment: str = ""
    score: str = ""
    #: The number under which it can be taken over, or 0.
    number: int = 0
    #: Whether it can be accepted in passing.
    likely: bool = True


@dataclass(frozen=True, slots=True)
class RowView:
    """A row of the list of labels; equal rows look the same."""

    label_id: str
    label: str
    version: int
    landmarks: int
    parents: str
    examples: tuple[tuple[str, str], ...]
    decided: Verdict
    offers: tuple[Verdict, ...]
    #: Whether the offers are opinions to settle, and not suggestions.
    settling: bool


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster in the list of clusters."""

    number: int
    name: str
    labels: int
    decided: int
    landmarks: int
    version: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the annotator is.

    Args:
        labels: all of them.
        decided: those with a decision.
        landmarks: of all labels.
        landmarks_decided: of those with a decision.
        suggested: decided labels that had a suggestion, unsure ones left out.
        as_suggested: those of them that were decided so.
        seconds_left: at the recent pace; None before there is one.
    """

    labels: int
    decided: int
    landmarks: int
    landmarks_decided: int
    suggested: int
    as_suggested: int
    seconds_left: float | None

    @property
    def time_left(self) -> str:
        """The time left in words, or empty.

        >>> Progress(10, 0, 10, 0, 0, 0, 5400).time_left
        '1 h 30 min'
        """
        if self.seconds_left is None or self.decided == self.labels:
            return ""
        minutes = max(1, round(self.seconds_left / 60))
        return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


@dataclass(frozen=True, slots=True)
class StepView:
    """A step in the history."""

    step: int
    at: datetime
    text: str
    #: Whether it can be taken back as things are.
    stands: bool


def row_view(desk: ReviewSession, label: ReviewLabel, groups: Mapping[str, Group]) -> RowView:
    """The row of a label."""
    row = label.row
    shown = [
        Verdict(
            offer.decision,
            groups[offer.group].name if offer.group else "",
            offer.by,
            offer.reason,
            _percent(offer.score),
            number,
            offer.likely,
        )
        for number, offer in enumerate(desk.offers(label, groups), 1)
    ]
    if label.opinions:
        # Side by side in the same order in every row, also where somebody has none.
        by = {verdict.by: verdict for verdict in shown}
        shown = [by.get(opinion.annotator, Verdict(None, by=opinion.annotator)) for opinion in label.opinions]
    value = desk.decision(row.label_id).value
    return RowView(
        row.label_id,
        row.label,
        desk.version(row.label_id),
        row.landmarks,
        row.parents,
        tuple(example_link(title) for title in row.examples),
        verdict_of(value, groups),
        tuple(shown),
        bool(label.opinions),
    )


def _percent(score: float | None) -> str:
    """A probability in whole percent; none is certain.

    >>> _percent(0.998), _percent(0.004)
    ('99 %', '1 %')
    """
    return "" if score is None else f"{min(99, max(1, round(100 * score)))} %"


def verdict_of(value: Any, groups: Mapping[str, Group]) -> Verdict:
    """A value of a cell "decision" as it is shown."""
    if value is None:
        return Verdict(None)
    key = value["group"]
    name = groups[key].name if key in groups else (key or "")
    return Verdict(value["decision"], name, comment=value["comment"])


def sections(members: Sequence[ReviewLabel]) -> list[tuple[int, list[ReviewLabel]]]:
    """The labels of a cluster by sub-cluster, with its number; those from elsewhere stay together."""
    grouped = groupby(members, key=lambda label: (label.row.cluster, label.row.subcluster))
    return [(subcluster, list(labels)) for (_, subcluster), labels in grouped]


def cluster_views(desk: ReviewSession, clusters: Mapping[int, Sequence[ReviewLabel]]) -> list[ClusterView]:
    """The list of clusters."""
    return [
        ClusterView(
            number,
            desk.cluster_name(number),
            len(members),
            sum(desk.is_decided(label.row.label_id) for label in members),
            sum(label.row.landmarks for label in members),
            desk.fold.cell("name", str(number)).version,
        )
        for number, members in clusters.items()
    ]


def progress(desk: ReviewSession) -> Progress:
    """How far the annotator is."""
    decided = [label for label_id, label in desk.labels.items() if desk.is_decided(label_id)]
    suggested = as_suggested = 0
    for label in decided:
        value = desk.decision(label.row.label_id).value
        if label.suggestions and not label.opinions and value["decision"] != "unsure":
            suggested += 1
            as_suggested += value["group"] == label.suggestions[0].group
    pace = seconds_per_label(list(desk.fold.steps.values()))
    return Progress(
        len(desk.labels),
        len(decided),
        sum(label.row.landmarks for label in desk.labels.values()),
        sum(label.row.landmarks for label in decided),
        suggested,
        as_suggested,
        None if pace is None else pace * (len(desk.labels) - len(decided)),
    )


def seconds_per_label(steps: Sequence[Sequence[Event]]) -> float | None:
    """The pace of the last decisions: the median over their steps, so that neither pauses nor leaps count.

    Args:
        steps: all steps in order. A step took the time since the step before it, shared by its labels.
    """
    paces = []
    for before, step in pairwise(steps[-2 * _PACE_STEPS :]):
        first = step[0]
        if first.kind == "decision" and first.undoes is None and first.new and first.new["decision"]:
            paces.append((first.at - before[-1].at).total_seconds() / len(step))
    return max(0.0, median(paces[-_PACE_STEPS:])) if len(paces) >= _FEWEST_STEPS else None


def history(desk: ReviewSession, most: int) -> list[StepView]:
    """The last steps, newest first."""
    steps = list(desk.fold.steps)[: -most - 1 : -1]
    return [
        StepView(step, desk.fold.steps[step][0].at, step_text(desk, step), desk.fold.stands(step)) for step in steps
    ]


def step_text(desk: ReviewSession, step: int) -> str:
    """What a step did, in words."""
    events = desk.fold.steps[step]
    first = events[0]
    undone = desk.fold.undone_by(first)
    if undone is not None:
        again = desk.fold.undone_by(desk.fold.steps[undone][0])
        return f"again: {step_text(desk, again)}" if again is not None else f"taken back: {step_text(desk, undone)}"
    if first.kind == "decision":
        return f"{_what(desk, events)}: {_verdicts(desk, events)}"
    if first.kind == "group":
        was = first.old["name"] if first.old else first.key
        return f"group {first.new['name']} proposed" if _is_proposal(first) else f"group {was} is {first.new['name']}"
    moved = [event for event in events if event.kind == "cluster"]
    if not moved:
        return f"cluster {first.key} is called {first.new}"
    return f"{_what(desk, moved)}: to cluster {moved[0].new}"


def _is_proposal(event: Event) -> bool:
    return event.old is None and event.key.startswith("proposed ")


def _what(desk: ReviewSession, events: Sequence[Event]) -> str:
    key = events[0].key
    name = desk.labels[key].row.label if key in desk.labels else key
    return name if len(events) == 1 else f"{name} and {len(events) - 1:,} more"


def _verdicts(desk: ReviewSession, events: Sequence[Event]) -> str:
    groups = desk.groups()
    found = {_words(verdict_of(event.new, groups)) for event in events}
    return found.pop() if len(found) == 1 else f"{len(found)} different decisions"


def _words(verdict: Verdict) -> str:
    if verdict.decision == "group":
        return verdict.group
    if verdict.decision is None:
        return "comment" if verdict.comment else "undecided"
    return f"{verdict.decision}, perhaps {verdict.group}" if verdict.group else verdict.decision

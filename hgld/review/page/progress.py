"""Progress of the annotator: decided labels and landmarks, agreement with the suggestions, and time left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from hgld.review.events import Event
from hgld.review.session import ReviewSession

#: Number of recent steps that give the pace, and the least number to estimate it from.
_PACE_STEPS, _MIN_STEPS = 40, 5


@dataclass(frozen=True, slots=True)
class ReviewProgress:
    """Progress in numbers.

    Args:
        labels: Number of labels.
        decided: Number of decided labels.
        landmarks: Number of landmarks.
        landmarks_decided: Number of landmarks with a decided label.
        suggested: Number of decided labels that had a suggestion, without unsure ones.
        as_suggested: Number of those that were put into the suggested group.
        seconds_left: Time left at the recent pace, in seconds; None if there are too few steps.
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
        """Time left in hours and minutes; empty if unknown or if everything is decided.

        >>> ReviewProgress(10, 0, 10, 0, 0, 0, 5400).time_left
        '1 h 30 min'
        """
        if self.seconds_left is None or self.decided == self.labels:
            return ""
        minutes = max(1, round(self.seconds_left / 60))
        return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def review_progress(session: ReviewSession) -> ReviewProgress:
    """Return the progress of a session."""
    decided = [label for label_id, label in session.labels.items() if session.is_decided(label_id)]
    suggested = as_suggested = 0
    for label in decided:
        value = session.decision_value(label.row.label_id)
        if label.suggestions and not session.blind and not label.opinions and value["decision"] != "unsure":
            suggested += 1
            as_suggested += value == session.with_present_group(value | {"group": label.suggestions[0].group})
    pace = seconds_per_label(list(session.state.steps.values()))
    return ReviewProgress(
        len(session.labels),
        len(decided),
        sum(label.row.landmarks for label in session.labels.values()),
        sum(label.row.landmarks for label in decided),
        suggested,
        as_suggested,
        None if pace is None else pace * (len(session.labels) - len(decided)),
    )


def seconds_per_label(steps: Sequence[Sequence[Event]]) -> float | None:
    """Return the recent pace: the median over steps, so that pauses and decisions on many labels have little weight.

    Args:
        steps: Events of all steps in order. The time of a step runs from the step before it and is shared by its
            labels.

    Returns:
        Seconds per label; None if there are too few steps.
    """
    paces = []
    for previous, step in pairwise(steps[-2 * _PACE_STEPS :]):
        first = step[0]
        if first.kind == "decision" and first.undoes is None and first.new and first.new["decision"]:
            paces.append((first.at - previous[-1].at).total_seconds() / len(step))
    return max(0.0, median(paces[-_PACE_STEPS:])) if len(paces) >= _MIN_STEPS else None

"""Progress of the annotator: decided labels and landmarks, agreement with the suggestions, and time left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import median

from hgld.errors import counted
from hgld.review.events import Event
from hgld.review.label_counts import Counts
from hgld.review.session import ReviewSession

#: Number of recent steps that give the pace, and the least number to estimate it from.
_PACE_STEPS, _MIN_STEPS = 40, 5


@dataclass(frozen=True, slots=True)
class ReviewProgress:
    """Progress in numbers.

    Args:
        counts: Numbers of labels and landmarks.
        seconds_left: Time left at the recent pace, in seconds; None if there are too few steps.
        groups_to_settle: Number of groups on which annotators differ, in an adjudication.
    """

    counts: Counts
    seconds_left: float | None
    groups_to_settle: int = 0

    @property
    def open(self) -> str:
        """What is open although it was decided or is no label; empty if nothing is.

        >>> ReviewProgress(Counts(unsure=1), None, groups_to_settle=2).open
        '1 unsure label, 2 groups to settle'
        """
        unsure, groups = self.counts.unsure, self.groups_to_settle
        parts = [counted(unsure, "unsure label")] if unsure else []
        parts += [f"{counted(groups, 'group')} to settle"] if groups else []
        return ", ".join(parts)

    @property
    def time_left(self) -> str:
        """Time left in hours and minutes; empty if unknown or if everything is decided.

        >>> ReviewProgress(Counts(labels=10), 5400).time_left
        '1 h 30 min'
        """
        if self.seconds_left is None or self.counts.decided == self.counts.labels:
            return ""
        minutes = max(1, round(self.seconds_left / 60))
        return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def review_progress(session: ReviewSession) -> ReviewProgress:
    """Return the progress of a session."""
    counts = session.counts.total
    last_steps = list(islice(reversed(session.state.steps.values()), 2 * _PACE_STEPS))
    pace = seconds_per_label(last_steps[::-1])
    seconds_left = None if pace is None else pace * (counts.labels - counts.decided)
    return ReviewProgress(counts, seconds_left, len(session.groups_to_settle()))


def seconds_per_label(steps: Sequence[Sequence[Event]]) -> float | None:
    """Return the recent pace: the median over steps, so that pauses and decisions on many labels have little weight.

    Args:
        steps: Events of the last steps in order. The time of a step runs from the step before it and is shared by its
            labels.

    Returns:
        Seconds per label; None if there are too few steps.
    """
    paces = []
    for previous, step in pairwise(steps):
        first = step[0]
        if first.kind == "decision" and first.undoes is None and first.new and first.new["decision"]:
            paces.append((first.at - previous[-1].at).total_seconds() / len(step))
    return max(0.0, median(paces[-_PACE_STEPS:])) if len(paces) >= _MIN_STEPS else None

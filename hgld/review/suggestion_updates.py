"""Suggestions that are estimated again while an annotator decides.

A page may still show the suggestions of an earlier estimate, so these are kept: what is accepted is what was shown.
The suggestions of decided labels stay as they are.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from dataclasses import replace

from hgld.review.review_labels import ReviewLabel, Suggestion


class SuggestionUpdates:
    """The estimates of a session.

    Attributes:
        last: Number of the last estimate; 0 for the suggestions of the table. Numbers grow from one session to the
            next, so that a page which was opened before a restart never means another estimate.

    Args:
        labels: Labels by label_id, which get the new suggestions.
    """

    def __init__(self, labels: MutableMapping[str, ReviewLabel]) -> None:
        self.last = 0
        self._labels = labels
        #: Labels with the suggestions before each of their changes, by label_id.
        self._earlier: defaultdict[str, list[ReviewLabel]] = defaultdict(list)
        self._decisions = 0

    def add(self, suggestions: Mapping[str, tuple[Suggestion, ...]], n_decisions: int) -> None:
        """Take over a new estimate.

        Args:
            suggestions: New suggestions of the labels whose suggestions change, by label_id.
            n_decisions: Number of decisions that the estimate is based on.
        """
        self.last = max(self.last + 1, int(time.time()))
        self._decisions = n_decisions
        for label_id, new in suggestions.items():
            label = self._labels[label_id]
            self._earlier[label_id].append(label)
            self._labels[label_id] = replace(label, suggestions=new, estimate=self.last)

    def label_as_seen(self, label_id: str, estimate: int) -> ReviewLabel | None:
        """Return a label with the suggestions that it got by an estimate; None if it got none by this one."""
        seen = (*self._earlier[label_id], self._labels[label_id])
        return next((label for label in seen if label.estimate == estimate), None)

    def changed_after(self, estimate: int) -> list[str]:
        """Return the ids of the labels whose suggestions changed after an estimate."""
        return [label_id for label_id in self._earlier if self._labels[label_id].estimate > estimate]

    def message_after(self, estimate: int) -> str:
        """Say what has changed after an estimate; empty if nothing has."""
        changed = len(self.changed_after(estimate))
        if not changed:
            return ""
        return f"Suggestions re-estimated from {self._decisions:,} decisions: {changed:,} changed."

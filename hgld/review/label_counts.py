"""Labels by cluster, and how many of them are decided: counted once, then brought up to date with every event.

A page shows these numbers after every decision; counting thousands of labels each time would take longer than all the
rest of the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from hgld.review.review_labels import ReviewLabel
from hgld.review.state import ReviewState


class Counts(NamedTuple):
    """Numbers of labels and landmarks.

    Args:
        labels: Number of labels.
        landmarks: Number of their landmarks.
        decided: Number of decided labels.
        settled: Number of labels about which nothing is left to decide; see :meth:`ReviewSession.is_settled`.
        landmarks_settled: Number of their landmarks.
        unsure: Number of decided labels that are not settled.
        suggested: Number of decided labels that had a suggestion, without unsure ones.
        as_suggested: Number of those that were put into the suggested group.
    """

    labels: int = 0
    landmarks: int = 0
    decided: int = 0
    settled: int = 0
    landmarks_settled: int = 0
    unsure: int = 0
    suggested: int = 0
    as_suggested: int = 0

    def plus(self, other: Counts, sign: int = 1) -> Counts:
        """Return the sums of all numbers, or with ``sign`` -1 the differences."""
        return Counts(*(one + sign * two for one, two in zip(self, other, strict=True)))


class LabelCounts:
    """Counts of a session, per cluster and in all.

    Args:
        state: State of the review.
        labels: Labels by label_id.
        cluster: Returns the number of a label's present cluster.
        count: Returns the counts of a single label.
    """

    def __init__(
        self,
        state: ReviewState,
        labels: Mapping[str, ReviewLabel],
        cluster: Callable[[str], int],
        count: Callable[[str], Counts],
    ) -> None:
        self._state = state
        self._labels = labels
        self._cluster = cluster
        self._count = count
        self._last_event = -1
        self._members: dict[int, list[str]] = {}
        self._of_label: dict[str, Counts] = {}
        self._of_cluster: dict[int, Counts] = {}
        self._total = Counts()

    @property
    def total(self) -> Counts:
        """Counts of all labels."""
        self._update()
        return self._total

    @property
    def members(self) -> Mapping[int, Sequence[str]]:
        """Ids of the labels by present cluster, in the order of cluster numbers, without empty clusters."""
        self._update()
        return self._members

    def of_cluster(self, cluster: int) -> Counts:
        """Return the counts of the labels in a cluster."""
        self._update()
        return self._of_cluster[cluster]

    def _update(self) -> None:
        if self._last_event == self._state.last_event:
            return
        events = self._state.events_after(self._last_event)
        if self._last_event < 0 or any(event.kind in ("cluster", "group") for event in events):
            self._count_all()
        else:
            self._count_again({event.key for event in events if event.kind == "decision"} & self._labels.keys())
        self._last_event = self._state.last_event

    def _count_all(self) -> None:
        members: defaultdict[int, list[str]] = defaultdict(list)
        for label_id in self._labels:
            members[self._cluster(label_id)].append(label_id)
        self._members = dict(sorted(members.items()))
        self._of_label = {label_id: self._count(label_id) for label_id in self._labels}
        self._of_cluster = {
            number: Counts(*map(sum, zip(*(self._of_label[label_id] for label_id in label_ids), strict=True)))
            for number, label_ids in self._members.items()
        }
        self._total = Counts(*map(sum, zip(*self._of_cluster.values(), strict=True)))

    def _count_again(self, label_ids: Iterable[str]) -> None:
        for label_id in label_ids:
            before, now = self._of_label[label_id], self._count(label_id)
            change = now.plus(before, -1)
            cluster = self._cluster(label_id)
            self._of_label[label_id] = now
            self._of_cluster[cluster] = self._of_cluster[cluster].plus(change)
            self._total = self._total.plus(change)

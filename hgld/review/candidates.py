"""Candidates of a label: the decisions that it can take over with one key.

A label that annotators decided differently offers their opinions. Any other label offers suggested groups and, while
it is undecided, the decision on a label with the same text that is no longer among the labels: a class has another id
in a new table if its item became known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hgld.review.actions import Candidate
from hgld.review.projections import current_decisions
from hgld.review.review_labels import ReviewLabel
from hgld.review.state import ReviewState
from hgld.taxonomy.decisions import DecisionIndex
from hgld.taxonomy.groups import Group

#: At most this many suggestions are shown, and after the first only those of at least this score.
_MAX_SUGGESTIONS, _MIN_SCORE = 3, 0.02


def opinion_candidates(label: ReviewLabel) -> list[Candidate]:
    """Return the opinions of annotators who decided the label."""
    return [
        Candidate(decision.decision, decision.group, opinion.annotator, decision.comment)
        for opinion in label.opinions
        if (decision := opinion.decision) is not None
    ]


def suggestion_candidates(label: ReviewLabel) -> list[Candidate]:
    """Return the suggestions worth showing, the most likely first."""
    return [
        Candidate("group", suggestion.group, "", suggestion.reason, suggestion.score)
        for rank, suggestion in enumerate(label.suggestions[:_MAX_SUGGESTIONS])
        if rank == 0 or suggestion.score is None or suggestion.score >= _MIN_SCORE
    ]


class EarlierDecisions:
    """Decisions on labels that are no longer among the labels of a session, by their text.

    Args:
        state: State of the review.
        labels: Ids of the present labels.
        taxonomy: Groups at the start.
        annotator: Annotator whose decisions are offered; None for those of all.
    """

    def __init__(
        self,
        state: ReviewState,
        labels: Collection[str],
        taxonomy: Sequence[Group],
        annotator: str | None = None,
    ) -> None:
        self._state = state
        self._labels = labels
        self._taxonomy = taxonomy
        self._annotator = annotator
        self._exist = any(label_id not in labels for label_id in state.fields("decision"))
        self._index, self._last_event = DecisionIndex([]), -1

    def candidates(self, label: ReviewLabel) -> list[Candidate]:
        """Return the decision on an absent label with the same text; none if there are different ones."""
        if not self._exist:
            return []
        if self._last_event != self._state.last_event:
            absent = [
                row
                for row in current_decisions(self._state, self._taxonomy)
                if row.label_id not in self._labels and self._annotator in (None, row.annotator)
            ]
            self._index, self._last_event = DecisionIndex(absent), self._state.last_event
        decision = self._index.find("", label.row.label)
        if decision is None:
            return []
        source = f"{decision.annotator}, on {decision.label_id}"
        return [Candidate(decision.decision, decision.group, source, decision.comment)]

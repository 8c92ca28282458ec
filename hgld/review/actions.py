"""Actions on labels: what an annotator asks for and enters, candidates to choose from, and why an action may fail.

A candidate is a decision that a label can take over with one key. A label that annotators decided differently offers
their opinions; any other label offers suggested groups and, while it is undecided, the decision on a label with the
same text that is no longer among the labels: a class has another id in a new table if its item became known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hgld.errors import ConflictError, counted
from hgld.io.csv_files import without_control_characters
from hgld.review.labels import ReviewLabel

#: Candidates that are less likely are not accepted with the rest, only by their number.
LIKELY_SCORE = 0.5
#: Candidates that are this likely are accepted together, for all rows on the screen.
SURE_SCORE = 0.9
#: At most this many suggestions are shown, and after the first only those of at least this score.
_MAX_SUGGESTIONS, _MIN_SCORE = 3, 0.02

#: Longest texts in characters. The fields of the page have the same limits.
MAX_CLUSTER_NAME = 200
MAX_GROUP_NAME = 100
MAX_GUIDELINE = 500
MAX_COMMENT = 2000


class InvalidActionError(ValueError):
    """An action that makes no sense in the present state; the message says why."""


class StaleError(ConflictError):
    """Labels changed after the annotator saw them."""

    def __init__(self, label_ids: Sequence[str]) -> None:
        verb = "was" if len(label_ids) == 1 else "were"
        super().__init__(f"{counted(len(label_ids), 'label')} {verb} changed in the meantime")
        self.label_ids = label_ids


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decision that a label can take over as it is: an opinion, an earlier decision, or a suggestion.

    Args:
        decision: One of :data:`hgld.taxonomy.decisions.DECISIONS`.
        group: Key of the group, if any.
        annotator: Annotator of the opinion or the earlier decision; empty for a suggestion.
        reason: Comment of the annotator, or evidence for the suggestion.
        score: Probability of a suggestion, 0 to 1; None if unknown.
    """

    decision: str
    group: str | None
    annotator: str
    reason: str
    score: float | None = None

    @property
    def certainty(self) -> str:
        """``sure``: a suggestion with a high score; ``likely``: what the action "accept" takes; or ``unlikely``."""
        if self.score is not None and self.score >= SURE_SCORE:
            return "sure"
        return "likely" if self.score is None or self.score >= LIKELY_SCORE else "unlikely"


@dataclass(frozen=True, slots=True)
class LabelAction:
    """Action that an annotator takes on labels.

    Args:
        kind: ``group``, ``drop``, ``unsure``, ``accept`` (take the first candidate if it is likely), ``accept_sure``
            (if it is a sure suggestion), ``take`` (take the candidate with this number), ``clear`` (back to
            undecided) or ``comment`` (keep the decision).
        group: Key of the group; a guess if the kind is ``unsure``.
        candidate: Number of the candidate to take, counted from 1.
        comment: New comment; None keeps the present one.
    """

    kind: str
    group: str | None = None
    candidate: int = 1
    comment: str | None = None


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


def clean_name(text: str, longest: int, *, what: str = "name", if_empty: str = "enter a name") -> str:
    """Return an entered name or guideline in one line.

    Raises:
        InvalidActionError: It is empty or too long.

    >>> clean_name("quay  or wharf ", MAX_GROUP_NAME)
    'quay or wharf'
    """
    text = " ".join(without_control_characters(text).split())
    if not text:
        raise InvalidActionError(if_empty)
    return require_length(what, text, longest)


def require_length(what: str, text: str, longest: int) -> str:
    """Return a text unless it is too long.

    Raises:
        InvalidActionError: It is.
    """
    if len(text) > longest:
        raise InvalidActionError(f"the {what} has {len(text):,} characters; the longest has {longest:,}")
    return text


def parse_number(text: str) -> int | None:
    """Return a number of at most 18 digits 0 to 9; None if the text is anything else.

    >>> parse_number("12"), parse_number("-1"), parse_number("²"), parse_number("9" * 5000)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None

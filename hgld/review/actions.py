"""Actions on labels: what an annotator asks for, the candidates to choose from, and why an action may fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hgld.errors import ConflictError, counted

#: Candidates that are less likely are not accepted with the rest, only by their number.
LIKELY_SCORE = 0.5
#: Candidates that are this likely are accepted together, for all rows on the screen.
SURE_SCORE = 0.9


class InvalidActionError(ValueError):
    """An action that makes no sense in the present state; the message says why."""


class StaleError(ConflictError):
    """Labels changed after the annotator saw them.

    Args:
        label_ids: Ids of these labels.
    """

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
    def likely(self) -> bool:
        """Whether the action "accept" takes it."""
        return self.score is None or self.score >= LIKELY_SCORE

    @property
    def sure(self) -> bool:
        """Whether the action "accept_sure" takes it: a suggestion with a high score."""
        return self.score is not None and self.score >= SURE_SCORE


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

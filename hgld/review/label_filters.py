"""Filters of labels by the decision on them and by their suggestions, and the search for a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from hgld.review.label_order import certainty
from hgld.review.review_labels import ReviewLabel


@dataclass(frozen=True, slots=True)
class DecidedLabel:
    """A label with the decision on it.

    Args:
        label: The label.
        suggested: Key of the first suggested group; None if there is none.
        decision: One of :data:`hgld.taxonomy.decisions.DECISIONS`; None if undecided.
        group: Key of the group that takes the label, or of the guess on an unsure one; None if there is none.
        comment: Comment, or empty.
        is_proposed: Whether the group is not in the given taxonomy.
    """

    label: ReviewLabel
    suggested: str | None
    decision: str | None = None
    group: str | None = None
    comment: str = ""
    is_proposed: bool = False


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


def differs_from_suggestion(row: DecidedLabel) -> bool:
    """Return whether a label is dropped, or in another group than the first suggested one."""
    return row.suggested is not None and row.decision in ("group", "drop") and row.group != row.suggested


#: Filters by the name that stands in addresses.
FILTERS: dict[str, LabelFilter] = {
    "undecided": LabelFilter("Undecided", lambda row: row.decision is None),
    "decided": LabelFilter("Decided", lambda row: row.decision is not None),
    "unsure": LabelFilter("Unsure", lambda row: row.decision == "unsure"),
    "dropped": LabelFilter("Dropped", lambda row: row.decision == "drop"),
    "commented": LabelFilter("Commented", lambda row: bool(row.comment)),
    "proposed": LabelFilter("In a proposed group", lambda row: row.is_proposed),
    "differs": LabelFilter("Unlike the suggestion", differs_from_suggestion, shows_suggestions=True),
}


def scores_below(row: DecidedLabel, percent: int) -> bool:
    """Return whether the first suggestion has a lower score; a label without suggestions has the score 0."""
    return certainty(row.label) < percent / 100


def searchable_text(label: ReviewLabel) -> str:
    """Return the text in which a label is searched: its own, its id, its superclasses and its examples."""
    row = label.row
    return fold("\n".join((row.label, row.label_id, row.parents, *row.examples)))


def fold(text: str) -> str:
    """Return a text without differences of case and accents.

    >>> fold("Église"), fold("STRASSE") == fold("Straße")
    ('eglise', True)
    """
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if not unicodedata.combining(character))

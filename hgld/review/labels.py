"""What the review page knows of a label: its row as on a sheet, suggestions, and what others decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hgld.review.decisions import Decision, DecisionIndex
from hgld.review.sheets import LabelRow, label_rows


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A group that the label may belong to, how likely (0 to 1, or None), and why."""

    group: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """What an annotator decided about a label, or None."""

    annotator: str
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class ReviewLabel:
    """A label to decide on.

    Args:
        row: what a sheet would show of it.
        suggestions: the likely groups, best first.
        opinions: what others decided, when their opinions are to be settled.
    """

    row: LabelRow
    suggestions: tuple[Suggestion, ...] = ()
    opinions: tuple[Opinion, ...] = ()


def review_labels(clusters: pa.Table, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> list[ReviewLabel]:
    """The labels of a ``clusters`` table in the order of sheets; see :func:`hgld.review.sheets.label_rows`."""
    columns = ("label_id", "suggestions", "suggested_group", "suggestion_score")
    suggestions = {}
    for row in clusters.select(columns).to_pylist():
        found = [Suggestion(**suggestion) for suggestion in row["suggestions"]]
        if not found and row["suggested_group"]:
            found = [Suggestion(row["suggested_group"], row["suggestion_score"], "")]
        suggestions[row["label_id"]] = tuple(found)
    return [ReviewLabel(row, suggestions[row.label_id]) for row in label_rows(clusters, clean, classes)]


def disagreements(labels: Iterable[ReviewLabel], decisions: Mapping[str, Iterable[Decision]]) -> list[ReviewLabel]:
    """The labels on which annotators differ, each with all opinions; a guess is no difference.

    Args:
        labels: where to look.
        decisions: by annotator. A label that somebody has not decided counts when somebody else has.
    """
    indexes = {annotator: DecisionIndex(rows) for annotator, rows in decisions.items()}
    found = []
    for label in labels:
        opinions = tuple(
            Opinion(annotator, index.find(label.row.label_id, label.row.label))
            for annotator, index in indexes.items()
        )
        if len({_verdict(opinion.decision) for opinion in opinions}) > 1:
            found.append(replace(label, opinions=opinions))
    return found


def _verdict(decision: Decision | None) -> tuple[str, str | None] | None:
    if decision is None:
        return None
    return decision.decision, decision.group if decision.decision == "group" else None

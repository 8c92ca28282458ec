"""What the review page knows of a label: its row as on a sheet, suggestions, and what others decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hgld.review.opinions import Opinions
from hgld.review.sheets.rows import LabelRow, label_rows
from hgld.taxonomy.decisions import Decision


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
    """The labels of a ``clusters`` table in the order of sheets; see :func:`hgld.review.sheets.rows.label_rows`."""
    columns = ("label_id", "suggestions", "suggested_group", "suggestion_score")
    suggestions = {}
    for row in clusters.select(columns).to_pylist():
        found = [Suggestion(**suggestion) for suggestion in row["suggestions"]]
        if not found and row["suggested_group"]:
            found = [Suggestion(row["suggested_group"], row["suggestion_score"], "")]
        suggestions[row["label_id"]] = tuple(found)
    return [ReviewLabel(row, suggestions[row.label_id]) for row in label_rows(clusters, clean, classes)]


def with_opinions(
    labels: Iterable[ReviewLabel], opinions: Sequence[Opinions], label_ids: Collection[str]
) -> list[ReviewLabel]:
    """The labels that are among ``label_ids``, each with what the annotators decided, in their order."""
    return [
        replace(
            label,
            opinions=tuple(Opinion(one.name, one.decisions.get(label.row.label_id)) for one in opinions),
        )
        for label in labels
        if label.row.label_id in label_ids
    ]

"""Labels to review: their row in a sheet, suggested groups, and opinions of other annotators."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hgld.review.opinions import Opinions
from hgld.review.sheets.rows import LabelRow, label_rows
from hgld.taxonomy.decisions import Decision


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested group.

    Args:
        group: Name of the group.
        score: Probability that the label belongs to the group, 0 to 1; None if unknown.
        reason: Evidence for the suggestion.
    """

    group: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """Decision of another annotator on a label; None if that annotator did not decide it."""

    annotator: str
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class ReviewLabel:
    """A label to decide on.

    Args:
        row: Row of the label in a sheet.
        suggestions: Suggested groups, the most likely first.
        opinions: Decisions of other annotators, if these are to be adjudicated.
    """

    row: LabelRow
    suggestions: tuple[Suggestion, ...] = ()
    opinions: tuple[Opinion, ...] = ()


def review_labels(clusters: pa.Table, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> list[ReviewLabel]:
    """Return the labels of a ``clusters`` table in the order of sheets.

    See :func:`hgld.review.sheets.rows.label_rows`.
    """
    suggestions = table_suggestions(clusters)
    return [ReviewLabel(row, suggestions[row.label_id]) for row in label_rows(clusters, clean, classes)]


def table_suggestions(clusters: pa.Table) -> dict[str, tuple[Suggestion, ...]]:
    """Return the suggestions in a ``clusters`` table by label_id."""
    columns = ("label_id", "suggestions", "suggested_group", "suggestion_score")
    suggestions = {}
    for row in clusters.select(columns).to_pylist():
        ranked = [Suggestion(**suggestion) for suggestion in row["suggestions"]]
        if not ranked and row["suggested_group"]:
            ranked = [Suggestion(row["suggested_group"], row["suggestion_score"], "")]
        suggestions[row["label_id"]] = tuple(ranked)
    return suggestions


def with_opinions(
    labels: Iterable[ReviewLabel], opinions: Sequence[Opinions], label_ids: Collection[str]
) -> list[ReviewLabel]:
    """Return the labels among ``label_ids``, each with the decisions of all annotators in the order given."""
    return [
        replace(
            label,
            opinions=tuple(
                Opinion(annotator.annotator, annotator.decisions.get(label.row.label_id)) for annotator in opinions
            ),
        )
        for label in labels
        if label.row.label_id in label_ids
    ]

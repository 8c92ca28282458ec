"""Check the rows of a review sheet that was filled in, and turn its entries into decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hgld.review.entered_texts import MAX_COMMENT
from hgld.review.sheets.entries import Entry, RowProblem, SheetRow, collect_entries
from hgld.review.sheets.rows import fit_for_cell
from hgld.taxonomy.decisions import DECISIONS, Decision, decision_problem


@dataclass(frozen=True)
class CheckedSheet:
    """Result of :func:`check_sheet`.

    Args:
        decisions: Decisions in the valid rows, in the order of the sheet.
        problems: Problems of the invalid rows, in the order of the sheet.
        warnings: Suspicious values in valid rows.
        missing: Labels, by label_id, that have no row.
        skipped: Labels, by label_id, that have an invalid row and are not decided in another.
    """

    decisions: list[Decision]
    problems: list[RowProblem]
    warnings: list[RowProblem]
    missing: list[str]
    skipped: set[str]


def check_sheet(
    rows: Sequence[SheetRow],
    *,
    labels: Mapping[str, str],
    groups: Mapping[str, str],
    annotator: str,
    now: datetime,
    labels_are_safe: bool,
) -> CheckedSheet:
    """Check every row, and turn the entries in valid rows into decisions.

    Args:
        rows: Rows of the sheet.
        labels: All labels by label_id.
        groups: Keys of the groups in the taxonomy, by name.
        annotator: Name of the annotator.
        now: Time of the decisions.
        labels_are_safe: Whether a changed label was changed by a person, which makes the row invalid. In CSV it may
            not be: spreadsheet programs save "3-4" as a date and "1862.0" as a number. There it is only a warning,
            unless the row has the label of another label_id, as after sorting a single column.
    """
    entries, problems = collect_entries(rows)
    warnings: list[RowProblem] = []
    ids_by_label = _ids_by_label(labels)
    for row in rows:
        ids = sorted(ids_by_label.get(_comparable(row.label), ()))
        if row.label_id and row.label_id not in labels:
            hint = f'; that of "{row.label}" is {" or ".join(ids)}' if ids else ""
            problems.append(row.problem("label_id", f'there is no label_id "{row.label_id}"{hint}'))
        elif row.label_id and row.label_id not in ids:
            text = f'the label is "{row.label}", but {row.label_id} is "{labels[row.label_id]}"'
            (problems if labels_are_safe or ids else warnings).append(row.problem("label", text))
    for row, entry in entries.values():
        problems += _entry_problems(row, entry, groups)
    problems.sort(key=lambda problem: problem.number)
    invalid = {problem.number for problem in problems}
    in_sheet = {row.label_id for row in rows}
    decisions = [
        Decision(
            label_id,
            fit_for_cell(labels[label_id]),  # the text in the file of decisions is the one in the sheet
            entry.decision or "group",
            groups[entry.group] if entry.group else None,
            annotator,
            now.replace(microsecond=0),
            entry.comment,
            blind=False,  # sheets show suggestions
        )
        for label_id, (row, entry) in entries.items()
        if row.number not in invalid
    ]
    return CheckedSheet(
        decisions,
        problems,
        warnings,
        missing=[label_id for label_id in labels if label_id not in in_sheet],
        skipped={row.label_id for row in rows if row.number in invalid and row.label_id in labels}.difference(
            row.label_id for row in decisions
        ),
    )


def _ids_by_label(labels: Mapping[str, str]) -> dict[str, set[str]]:
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for label_id, label in labels.items():
        ids[_comparable(label)].add(label_id)
    return dict(ids)


def _comparable(label: str) -> str:
    """Return a label as it is in a sheet, without white space: programs spell tabs and line ends differently."""
    return "".join(fit_for_cell(label).replace("_x000D_", "").split())


def _entry_problems(row: SheetRow, entry: Entry, groups: Collection[str]) -> Iterator[RowProblem]:
    decision = entry.decision or "group"
    if not (entry.group or entry.decision):
        yield row.problem("comment", "a comment without a decision; decide, or remove the comment")
    elif problem := decision_problem(decision, entry.group or None, groups):
        yield row.problem("group" if decision in DECISIONS else "decision", problem)
    if len(entry.comment) > MAX_COMMENT:
        text = f"the comment has {len(entry.comment):,} characters; the longest has {MAX_COMMENT:,}"
        yield row.problem("comment", text)

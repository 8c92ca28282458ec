"""The stage ``import-sheet``: from what an annotator entered in a sheet to decisions.

Every row is checked, whether something was entered in it or not, and all problems are told together with the
addresses of their cells. A sheet with a problem gives nothing unless the good rows are asked for.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.resources import annotation_file
from hgld.review.opinions import landmarks_by_label
from hgld.review.sheets.csv_sheet import read_csv
from hgld.review.sheets.rows import Entry, LineProblem, SheetLine, entered_lines, fit_for_cell
from hgld.review.sheets.workbook import read_workbook
from hgld.tables import CLUSTERS, read_table
from hgld.taxonomy.decisions import (
    DECISIONS,
    Decision,
    check_annotator,
    decision_problem,
    read_decisions,
    write_decisions,
)
from hgld.taxonomy.groups import read_taxonomy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportConfig:
    """Settings of the import.

    Args:
        annotator: whose sheet it is.
        valid_rows_only: take the good rows of a sheet that has bad ones.

    Raises:
        ConfigurationError: the name cannot name a file.
    """

    annotator: str
    valid_rows_only: bool = False

    def __post_init__(self) -> None:
        check_annotator(self.annotator)


@dataclass(frozen=True)
class CheckedSheet:
    """What a sheet says.

    Args:
        decisions: of the good rows in which something was entered, in the order of the sheet.
        problems: what is wrong with the bad rows, in the order of the sheet.
        doubts: what looks wrong with good rows.
    """

    decisions: list[Decision]
    problems: list[LineProblem]
    doubts: list[LineProblem]


@dataclass(frozen=True)
class ImportSummary:
    """What was taken from a sheet.

    Args:
        labels: labels that there are.
        landmarks: landmarks that have one of them.
        decided: labels by decision.
        groups: how many groups were used.
        decided_landmarks: landmarks with a label that was decided.
        new: decisions on labels that the output had none on.
        changed: decisions other than those that the output had.
        withdrawn: labels whose decision in the output is gone, because the sheet has none any more.
        problems: what was wrong with rows that were left out.
    """

    labels: int
    landmarks: int
    decided: Mapping[str, int]
    groups: int
    decided_landmarks: int
    new: int
    changed: int
    withdrawn: int
    problems: tuple[str, ...]


def default_output(sheet: Path, annotator: str) -> Path:
    """Where the decisions of a sheet go if nobody says: in the folder ``decisions`` beside that of the sheet.

    >>> default_output(Path("review/sheet.xlsx"), "ada").as_posix()
    'decisions/ada.csv'
    """
    return Path(os.path.normpath(sheet.parent / ".." / "decisions" / f"{annotator}.csv"))


def import_sheet(
    sheet: Path,
    out: Path,
    config: ImportConfig,
    *,
    clusters: Path | None = None,
    taxonomy: Path | None = None,
    now: datetime | None = None,
    force: bool = False,
) -> ImportSummary | None:
    """Write the decisions of an annotator.

    A decision that ``out`` holds already keeps its time; a new or changed one gets that of the import, for a
    sheet does not tell when a cell was filled in.

    Args:
        sheet: the sheet, .xlsx, .ods or .csv.
        out: the file of decisions to write.
        config: the annotator, and what to do with bad rows.
        clusters: the table that the sheet was made from; ``clusters.parquet`` beside its folder by default.
        taxonomy: the groups; those that come with hgld by default.
        now: the time of the import.
        force: do not look at what ``out`` holds.

    Returns:
        None when ``out`` holds these decisions already and nothing was left out.

    Raises:
        ConfigurationError: the sheet was exported for another annotator, or ``out`` holds decisions by others.
        InputError: a file cannot be read, a row is bad and not only valid rows are wanted, or nothing is
            decided.
    """
    lines, exported_for = _read_sheet(sheet)
    if exported_for not in (None, config.annotator):
        raise ConfigurationError(
            f'{sheet}: exported for "{exported_for}", not for "{config.annotator}"; give the right --annotator'
        )
    table = read_table(_clusters_beside(sheet) if clusters is None else clusters, CLUSTERS)
    groups = {group.name for group in read_taxonomy(taxonomy or annotation_file("taxonomy.csv"))}
    checked = check_sheet(
        lines,
        labels=dict(zip(table["label_id"].to_pylist(), table["label"].to_pylist(), strict=True)),
        groups=groups,
        annotator=config.annotator,
        now=now or datetime.now(timezone.utc),
        labels_are_safe=sheet.suffix != ".csv",
    )
    problems = tuple(dict.fromkeys(map(str, checked.problems)))
    if problems and not config.valid_rows_only:
        raise InputError(
            f"{sheet}: {len(problems):,} problems, nothing was taken:\n{_all(problems)}\n"
            "mend them; where the labels are of an earlier clustering, export again with --merge; "
            "or take the other rows with --valid-rows-only"
        )
    if checked.doubts:
        log.warning(
            "%s: labels that a spreadsheet may have changed:\n%s", sheet, indented_list([*map(str, checked.doubts)])
        )
    if not checked.decisions:
        raise InputError(f"{sheet}: no label is decided in it")

    before = {} if force else _decisions_before(out, groups, config.annotator)
    decisions = [_with_its_time(row, before.get(row.label_id)) for row in checked.decisions]
    after = {row.label_id: row for row in decisions}
    withdrawn = [f'{key} ("{row.label}")' for key, row in before.items() if key not in after]
    if withdrawn:
        log.warning("%s: these labels are no longer decided in %s:\n%s", out, sheet, indented_list(withdrawn))
    if after != before or force:
        write_decisions(out, decisions)
    elif not problems:
        return None
    return _summary(table, decisions, before, len(withdrawn), problems)


def check_sheet(
    lines: Sequence[SheetLine],
    *,
    labels: Mapping[str, str],
    groups: Collection[str],
    annotator: str,
    now: datetime,
    labels_are_safe: bool,
) -> CheckedSheet:
    """Check every row and make decisions of what was entered in the good ones.

    Args:
        lines: the rows.
        labels: the labels that there are, by label_id.
        groups: the names of the taxonomy's groups.
        annotator: who decided.
        now: when.
        labels_are_safe: whether another label in a row means that somebody changed it. In CSV it does not:
            spreadsheets write "3-4" back as a date and "1862.0" as a number. There it is only a doubt, unless
            the row has the label of another label_id, as after sorting one column alone.
    """
    ids_of: defaultdict[str, set[str]] = defaultdict(set)
    for label_id, label in labels.items():
        ids_of[_comparable(label)].add(label_id)
    entered, problems = entered_lines(lines)
    doubts: list[LineProblem] = []
    for line in lines:
        problems += [
            LineProblem(line.number, merged, "merged cells; separate them and fill in each") for merged in line.merged
        ]
        label_id, label = line.values.get("label_id", "").strip(), line.values.get("label", "")
        of_label = sorted(ids_of.get(_comparable(label), ()))
        if label_id and label_id not in labels:
            hint = f'; that of "{label}" is {" or ".join(of_label)}' if of_label else ""
            problems.append(line.problem("label_id", f'there is no label_id "{label_id}"{hint}'))
        elif label_id and label_id not in of_label:
            text = f'the label is "{label}", but {label_id} is "{labels[label_id]}"'
            (problems if labels_are_safe or of_label else doubts).append(line.problem("label", text))
    for line, entry in entered.values():
        problems += _wrong_entry(line, entry, groups)
    problems.sort(key=lambda problem: problem.number)
    bad = {problem.number for problem in problems}
    decisions = [
        Decision(
            label_id,
            fit_for_cell(labels[label_id]),  # no CSV file holds what a cell does not
            entry.decision or "group",
            entry.group or None,
            annotator,
            now.replace(microsecond=0),
            entry.comment,
        )
        for label_id, (line, entry) in entered.items()
        if line.number not in bad
    ]
    return CheckedSheet(decisions, problems, doubts)


def _comparable(label: str) -> str:
    """A label as it is in a sheet, without white space: programs write tabs and line ends in their own ways."""
    return "".join(fit_for_cell(label).replace("_x000D_", "").split())


def _wrong_entry(line: SheetLine, entry: Entry, groups: Collection[str]) -> Iterator[LineProblem]:
    decision = entry.decision or "group"
    if not (entry.group or entry.decision):
        yield line.problem("comment", "a comment without a decision; decide, or take it away")
    elif problem := decision_problem(decision, entry.group or None, groups):
        yield line.problem("group" if decision in DECISIONS else "decision", problem)


def _read_sheet(sheet: Path) -> tuple[list[SheetLine], str | None]:
    """The rows, and for whom the sheet was exported where it says so."""
    if not sheet.is_file():
        raise InputError(f"{sheet}: no such file")
    if sheet.suffix == ".csv":
        return read_csv(sheet), None
    if sheet.suffix not in (".xlsx", ".ods"):
        raise InputError(f"{sheet}: not a kind of file that sheets have; save it as .xlsx, .ods or .csv")
    saved = read_workbook(sheet)
    return saved.lines, saved.provenance.parameters.get("annotator") if saved.provenance else None


def _clusters_beside(sheet: Path) -> Path:
    path = sheet.resolve().parent.parent / "clusters.parquet"
    if not path.is_file():
        raise ConfigurationError(f"{path}: no such file; name the table the sheet was made from with --clusters")
    return path


def _decisions_before(out: Path, groups: Collection[str], annotator: str) -> dict[str, Decision]:
    before = read_decisions(out, groups) if out.exists() else []
    others = sorted({row.annotator for row in before} - {annotator})
    if others:
        raise ConfigurationError(
            f"{out}: holds decisions by {', '.join(others)}, which would be lost; write to another file, "
            "or lose them with --force"
        )
    return {row.label_id: row for row in before}


def _with_its_time(row: Decision, before: Decision | None) -> Decision:
    if before is None:
        return row
    earlier = replace(row, decided_at=before.decided_at)
    return earlier if earlier == before else row


def _summary(
    table: pa.Table,
    decisions: Sequence[Decision],
    before: Mapping[str, Decision],
    withdrawn: int,
    problems: tuple[str, ...],
) -> ImportSummary:
    landmarks = landmarks_by_label(table)
    return ImportSummary(
        labels=len(table),
        landmarks=sum(landmarks.values()),
        decided=Counter(row.decision for row in decisions),
        groups=len({row.group for row in decisions if row.decision == "group"}),
        decided_landmarks=sum(landmarks[row.label_id] for row in decisions),
        new=sum(row.label_id not in before for row in decisions),
        changed=sum(before.get(row.label_id, row) != row for row in decisions),
        withdrawn=withdrawn,
        problems=problems,
    )


def _all(problems: Sequence[str]) -> str:
    return indented_list(problems, limit=len(problems))

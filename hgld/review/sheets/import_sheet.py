"""The stage ``import-sheet``: turn the entries of an annotator in a sheet into decisions.

Every row is checked, with or without an entry, and all problems are reported together with the addresses of their
cells. A sheet with a problem is rejected as a whole, unless only its valid rows are requested.
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

from hgld.errors import ConfigurationError, InputError, counted, indented_list
from hgld.names import stored_name
from hgld.review.decision_files import landmarks_by_label, made_by_others, require_nothing_lost
from hgld.review.labels import fit_for_cell
from hgld.review.session import MAX_COMMENT
from hgld.review.settings import ImportConfig
from hgld.review.sheets.entries import (
    Entry,
    RowProblem,
    SheetRow,
    collect_entries,
    is_text,
    normalise_entry,
    read_csv_sheet,
)
from hgld.tables import CLUSTERS, read_table
from hgld.taxonomy.decisions import (
    DECISIONS,
    Decision,
    decision_problem,
    read_decisions,
    require_same_taxonomy,
    write_decisions,
)
from hgld.taxonomy.groups import find_taxonomy, read_taxonomy


@dataclass(frozen=True)
class CheckedSheet:
    """Result of :func:`check_sheet`.

    Args:
        decisions: Decisions in valid rows.
        problems: Problems of rows, by row number.
        missing: Ids of labels without a row.
        skipped: Ids of labels with an invalid row and without a decision in another row.
    """

    decisions: list[Decision]
    problems: list[RowProblem]
    missing: list[str]
    skipped: set[str]


def check_sheet(
    rows: Sequence[SheetRow],
    *,
    labels: Mapping[str, str],
    groups: Mapping[str, str],
    annotator: str,
    now: datetime,
) -> CheckedSheet:
    """Check every row, and turn the entries in valid rows into decisions.

    Spreadsheet programs save "3-4" as a date and "1862.0" as a number. Therefore a changed label is a problem only if
    it is the label of another label_id, as after sorting a single column.

    Args:
        labels: Text of every label, by label_id.
        groups: Key of every group, by name.
    """
    entries, problems = collect_entries(rows)
    ids_by_label: defaultdict[str, set[str]] = defaultdict(set)
    for label_id, label in labels.items():
        ids_by_label[_comparable(label)].add(label_id)
    for row in rows:
        ids = ids_by_label[_comparable(row.label)]
        if row.label_id and row.label_id not in labels:
            problems.append(row.problem("label_id", f'there is no label_id "{row.label_id}"'))
        elif row.label_id and ids and row.label_id not in ids:
            text = f'the label is "{row.label}", but {row.label_id} is "{labels[row.label_id]}"'
            problems.append(row.problem("label", text))
    for row, entry in entries.values():
        problems += _entry_problems(row, entry, groups)
    problems.sort(key=lambda problem: problem[0])
    invalid = {number for number, _ in problems}
    decisions = []
    for label_id, (row, entry) in entries.items():
        if row.number in invalid:
            continue
        decision = Decision(
            label_id,
            fit_for_cell(labels[label_id]),  # the text in the sheet
            entry.decision or "group",
            groups[entry.group] if entry.group else None,
            annotator,
            now.replace(microsecond=0),
            entry.comment,
            blind=False,  # sheets show suggestions
        )
        decisions.append(decision)
    in_sheet = {row.label_id for row in rows}
    in_invalid_rows = {row.label_id for row in rows if row.number in invalid}
    decided = {decision.label_id for decision in decisions}
    return CheckedSheet(
        decisions,
        problems,
        missing=[label_id for label_id in labels if label_id not in in_sheet],
        skipped=(in_invalid_rows & labels.keys()) - decided,
    )


def _comparable(label: str) -> str:
    """Return the text of a label in a sheet without white space, which programs write differently."""
    return "".join(fit_for_cell(label).replace("_x000D_", "").split())


def _entry_problems(row: SheetRow, entry: Entry, groups: Collection[str]) -> Iterator[RowProblem]:
    decision = entry.decision or "group"
    problem = decision_problem(decision, entry.group or None, groups)
    if not entry.group and not entry.decision:
        yield row.problem("comment", "a comment without a decision; decide, or remove the comment")
    elif problem is not None:
        column = "group" if decision in DECISIONS else "decision"
        yield row.problem(column, problem)
    if len(entry.comment) > MAX_COMMENT:
        text = f"the comment has {len(entry.comment):,} characters; the longest has {MAX_COMMENT:,}"
        yield row.problem("comment", text)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportSummary:
    """Result of the stage ``import-sheet``.

    Args:
        new: Number of decisions on labels without an earlier decision in the output.
        kept: Number of decisions in the output that were kept because the row of their label is missing or invalid.
        withdrawn: Number of decisions in the output that the sheet no longer has.
        problems: Problems of the rows that were skipped, and the labels without a row.
    """

    labels: int
    landmarks: int
    decided: Mapping[str, int]
    groups: int
    decided_landmarks: int
    new: int
    changed: int
    kept: int
    withdrawn: int
    problems: tuple[str, ...]


def default_output(sheet: Path, annotator: str | None) -> Path:
    """Return the default file of decisions, in the folder ``decisions`` beside the folder of the sheet.

    The default annotator is the name in the workbook.

    >>> default_output(Path("review/sheet.xlsx"), "ada").as_posix()
    'decisions/ada.csv'
    """
    if annotator is None:
        _, exported_for = _read_sheet(sheet)
        annotator = _require_annotator(sheet, exported_for)
    return Path(os.path.normpath(sheet.parent / ".." / "decisions" / f"{annotator}.csv"))


def _require_annotator(sheet: Path, annotator: str | None) -> str:
    if annotator is None:
        raise ConfigurationError(
            f"{sheet}: does not say for whom it was exported; name the `annotator` who filled it in"
        )
    return annotator


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
    """Write the decisions in a sheet as CSV.

    A sheet has no times of its entries: an unchanged decision keeps its time in ``out``, and a new or changed
    decision gets the time of the import. Decisions in ``out`` on labels whose rows are missing or invalid are kept.

    Args:
        sheet: Sheet that was filled in: .xlsx or .csv.
        out: File of decisions to write.
        config: Annotator, and the handling of invalid rows.
        clusters: Clusters from which the sheet was made. Default: clusters.parquet beside the folder of ``sheet``.
        taxonomy: File of the groups. Default: the file of the list's project; for GLDv2 the file in hgld.
        now: Time of the import; by default the present.
        force: Discard the decisions in the output.

    Returns:
        None if ``out`` already holds these decisions and no row was skipped.

    Raises:
        ConfigurationError: The sheet was exported for another annotator, or ``out`` has decisions of others.
        InputError: A file cannot be read, most groups in the sheet are not in the taxonomy, a row is invalid or
            missing and not only valid rows are asked for, or no label is decided.
    """
    rows, exported_for = _read_sheet(sheet)
    annotator = _require_annotator(sheet, config.annotator or exported_for)
    if exported_for not in (None, annotator):
        raise ConfigurationError(
            f'{sheet}: exported for "{exported_for}", not for "{annotator}"; give the right `annotator`'
        )
    if clusters is None:
        clusters = clusters_beside(sheet)
    table = read_table(clusters, CLUSTERS)
    groups = read_taxonomy(find_taxonomy(taxonomy, clusters))
    key_by_name = {stored_name(group.name): group.key for group in groups}
    entered = {stored_name(normalise_entry(row.values.get("group", ""))) for row in rows}
    require_same_taxonomy(sheet, entered.difference([""]), key_by_name)
    labels = dict(zip(table["label_id"].to_pylist(), table["label"].to_pylist(), strict=True))
    checked = check_sheet(
        rows,
        labels=labels,
        groups=key_by_name,
        annotator=annotator,
        now=now or datetime.now(timezone.utc),
    )
    texts = dict.fromkeys(text for _, text in checked.problems)
    if checked.missing:
        missing = [f'  {label_id} ("{labels[label_id]}")' for label_id in checked.missing]
        names = indented_list(missing)
        texts[f"{counted(len(checked.missing), 'label')} without a row:\n{names}"] = None
    problems = tuple(texts)
    if problems and not config.valid_rows_only:
        raise _rejected(sheet, problems)
    if not checked.decisions:
        raise InputError(f"{sheet}: no label is decided in it")

    earlier: dict[str, Decision] = {}
    if not force:
        earlier = _read_earlier(out, key_by_name.values(), annotator)
    decisions = [_keep_record(row, earlier.get(row.label_id)) for row in checked.decisions]
    # A skipped or missing row does not withdraw the earlier decision on its label.
    not_read = checked.skipped.union(checked.missing)
    kept = [row for label_id, row in earlier.items() if label_id in not_read]
    decisions += kept
    current = {row.label_id: row for row in decisions}
    withdrawn = []
    for label_id, row in earlier.items():
        if label_id not in current:
            withdrawn.append(f'{label_id} ("{row.label}")')
    if withdrawn:
        log.warning(
            "%s: these labels are no longer decided in %s:\n%s",
            out,
            sheet,
            indented_list(withdrawn),
        )
    if current != earlier or force:
        write_decisions(out, decisions)
    elif not problems:
        return None
    return _summary(table, decisions, earlier, len(kept), len(withdrawn), problems)


def _rejected(sheet: Path, problems: Sequence[str]) -> InputError:
    lines = indented_list(problems, limit=len(problems))
    return InputError(
        f"{sheet}: {counted(len(problems), 'problem')}, nothing was imported:\n{lines}\n"
        "fix them; if rows are missing or the sheet is from an earlier clustering, export it again with `merge`, "
        "which keeps its entries; or import the other rows with `valid_rows_only`"
    )


def _read_sheet(sheet: Path) -> tuple[list[SheetRow], str | None]:
    """Return the rows of a sheet, and the annotator in its provenance; None if unknown."""
    # Imported here, because the help of the command does not need openpyxl.
    from hgld.review.sheets.workbook import read_workbook

    if is_text(sheet):
        return read_csv_sheet(sheet), None
    saved = read_workbook(sheet)
    if saved.provenance is None:
        return saved.rows, None
    return saved.rows, saved.provenance.parameters.get("annotator")


def clusters_beside(sheet: Path) -> Path:
    """Return clusters.parquet beside the folder of a sheet; raise a ConfigurationError if it is missing."""
    path = sheet.resolve().parent.parent / "clusters.parquet"
    if not path.is_file():
        raise ConfigurationError(
            f"{path}: no such file; give the table from which the sheet was made as `clusters`"
        )
    return path


def _read_earlier(out: Path, groups: Collection[str], annotator: str) -> dict[str, Decision]:
    if not out.exists():
        return {}
    earlier = read_decisions(out, groups)
    require_nothing_lost(out, [row for row in earlier if made_by_others(row, [annotator])])
    return {row.label_id: row for row in earlier}


def _keep_record(row: Decision, earlier: Decision | None) -> Decision:
    """Return the earlier decision if the new decision differs only in its time and ``blind``."""
    if earlier is None:
        return row
    if replace(row, decided_at=earlier.decided_at, blind=earlier.blind) == earlier:
        return earlier
    return row


def _summary(
    table: pa.Table,
    decisions: Sequence[Decision],
    earlier: Mapping[str, Decision],
    kept: int,
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
        new=sum(row.label_id not in earlier for row in decisions),
        changed=sum(earlier.get(row.label_id, row) != row for row in decisions),
        kept=kept,
        withdrawn=withdrawn,
        problems=problems,
    )

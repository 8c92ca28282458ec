"""The stage ``export``: write review sheets for every annotator, and keep their earlier entries."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hgld.errors import BusyError, ConfigurationError, InputError, indented_list
from hgld.review.inputs import find_inputs
from hgld.review.sheets.csv_sheet import read_csv_sheet, write_csv_sheet
from hgld.review.sheets.entries import Entries, entries_digest, merge_entries, read_entries
from hgld.review.sheets.rows import label_rows
from hgld.review.sheets.workbook import read_workbook, write_workbook
from hgld.review.sheets.worksheets import SET_ASIDE
from hgld.tables import Provenance
from hgld.taxonomy.decisions import check_annotator
from hgld.taxonomy.groups import Group

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportConfig:
    """Settings of the export.

    Args:
        annotators: Names of the annotators, after which their files are named.
        merge: Keep the entries in existing sheets.

    Raises:
        ConfigurationError: There is no annotator, a name cannot be a file name everywhere, or two are the same.
    """

    annotators: tuple[str, ...]
    merge: bool = False

    def __post_init__(self) -> None:
        if not self.annotators:
            raise ConfigurationError("`annotators` is empty; give at least one name, e.g. ada,ben")
        for name in self.annotators:
            check_annotator(name)
        # Some file systems do not distinguish "Ada" from "ada".
        if len({name.casefold() for name in self.annotators}) < len(self.annotators):
            raise ConfigurationError(f"two annotators have the same name: {', '.join(self.annotators)}")


@dataclass(frozen=True)
class ExportSummary:
    """Result of the stage ``export``.

    Args:
        labels: Number of rows in every sheet.
        landmarks: Number of landmarks with one of the labels.
        clusters: Number of clusters.
        workbooks: Workbooks written; beside each is a CSV file of the same name.
        kept: Number of labels whose entries were kept, in all sheets together.
        set_aside: Number of entries for labels that no longer exist, kept on a sheet of their own.
    """

    labels: int
    landmarks: int
    clusters: int
    workbooks: tuple[Path, ...]
    kept: int
    set_aside: int


@dataclass(frozen=True)
class _ExistingSheets:
    """Entries in an annotator's files, and their provenance; None if the files do not agree."""

    entries: Entries
    provenance: Provenance | None = None


def export_sheets(
    clusters: Path,
    out: Path,
    config: ExportConfig,
    *,
    clean: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    force: bool = False,
) -> ExportSummary | None:
    """Write ``<annotator>.xlsx`` and ``<annotator>.csv`` into ``out`` for every annotator.

    All existing sheets are read before anything is written.

    Args:
        clusters: ``clusters`` table.
        out: Folder for the sheets.
        config: Annotators, and whether to keep their entries.
        clean: ``clean`` table, for the examples; by default ``clean.parquet`` beside ``clusters``.
        classes: ``classes`` tables, for the parents; by default ``*.classes.parquet`` beside ``clusters``.
        taxonomy: Groups; by default those that come with hgld.
        force: Write new sheets and discard earlier entries.

    Returns:
        None if every sheet is up to date.

    Raises:
        BusyError: A sheet is open in a spreadsheet program.
        ConfigurationError: Both ``merge`` and ``force`` are set, or neither is and a sheet has entries.
        InputError: A table, the taxonomy or a sheet cannot be read, or the two sheets of an annotator contradict
            each other.
    """
    if config.merge and force:
        raise ConfigurationError("`merge` keeps entries and `force` discards them; give only one of them")
    inputs = find_inputs(clusters, clean=clean, classes=classes, taxonomy=taxonomy)
    groups = inputs.read_groups()
    name_by_key = {group.key: group.name for group in groups}
    rows = [
        replace(row, suggested_group=name_by_key.get(row.suggested_group, row.suggested_group))
        for row in label_rows(*inputs.read_tables())
    ]
    workbooks = {name: out / f"{name}.xlsx" for name in config.annotators}
    for path in workbooks.values():
        _require_closed(path)
    existing = {} if force else {name: _read_existing(path) for name, path in workbooks.items()}
    if not config.merge:
        _require_no_entries({workbooks[name]: sheets.entries for name, sheets in existing.items()})

    digests = inputs.digests()
    provenance = {name: Provenance("export", {"annotator": name}, digests) for name in config.annotators}
    outdated = [name for name in config.annotators if not _is_up_to_date(existing.get(name), provenance[name])]
    if not outdated:
        return None
    label_ids = {row.label_id for row in rows}
    kept = set_aside = 0
    for name in outdated:
        entries = existing[name].entries if name in existing else {}
        current = {label_id: entry for label_id, entry in entries.items() if label_id in label_ids}
        removed = {label_id: entry for label_id, entry in entries.items() if label_id not in label_ids}
        _warn_about_entries(workbooks[name], current, removed, groups)
        write_csv_sheet(workbooks[name].with_suffix(".csv"), rows, current)
        write_workbook(
            workbooks[name],
            rows,
            current,
            set_aside=removed,
            groups=groups,
            annotator=name,
            provenance=provenance[name],
        )
        kept, set_aside = kept + len(current), set_aside + len(removed)
    return ExportSummary(
        labels=len(rows),
        landmarks=sum(row.landmarks for row in rows),
        clusters=len({row.cluster for row in rows}),
        workbooks=tuple(workbooks[name] for name in outdated),
        kept=kept,
        set_aside=set_aside,
    )


def _require_closed(workbook: Path) -> None:
    """Refuse a workbook or CSV file that a spreadsheet program has open."""
    for path in (workbook, workbook.with_suffix(".csv")):
        # Lock files of LibreOffice and of Excel.
        for lock in (path.with_name(f".~lock.{path.name}#"), path.with_name(f"~${path.name}")):
            if lock.exists():
                raise BusyError(
                    f"{path}: open in a spreadsheet program; save and close it there, then run this again. If no "
                    f"program has it open, one has crashed: delete {lock}"
                )


def _read_existing(workbook: Path) -> _ExistingSheets:
    sheet = workbook.with_suffix(".csv")
    in_csv = read_entries(sheet, read_csv_sheet(sheet)) if sheet.exists() else None
    if not workbook.exists():
        return _ExistingSheets(in_csv or {})
    saved = read_workbook(workbook)
    in_workbook = read_entries(workbook, saved.rows)
    try:
        entries = merge_entries(_latest(in_workbook, in_csv, saved.exported), saved.set_aside)
    except InputError as error:
        raise InputError(
            f"{workbook} and {sheet.name}: {error}\nmake them agree, or delete the file that is wrong"
        ) from None
    agree = in_csv is not None and entries_digest(in_csv) == entries_digest(in_workbook)
    return _ExistingSheets(entries, saved.provenance if agree else None)


def _latest(in_workbook: Entries, in_csv: Entries | None, exported: str | None) -> Entries:
    """Return the entries of the file that was changed since the export, or those of both if both were."""
    if in_csv is None or entries_digest(in_csv) == exported:
        return in_workbook
    if entries_digest(in_workbook) == exported:
        return in_csv
    return merge_entries(in_workbook, in_csv)


def _require_no_entries(entries_by_workbook: Mapping[Path, Entries]) -> None:
    started = [f"{path}: {len(entries):,} labels" for path, entries in entries_by_workbook.items() if entries]
    if started:
        raise ConfigurationError(
            f"existing sheets have entries:\n{indented_list(started)}\n"
            "`merge` keeps them in the new sheets, `force` discards them"
        )


def _is_up_to_date(existing: _ExistingSheets | None, provenance: Provenance) -> bool:
    return existing is not None and existing.provenance is not None and existing.provenance.same_work(provenance)


def _warn_about_entries(workbook: Path, current: Entries, removed: Entries, groups: Sequence[Group]) -> None:
    """Warn of entries that do not match the labels or the taxonomy any more; they are kept as they are."""
    names = {group.name for group in groups}
    unknown = [
        f'{entry.label_id} ("{entry.label}"): {entry.group}'
        for entry in current.values()
        if entry.group and entry.group not in names
    ]
    if unknown:
        log.warning("%s: groups that are not in the taxonomy:\n%s", workbook, indented_list(unknown))
    if removed:
        labels = [f'{entry.label_id} ("{entry.label}")' for entry in removed.values()]
        log.warning(
            '%s: these labels no longer exist; their entries are kept on the sheet "%s":\n%s',
            *(workbook, SET_ASIDE, indented_list(labels)),
        )

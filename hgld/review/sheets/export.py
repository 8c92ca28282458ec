"""The stage ``export``: write review sheets for every annotator, and keep their earlier entries."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hgld.errors import BusyError, ConfigurationError, InputError, counted, indented_list
from hgld.io.folder_replacement import file_digests, finish_replacing, replace_together
from hgld.io.locks import exclusive_lock
from hgld.names import stored_name
from hgld.review.labels import find_inputs, review_labels
from hgld.review.settings import ExportConfig
from hgld.review.sheets.entries import (
    Entries,
    entries_digest,
    merge_entries,
    read_csv_sheet,
    read_entries,
    write_csv_sheet,
)
from hgld.tables import Provenance
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.project import nouns_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportSummary:
    """Result of the stage ``export``.

    Args:
        workbooks: Written workbooks; each has a CSV file of the same name beside it.
        kept: Number of labels whose entries were kept, in all sheets together.
        set_aside: Number of entries for labels that no longer exist, kept on a separate sheet.
    """

    labels: int
    landmarks: int
    clusters: int
    workbooks: tuple[Path, ...]
    kept: int
    set_aside: int


@dataclass(frozen=True)
class _ExistingSheets:
    """Files of an annotator.

    Args:
        provenance: Provenance of the workbook.
        agree: Whether the workbook and the CSV file have the same entries and all labels.
    """

    entries: Entries = field(default_factory=dict)
    provenance: Provenance | None = None
    agree: bool = False


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

    All existing sheets are read before the first write, and all new sheets are written before the first replacement.
    The next export finishes a killed export. A sheet from the same inputs is up to date, with any entries; ``merge``
    also makes its two files agree.

    Args:
        clusters: Clusters from hgld cluster.
        out: Folder for the sheets.
        config: Annotators, and whether to keep their entries.
        clean: ``clean`` table, for the examples; by default ``clean.parquet`` beside ``clusters``.
        classes: ``classes`` tables, for the parents; by default ``*.classes.parquet`` beside ``clusters``.
        taxonomy: File of the groups. Default: the file of the list's project; for GLDv2 the file in hgld.
        force: Write new sheets and discard earlier entries.

    Returns:
        None if every sheet is up to date.

    Raises:
        ConfigurationError: Both ``merge`` and ``force`` are set, or neither is and a sheet to replace has entries.
        ConflictError: A sheet was saved while the new one was written, or after an export that was killed.
        InputError: A table, the taxonomy or a sheet cannot be read, or the two sheets of an annotator contradict
            each other.
    """
    # Imported here, because the help of the command does not need openpyxl.
    from hgld.review.sheets.workbook import write_workbook

    if config.merge and force:
        raise ConfigurationError(
            "`merge` keeps entries and `force` discards them; give only one of them"
        )
    inputs = find_inputs(clusters, clean=clean, classes=classes, taxonomy=taxonomy)
    groups = read_taxonomy(inputs.taxonomy)
    name_by_key = {group.key: group.name for group in groups}
    nouns = nouns_of(inputs.clean)
    _, counts_title = nouns_of(clusters)
    table, clean_table, classes_tables = inputs.read_tables()
    rows = []
    for row in review_labels(table, clean_table, classes_tables):
        suggested = name_by_key.get(row.suggested_group, row.suggested_group)
        rows.append(replace(row, suggested_group=suggested))
    workbooks = {name: out / f"{name}.xlsx" for name in config.annotators}
    for path in workbooks.values():
        _require_closed(path)
    digests = inputs.digests()
    provenance = {}
    for name in config.annotators:
        provenance[name] = Provenance("export", {"annotator": name}, digests)
    folder = out.resolve()
    with exclusive_lock(folder):
        finish_replacing(folder)
        labels = {row.label_id for row in rows}
        # Digests before the contents, to notice a file that is saved while the new one is written.
        existing_digests = {}
        existing = {}
        for name, path in workbooks.items():
            # The workbook first: only the workbook can hold entries that are set aside.
            existing_digests[name] = file_digests(folder, [f"{name}.xlsx", f"{name}.csv"])
            existing[name] = _ExistingSheets()
            if not force:
                existing[name] = _read_existing(path, labels)
        outdated = []
        for name, sheets in existing.items():
            made_from = sheets.provenance
            same_work = made_from is not None and made_from.same_work(provenance[name])
            if not same_work or (config.merge and not sheets.agree):
                outdated.append(name)
        if not config.merge:
            _require_no_entries({workbooks[name]: existing[name].entries for name in outdated})
        if not outdated:
            return None
        files = {}
        for name in outdated:
            files.update(existing_digests[name])
        n_kept = 0
        n_set_aside = 0
        with replace_together(folder, files) as staging:
            for name in outdated:
                kept = {}
                set_aside = {}
                for label_id, entry in existing[name].entries.items():
                    if label_id in labels:
                        kept[label_id] = entry
                    else:
                        set_aside[label_id] = entry
                _warn_about_groups(workbooks[name], kept, groups)
                write_csv_sheet(staging / f"{name}.csv", rows, kept, counts_title=counts_title)
                write_workbook(
                    staging / f"{name}.xlsx",
                    rows,
                    kept,
                    set_aside=set_aside,
                    groups=groups,
                    annotator=name,
                    provenance=provenance[name],
                    nouns=nouns,
                    counts_title=counts_title,
                )
                n_kept += len(kept)
                n_set_aside += len(set_aside)
    return ExportSummary(
        labels=len(rows),
        landmarks=sum(row.landmarks for row in rows),
        clusters=len({row.cluster for row in rows}),
        workbooks=tuple(workbooks[name] for name in outdated),
        kept=n_kept,
        set_aside=n_set_aside,
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


def _read_existing(workbook: Path, labels: Collection[str]) -> _ExistingSheets:
    from hgld.review.sheets.workbook import read_workbook

    sheet = workbook.with_suffix(".csv")
    csv_rows = read_csv_sheet(sheet) if sheet.exists() else None
    in_csv = None if csv_rows is None else read_entries(sheet, csv_rows)
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
    if in_csv is None or csv_rows is None:
        return _ExistingSheets(entries)
    labels_in_csv = {row.label_id for row in csv_rows}
    labels_in_workbook = {row.label_id for row in saved.rows}
    have_all_rows = set(labels) <= labels_in_csv & labels_in_workbook
    agree = have_all_rows and entries_digest(in_csv) == entries_digest(in_workbook)
    return _ExistingSheets(entries, saved.provenance, agree)


def _latest(in_workbook: Entries, in_csv: Entries | None, exported: str | None) -> Entries:
    """Return the entries of the file that changed since the export; merge the entries if both changed."""
    if in_csv is None or entries_digest(in_csv) == exported:
        return in_workbook
    if entries_digest(in_workbook) == exported:
        return in_csv
    return merge_entries(in_workbook, in_csv)


def _require_no_entries(entries_by_workbook: Mapping[Path, Entries]) -> None:
    started = []
    for path, entries in entries_by_workbook.items():
        if entries:
            started.append(f"{path}: {counted(len(entries), 'label')}")
    if started:
        raise ConfigurationError(
            f"existing sheets have entries:\n{indented_list(started)}\n"
            "`merge` keeps them in the new sheets, `force` discards them"
        )


def _warn_about_groups(workbook: Path, entries: Entries, groups: Sequence[Group]) -> None:
    """Log a warning about entries whose groups are no longer in the taxonomy; the entries are kept."""
    names = {stored_name(group.name) for group in groups}
    unknown = []
    for entry in entries.values():
        if entry.group and entry.group not in names:
            unknown.append(f'{entry.label_id} ("{entry.label}"): {entry.group}')
    if unknown:
        log.warning(
            "%s: groups that are not in the taxonomy:\n%s", workbook, indented_list(unknown)
        )

"""The stage ``export``: review sheets for every annotator, without losing what they entered before."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import BusyError, ConfigurationError, InputError, indented_list
from hgld.resources import annotation_file
from hgld.review.sheets.csv_sheet import read_csv, write_csv
from hgld.review.sheets.rows import Entries, combine, digest_of, entries_of, label_rows
from hgld.review.sheets.workbook import SET_ASIDE, read_workbook, write_workbook
from hgld.tables import CLASSES, CLEAN, CLUSTERS, Provenance, digests, read_table
from hgld.taxonomy.decisions import check_annotator
from hgld.taxonomy.groups import Group, read_taxonomy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportConfig:
    """Settings of the export.

    Args:
        annotators: their names, which name their files.
        merge: keep what was entered in the sheets that are there.

    Raises:
        ConfigurationError: no annotator, a name that is no file name everywhere, or the same name twice.
    """

    annotators: tuple[str, ...]
    merge: bool = False

    def __post_init__(self) -> None:
        if not self.annotators:
            raise ConfigurationError("no annotators; name them, e.g. --annotators ada,ben")
        for name in self.annotators:
            check_annotator(name)
        # Some file systems do not tell "Ada" from "ada".
        if len({name.casefold() for name in self.annotators}) < len(self.annotators):
            raise ConfigurationError(f"two annotators have the same name: {', '.join(self.annotators)}")


@dataclass(frozen=True)
class ExportSummary:
    """What was written.

    Args:
        labels: rows in every sheet.
        landmarks: landmarks that have one of the labels.
        clusters: clusters the labels stand in.
        workbooks: the workbooks written; beside each is a CSV file of the same name.
        kept: labels whose entries were taken over, in all sheets together.
        set_aside: entries of labels that are gone, kept on a sheet of their own.
    """

    labels: int
    landmarks: int
    clusters: int
    workbooks: tuple[Path, ...]
    kept: int
    set_aside: int


@dataclass(frozen=True)
class _Existing:
    """What was entered in an annotator's files, and what made them; None where they say different things."""

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

    Nothing is written before all sheets that are there have been read.

    Args:
        clusters: the ``clusters`` table.
        out: the folder for the sheets.
        config: the annotators, and whether to keep what they entered.
        clean: the ``clean`` table, for the examples; ``clean.parquet`` beside ``clusters`` by default.
        classes: ``classes`` tables, for the parents; ``*.classes.parquet`` beside ``clusters`` by default.
        taxonomy: the groups; those that come with hgld by default.
        force: write new sheets and lose what was entered.

    Returns:
        None when every sheet is up to date.

    Raises:
        BusyError: a sheet is open in a spreadsheet program.
        ConfigurationError: merge and force at once, or something was entered and neither is given.
        InputError: a table, the taxonomy or a sheet cannot be read, or the two sheets of an annotator
            contradict each other.
    """
    if config.merge and force:
        raise ConfigurationError("--merge keeps what was entered and --force does not; give one of them")
    clean = clean_beside(clusters) if clean is None else clean
    if classes is None:
        classes = sorted(clusters.parent.glob("*.classes.parquet"))
        if not classes:
            log.info("no *.classes.parquet beside %s; the column parents stays empty", clusters)
    taxonomy = annotation_file("taxonomy.csv") if taxonomy is None else taxonomy
    groups = read_taxonomy(taxonomy)
    rows = label_rows(
        read_table(clusters, CLUSTERS),
        read_table(clean, CLEAN),
        [read_table(path, CLASSES) for path in classes],
    )
    if not rows:
        raise InputError(f"{clusters}: no labels to review")

    inputs = digests(clusters=clusters, clean=clean, classes=classes, taxonomy=taxonomy)
    workbooks = {name: out / f"{name}.xlsx" for name in config.annotators}
    for path in workbooks.values():
        _refuse_open(path)
    existing = {} if force else {name: _read_existing(path) for name, path in workbooks.items()}
    if not config.merge:
        _refuse_entries({workbooks[name]: sheet.entries for name, sheet in existing.items()})

    work = {name: Provenance("export", {"annotator": name}, inputs) for name in config.annotators}
    stale = [name for name in config.annotators if not _is_up_to_date(existing.get(name), work[name])]
    if not stale:
        return None
    known = {row.label_id for row in rows}
    kept = set_aside = 0
    for name in stale:
        entries = existing[name].entries if name in existing else {}
        current = {key: entry for key, entry in entries.items() if key in known}
        gone = {key: entry for key, entry in entries.items() if key not in known}
        _warn_of(workbooks[name], current, gone, groups)
        write_csv(workbooks[name].with_suffix(".csv"), rows, current)
        write_workbook(
            workbooks[name],
            rows,
            current,
            set_aside=gone,
            groups=groups,
            annotator=name,
            provenance=work[name],
        )
        kept, set_aside = kept + len(current), set_aside + len(gone)
    return ExportSummary(
        labels=len(rows),
        landmarks=sum(row.landmarks for row in rows),
        clusters=len({row.cluster for row in rows}),
        workbooks=tuple(workbooks[name] for name in stale),
        kept=kept,
        set_aside=set_aside,
    )


def clean_beside(clusters: Path) -> Path:
    """The ``clean`` table beside a ``clusters`` table.

    Raises:
        ConfigurationError: there is none.
    """
    path = clusters.with_name("clean.parquet")
    if not path.is_file():
        raise ConfigurationError(f"{path}: no such file; name the table the labels come from with --clean")
    return path


def _refuse_open(workbook: Path) -> None:
    for path in (workbook, workbook.with_suffix(".csv")):
        # LibreOffice's lock, and Excel's.
        for lock in (path.with_name(f".~lock.{path.name}#"), path.with_name(f"~${path.name}")):
            if lock.exists():
                raise BusyError(
                    f"{path}: open in a spreadsheet program; save and close it there, then run again; if "
                    f"no program has it open, one crashed: delete {lock}"
                )


def _read_existing(workbook: Path) -> _Existing:
    sheet = workbook.with_suffix(".csv")
    in_csv = entries_of(sheet, read_csv(sheet)) if sheet.exists() else None
    if not workbook.exists():
        return _Existing(in_csv or {})
    saved = read_workbook(workbook)
    in_workbook = entries_of(workbook, saved.lines)
    try:
        entries = combine(_latest(in_workbook, in_csv, saved.exported), saved.set_aside)
    except InputError as error:
        raise InputError(
            f"{workbook} and {sheet.name}: {error}\nmake them agree, or delete the one that does not count"
        ) from None
    agree = in_csv is not None and digest_of(in_csv) == digest_of(in_workbook)
    return _Existing(entries, saved.provenance if agree else None)


def _latest(in_workbook: Entries, in_csv: Entries | None, exported: str | None) -> Entries:
    """A file that still says what it was written with says nothing new: the other counts, else both do."""
    if in_csv is None or digest_of(in_csv) == exported:
        return in_workbook
    if digest_of(in_workbook) == exported:
        return in_csv
    return combine(in_workbook, in_csv)


def _refuse_entries(entered: Mapping[Path, Entries]) -> None:
    begun = [f"{path}: {len(entries):,} labels" for path, entries in entered.items() if entries]
    if begun:
        raise ConfigurationError(
            f"something was entered in sheets that are there:\n{indented_list(begun)}\n"
            "--merge writes them again and keeps it, --force throws it away"
        )


def _is_up_to_date(existing: _Existing | None, work: Provenance) -> bool:
    return existing is not None and existing.provenance is not None and existing.provenance.same_work(work)


def _warn_of(workbook: Path, current: Entries, gone: Entries, groups: Sequence[Group]) -> None:
    """Say which entries no longer fit the labels or the taxonomy; they are kept as they are."""
    names = {group.name for group in groups}
    unknown = [
        f'{entry.label_id} ("{entry.label}"): {entry.group}'
        for entry in current.values()
        if entry.group and entry.group not in names
    ]
    if unknown:
        log.warning("%s: groups that the taxonomy does not have:\n%s", workbook, indented_list(unknown))
    if gone:
        labels = [f'{entry.label_id} ("{entry.label}")' for entry in gone.values()]
        log.warning(
            '%s: these labels are gone; what was entered for them is kept on the sheet "%s":\n%s',
            *(workbook, SET_ASIDE, indented_list(labels)),
        )

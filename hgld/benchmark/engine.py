"""Comparisons of things that give results on images: the folder, the runs, the files of results, and the reports.

A comparison locks its folder and computes the runs that are out of date. Each run writes a file of results, and
reports are made from these files. The commands differ in what a run is, and in the contents of the reports::

    benchmark           a run: a training of a method with a seed, on a split
      results           OUT/runs/METHOD/seed0/evaluation/per_query.parquet, a row per query
      computed again    if the checkpoint, the manifest or features, or the metrics or files of the evaluation have
                        changed; photographs that changed under an unchanged manifest are not noticed; a run begun
                        with other settings or data is refused, and ``force`` trains it again
      reports           table, figures and strips: OUT/results.made.json; each sweep: OUT/sweeps/NAME.made.json
    compare-models      a run: a model after a treatment of its embeddings, and after re-ranking
      results           OUT/evaluations/NAME.parquet, a row per query
      computed again    if the embeddings, the manifest, the images that all models have, or the settings have changed
      reports           tables, figures and pages: OUT/results.made.json
    compare-rejection   a run: a rejection score on one kind of embeddings, on a split
      results           OUT/scores/EMBEDDING/split0/SCORE.parquet, a row per query
      computed again    if the manifests, the embeddings, the head or the options of the score have changed
      reports           tables, figures and the page of mistakes: OUT/results.made.json

Files of results and reports hold their provenance (:class:`~hgld.tables.Provenance`), by which they are up to date or
not. That of a report has the SHA-256 of the results it is made from.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hgld.compute.parts import Part
from hgld.errors import ConfigurationError, HgldError, failure_reason
from hgld.figures.style import figure_files
from hgld.io.files import read_json, sha256_of, write_text
from hgld.parted_output import locked_output
from hgld.progress import Progress
from hgld.tables import Provenance, is_up_to_date

log = logging.getLogger(__name__)
#: A run of a comparison.
Run = TypeVar("Run", bound=Hashable)


@contextmanager
def open_folder(out: Path, part: Part | None = None) -> Iterator[None]:
    """Create the folder of a comparison, and lock it, or a part of its runs, until the block ends.

    Raises:
        BusyError: Another comparison is writing to the folder, or works on the same part.
    """
    out.mkdir(parents=True, exist_ok=True)
    with locked_output(out, out, part):
        yield


@dataclass(frozen=True)
class ResultFile:
    """File of the results of a run, with a row per query, and its provenance."""

    path: Path
    provenance: Provenance

    def is_up_to_date(self) -> bool:
        """Return whether the file exists and was made from the same settings and inputs."""
        return is_up_to_date(self.path, self.provenance)


def compute_runs(
    runs: Mapping[Run, Callable[[], object]], progress: Progress, *, stop_at_failure: bool = False
) -> dict[Run, str]:
    """Compute runs one after the other; a run that fails does not stop the others.

    Args:
        runs: Function that computes each run and writes its results, by the run, whose text is its name in messages.
        progress: Progress in runs.
        stop_at_failure: Whether to raise the error of a run, as other processes may still work on it.

    Returns:
        The reasons why runs failed.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop.
        OSError: The system failed, such as by a full disk.
    """
    failures = {}
    progress.start(len(runs))
    for number, (run, compute) in enumerate(runs.items(), start=1):
        log.info("run %d of %d: %s", number, len(runs), run)
        try:
            compute()
        except Exception as error:
            if stop_at_failure:
                raise
            failures[run] = failure_reason(error)
            log.error(
                "%s failed: %s", run, failures[run], exc_info=not isinstance(error, HgldError)
            )
        progress.advance(failed=len(failures))
    return failures


def describe_failures(failures: Mapping[Run, str]) -> list[str]:
    """Return the runs that failed, and why."""
    return [f"{run}: {reason}" for run, reason in failures.items()]


def report_provenance(
    command: str, settings: Mapping[str, Any], results: Mapping[str, Path]
) -> Provenance:
    """Return the provenance of a report from its settings and the files of results, by the names of runs."""
    return Provenance(command, settings, {name: sha256_of(path) for name, path in results.items()})


@dataclass(frozen=True)
class ReportRecord:
    """Record of a report that was written.

    Args:
        files: Files of the report; a figure in several formats has several files.
        provenance: Provenance of the files.
        request: What asked for the report, as a SHA-256; None if that is not recorded.
    """

    files: list[Path] = field(default_factory=list)
    provenance: Provenance = field(default_factory=lambda: Provenance(""))
    request: str | None = None


def read_report_record(path: Path) -> ReportRecord:
    """Read a record; one that is damaged or missing lists no files.

    Raises:
        ConfigurationError: The record lists a file outside its folder.
    """
    if not path.is_file():
        return ReportRecord()
    try:
        values = read_json(path)
        names = list(map(str, values["files"]))
        provenance = Provenance(**values["provenance"])
        request = values.get("request")
    except (ValueError, KeyError, TypeError, RecursionError):
        return ReportRecord()
    folder = path.parent
    for name in names:
        if folder.resolve() not in (folder / name).resolve().parents:
            raise ConfigurationError(
                f"{path}: lists {name}, which is not in its folder; remove the record"
            )
    return ReportRecord([folder / name for name in names], provenance, request)


def record_report_request(path: Path, request: str) -> None:
    """Add to a record what asked for the report."""
    write_text(path, json.dumps({**read_json(path), "request": request}, indent=1) + "\n")


def is_complete_report(files: Sequence[Path]) -> bool:
    """Return whether all files of a report exist, and its figures in all formats that are asked for."""
    for path in files:
        for file in figure_files(path):
            if not file.is_file():
                return False
    return True


@dataclass(frozen=True)
class Report:
    """Tables, figures and pages that are written together.

    Args:
        record: File that lists the files and has their provenance; written last.
        provenance: Provenance of the files.
        write: Writes the files with this provenance, and returns them; a figure in several formats by its PNG alone.
    """

    record: Path
    provenance: Provenance
    write: Callable[[Provenance], Sequence[Path]]

    def update(self, *, force: bool = False) -> bool:
        """Write the files unless they are up to date, and return whether they were written.

        Earlier files are deleted first, as some are not written again, such as figures of other methods.

        Raises:
            ConfigurationError: The record lists a file outside its folder.
        """
        recorded = read_report_record(self.record)
        is_complete = is_complete_report(recorded.files)
        if recorded.provenance.same_work(self.provenance) and is_complete and not force:
            return False
        for path in recorded.files:
            path.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)
        names = []
        for path in self.write(self.provenance):
            for file in figure_files(path):
                names.append(file.relative_to(self.record.parent).as_posix())
        record = {"files": names, "provenance": asdict(self.provenance)}
        write_text(self.record, json.dumps(record, indent=1) + "\n")
        return True

    @property
    def files(self) -> list[Path]:
        """Files that were written last."""
        return read_report_record(self.record).files

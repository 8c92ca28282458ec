"""A comparison of methods from its settings to its tables and figures: what ``hgld benchmark`` runs.

::

    OUT/runs/                                 training runs, see hgld.benchmark.runs
    OUT/results.parquet, .md, .tex            the table, see hgld.benchmark.result_files
    OUT/figures/, OUT/strips.html, .png       figures of the table
    OUT/sweeps/                               tables and figures of sweeps
    OUT/results.made.json, OUT/sweeps/NAME.made.json    what results were made from; written last
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from hgld.benchmark.comparison_figures import draw_comparison, draw_sweep, method_colours, write_strips
from hgld.benchmark.evaluated_runs import (
    EvaluatedRun,
    is_done,
    per_query_file,
    read_evaluated,
    train_and_evaluate,
)
from hgld.benchmark.evaluations import SplitEvaluation
from hgld.benchmark.result_files import write_results, write_sweep
from hgld.benchmark.runs import BenchmarkSettings, Run, SweepPoint, read_benchmark, sweep_runs, table_runs
from hgld.benchmark.statistics import MethodResults
from hgld.compute.parts import Part
from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError, HgldError, InputError, failure_reason, indented_list
from hgld.figures.style import figure_files
from hgld.hierarchy import load_hierarchy
from hgld.io.files import sha256_of, write_text
from hgld.io.settings import to_dict
from hgld.parted_output import locked_output
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.training.run import usable_device

log = logging.getLogger(__name__)

#: Stands for all sweeps where sweeps are named.
ALL_SWEEPS = "all"
_MAX_STALE_LISTED = 5


@dataclass(frozen=True)
class Written:
    """Files of a report, and for the table its methods and the metrics that are its columns."""

    files: Sequence[Path] = ()
    methods: tuple[MethodResults, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The table or a sweep, whose files are written together.

    Args:
        record: File that lists the files and what they were made from, written last.
        provenance: What they are made from.
    """

    write: Callable[[], Written]
    record: Path
    provenance: Provenance

    def is_up_to_date(self) -> bool:
        """Return whether the results exist and would be the same if they were written again."""
        provenance, files = self._recorded()
        if provenance is None or not provenance.same_work(self.provenance):
            return False
        return all(each.is_file() for file in files for each in figure_files(file))

    def rewrite(self) -> Written:
        """Delete earlier results, as some are not written again, such as figures of other methods, and write them."""
        for path in self._recorded()[1]:
            path.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)
        written = self.write()
        names = [file.relative_to(self.record.parent).as_posix() for file in written.files]
        record = {"files": names, "provenance": asdict(self.provenance)}
        write_text(self.record, json.dumps(record, indent=1) + "\n")
        return written

    def _recorded(self) -> tuple[Provenance | None, list[Path]]:
        if not self.record.is_file():
            return None, []
        content = json.loads(self.record.read_text(encoding="utf-8"))
        return Provenance(**content["provenance"]), [self.record.parent / name for name in content["files"]]


class PendingRun(NamedTuple):
    """A run that is not done, and whether it is to be trained again, as its settings or data have changed."""

    run: Run
    retrain: bool


@dataclass(frozen=True)
class Comparison:
    """Runs of a comparison: those of its table, or those of sweeps.

    Args:
        table: Runs of the table by method; empty where sweeps are selected.
        sweeps: Runs of the selected sweeps by name.
    """

    settings: BenchmarkSettings
    out: Path
    table: Mapping[str, tuple[Run, ...]]
    sweeps: Mapping[str, tuple[SweepPoint, ...]]

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs without duplicates, ordered by seed and split, so that each method has a result early."""
        points = [point.runs for points in self.sweeps.values() for point in points]
        in_turn = zip_longest(*self.table.values(), *points)
        return tuple({run.folder: run for runs in in_turn for run in runs if run is not None}.values())

    def pending(self, runs: Sequence[Run], n_processes: int, *, force: bool) -> list[PendingRun]:
        """Return those of some runs that are not done, in order.

        Raises:
            ConfigurationError: A run was begun with other settings, and ``force`` is false.
            InputError: A file that trainings read is missing.
        """
        pending = list[PendingRun]()
        stale = list[str]()
        for run in runs:
            try:
                if not is_done(self.settings, run, n_processes=n_processes):
                    pending.append(PendingRun(run, retrain=False))
            except ConfigurationError as error:
                stale.append(str(error))
                pending.append(PendingRun(run, retrain=True))
        if stale and not force:
            more = [f"… and {len(stale) - _MAX_STALE_LISTED} more"] if len(stale) > _MAX_STALE_LISTED else []
            raise ConfigurationError(
                f"{len(stale)} of {len(runs)} runs were begun with other settings or data; retrain only these "
                "with `force`, or choose another folder:\n" + "\n".join([*stale[:_MAX_STALE_LISTED], *more])
            )
        if pending:
            self._check_inputs(pending)
        return pending

    def _check_inputs(self, pending: Sequence[PendingRun]) -> None:
        """Raise if a file that all runs need is missing, rather than fail one by one after hours of training."""
        data = [run.settings.data for run, _ in pending]
        paths = dict.fromkeys(path for one in data for path in (one.manifest, one.features) if path is not None)
        missing = [f"{path}: no such file" for path in paths if not path.exists()]
        if missing:
            raise InputError(
                f"no run was started, as {len(missing)} of the files that trainings read are missing; make them, or "
                "name others, then run the same command again:\n" + indented_list(missing)
            )
        pictures = self.settings.pictures
        if self.table and pictures is not None and pictures.hierarchy is not None:
            load_hierarchy(pictures.hierarchy)

    def reports(self) -> Iterator[Report]:
        """Yield the report of the table, or those of the sweeps."""
        if self.table:
            runs = [run for runs in self.table.values() for run in runs]
            yield self._report(self._write_table, self.out / "results.made.json", runs)
        for name, points in self.sweeps.items():
            runs = [run for point in points for run in point.runs]
            yield self._report(partial(self._write_sweep, name), self.out / "sweeps" / f"{name}.made.json", runs)

    def _report(self, write: Callable[[], Written], record: Path, runs: Sequence[Run]) -> Report:
        evaluations = {str(run): sha256_of(per_query_file(run)) for run in runs}
        return Report(write, record, Provenance("benchmark", to_dict(self.settings), evaluations))

    def _write_table(self) -> Written:
        settings, out = self.settings, self.out
        methods = tuple(
            MethodResults(name, method.title, method.latex, method.baseline, self._evaluated(runs))
            for name, runs in self.table.items()
            for method in [settings.methods[name]]
        )
        figures = [*draw_comparison(settings, methods, out / "figures"), *write_strips(settings, methods, out)]
        columns, files = write_results(settings, methods, out)  # after the figures, as it links those that exist
        return Written([*files, *(file for figure in figures for file in figure_files(figure))], methods, columns)

    def _write_sweep(self, name: str) -> Written:
        settings, folder = self.settings, self.out / "sweeps"
        evaluated = [(point, self._evaluated(point.runs)) for point in self.sweeps[name]]
        figure = draw_sweep(settings.sweeps[name], evaluated, folder / f"{name}.png", method_colours(settings))
        files = write_sweep(settings, name, evaluated, folder)
        return Written([*files, *(figure_files(figure) if figure else [])])

    def _evaluated(self, runs: Sequence[Run]) -> tuple[EvaluatedRun, ...]:
        evaluated = []
        for run in runs:
            result = read_evaluated(self.settings, run)
            if result is None:
                raise InputError(
                    f"{run.folder}: its files have changed during the comparison; run the same command again"
                )
            evaluated.append(result)
        return tuple(evaluated)


@dataclass(frozen=True)
class ComparisonSummary:
    """Outcome of a comparison.

    Args:
        methods: Results in the order of the table; empty if the table was not written.
        columns: Metrics to print.
        files: Files written.
        n_runs: Number of runs that the results are based on.
        n_new: Number of runs that were trained or evaluated now.
    """

    methods: tuple[MethodResults, ...]
    columns: tuple[str, ...]
    files: tuple[Path, ...]
    n_runs: int
    n_new: int


def parse_seeds(text: str, name: str = "seeds") -> tuple[int, ...]:
    """Parse seeds separated by commas; ``name`` says in messages what they are.

    Raises:
        ConfigurationError: The seeds are not different numbers from 0.

    >>> parse_seeds("0,1")
    (0, 1)
    """
    names = text.split(",")
    if not all(name.isdecimal() for name in names) or len(set(names)) < len(names):
        raise ConfigurationError(f'the {name} are "{text}"; expected different numbers from 0, such as 0,1,2')
    return tuple(map(int, names))


def read_comparison(
    config: str | Path,
    out: Path,
    *,
    overrides: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    splits: Sequence[int] = (),
    sweeps: Sequence[str] = (),
) -> Comparison:
    """Read the settings of a comparison and select its runs.

    Args:
        config: YAML file of the comparison, or the name of a preset.
        out: Output folder.
        overrides: Settings to change in all trainings, such as ``data.manifest=mine.parquet``.
        methods: Methods of the table to select; all if empty.
        seeds: Seeds to use instead of those of the file.
        splits: Seeds of random splits to use instead of those of the file.
        sweeps: Sweeps to select instead of the table; ``all`` selects all sweeps of the file.

    Raises:
        InputError: A settings file cannot be read.
        ConfigurationError: Settings are invalid, or there is no such method or sweep.
    """
    settings = read_benchmark(config)
    chosen = {name: tuple(values) for name, values in (("seeds", seeds), ("splits", splits)) if values}
    settings = settings.model_copy(update=chosen)
    if settings.splits and not isinstance(settings.evaluation, SplitEvaluation):
        raise ConfigurationError(
            f"`splits` are {', '.join(map(str, settings.splits))}, but the images of {settings.evaluation.name} are "
            "not split at random; omit them"
        )
    unknown = [method for method in methods if method not in settings.methods]
    if unknown:
        raise ConfigurationError(f'there is no method "{unknown[0]}"; expected one of {", ".join(settings.methods)}')
    if sweeps:
        if methods:
            raise ConfigurationError("methods are selected for the table; the curves of a sweep have their own")
        names = settings.sweeps if ALL_SWEEPS in sweeps else dict.fromkeys(sweeps)
        return Comparison(settings, out, {}, {name: sweep_runs(settings, name, out, overrides) for name in names})
    table = table_runs(settings, out, overrides)
    return Comparison(settings, out, {name: table[name] for name in table if not methods or name in methods}, {})


def compare_methods(
    comparison: Comparison,
    *,
    part: Part | None = None,
    force: bool = False,
    device: str = "cpu",
    processes: Processes | None = None,
    progress: Progress | None = None,
) -> ComparisonSummary | None:
    """Train and evaluate the runs that are not done, then write the tables and figures that are not up to date.

    Args:
        part: Every COUNT-th run to train and evaluate, from the N-th on; other parts may run at the same time, also
            on other computers. A call without it then does what is missing. Default: all runs, and the reports.
        force: Whether to retrain runs whose settings or data changed, and rewrite tables and figures; other runs are
            kept.
        processes: Processes that train and evaluate each run together.
        progress: Progress in runs.

    Returns:
        None if everything is up to date.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; what has been trained is saved.
        ConfigurationError: Runs have other settings or data, or have failed, and the others are done.
        InputError: The data cannot be read.
        BusyError: Another run is writing to the folder, or works on the same part.
    """
    processes, out = processes or Processes(), comparison.out
    out.mkdir(parents=True, exist_ok=True)
    runs = comparison.runs if part is None else comparison.runs[part.number - 1 :: part.count]
    is_first = processes.rank == 0
    with locked_output(out, out, part) if is_first else nullcontext():
        pending = comparison.pending(runs, processes.count, force=force) if is_first else []
        # Settings of losses cannot be sent from process to process, so the others are told the folders of the runs.
        retrain = processes.gather({run.folder: again for run, again in pending})[0]
        pending = [PendingRun(run, retrain[run.folder]) for run in runs if run.folder in retrain]
        _train_and_evaluate(comparison.settings, pending, device, processes, progress or NoProgress())
        written = list[Written]()
        if part is None and is_first:
            for report in comparison.reports():
                if force or not report.is_up_to_date():
                    written.append(report.rewrite())
    files = tuple(file for report in written for file in report.files)
    if not pending and not files:
        return None
    table = written[0] if written else Written()
    return ComparisonSummary(table.methods, table.columns, files, len(runs), len(pending))


def _train_and_evaluate(
    settings: BenchmarkSettings,
    pending: Sequence[PendingRun],
    device: str,
    processes: Processes,
    progress: Progress,
) -> None:
    """Train and evaluate runs, one after the other; a run that fails does not stop the others.

    Raises:
        ConfigurationError: Runs have failed; the message reports them, and the others are done.
    """
    if not pending:
        return
    usable_device(device)  # raises for a wrong one, rather than in every run
    failures = []
    progress.start(len(pending))
    for number, (run, retrain) in enumerate(pending, start=1):
        log.info("run %d of %d: %s", number, len(pending), run)
        try:
            train_and_evaluate(settings, run, retrain=retrain, device=device, processes=processes)
        except Exception as error:
            if processes.count > 1:  # the other processes may still be in this run
                raise
            reason = failure_reason(error)
            log.error("%s failed: %s", run, reason, exc_info=not isinstance(error, HgldError))
            failures.append(f"{run}: {reason}")
        progress.advance(failed=len(failures))
    if failures:
        raise ConfigurationError(
            f"{len(failures)} of {len(pending)} runs failed, the others are done; fix the errors below and run the "
            f"same command again, which resumes from here, or exclude the methods:\n{indented_list(failures)}"
        )

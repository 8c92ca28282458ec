"""A comparison of methods from its settings to its tables and figures: what ``hgld benchmark`` runs.

::

    OUT/runs/                                 training runs, see hgld.benchmark.runs
    OUT/results.parquet, .md, .tex            the table, see hgld.benchmark.result_files
    OUT/figures/, OUT/strips.html, .png       figures of the table
    OUT/sweeps/                               tables and figures of sweeps
    OUT/results.made.json, OUT/sweeps/NAME.made.json    what results were made from; written last
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path

from hgld.benchmark.comparison_figures import (
    draw_comparison,
    draw_sweep,
    method_colours,
    write_strips,
)
from hgld.benchmark.engine import (
    Report,
    compute_runs,
    describe_failures,
    open_folder,
    report_provenance,
)
from hgld.benchmark.evaluations import SplitEvaluation
from hgld.benchmark.result_files import table_columns, write_results, write_sweep
from hgld.benchmark.runs import (
    BenchmarkSettings,
    EvaluatedRun,
    Run,
    SweepPoint,
    is_done,
    per_query_file,
    read_benchmark,
    read_evaluated,
    sweep_runs,
    table_runs,
    train_and_evaluate,
)
from hgld.benchmark.statistics import MethodResults
from hgld.compute.parts import Part
from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy import load_hierarchy
from hgld.io.settings import to_dict
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.training.run import usable_device

#: Stands for all sweeps where sweeps are named.
ALL_SWEEPS = "all"


@dataclass(frozen=True)
class Comparison:
    """A comparison: training runs of a table of methods or of sweeps, and the reports on them.

    Args:
        table: Runs of the table by method; empty if sweeps are selected.
        sweeps: Runs of the selected sweeps by name.
    """

    settings: BenchmarkSettings
    out: Path
    table: Mapping[str, tuple[Run, ...]]
    sweeps: Mapping[str, tuple[SweepPoint, ...]]

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs without duplicates, ordered by seed and split, so that each method has a result early."""
        groups = list(self.table.values())
        for points in self.sweeps.values():
            groups += [point.runs for point in points]
        runs = {}
        for runs_in_turn in zip_longest(*groups):
            for run in runs_in_turn:
                if run is not None:
                    runs[run.folder] = run
        return tuple(runs.values())

    def pending(self, runs: Sequence[Run], n_processes: int, *, force: bool) -> dict[Path, bool]:
        """Return the runs that are not done.

        Returns:
            By the folder of a run, whether it is trained from the start, as its settings or data have changed.

        Raises:
            ConfigurationError: A run was begun with other settings, and ``force`` is false.
            InputError: A file that trainings read is missing.
        """
        pending = {}
        stale = []
        for run in runs:
            try:
                if not is_done(self.settings, run, n_processes=n_processes):
                    pending[run.folder] = False
            except ConfigurationError as error:
                stale.append(str(error))
                pending[run.folder] = True
        if stale and not force:
            raise ConfigurationError(
                f"{len(stale)} of {len(runs)} runs were begun with other settings or data; retrain only these "
                f"with `force`, or choose another folder:\n{indented_list(stale, limit=5)}"
            )
        if pending:
            self._check_inputs([run for run in runs if run.folder in pending])
        return pending

    def _check_inputs(self, runs: Sequence[Run]) -> None:
        """Raise if a file that a run needs is missing, before hours of training are spent on other runs."""
        missing: dict[str, None] = {}
        for run in runs:
            for path in (run.settings.data.manifest, run.settings.data.features):
                if path is not None and not path.exists():
                    missing[f"{path}: no such file"] = None
        if missing:
            raise InputError(
                f"no run was started, as {len(missing)} of the files that trainings read are missing; make them, or "
                "name others, then run the same command again:\n" + indented_list([*missing])
            )
        pictures = self.settings.pictures
        if self.table and pictures is not None and pictures.hierarchy is not None:
            load_hierarchy(pictures.hierarchy)  # only to see that it can be read

    @cached_property
    def methods(self) -> tuple[MethodResults, ...]:
        """Results of the methods of the table, whose runs are done."""
        methods = []
        for name, runs in self.table.items():
            method = self.settings.methods[name]
            evaluated = self._evaluated(runs)
            methods.append(
                MethodResults(name, method.title, method.latex, method.baseline, evaluated)
            )
        return tuple(methods)

    def reports(self) -> Iterator[Report]:
        """Yield the report of the table, or the reports of the sweeps, whose runs are done."""
        if self.table:
            record = self.out / "results.made.json"
            yield Report(record, self._provenance(self.runs), self._write_table)
        for name, points in self.sweeps.items():
            runs: list[Run] = []
            for point in points:
                runs += point.runs
            record = self.out / "sweeps" / f"{name}.made.json"
            yield Report(record, self._provenance(runs), partial(self._write_sweep, name))

    def _provenance(self, runs: Sequence[Run]) -> Provenance:
        files = {str(run): per_query_file(run) for run in runs}
        return report_provenance("benchmark", to_dict(self.settings), files)

    def _write_table(self, provenance: Provenance) -> list[Path]:
        settings, methods, out = self.settings, self.methods, self.out
        figures = draw_comparison(settings, methods, out / "figures")
        figures += write_strips(settings, methods, out)
        # The text of the table links the figures that exist.
        return write_results(settings, methods, out, provenance) + figures

    def _write_sweep(self, name: str, provenance: Provenance) -> list[Path]:
        sweep, path = self.settings.sweeps[name], self.out / "sweeps" / f"{name}.png"
        evaluated = [(point, self._evaluated(point.runs)) for point in self.sweeps[name]]
        figure = draw_sweep(sweep, evaluated, path, method_colours(self.settings))
        files = write_sweep(sweep, evaluated, path, provenance)
        if figure is not None:
            files.append(figure)
        return files

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
    """Parse seeds separated by commas.

    Args:
        name: Name of the seeds in messages.

    Raises:
        ConfigurationError: The seeds are not different numbers from 0.

    >>> parse_seeds("0,1")
    (0, 1)
    """
    numbers = text.split(",")
    if not all(number.isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
        raise ConfigurationError(
            f'the {name} are "{text}"; expected different numbers from 0, such as 0,1,2'
        )
    return tuple(map(int, numbers))


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
        seeds: Seeds of the trainings; empty to use the seeds in the file.
        splits: Seeds of random splits; empty to use the seeds in the file.
        sweeps: Sweeps to select instead of the table; ``all`` selects all sweeps of the file.

    Raises:
        InputError: A settings file cannot be read.
        ConfigurationError: Settings are invalid, or there is no such method or sweep.
    """
    settings = read_benchmark(config)
    if seeds:
        settings = settings.model_copy(update={"seeds": tuple(seeds)})
    if splits:
        settings = settings.model_copy(update={"splits": tuple(splits)})
    if settings.splits and not isinstance(settings.evaluation, SplitEvaluation):
        raise ConfigurationError(
            f"`splits` are {', '.join(map(str, settings.splits))}, but the images of {settings.evaluation.name} are "
            "not split at random; omit them"
        )
    unknown = [method for method in methods if method not in settings.methods]
    if unknown:
        raise ConfigurationError(
            f'there is no method "{unknown[0]}"; expected one of {", ".join(settings.methods)}'
        )
    if sweeps:
        if methods:
            raise ConfigurationError(
                "methods are selected for the table; the curves of a sweep have their own"
            )
        names = settings.sweeps if ALL_SWEEPS in sweeps else dict.fromkeys(sweeps)
        points = {name: sweep_runs(settings, name, out, overrides) for name in names}
        return Comparison(settings, out, {}, points)
    table = table_runs(settings, out, overrides)
    if methods:
        table = {name: runs for name, runs in table.items() if name in methods}
    return Comparison(settings, out, table, {})


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
        part: Part N/COUNT: every COUNT-th run from the N-th on; other parts may run at the same time, also on other
            computers. A call without a part then does the missing runs and the reports. Default: all runs, and the
            reports.
        force: Whether to retrain runs whose settings or data changed, and rewrite tables and figures; other runs are
            kept.
        processes: Processes that train and evaluate each run together.
        progress: Progress in runs.

    Returns:
        None if everything is up to date.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; a checkpoint is saved.
        ConfigurationError: Runs have other settings or data, or have failed; all other runs are done.
        InputError: The data cannot be read.
        BusyError: Another run is writing to the folder, or works on the same part.
    """
    processes, settings = processes or Processes(), comparison.settings
    runs = comparison.runs
    if part is not None:
        runs = runs[part.number - 1 :: part.count]
    is_first = processes.rank == 0
    written = []
    methods: tuple[MethodResults, ...] = ()
    with open_folder(comparison.out, part) if is_first else nullcontext():
        pending = {}
        if is_first:
            pending = comparison.pending(runs, processes.count, force=force)
        # Settings of losses cannot be sent from process to process, so the first one sends the folders of the runs.
        pending = processes.broadcast(pending)
        if pending:
            usable_device(device)  # raises once for a wrong device, and not in every run
            complete = partial(train_and_evaluate, settings, device=device, processes=processes)
            work = {}
            for run in runs:
                if run.folder in pending:
                    work[str(run)] = partial(complete, run, retrain=pending[run.folder])
            failures = compute_runs(
                work, progress or NoProgress(), stop_at_failure=processes.count > 1
            )
            if failures:
                raise ConfigurationError(
                    f"{len(failures)} of {len(pending)} runs failed, the others are done; fix the errors below and "
                    "run the same command again, which resumes from here, or exclude the methods:\n"
                    f"{indented_list(describe_failures(failures))}"
                )
        if part is None and is_first:
            written = [report for report in comparison.reports() if report.update(force=force)]
            if written:
                methods = comparison.methods
    if not pending and not written:
        return None
    columns = table_columns(settings, methods) if methods else ()
    files = []
    for report in written:
        files += report.files
    return ComparisonSummary(methods, columns, tuple(files), len(runs), len(pending))

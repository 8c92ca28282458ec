"""A comparison of methods from its settings to its tables and figures: what ``hgld benchmark`` runs.

::

    OUT/runs/                                 training runs, see hgld.benchmark.runs
    OUT/results.parquet, .md, .tex            the table, see hgld.benchmark.result_files
    OUT/figures/, OUT/strips.html, .png       figures of the table
    OUT/sweeps/                               tables and figures of sweeps
    OUT/results.made.json, OUT/sweeps/NAME.made.json    what results were made from; written last
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.comparison_figures import draw_comparison, draw_sweep, method_colours, write_strips
from hgld.benchmark.engine import Launcher, Report, run_study
from hgld.benchmark.evaluations import SplitEvaluation
from hgld.benchmark.result_files import write_results, write_sweep
from hgld.benchmark.runs import Run, SweepPoint, read_benchmark, sweep_runs, table_runs
from hgld.benchmark.statistics import MethodResults
from hgld.benchmark.worker import EvaluatedRun, WorkerTask, is_done, per_query_file, read_evaluated
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.figures.style import figure_files
from hgld.hierarchy import load_hierarchy
from hgld.io.files import sha256_of
from hgld.io.settings import to_dict
from hgld.progress import Progress
from hgld.tables import Provenance

#: Stands for all sweeps where sweeps are named.
ALL_SWEEPS = "all"
_MAX_STALE_LISTED = 5
#: Methods of the table and its columns; empty for a sweep.
_Results = tuple[Sequence[MethodResults], Sequence[str]]
_Write = Callable[[], tuple[_Results, list[Path]]]


@dataclass(frozen=True)
class Comparison:
    """Runs of a comparison: those of its table, or those of sweeps.

    Args:
        settings: Settings of the comparison.
        out: Output folder.
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
        by_draw = zip_longest(*self.table.values(), *points)
        return tuple({run.folder: run for runs in by_draw for run in runs if run is not None}.values())

    def tasks(self, n_processes: int, *, force: bool) -> list[WorkerTask]:
        """Return the runs that are not done; see :class:`~hgld.benchmark.engine.Study`."""
        tasks, stale = [], []
        for run in self.runs:
            try:
                done = is_done(self.settings, run, n_processes=n_processes)
            except ConfigurationError as error:
                stale.append(str(error))
                tasks.append(WorkerTask(benchmark=self.settings, run=run, retrain=True))
            else:
                tasks += [] if done else [WorkerTask(benchmark=self.settings, run=run)]
        if stale and not force:
            more = [f"… and {len(stale) - _MAX_STALE_LISTED} more"] if len(stale) > _MAX_STALE_LISTED else []
            raise ConfigurationError(
                f"{len(stale)} of {len(self.runs)} runs were begun with other settings or data; retrain only these "
                "with `force`, or choose another folder:\n" + "\n".join([*stale[:_MAX_STALE_LISTED], *more])
            )
        if tasks:
            self._check_inputs(tasks)
        return tasks

    def _check_inputs(self, tasks: Sequence[WorkerTask]) -> None:
        """Raise if a file that all runs need is missing, rather than fail one by one after hours of training."""
        data = [task.run.settings.data for task in tasks]
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

    def reports(self) -> Iterator[Report[_Results]]:
        """Yield the table, or the sweeps; results are the methods of the table and its columns."""
        if self.table:
            runs = [run for runs in self.table.values() for run in runs]
            yield self._report(self._write_table, self.out / "results.made.json", runs)
        for name, points in self.sweeps.items():
            runs = [run for point in points for run in point.runs]
            yield self._report(partial(self._write_sweep, name), self.out / "sweeps" / f"{name}.made.json", runs)

    def _report(self, write: _Write, record: Path, runs: Sequence[Run]) -> Report[_Results]:
        evaluations = {str(run): sha256_of(per_query_file(run)) for run in runs}
        return Report(write, record, Provenance("benchmark", to_dict(self.settings), evaluations))

    def _write_table(self) -> tuple[_Results, list[Path]]:
        settings, out = self.settings, self.out
        methods = tuple(
            MethodResults(name, method.title, method.latex, method.baseline, self._evaluated(runs))
            for name, runs in self.table.items()
            for method in [settings.methods[name]]
        )
        figures = [*draw_comparison(settings, methods, out / "figures"), *write_strips(settings, methods, out)]
        columns, files = write_results(settings, methods, out)  # links the figures that exist
        return (methods, columns), [*files, *(file for figure in figures for file in figure_files(figure))]

    def _write_sweep(self, name: str) -> tuple[_Results, list[Path]]:
        settings, folder = self.settings, self.out / "sweeps"
        evaluated = [(point, self._evaluated(point.runs)) for point in self.sweeps[name]]
        figure = draw_sweep(settings.sweeps[name], evaluated, folder / f"{name}.png", method_colours(settings))
        files = write_sweep(settings, name, evaluated, folder)
        return ((), ()), [*files, *(figure_files(figure) if figure else [])]

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
    comparison: Comparison, *, launcher: Launcher[WorkerTask], force: bool = False, progress: Progress | None = None
) -> ComparisonSummary | None:
    """Train and evaluate the runs that are not done, then write the tables and draw the figures.

    They run where the launcher takes them, a :class:`~hgld.benchmark.launcher.LocalLauncher` or a
    :class:`~hgld.benchmark.launcher.SlurmLauncher`. With ``force``, runs whose settings or data changed are
    retrained, and tables and figures rewritten; other runs are kept.

    Returns:
        None if everything is up to date.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; what has been trained is saved, and
            jobs of SLURM go on.
        ConfigurationError: Runs have other settings or data, or have failed.
        InputError: The data cannot be read.
        BusyError: Another comparison is writing to the folder.
    """
    outcome = run_study(comparison, launcher, force=force, progress=progress)
    if not outcome.n_tasks and not outcome.files:
        return None
    methods, columns = outcome.results[0] if outcome.results else ((), ())
    return ComparisonSummary(
        tuple(methods), tuple(columns), tuple(outcome.files), len(comparison.runs), outcome.n_tasks
    )

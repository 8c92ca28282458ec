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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings, SplitEvaluation
from hgld.benchmark.comparison_figures import draw_comparison, draw_sweep
from hgld.benchmark.launching import Launcher
from hgld.benchmark.method_colours import method_colours
from hgld.benchmark.method_results import MethodResults
from hgld.benchmark.result_files import write_results, write_sweep
from hgld.benchmark.retrieval_strips import write_strips
from hgld.benchmark.run_evaluation import EvaluatedRun, per_query_file, read_evaluated
from hgld.benchmark.runs import Run, SweepPoint, read_benchmark, sweep_runs, table_runs
from hgld.benchmark.worker import WorkerTask, is_done
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.figures.style import figure_files
from hgld.hierarchy import load_hierarchy
from hgld.io.files import atomic_write, sha256_of
from hgld.io.locks import exclusive_lock
from hgld.io.settings import to_dict
from hgld.progress import Progress
from hgld.tables import Provenance

#: Stands for all sweeps where sweeps are named.
ALL_SWEEPS = "all"
_MAX_STALE_LISTED = 5


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
    comparison: Comparison, *, launcher: Launcher, force: bool = False, progress: Progress | None = None
) -> ComparisonSummary | None:
    """Train and evaluate the runs that are not done, then write the tables and draw the figures.

    Args:
        comparison: Runs to train, evaluate and compare.
        launcher: Where runs are trained: a :class:`~hgld.benchmark.launcher.LocalLauncher` or a
            :class:`~hgld.benchmark.slurm_launcher.SlurmLauncher`.
        force: Retrain runs whose settings or data changed, and rewrite tables and figures; other runs are kept.
        progress: Progress in runs.

    Returns:
        None if everything is up to date.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; what has been trained is saved, and
            jobs of SLURM go on.
        ConfigurationError: Runs have other settings or data, or have failed.
        InputError: The data cannot be read.
        BusyError: Another comparison is writing to the folder.
    """
    comparison.out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(comparison.out):
        tasks = _tasks(comparison, launcher.n_processes, force)
        if tasks:
            _check_inputs(comparison, tasks)
            launcher.launch(tasks, comparison.out, progress=progress)
        methods, columns, files = _write_table(comparison, force)
        for name in comparison.sweeps:
            files += _write_sweep(comparison, name, force)
    if not tasks and not files:
        return None
    return ComparisonSummary(methods, columns, tuple(files), len(comparison.runs), len(tasks))


def _check_inputs(comparison: Comparison, tasks: Sequence[WorkerTask]) -> None:
    """Raise if a file that all runs need is missing, rather than let them fail one by one, after hours of training.

    Raises:
        InputError: Images or features of a training, or the hierarchy that names landmarks, cannot be read.
    """
    data = [task.run.settings.data for task in tasks]
    paths = dict.fromkeys(path for one in data for path in (one.manifest, one.features) if path is not None)
    missing = [f"{path}: no such file" for path in paths if not path.exists()]
    if missing:
        raise InputError(
            f"no run was started, as {len(missing)} of the files that trainings read are missing; make them, or name "
            "others, then run the same command again:\n" + indented_list(missing)
        )
    pictures = comparison.settings.pictures
    if comparison.table and pictures is not None and pictures.hierarchy is not None:
        load_hierarchy(pictures.hierarchy)


def _tasks(comparison: Comparison, n_processes: int, force: bool) -> list[WorkerTask]:
    """Return the runs that are not done, in order."""
    tasks, stale = [], []
    for run in comparison.runs:
        try:
            done = is_done(comparison.settings, run, n_processes=n_processes)
        except ConfigurationError as error:
            stale.append(str(error))
            tasks.append(WorkerTask(benchmark=comparison.settings, run=run, retrain=True))
        else:
            tasks += [] if done else [WorkerTask(benchmark=comparison.settings, run=run)]
    if stale and not force:
        more = [f"… and {len(stale) - _MAX_STALE_LISTED} more"] if len(stale) > _MAX_STALE_LISTED else []
        raise ConfigurationError(
            f"{len(stale)} of {len(comparison.runs)} runs were begun with other settings or data; retrain only these "
            "with `force`, or choose another folder:\n" + "\n".join([*stale[:_MAX_STALE_LISTED], *more])
        )
    return tasks


def _write_table(
    comparison: Comparison, force: bool
) -> tuple[tuple[MethodResults, ...], tuple[str, ...], list[Path]]:
    """Write the results of the table; return them, their columns and the files, or nothing if they are up to date."""
    settings, out = comparison.settings, comparison.out
    if not comparison.table:
        return (), (), []
    runs = [run for runs in comparison.table.values() for run in runs]
    record = _ResultRecord(out / "results.made.json", settings, runs)
    if record.is_up_to_date() and not force:
        return (), (), []
    record.delete_results()
    methods = tuple(
        MethodResults(name, method.title, method.latex, method.baseline, _evaluated(settings, runs))
        for name, runs in comparison.table.items()
        for method in [settings.methods[name]]
    )
    figures = [*draw_comparison(settings, methods, out / "figures"), *write_strips(settings, methods, out)]
    results = write_results(settings, methods, out)  # links the figures that exist
    files = [
        *(results.markdown, results.latex, results.parquet),
        *(file for figure in figures for file in figure_files(figure)),
    ]
    record.write(files)
    return methods, results.columns, files


def _write_sweep(comparison: Comparison, name: str, force: bool) -> list[Path]:
    """Write the results of a sweep and return the files; nothing if they are up to date."""
    settings, folder = comparison.settings, comparison.out / "sweeps"
    points = comparison.sweeps[name]
    record = _ResultRecord(folder / f"{name}.made.json", settings, [run for point in points for run in point.runs])
    if record.is_up_to_date() and not force:
        return []
    record.delete_results()
    evaluated = [(point, _evaluated(settings, point.runs)) for point in points]
    figure = draw_sweep(settings.sweeps[name], evaluated, folder / f"{name}.png", method_colours(settings))
    files = [*write_sweep(settings, name, evaluated, comparison.out), *(figure_files(figure) if figure else [])]
    record.write(files)
    return files


def _evaluated(settings: BenchmarkSettings, runs: Sequence[Run]) -> tuple[EvaluatedRun, ...]:
    evaluated = []
    for run in runs:
        result = read_evaluated(settings, run)
        if result is None:
            raise InputError(
                f"{run.folder}: its files have changed during the comparison; run the same command again"
            )
        evaluated.append(result)
    return tuple(evaluated)


class _ResultRecord:
    """A file beside results that lists them and what they were made from; written last.

    Args:
        path: The file.
        settings: Settings of the comparison.
        runs: Runs whose evaluations the results show.
    """

    def __init__(self, path: Path, settings: BenchmarkSettings, runs: Sequence[Run]) -> None:
        self._path = path
        evaluations = {str(run): sha256_of(per_query_file(run)) for run in runs}
        self._provenance = Provenance("benchmark", to_dict(settings), evaluations)

    def is_up_to_date(self) -> bool:
        """Return whether the results exist and would be the same if they were written again."""
        provenance, files = self._read()
        wanted = [each for file in files for each in figure_files(file)]
        return provenance is not None and provenance.same_work(self._provenance) and all(map(Path.is_file, wanted))

    def delete_results(self) -> None:
        """Delete earlier results: some are not written again, such as figures of other methods."""
        _, files = self._read()
        for path in (self._path, *files):
            path.unlink(missing_ok=True)

    def write(self, files: Sequence[Path]) -> None:
        """Record that the results have been written."""
        names = [file.relative_to(self._path.parent).as_posix() for file in files]
        content = {"files": names, "provenance": asdict(self._provenance)}
        with atomic_write(self._path) as draft:
            draft.write_text(json.dumps(content, indent=1) + "\n")

    def _read(self) -> tuple[Provenance | None, list[Path]]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None, []
        return Provenance(**content["provenance"]), [self._path.parent / name for name in content["files"]]

"""A comparison from its file to its tables and pictures: what ``hgld benchmark`` runs.

::

    OUT/runs/                                 the trainings, see hgld.benchmark.runs
    OUT/results.parquet, .md, .tex            the table, see hgld.benchmark.result_files
    OUT/figures/, OUT/strips.html, .png       what there is to see
    OUT/sweeps/                               tables and pictures of studies
    OUT/results.made.json, OUT/sweeps/NAME.made.json    what these were made from; written last
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.comparison_figures import draw_pictures, draw_sweep
from hgld.benchmark.launcher import Slot, launch
from hgld.benchmark.method_results import MethodResults
from hgld.benchmark.result_files import format_comparison, write_results, write_sweep
from hgld.benchmark.retrieval_strips import draw_strips
from hgld.benchmark.run_evaluation import EvaluatedRun, per_query_file, read_evaluated
from hgld.benchmark.runs import Run, SweepPoint, read_benchmark, sweep_runs, table_runs
from hgld.benchmark.worker import Task, is_done
from hgld.errors import ConfigurationError, InputError
from hgld.io.files import atomic_write, sha256_of
from hgld.io.locks import exclusive_lock
from hgld.io.settings import to_dict
from hgld.progress import Progress
from hgld.tables import Provenance

#: The name that stands for all studies.
ALL = "all"
_MOST_STALE = 5


@dataclass(frozen=True)
class Comparison:
    """What is to be compared: the methods of the table, or studies of single settings.

    Args:
        settings: of the comparison.
        out: its folder.
        table: the runs of the table by their methods; none where studies are wanted.
        sweeps: the studies by their names.
    """

    settings: BenchmarkSettings
    out: Path
    table: Mapping[str, tuple[Run, ...]]
    sweeps: Mapping[str, tuple[SweepPoint, ...]]

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them, each once; seed by seed, so that the first one of all methods is done first."""
        points = [point.runs for points in self.sweeps.values() for point in points]
        by_seed = zip_longest(*self.table.values(), *points)
        return tuple({run.folder: run for runs in by_seed for run in runs if run is not None}.values())


@dataclass(frozen=True)
class ComparisonSummary:
    """What a comparison came to.

    Args:
        text: the tables, for a terminal.
        files: that were written.
        n_runs: trainings that it rests on.
        n_new: how many of them were trained or evaluated now.
    """

    text: str
    files: tuple[Path, ...]
    n_runs: int
    n_new: int

    def __str__(self) -> str:
        done = f"{self.n_runs} runs, {self.n_runs - self.n_new} of them done before"
        return "\n".join([*([self.text, ""] if self.text else []), done, *map(str, self.files)])


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds as they stand on a command line.

    Raises:
        ConfigurationError: they are no numbers from 0, or one stands twice.

    >>> parse_seeds("0,1")
    (0, 1)
    """
    names = text.split(",")
    if not all(name.isdecimal() for name in names) or len(set(names)) < len(names):
        raise ConfigurationError(f'the seeds are "{text}"; expected different numbers from 0, such as 0,1,2')
    return tuple(map(int, names))


def read_comparison(
    path: Path,
    out: Path,
    *,
    overrides: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    sweeps: Sequence[str] = (),
) -> Comparison:
    """Read what is to be compared; nothing is done yet.

    Args:
        path: the file of the comparison.
        out: its folder.
        overrides: of all trainings, such as ``data.manifest=mine.parquet``.
        methods: of the table; all if there are none.
        seeds: in place of those of the file.
        sweeps: studies that are wanted in place of the table; ``all`` are all of the file.

    Raises:
        InputError: a file of settings cannot be read.
        ConfigurationError: settings are wrong, or there is no such method or study.
    """
    settings = read_benchmark(path)
    if seeds:
        settings = settings.model_copy(update={"seeds": tuple(seeds)})
    unknown = [method for method in methods if method not in settings.methods]
    if unknown:
        raise ConfigurationError(f'there is no method "{unknown[0]}"; there are {", ".join(settings.methods)}')
    if sweeps:
        if methods:
            raise ConfigurationError("methods are chosen for the table; the curves of a sweep have their own")
        names = settings.sweeps if ALL in sweeps else dict.fromkeys(sweeps)
        return Comparison(settings, out, {}, {name: sweep_runs(settings, name, out, overrides) for name in names})
    table = table_runs(settings, out, overrides)
    return Comparison(settings, out, {name: table[name] for name in table if not methods or name in methods}, {})


def compare_methods(
    comparison: Comparison, *, slots: Sequence[Slot], force: bool = False, progress: Progress | None = None
) -> ComparisonSummary | None:
    """Train and evaluate what is not done yet, then write the tables and draw the pictures.

    Args:
        comparison: what is to be compared.
        slots: where runs are trained side by side.
        force: train again what was begun with other settings or data, and write tables and pictures anew; what is
            done with the same is left as it is.
        progress: told of runs.

    Returns:
        None if everything was done before.

    Raises:
        KeyboardInterrupt: someone wanted it to stop; what was learned is saved.
        ConfigurationError: runs were begun with something else, or have failed.
        InputError: the data cannot be read.
        BusyError: another comparison is writing to the folder.
    """
    comparison.out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(comparison.out):
        tasks = _tasks(comparison, len(slots[0].devices), force)
        if tasks:
            launch(tasks, slots, progress=progress)
        text, files = _write_table(comparison, force) if comparison.table else ("", [])
        for name in comparison.sweeps:
            files += _write_study(comparison, name, force)
    if not tasks and not files:
        return None
    return ComparisonSummary(text, tuple(files), len(comparison.runs), len(tasks))


def _tasks(comparison: Comparison, n_processes: int, force: bool) -> list[Task]:
    """What is to be done, in order."""
    tasks, stale = [], []
    for run in comparison.runs:
        try:
            done = is_done(comparison.settings, run, n_processes=n_processes)
        except ConfigurationError as error:
            stale.append(str(error))
            tasks.append(Task(benchmark=comparison.settings, run=run, anew=True))
        else:
            tasks += [] if done else [Task(benchmark=comparison.settings, run=run)]
    if stale and not force:
        more = [f"… and {len(stale) - _MOST_STALE} more"] if len(stale) > _MOST_STALE else []
        raise ConfigurationError(
            f"{len(stale)} of {len(comparison.runs)} runs were begun with something else; train these anew, and no "
            "others, with --force, or choose another folder:\n" + "\n".join([*stale[:_MOST_STALE], *more])
        )
    return tasks


def _write_table(comparison: Comparison, force: bool) -> tuple[str, list[Path]]:
    """The table for a terminal, and the files that were written; nothing if they are up to date."""
    settings, out = comparison.settings, comparison.out
    made = _Made(out / "results.made.json", settings, [run for runs in comparison.table.values() for run in runs])
    if made.is_up_to_date() and not force:
        return "", []
    made.delete()
    methods = [
        MethodResults(name, chosen.title, chosen.latex, chosen.baseline, _evaluated(settings, runs))
        for name, runs in comparison.table.items()
        for chosen in [settings.methods[name]]
    ]
    pictures = [*draw_pictures(settings, methods, out / "figures"), *draw_strips(settings, methods, out)]
    results = write_results(settings, methods, out)  # names the pictures that are there
    files = [results.markdown, results.latex, results.parquet, *pictures]
    made.write(files)
    return format_comparison(settings, methods), files


def _write_study(comparison: Comparison, name: str, force: bool) -> list[Path]:
    """The files of a study that were written; none if they are up to date."""
    settings, folder = comparison.settings, comparison.out / "sweeps"
    points = comparison.sweeps[name]
    made = _Made(folder / f"{name}.made.json", settings, [run for point in points for run in point.runs])
    if made.is_up_to_date() and not force:
        return []
    made.delete()
    found = [(point, _evaluated(settings, point.runs)) for point in points]
    picture = draw_sweep(settings.sweeps[name], found, folder / f"{name}.png")
    files = [*write_sweep(settings, name, found, comparison.out), *([picture] if picture else [])]  # which it shows
    made.write(files)
    return files


def _evaluated(settings: BenchmarkSettings, runs: Sequence[Run]) -> tuple[EvaluatedRun, ...]:
    found = []
    for run in runs:
        evaluated = read_evaluated(settings, run)
        if evaluated is None:
            raise InputError(f"{run.folder}: its files have been changed meanwhile; run the same command again")
        found.append(evaluated)
    return tuple(found)


class _Made:
    """What results were made from, in a file beside them that is written last.

    Args:
        path: the file.
        settings: of the comparison.
        runs: whose evaluations they show.
    """

    def __init__(self, path: Path, settings: BenchmarkSettings, runs: Sequence[Run]) -> None:
        self._path = path
        evaluations = {str(run): sha256_of(per_query_file(run)) for run in runs}
        self._provenance = Provenance("benchmark", to_dict(settings), evaluations)

    def is_up_to_date(self) -> bool:
        """Whether the results are there, and would be the same."""
        provenance, files = self._said()
        return provenance is not None and provenance.same_work(self._provenance) and all(map(Path.is_file, files))

    def delete(self) -> None:
        """Delete the results that are there; some may not be made again, such as a picture of other methods."""
        _, files = self._said()
        for path in (self._path, *files):
            path.unlink(missing_ok=True)

    def write(self, files: Sequence[Path]) -> None:
        """Say that the results are there."""
        names = [file.relative_to(self._path.parent).as_posix() for file in files]
        with atomic_write(self._path) as draft:
            draft.write_text(json.dumps({"files": names, "provenance": asdict(self._provenance)}, indent=1) + "\n")

    def _said(self) -> tuple[Provenance | None, list[Path]]:
        try:
            said = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None, []
        return Provenance(**said["provenance"]), [self._path.parent / name for name in said["files"]]

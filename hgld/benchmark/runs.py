"""Settings of a comparison of methods, read from its YAML file; its runs: folders, training, evaluation, results.

The file says which trainings are compared, and how they are evaluated and drawn. A training is a row of ``trainings``
with the settings that differ from ``shared``, or another file. The folders of the runs are::

    OUT/runs/METHOD/seed0                        a run of the table, see hgld.training.run_folder
    OUT/runs/METHOD/split1/seed0                 the same, where there are several random splits
    OUT/runs/METHOD/loss.lambda=0.3/seed0        a run of a sweep
    OUT/runs/METHOD/seed0/evaluation/            its evaluation:
      embeddings.npy                             the evaluation images, with their ids in embeddings.ids.txt; or
      small.npy, ...                             the images of each test set, likewise with ids; or
      queries.npy, gallery.npy                   the images of GLDv2's protocol
      per_query.parquet                          a row per query, see hgld.evaluation.results; written last

The last checkpoint is evaluated, or the best one on the validation images of the training if there are some.

Runs with the same settings are shared: a sweep whose values include the value of the table uses the run of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field, NonNegativeInt, model_validator

from hgld.benchmark.engine import ResultFile
from hgld.benchmark.evaluations import (
    ByFileName,
    Evaluation,
    EvaluationContext,
    PicturedEvaluation,
    RevisitedEvaluation,
    Seeds,
    SplitEvaluation,
    embedding_file,
    evaluation_folder,
)
from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.results import RetrievalResult, read_per_query, write_per_query
from hgld.io.presets import comparison_file, containing_file, training_presets
from hgld.io.settings import Settings, read_origins, read_settings, to_dict
from hgld.tables import Provenance, input_digests
from hgld.training.run import is_finished, read_training_settings, train
from hgld.training.run_folder import RunFolder, require_same_run, result_affecting
from hgld.training.training_images import data_digests
from hgld.training.training_settings import TrainingSettings


class MethodSettings(Settings):
    """A method of the table.

    Args:
        title: Title in tables and figures.
        latex: Title in LaTeX; None to escape ``title``.
        training: Settings file of the training, relative to the file that names it, or a row in one, such as
            ``mine.yaml/happier``; or the name of a preset, such as ``own_images/happier``. None for the row of
            ``trainings`` in the same file that has the name of the method.
        baseline: Whether other methods are compared with this one.
    """

    title: str
    latex: str | None = None
    training: Path | None = None
    baseline: bool = False


class CurveSettings(Settings):
    """A curve of a sweep.

    Args:
        method: Name of a method of the table.
        set: Changes to its training, such as ``loss.lambda=0``.
    """

    method: str
    set: tuple[str, ...] = ()


class SweepSettings(Settings):
    """A sweep over the values of one setting of trainings, as in the paper's Figs. 6 to 8.

    Args:
        title: Title of the figure.
        key: Setting, such as ``loss.lambda``.
        label: Label of the x axis.
        values: Values of the setting, in order.
        curves: Curves by title.
        metrics: Metrics, each in its own panel.
        scale: Scale of the x axis.
        relative_to: Title of the curve that the others are drawn relative to, in percent (Fig. 6); None to draw
            values.
    """

    title: str
    key: str
    label: str
    values: tuple[int | float | str, ...] = Field(min_length=1)
    curves: Mapping[str, CurveSettings] = Field(min_length=1)
    metrics: tuple[str, ...] = ("H-AP",)
    scale: Literal["linear", "log"] = "linear"
    relative_to: str | None = None

    @model_validator(mode="after")
    def _check_relative_to(self) -> SweepSettings:
        if self.relative_to is not None and self.relative_to not in self.curves:
            raise ValueError(
                f'relative_to is "{self.relative_to}"; expected one of {", ".join(self.curves)}'
            )
        return self


class PictureSettings(Settings):
    """Figures drawn besides the table.

    Args:
        baseline: Name of a method without the hierarchy.
        method: Name of a hierarchical method, shown side by side with ``baseline``.
        curves: Names of the methods whose curves are drawn; all if empty.
        n_queries: Number of queries on the page of queries that the two methods rank most differently.
        hierarchy: Hierarchy of GLDv2, whose categories name the landmarks on that page; None to show ids.
    """

    baseline: str
    method: str
    curves: tuple[str, ...] = ()
    n_queries: NonNegativeInt = 12
    hierarchy: Path | None = None


class BenchmarkSettings(Settings):
    """A comparison of methods.

    Args:
        title: Title of the table.
        methods: Methods by name, in the order of the table; folders have these names, too.
        seeds: Seeds of the trainings: each method is trained once per seed, and an untrained model evaluated once.
        splits: Seeds of random splits of the images (``data.random_split.seed`` of the trainings): each method is
            trained with all seeds on each split. Empty for the splits of the manifest.
        set: Changes to all trainings, such as ``data.manifest=mine.parquet``.
        evaluation: Evaluation of the trained models.
        metrics: Names of metrics as in ``hgld evaluate``; empty for the metrics of the papers, and for ROxford and
            RParis.
        columns: Metrics of the LaTeX table, in order.
        pictures: Figures to draw; None to draw no figures.
        sweeps: Sweeps over single settings, by name.
    """

    title: str
    methods: ByFileName[MethodSettings] = Field(min_length=1)
    seeds: Seeds = Field(default=(0, 1, 2), min_length=1)
    splits: Seeds = ()
    set: tuple[str, ...] = ()
    evaluation: Evaluation = SplitEvaluation()
    metrics: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("mAP@100", "H-AP", "ASI", "NDCG")
    pictures: PictureSettings | None = None
    sweeps: ByFileName[SweepSettings] = Field(default={})

    @model_validator(mode="after")
    def _check_names(self) -> BenchmarkSettings:
        if self.pictures is not None and not isinstance(self.evaluation, PicturedEvaluation):
            raise ValueError(
                f"pictures are not drawn for the evaluation {self.evaluation.name}; omit them"
            )
        if self.metrics and isinstance(self.evaluation, RevisitedEvaluation):
            raise ValueError(
                f"the evaluation {self.evaluation.name} has metrics of its own; omit `metrics`"
            )
        for name, sweep in self.sweeps.items():
            for curve in sweep.curves.values():
                self._require_method(f"sweeps.{name}", curve.method)
        if self.pictures is not None:
            self._require_method("pictures", self.pictures.baseline)
            self._require_method("pictures", self.pictures.method)
            for method in self.pictures.curves:
                self._require_method("pictures", method)
        return self

    def _require_method(self, key: str, method: str) -> None:
        if method not in self.methods:
            raise ValueError(
                f'{key}: there is no method "{method}"; expected one of {", ".join(self.methods)}'
            )


@dataclass(frozen=True)
class Run:
    """A training run of a method.

    Args:
        split: Seed of the random split of the images; None for the splits of the manifest.
        seed: Seed of the training.
        overrides: Changes to the settings of all trainings, in addition to the changes by the comparison, such as
            ``data.manifest=mine.parquet``.
        changes: Changes to the settings of the method in a sweep, such as ``loss.lambda=0.3``.
    """

    method: str
    split: int | None
    seed: int
    overrides: tuple[str, ...]
    changes: tuple[str, ...]
    folder: Path
    settings: TrainingSettings

    @property
    def split_and_seed(self) -> str:
        """Split and seed in words, by which runs of different methods are paired: ``split 1, seed 0``."""
        if self.split is None:
            return f"seed {self.seed}"
        return f"split {self.split}, seed {self.seed}"

    def __str__(self) -> str:
        return ", ".join([self.method, self.split_and_seed, *self.overrides, *self.changes])


@dataclass(frozen=True)
class SweepPoint:
    """Runs of one curve of a sweep at one value, one per split and seed."""

    curve: str
    value: int | float | str
    runs: tuple[Run, ...]


def read_benchmark(config: str | Path) -> BenchmarkSettings:
    """Read the settings of a comparison; paths of trainings are relative to the folder of the file.

    Raises:
        InputError: See :func:`~hgld.io.settings.read_settings`.
        ConfigurationError: Settings are invalid, or there is no such preset.
    """
    path = comparison_file(config)
    settings = read_settings(BenchmarkSettings, path)
    presets, origins, folder = training_presets(), read_origins(path), containing_file(path).parent
    methods = {}
    for name, method in settings.methods.items():
        if method.training is None:
            # The row is in the file that defines the method, which this file may extend.
            _, origin = origins[f"methods.{name}.title"]
            training = containing_file(origin) / name
        else:
            training = presets.get(str(method.training), folder / method.training)
        methods[name] = method.model_copy(update={"training": training})
    return settings.model_copy(update={"methods": methods})


def table_runs(
    settings: BenchmarkSettings, out: Path, overrides: Sequence[str] = ()
) -> dict[str, tuple[Run, ...]]:
    """Return the runs of the table by method, ordered by seed, then by split.

    An untrained model has runs of the first seed alone.

    Raises:
        InputError: The settings of a training cannot be read.
        ConfigurationError: The settings of a training are invalid.
    """
    table = {}
    for method in settings.methods:
        runs = _runs(settings, out, method, settings.seeds[:1], overrides)
        if runs[0].settings.steps != 0:
            runs += _runs(settings, out, method, settings.seeds[1:], overrides)
        table[method] = runs
    return table


def sweep_runs(
    settings: BenchmarkSettings, name: str, out: Path, overrides: Sequence[str] = ()
) -> tuple[SweepPoint, ...]:
    """Return the runs of a sweep, curve by curve, in the order of its values.

    Raises:
        InputError: The settings of a training cannot be read.
        ConfigurationError: There is no such sweep, or the settings of a training are invalid.
    """
    if name not in settings.sweeps:
        expected = "there are none"
        if settings.sweeps:
            expected = f"expected one of {', '.join(settings.sweeps)}"
        raise ConfigurationError(f'there is no sweep "{name}"; {expected}')
    sweep = settings.sweeps[name]
    points = []
    for title, curve in sweep.curves.items():
        for value in sweep.values:
            changes = (*curve.set, f"{sweep.key}={value}")
            runs = _runs(settings, out, curve.method, settings.seeds, overrides, changes)
            points.append(SweepPoint(title, value, runs))
    return tuple(points)


def _runs(
    settings: BenchmarkSettings,
    out: Path,
    method: str,
    seeds: Sequence[int],
    overrides: Sequence[str],
    changes: Sequence[str] = (),
) -> tuple[Run, ...]:
    """Return the runs of a method: all splits of the first seed, then all splits of the next seed.

    Changes without effect are ignored, so that equal runs share a folder.
    """
    config = settings.methods[method].training
    assert config is not None  # :func:`read_benchmark` has filled it in
    runs = []
    for seed in seeds:
        for split in settings.splits or (None,):
            common = [*settings.set, *overrides]
            if split is not None:
                common.append(f"data.random_split.seed={split}")
            common.append(f"seed={seed}")
            training = read_training_settings(config, common)
            effective: list[str] = []
            for change in changes:
                changed = read_training_settings(config, common + effective + [change])
                if to_dict(changed) != to_dict(training):
                    training = changed
                    effective.append(change)
            folder = out / "runs" / method / ",".join(effective)
            if split is not None:
                folder /= f"split{split}"
            folder /= f"seed{seed}"
            runs.append(
                Run(method, split, seed, tuple(overrides), tuple(effective), folder, training)
            )
    return tuple(runs)


def is_done(settings: BenchmarkSettings, run: Run, *, n_processes: int = 1) -> bool:
    """Return whether a run is trained and evaluated.

    Raises:
        ConfigurationError: The run in the folder has other settings, data, or another number of processes.
        InputError: The data cannot be read.
    """
    if is_finished(run.settings, run.folder):
        return is_evaluated(settings, run)
    folder = RunFolder(run.folder)
    recorded = folder.recorded_run()
    if recorded is not None and folder.last.exists():
        _, record = recorded
        before, now = {"processes": record["processes"]}, {"processes": n_processes}
        require_same_run(run.folder, before, now)
    return False


def train_and_evaluate(
    settings: BenchmarkSettings,
    run: Run,
    *,
    retrain: bool = False,
    device: str = "cpu",
    processes: Processes | None = None,
) -> None:
    """Train and evaluate a run that is not done; resume a run that was interrupted.

    Args:
        retrain: Whether to train again, although there may be a run in the folder.
        processes: Processes that train and evaluate together.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; the last step is saved.
        ConfigurationError: A setting is wrong, see :func:`~hgld.training.run.train`, or a metric is unknown.
        InputError: Images or labels cannot be read.
    """
    processes = processes or Processes()
    if retrain or not processes.broadcast(is_finished(run.settings, run.folder)):
        train(
            run.settings,
            run.folder,
            resume=not retrain,
            force=retrain,
            device=device,
            processes=processes,
        )
    # Evaluations during a training are for its learning curve; this one keeps values of each query, and embeddings.
    file = _result_file(settings, run)
    # The first process writes the file and decides for all: others may see an older state of the file system.
    if processes.broadcast(_is_complete(settings, run, file)):
        return
    context = EvaluationContext(run.folder, run.settings, settings.metrics, device, processes)
    results = settings.evaluation.evaluate(context)
    if processes.rank == 0:
        write_per_query(results, file.path, file.provenance)
    processes.gather(None)  # the other processes wait for the file


@dataclass(frozen=True, eq=False)
class EvaluatedRun(Run):
    """A run and the result of its model."""

    result: RetrievalResult


#: A point of a sweep, and the results of its runs.
EvaluatedPoint: TypeAlias = tuple[SweepPoint, tuple[EvaluatedRun, ...]]


def read_evaluated(settings: BenchmarkSettings, run: Run) -> EvaluatedRun | None:
    """Read the result of :func:`train_and_evaluate`; None if it does not exist, or is out of date.

    The result of GLDv2's protocol covers the queries with hierarchical labels; its column ``map100_official`` covers
    all queries, Public and Private together, for which the other metrics are NaN.

    Raises:
        InputError: A file that the run was made from is missing.
    """
    if not is_evaluated(settings, run):
        return None
    result = settings.evaluation.join(read_per_query(per_query_file(run)))
    return EvaluatedRun(**vars(run), result=result)


def per_query_file(run: Run) -> Path:
    """Return the file of a run's result; its digest identifies the result."""
    return evaluation_folder(run.folder) / "per_query.parquet"


def is_evaluated(settings: BenchmarkSettings, run: Run) -> bool:
    """Return whether the result of a run and its embeddings exist and are up to date.

    Raises:
        InputError: A file that the run was made from is missing.
    """
    if not RunFolder(run.folder).result.is_file():
        return False
    return _is_complete(settings, run, _result_file(settings, run))


def _is_complete(settings: BenchmarkSettings, run: Run, result: ResultFile) -> bool:
    for name in settings.evaluation.embedding_sets:
        embeddings = embedding_file(run.folder, name)
        if not (embeddings.is_file() and embeddings.with_suffix(".ids.txt").is_file()):
            return False
    return result.is_up_to_date()


def _result_file(settings: BenchmarkSettings, run: Run) -> ResultFile:
    files = {"checkpoint": RunFolder(run.folder).result, **settings.evaluation.files}
    parameters = {
        "training": result_affecting(to_dict(run.settings)),
        **settings.evaluation.parameters,
        "metrics": list(settings.metrics),
    }
    digests = data_digests(run.settings.data) | input_digests(**files)
    return ResultFile(per_query_file(run), Provenance("benchmark", parameters, digests))


def read_training_record(run: Run) -> dict[str, Any]:
    """Read the record of a finished training from the files of its run.

    Returns:
        ``steps``; ``train_seconds``, without evaluations; ``device``: ``cpu``, or the name of a GPU;
        ``machine``: processor, cores and memory; and ``versions`` of the software by name.

    Raises:
        InputError: The folder holds no run.
    """
    folder = RunFolder(run.folder)
    recorded = folder.recorded_run()
    if recorded is None:
        raise InputError(f"{run.folder}: there is no run; train it first")
    _, record = recorded
    steps = folder.history("step")
    return {
        "steps": len(steps),
        "train_seconds": sum(run.settings.batch_size / step["images_per_s"] for step in steps),
        "device": record["device"],
        "machine": record["machine"],
        "versions": record["versions"],
    }

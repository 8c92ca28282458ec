"""Training runs of a comparison: their settings and folders.

::

    OUT/runs/METHOD/seed0                        a run of the table, see hgld.training.run_folder
    OUT/runs/METHOD/split1/seed0                 the same, where there are several random splits
    OUT/runs/METHOD/loss.lambda=0.3/seed0        a run of a sweep
    OUT/runs/METHOD/seed0/evaluation/            its evaluation, see hgld.benchmark.worker

Runs with the same settings are shared: a sweep whose values include the value of the table uses the run of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.errors import ConfigurationError, InputError
from hgld.io.settings import comparison_file, read_origins, read_settings, to_dict, training_presets
from hgld.training.run import read_training_settings
from hgld.training.run_folder import RunFolder
from hgld.training.training_settings import TrainingSettings

#: Seed of the random split, or None for the splits of the manifest; and seed of the training.
Draw = tuple[int | None, int]


@dataclass(frozen=True)
class Run:
    """A training run of a method.

    Args:
        method: Name of the method.
        split: Seed of the random split of the images; None for the splits of the manifest.
        seed: Seed of the training.
        overrides: Changes to the settings of all trainings besides those of the comparison, such as
            ``data.manifest=mine.parquet``.
        changes: Changes to the settings of the method in a sweep, such as ``loss.lambda=0.3``.
        folder: Folder of the run.
        settings: Resolved settings.
    """

    method: str
    split: int | None
    seed: int
    overrides: tuple[str, ...]
    changes: tuple[str, ...]
    folder: Path
    settings: TrainingSettings

    @property
    def draw(self) -> Draw:
        """Split and seed, by which runs of different methods are paired."""
        return self.split, self.seed

    def __str__(self) -> str:
        return ", ".join([self.method, describe_draw(self.draw), *self.overrides, *self.changes])


@dataclass(frozen=True)
class SweepPoint:
    """Runs of one curve of a sweep at one value, one per split and seed."""

    curve: str
    value: int | float | str
    runs: tuple[Run, ...]


def describe_draw(draw: Draw) -> str:
    """Return the words for a split and a seed.

    >>> describe_draw((1, 0)), describe_draw((None, 0))
    ('split 1, seed 0', 'seed 0')
    """
    split, seed = draw
    return f"seed {seed}" if split is None else f"split {split}, seed {seed}"


def read_benchmark(config: str | Path) -> BenchmarkSettings:
    """Read the settings of a comparison; paths of trainings are relative to the folder of the file.

    Raises:
        InputError: See :func:`~hgld.io.settings.read_settings`.
        ConfigurationError: Settings are invalid, or there is no such preset.
    """
    path = comparison_file(config)
    settings = read_settings(BenchmarkSettings, path)
    presets, origins = training_presets(), read_origins(path)
    methods = {}
    for name, method in settings.methods.items():
        own_row = origins[f"methods.{name}.title"][1] / name
        given = method.training and presets.get(str(method.training), path.parent / method.training)
        methods[name] = method.model_copy(update={"training": given or own_row})
    return settings.model_copy(update={"methods": methods})


def table_runs(settings: BenchmarkSettings, out: Path, overrides: Sequence[str] = ()) -> dict[str, tuple[Run, ...]]:
    """Return the runs of the table by method, ordered by seed, then by split.

    An untrained model has those of the first seed alone.

    Raises:
        InputError: The settings of a training cannot be read.
        ConfigurationError: The settings of a training are invalid.
    """
    table = {}
    for method in settings.methods:
        runs = [_run(settings, out, method, draw, overrides) for draw in _draws(settings, settings.seeds[:1])]
        if runs[0].settings.steps != 0:
            runs += [_run(settings, out, method, draw, overrides) for draw in _draws(settings, settings.seeds[1:])]
        table[method] = tuple(runs)
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
        expected = f"expected one of {', '.join(settings.sweeps)}" if settings.sweeps else "there are none"
        raise ConfigurationError(f'there is no sweep "{name}"; {expected}')
    sweep = settings.sweeps[name]
    return tuple(
        SweepPoint(
            title,
            value,
            tuple(
                _run(settings, out, curve.method, draw, overrides, (*curve.set, f"{sweep.key}={value}"))
                for draw in _draws(settings, settings.seeds)
            ),
        )
        for title, curve in sweep.curves.items()
        for value in sweep.values
    )


def _draws(settings: BenchmarkSettings, seeds: Sequence[int]) -> list[Draw]:
    """Return all splits of the first seed, then those of the next."""
    return [(split, seed) for seed in seeds for split in settings.splits or (None,)]


def _run(
    settings: BenchmarkSettings,
    out: Path,
    method: str,
    draw: Draw,
    overrides: Sequence[str],
    changes: Sequence[str] = (),
) -> Run:
    """Return a run; ``changes`` without effect are ignored, so that equal runs share a folder."""
    config = settings.methods[method].training
    assert config is not None  # :func:`read_benchmark` has filled it in
    split, seed = draw
    of_split = [] if split is None else [f"data.random_split.seed={split}"]
    common = (*settings.set, *overrides, *of_split, f"seed={seed}")
    resolved = read_training_settings(config, common)
    effective: tuple[str, ...] = ()
    for change in changes:
        changed = read_training_settings(config, (*common, *effective, change))
        if to_dict(changed) != to_dict(resolved):
            resolved, effective = changed, (*effective, change)
    folder = out / "runs" / method / ",".join(effective) / ("" if split is None else f"split{split}") / f"seed{seed}"
    return Run(method, split, seed, tuple(overrides), effective, folder, resolved)


@dataclass(frozen=True)
class TrainingRecord:
    """Record of a finished training.

    Args:
        steps: Number of steps.
        train_seconds: Seconds of these steps, without evaluations.
        device: ``cpu``, or the name of a GPU.
        machine: Processor, cores and memory.
        versions: Versions of the software by name.
    """

    steps: int
    train_seconds: float
    device: str
    machine: str
    versions: Mapping[str, str]


def read_training_record(run: Run) -> TrainingRecord:
    """Read the record of a training from the files of its run.

    Raises:
        InputError: The folder holds no run.
    """
    folder = RunFolder(run.folder)
    recorded = folder.recorded_run()
    if recorded is None:
        raise InputError(f"{run.folder}: there is no run; train it first")
    _, record = recorded
    steps = folder.history("step")
    return TrainingRecord(
        steps=len(steps),
        train_seconds=sum(run.settings.batch_size / step["images_per_s"] for step in steps),
        device=record["device"],
        machine=record["machine"],
        versions=record["versions"],
    )

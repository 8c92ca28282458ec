"""Training runs of a comparison: their settings and folders.

::

    OUT/runs/METHOD/seed0                        a run of the table, see hgld.training.run_folder
    OUT/runs/METHOD/loss.lambda=0.3/seed0        a run of a sweep
    OUT/runs/METHOD/seed0/evaluation/            its evaluation, see hgld.benchmark.run_evaluation

Runs with the same settings are shared: a sweep whose values include the value of the table uses the run of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.errors import ConfigurationError
from hgld.io.preset_files import comparison_file, training_presets
from hgld.io.settings import read_settings, to_dict
from hgld.training.run import read_training_settings
from hgld.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class Run:
    """A training run of a method.

    Args:
        method: Name of the method.
        seed: Seed of the training.
        overrides: Changes to the settings file of the method, such as ``loss.lambda=0.3``, besides the seed.
        config: Settings file of the method.
        folder: Folder of the run.
        settings: Resolved settings.
    """

    method: str
    seed: int
    overrides: tuple[str, ...]
    config: Path
    folder: Path
    settings: TrainingSettings

    def __str__(self) -> str:
        return ", ".join([self.method, f"seed {self.seed}", *self.overrides])


@dataclass(frozen=True)
class SweepPoint:
    """Runs of one curve of a sweep at one value, one per seed."""

    curve: str
    value: int | float | str
    runs: tuple[Run, ...]


def read_benchmark(config: str | Path) -> BenchmarkSettings:
    """Read the settings of a comparison, with paths of trainings relative to the folder of the file.

    Args:
        config: The YAML file, or the name of a preset (:mod:`hgld.io.preset_files`).

    Raises:
        InputError: See :func:`~hgld.io.settings.read_settings`.
        ConfigurationError: Settings are invalid, or there is no such preset.
    """
    path = comparison_file(config)
    settings = read_settings(BenchmarkSettings, path)
    presets = training_presets()
    methods = {
        name: method.model_copy(update={"training": presets.get(str(method.training), path.parent / method.training)})
        for name, method in settings.methods.items()
    }
    return settings.model_copy(update={"methods": methods})


def table_runs(settings: BenchmarkSettings, out: Path, overrides: Sequence[str] = ()) -> dict[str, tuple[Run, ...]]:
    """Return the runs of the table by method, in the order of the seeds; one run of an untrained model.

    Args:
        settings: Settings of the comparison.
        out: Output folder.
        overrides: Settings to change in all trainings, such as ``data.manifest=mine.parquet``.

    Raises:
        InputError: The settings of a training cannot be read.
        ConfigurationError: The settings of a training are invalid.
    """
    table = {}
    for method in settings.methods:
        first = _run(settings, out, method, settings.seeds[0], overrides)
        other_seeds = settings.seeds[1:] if first.settings.steps != 0 else ()
        table[method] = (first, *(_run(settings, out, method, seed, overrides) for seed in other_seeds))
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
                _run(settings, out, curve.method, seed, overrides, (*curve.set, f"{sweep.key}={value}"))
                for seed in settings.seeds
            ),
        )
        for title, curve in sweep.curves.items()
        for value in sweep.values
    )


def _run(
    settings: BenchmarkSettings,
    out: Path,
    method: str,
    seed: int,
    overrides: Sequence[str],
    changes: Sequence[str] = (),
) -> Run:
    """Return a run; ``changes`` without effect are ignored, so that equal runs share a folder."""
    config = settings.methods[method].training
    common = (*overrides, f"seed={seed}")
    resolved = read_training_settings(config, common)
    effective: tuple[str, ...] = ()
    for change in changes:
        changed = read_training_settings(config, (*common, *effective, change))
        if to_dict(changed) != to_dict(resolved):
            resolved, effective = changed, (*effective, change)
    folder = out.joinpath("runs", method, *([",".join(effective)] if effective else []), f"seed{seed}")
    return Run(method, seed, (*overrides, *effective), config, folder, resolved)

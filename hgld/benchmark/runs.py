"""Which trainings a comparison consists of, where their folders are, and which of them are done.

::

    OUT/runs/METHOD/seed0                        a run of the table, see hgld.training.run_folder
    OUT/runs/METHOD/loss.lambda=0.3/seed0        one of a study
    OUT/runs/METHOD/seed0/evaluation/            what hgld.benchmark.run_evaluation writes

Two runs with the same settings are one: a study whose values include the table's takes the table's run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.errors import ConfigurationError
from hgld.io.settings import read_settings, to_dict
from hgld.training.run import read_training_settings
from hgld.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class Run:
    """A training of a method.

    Args:
        method: its name in the comparison.
        seed: of the training.
        overrides: what differs from the method's file, as ``--set`` takes it, the seed besides.
        config: the method's file.
        folder: of the run.
        settings: all of it, read.
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
    """The runs of a curve of a study at one value, one for each seed."""

    curve: str
    value: int | float | str
    runs: tuple[Run, ...]


def read_benchmark(path: Path) -> BenchmarkSettings:
    """The settings of a comparison; paths of trainings are made relative to where the file is.

    Raises:
        InputError, ConfigurationError: see :func:`~hgld.io.settings.read_settings`.
    """
    settings = read_settings(BenchmarkSettings, path)
    methods = {
        name: method.model_copy(update={"training": path.parent / method.training})
        for name, method in settings.methods.items()
    }
    return settings.model_copy(update={"methods": methods})


def table_runs(settings: BenchmarkSettings, out: Path, overrides: Sequence[str] = ()) -> dict[str, tuple[Run, ...]]:
    """The runs of the table by their methods, in the order of the seeds; one run of what is not trained at all.

    Args:
        settings: of the comparison.
        out: its folder.
        overrides: of all trainings, such as ``data.manifest=mine.parquet``.

    Raises:
        InputError, ConfigurationError: the settings of a training cannot be read.
    """
    table = {}
    for method in settings.methods:
        first = _run(settings, out, method, settings.seeds[0], overrides)
        others = settings.seeds[1:] if first.settings.steps != 0 else ()
        table[method] = (first, *(_run(settings, out, method, seed, overrides) for seed in others))
    return table


def sweep_runs(
    settings: BenchmarkSettings, sweep: str, out: Path, overrides: Sequence[str] = ()
) -> tuple[SweepPoint, ...]:
    """The runs of a study, curve by curve, in the order of its values.

    Raises:
        ConfigurationError: there is no such study, or the settings of a training are wrong.
        InputError: they cannot be read.
    """
    if sweep not in settings.sweeps:
        there = ", ".join(settings.sweeps) or "none"
        raise ConfigurationError(f'there is no sweep "{sweep}"; there are {there}')
    study = settings.sweeps[sweep]
    return tuple(
        SweepPoint(
            title,
            value,
            tuple(
                _run(settings, out, curve.method, seed, overrides, (*curve.set, f"{study.key}={value}"))
                for seed in settings.seeds
            ),
        )
        for title, curve in study.curves.items()
        for value in study.values
    )


def _run(
    settings: BenchmarkSettings,
    out: Path,
    method: str,
    seed: int,
    overrides: Sequence[str],
    studied: Sequence[str] = (),
) -> Run:
    """A run; of what is studied, that which changes nothing does not count."""
    config = settings.methods[method].training
    common = (*overrides, f"seed={seed}")
    made = read_training_settings(config, common)
    changes: tuple[str, ...] = ()
    for change in studied:
        changed = read_training_settings(config, (*common, *changes, change))
        if to_dict(changed) != to_dict(made):
            made, changes = changed, (*changes, change)
    folder = out.joinpath("runs", method, *([",".join(changes)] if changes else []), f"seed{seed}")
    return Run(method, seed, (*overrides, *changes), config, folder, made)

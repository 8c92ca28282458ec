"""A search of settings: trainings on a part of the training classes, compared on the others.

::

    OUT/images.parquet    manifest of the training images
    OUT/trials.yaml       the trials, as a comparison that hgld benchmark takes
    OUT/runs/, OUT/results.parquet, .md, .tex    their runs and results, see hgld.benchmark.comparison
    OUT/best.yaml         settings of the best trial, to train with all training images
    OUT/METHOD/           the same of each method of a comparison

Trials are runs of a comparison, which keeps those that are done, resumes interrupted ones, and has them side by side
on several devices. The first trial has the settings as they are, so that the best one is no worse on these classes.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from hgld.benchmark import Comparison, compare_methods, read_comparison
from hgld.benchmark.runs import read_benchmark
from hgld.compute.executors import LocalExecutor, parse_slots
from hgld.datasets.manifest import write_manifest
from hgld.errors import ConfigurationError
from hgld.evaluation.results import goodness
from hgld.io.files import write_text
from hgld.io.settings import (
    comparison_presets,
    containing_file,
    override,
    parse_overrides,
    read_origins,
    to_yaml,
    training_file,
)
from hgld.progress import Progress
from hgld.tables import COMPARISON, Provenance, is_up_to_date, read_table
from hgld.training import is_finished, read_training_settings
from hgld.training.training_images import data_digests, read_training_manifest

#: Share of the classes of each label one level above that trials are evaluated on.
_HELD_OUT = 0.25
_LOG = "log:"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dimension:
    """A setting that is searched.

    Args:
        key: Its name, such as ``loss.lambda``.
        kind: Whether numbers are drawn uniformly between two ends, or uniformly in their logarithm; or ``values`` are
            chosen, each as often as another.
        values: The two ends, or the values in YAML.
    """

    key: str
    kind: Literal["uniform", "log", "values"]
    values: tuple[str, ...]

    def change(self, position: float) -> str:
        """Return the change of settings at a position from 0 to below 1; numbers have three significant digits.

        >>> parse_dimension("seed=3,5").change(0.5), parse_dimension("optimiser.head.lr=log:1e-4..1e-2").change(0.5)
        ('seed=5', 'optimiser.head.lr=0.001')
        """
        if self.kind == "values":
            return f"{self.key}={self.values[int(position * len(self.values))]}"
        low, high = map(float, self.values)
        if self.kind == "log":
            return f"{self.key}={low * (high / low) ** position:.3g}"
        return f"{self.key}={low + (high - low) * position:.3g}"


def parse_dimension(text: str) -> Dimension:
    """Return the dimension of a text such as ``KEY=0.1..0.9``, ``KEY=log:1e-5..1e-2`` or ``KEY=16,32,64``.

    Raises:
        ConfigurationError: The text has another form, or the ends are not ascending, or not positive for ``log``.
    """
    key, _, text_of_values = text.partition("=")
    ends = tuple(text_of_values.removeprefix(_LOG).split(".."))
    is_log = text_of_values.startswith(_LOG)
    if key and text_of_values and len(ends) == 1 and not is_log:
        return Dimension(key, "values", tuple(text_of_values.split(",")))
    try:
        low, high = map(float, ends)
    except ValueError:
        low = high = math.nan
    if not key or not (0 if is_log else -math.inf) < low < high < math.inf:
        raise ConfigurationError(
            f"`space` is {text}; expected KEY=LOW..HIGH, KEY=log:LOW..HIGH with positive ends, or values KEY=A,B,C"
        )
    return Dimension(key, "log" if is_log else "uniform", ends)


def sample(space: Sequence[Dimension], n: int) -> list[tuple[str, ...]]:
    """Return the changes of settings of n points of a space, each independent of n, so that a search can be extended.

    Points are those of a scrambled Halton sequence: as random as independent draws, but without clusters and gaps,
    which finds better settings in as many trials (Bergstra and Bengio, Random Search for Hyper-Parameter
    Optimization, JMLR 2012, Sec. 4).
    """
    from scipy.stats.qmc import Halton

    points = Halton(len(space), seed=0).random(n).tolist()
    return [tuple(each.change(position) for each, position in zip(space, point, strict=True)) for point in points]


@dataclass(frozen=True)
class Trial:
    """A training of a search: what it changes, such as ``loss.lambda=0.3``, and the metric on the held-out classes.

    The value is NaN if the training failed.
    """

    name: str
    changes: tuple[str, ...]
    value: float


@dataclass(frozen=True)
class SearchSummary:
    """Outcome of a search: the selecting metric, trials, the best first, and the file of the settings of the best."""

    metric: str
    trials: tuple[Trial, ...]
    unchanged: Trial
    best: Path


def tune(
    config: str | Path,
    space: Sequence[Dimension],
    out: Path,
    *,
    overrides: Sequence[str] = (),
    trials: int = 20,
    devices: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> SearchSummary:
    """Search the settings of a training on its training classes.

    A quarter of the finest training classes is held out, with all their images; the test images are not used. An
    interrupted search continues, and one with more trials keeps those that are done.

    ``config`` is a file of settings or the name of a preset, and devices are those of
    :func:`~hgld.compute.executors.parse_slots`. With ``force``, trials whose settings or data changed are retrained.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; what has been trained is saved.
        ConfigurationError: Settings are invalid, all trials failed, or were begun with other settings or data.
        InputError: The data cannot be read.
    """
    if trials < 2 or len({each.key for each in space}) < max(len(space), 1):
        raise ConfigurationError(
            f"`trials` is {trials}, and `space` has {len(space)} settings; expected 2 trials or more, and each "
            "setting once"
        )
    changes = [(), *sample(space, trials - 1)]
    for each in changes:
        read_training_settings(config, [*overrides, *each])  # whose errors name the setting as it was given
    planned = {f"trial_{n:03}": each for n, each in enumerate(changes)}
    unchanged = read_training_settings(config, overrides)
    comparison = read_comparison(_write_trials(config, overrides, planned, out), out)
    _compare(comparison, LocalExecutor(parse_slots(devices)), force=force, progress=progress)
    metric, rows = unchanged.evaluation.best, read_table(out / "results.parquet", COMPARISON).to_pylist()
    values = {row["method"]: row["value"] for row in rows if row["metric"] == metric}
    done = [Trial(name, each, values.get(name, math.nan)) for name, each in planned.items()]
    ranked = sorted(done, key=lambda trial: -goodness(metric, trial.value))
    (run,) = comparison.table[ranked[0].name]
    as_given = {"data": unchanged.data, "evaluation": unchanged.evaluation}
    write_text(out / "best.yaml", to_yaml(run.settings.model_copy(update=as_given)))
    return SearchSummary(metric, tuple(ranked), done[0], out / "best.yaml")


def is_comparison(config: str | Path) -> bool:
    """Return whether a preset or a file of settings is a comparison, not a training.

    >>> is_comparison("washington_newer"), is_comparison("washington_newer/happier"), is_comparison("happier")
    (True, False, False)
    """
    if str(config) in comparison_presets():
        return True
    path = Path(config)
    return containing_file(path).is_file() and any(key.startswith("methods.") for key in read_origins(path))


def tune_methods(
    comparison: str | Path,
    out: Path,
    *,
    space: Sequence[Dimension] = (),
    overrides: Sequence[str] = (),
    **options: Any,
) -> dict[str, SearchSummary]:
    """Search the settings of each method of a comparison, with as many trials for each.

    Args:
        comparison: File of the comparison, or the name of a preset.
        out: Output folder, in which each method has one.
        space: Settings to search for all methods, besides the ``space`` of each method.
        **options: Further arguments of :func:`tune`.

    Returns:
        Search of each method that has settings to search, by name.

    Raises:
        ConfigurationError: See :func:`tune`; or no method has settings to search.
    """
    settings = read_benchmark(comparison)
    spaces = {
        name: [*space, *map(parse_dimension, method.space)]
        for name, method in settings.methods.items()
        if space or method.space
    }
    if not spaces:
        raise ConfigurationError(f"{comparison}: no method names a `space`; name settings to search there, or here")
    return {
        name: tune(
            str(settings.methods[name].training), each, out / name, overrides=[*settings.set, *overrides], **options
        )
        for name, each in spaces.items()
    }


def _write_trials(
    config: str | Path, overrides: Sequence[str], planned: Mapping[str, tuple[str, ...]], out: Path
) -> Path:
    """Write the manifest of the training images, and the comparison of all trials."""
    settings = read_training_settings(config, overrides)
    data, best = settings.data, settings.evaluation.best
    out.mkdir(parents=True, exist_ok=True)
    manifest = out / "images.parquet"
    split = None if data.random_split is None else data.random_split.model_dump()
    provenance = Provenance("tune", {"train": data.train, "random_split": split}, data_digests(data))
    if not is_up_to_date(manifest, provenance):
        write_manifest(manifest, read_training_manifest(data).select_split(data.train), provenance)
    shared = [
        *overrides,
        override("data.manifest", manifest),
        override("data.root", data.root or data.manifest.parent),
        *("data.train=train", "data.test=test", "data.queries=null", "data.gallery=null", "data.val=null"),
        f"data.random_split={{test_share: {_HELD_OUT}}}",
        f"evaluation.metrics={json.dumps([best])}",
        f"evaluation.every={settings.epochs or settings.evaluation.every}",  # at the end alone
    ]
    comparison = {
        "title": "Settings of a training on held-out training classes",
        "methods": {
            name: {"title": ", ".join(changes) or "unchanged", "baseline": not changes}
            for name, changes in planned.items()
        },
        "seeds": [settings.seed],
        "metrics": [best],
        "columns": [best],
        "shared": {"base": str(training_file(config).absolute()), **parse_overrides(shared)},
        "trainings": {name: parse_overrides(changes) for name, changes in planned.items()},
    }
    write_text(out / "trials.yaml", yaml.safe_dump(comparison, sort_keys=False, allow_unicode=True, width=100))
    return out / "trials.yaml"


def _compare(comparison: Comparison, executor: LocalExecutor, *, force: bool, progress: Progress | None) -> None:
    """Train and compare trials; those whose trainings fail, as with too high a learning rate, are left out."""
    try:
        compare_methods(comparison, executor=executor, force=force, progress=progress)
    except ConfigurationError as error:
        finished = {
            name: runs
            for name, runs in comparison.table.items()
            if all(is_finished(run.settings, run.folder) for run in runs)
        }
        if not finished:
            raise
        log.warning("%s", error)
        compare_methods(replace(comparison, table=finished), executor=executor, progress=progress)

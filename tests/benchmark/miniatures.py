"""Comparisons in miniature: any of them runs in seconds on small data sets of generated pictures.

``MiniatureFolder`` writes the files of data sets, then runs the commands in the comments of settings files that make
their manifests. To add a data set, write its function in :mod:`tests.benchmark.miniature_datasets`.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hgld.benchmark.runs import SweepSettings, read_benchmark
from hgld.io.presets import comparison_presets, training_presets
from hgld.resources import preset_folder
from hgld.training.run import read_training_settings
from tests.benchmark.miniature_datasets import DATASETS
from tests.commands import run_hgld

#: Changes that make any training one of seconds.
SMALL: tuple[str, ...] = ("batch_size=16", "steps=2", "epochs=null", "warm_up_epochs=0", "workers=0", "loggers=[]")
SMALL = (*SMALL, "sampler.per_class=4", "model.dim=8", "mixed_precision=off")
SMALL = (*SMALL, "evaluation.metrics=[R@1]", "evaluation.best=R@1")
#: Further changes for models that embed images.
SMALL_MODEL: tuple[str, ...] = ("model.backbone=test_resnet", "model.pretrained=false", "frozen=[]")
SMALL_MODEL = (
    *SMALL_MODEL,
    "model.small_images=false",
    "image.size=32",
    "image.resize=32",
    "image.train_resize=null",
)
#: Values of sweeps over settings that SMALL changes; of the others, the first and the last.
SMALL_VALUES: Mapping[str, Sequence[int]] = {"batch_size": (16, 32), "sampler.per_class": (2, 4)}
#: Largest rank K of a metric such as R@K.
MAX_RANK = 100
#: Files with trainings.
FILES = {path.parent.stem for path in training_presets().values()}
#: Files with trainings and comparisons that need the images of another.
REQUIRES: Mapping[str, Sequence[str]] = {
    "washington_head": ["washington"],
    "grocery_fine_tuned": ["grocery"],
    "grocery_newer": ["grocery"],
}


def invoke(*arguments: object) -> str:
    """Run a command of hgld; return what it prints."""
    return run_hgld(*arguments).stdout


def small_settings(training: str | Path) -> list[str]:
    """Return the changes that make a training small, as options; a head upon features keeps its model."""
    settings = read_training_settings(training, ["data.manifest=given.parquet"])
    split = ["data.random_split.test_share=0.5"] if settings.data.random_split else []
    changes = [*SMALL, *split, *(() if settings.data.features else SMALL_MODEL)]
    return [word for change in changes for word in ("--set", change)]


def small_comparison(name: str, out: Path) -> Path:
    """Write a comparison with one split and one seed, and metrics and sweeps that small data sets allow."""
    settings = read_benchmark(name)
    small: dict[str, Any] = {
        "base": str(comparison_presets()[name]),
        "methods": {method: {"training": str(value.training)} for method, value in settings.methods.items()},
        "seeds": [0],
        "splits": [0] if settings.splits else [],
        "metrics": small_metrics(settings.metrics),
        "columns": small_metrics(settings.columns),
        "sweeps": {sweep: small_sweep(value) for sweep, value in settings.sweeps.items()},
    }
    out.write_text(yaml.safe_dump(small))
    return out


def small_metrics(metrics: Sequence[str]) -> list[str]:
    ranks = {metric: int(k) for metric in metrics for k in re.findall(r"@(\d+)", metric)}
    return [metric for metric in metrics if ranks.get(metric, 0) <= MAX_RANK]


def small_sweep(sweep: SweepSettings) -> dict[str, Any]:
    """Return the changes of a sweep; its curves have the batches of small trainings."""
    curves = {
        title: {"set": [change for change in curve.set if change.partition("=")[0] not in SMALL_VALUES]}
        for title, curve in sweep.curves.items()
    }
    values = SMALL_VALUES.get(sweep.key, dict.fromkeys((sweep.values[0], sweep.values[-1])))
    return {"values": list(values), "metrics": small_metrics(sweep.metrics), "curves": curves}


class MiniatureFolder:
    """A folder in which data sets are written once each.

    Args:
        root: The folder, to be the working folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._done: set[object] = set()

    def add(self, name: str) -> None:
        """Write the data set of a file of trainings, or of a comparison, and run the commands of its settings."""
        for required in REQUIRES.get(name, ()):
            self.add(required)
        dataset = dataset_of(name)
        if dataset is not None and dataset not in self._done:
            self._done.add(dataset)
            DATASETS[dataset]()
        for words in documented_commands(name):
            if tuple(words) not in self._done:
                self._done.add(tuple(words))
                invoke(*words)

    def add_comparison(self, name: str) -> None:
        """Write the data sets of a comparison: that with its own commands, or those of its methods."""
        trainings = [method.training for method in read_benchmark(name).methods.values()]
        files = dict.fromkeys(path.parent.stem for path in trainings if path is not None)
        for file in [name] if (documented_commands(name) and name not in FILES) or name in REQUIRES else files:
            self.add(file)


def dataset_of(name: str) -> str | None:
    """Return the data set of a file of trainings or of a comparison; None where it is that of another file."""
    if name in REQUIRES:
        return None
    if name in DATASETS:
        return name
    return next(known for known in DATASETS if name.endswith(f"_{known}") or name.startswith(known))


def documented_commands(name: str) -> list[list[str]]:
    r"""Return the commands in the comments of a preset's file that make manifests and features; ``\\`` continues.

    Those that are indented further are for other data, which its comparison does not need.
    """
    file = preset_folder() / f"{name}.yaml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""  # those of a row are its methods'
    comments = [line[1:] for line in text.splitlines() if line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(comments))
    lines = [shlex.split(line, comments=True) for line in re.findall(r"^   hgld (.*)$", text, re.MULTILINE)]
    features = [words for words in lines if words[0] == "embed-images"][:1]  # the others are for other backbones
    return [words for words in lines if words[0] in ("extract-images", "index-images", "manifest")] + features

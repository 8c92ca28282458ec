"""What the trainings of a comparison took, and on what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hgld.benchmark.runs import Run
from hgld.datasets.manifest import read_manifest
from hgld.errors import InputError
from hgld.training.run_folder import RunFolder
from hgld.training.training_images import evaluation_manifest
from hgld.training.training_settings import DataSettings


@dataclass(frozen=True)
class Training:
    """A training that is over.

    Args:
        steps: that were taken.
        train_seconds: of these steps, without evaluations.
        device: ``cpu``, or the name of a GPU.
        machine: processor, cores, memory.
        versions: of the software, by its name.
    """

    steps: int
    train_seconds: float
    device: str
    machine: str
    versions: Mapping[str, str]


def training_of(run: Run) -> Training:
    """What the files of a run say.

    Raises:
        InputError: there is no run.
    """
    folder = RunFolder(run.folder)
    begun = folder.recorded_run()
    if begun is None:
        raise InputError(f"{run.folder}: there is no run; train it, then look at the results")
    _, said = begun
    steps = folder.history("step")
    return Training(
        steps=len(steps),
        train_seconds=sum(run.settings.batch_size / step["images_per_s"] for step in steps),
        device=said["device"],
        machine=said["machine"],
        versions=said["versions"],
    )


def data_text(data: DataSettings) -> str:
    """Which images were trained on and which evaluated with, in words.

    Raises:
        InputError: the manifest cannot be read.
    """
    manifest = read_manifest(data.manifest)
    train, test = manifest.select_split(data.train), evaluation_manifest(manifest, data)
    what = manifest.level_names[0]
    known = np.intersect1d(train.class_names[0], test.class_names[0]).size
    shared = f"{known:,} of which were trained on" if known else "none of which was trained on"
    return (
        f"Trained on {len(train):,} images of {train.n_classes[0]:,} classes ({what}), evaluated with "
        f"{len(test):,} images of {test.n_classes[0]:,} classes, {shared}."
    )

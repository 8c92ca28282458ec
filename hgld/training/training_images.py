"""The images of a training: those to train on, in batches, and those to evaluate with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hgld.compute.machine import return_memory
from hgld.datasets.image_dataset import FeatureDataset, ImageDataset
from hgld.datasets.loading import ExampleDataset
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.samplers import (
    BatchSampler,
    ClassBalancedSampler,
    HierarchicalSampler,
    LabelSetSampler,
    log_small_classes,
)
from hgld.datasets.splits import split_at_random
from hgld.datasets.transforms import evaluation_transform, training_transform
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import LabelMatrix
from hgld.io.files import sha256_of
from hgld.losses.registry import LabelSpace
from hgld.training.training_settings import DataSettings, HierarchicalSettings, TrainingSettings


class TrainingImages:
    """The datasets that the settings of a training name.

    Attributes:
        untransformed: Training images with the transform of the evaluation.
        n_epochs: Number of epochs of the training; the last epoch may be incomplete.
        val: Images that select the best checkpoint; None if the manifest has no such images.
        test: Images to evaluate with; queries and gallery together, where they are separate splits.
        is_query: bool, shape (n_test,); which test images are queries. None if every test image is a query and is
            ranked against the others.
        digests: SHA-256 of the files read.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        self.settings = settings
        data = settings.data
        root = data.root or data.manifest.parent
        manifest = read_training_manifest(data, root if data.features is None else None)
        train, test = manifest.select_split(data.train), evaluation_manifest(manifest, data)
        val = None
        val_split = validation_split(manifest, data)
        if val_split is not None:
            val = manifest.select_split(val_split)
        del manifest  # its labels are as large as those of the training images
        return_memory()

        def evaluated(part: Manifest) -> ExampleDataset:
            if data.features is None:
                return ImageDataset(part, root, evaluation_transform(settings.image))
            assert settings.model.n_features is not None
            return FeatureDataset(part, data.features, settings.model.n_features)

        self.untransformed, self.test = evaluated(train), evaluated(test)
        self.train = self.untransformed
        if data.features is None:
            self.train = ImageDataset(train, root, training_transform(settings.image))
        self.val = None if val is None else evaluated(val)
        self.is_query = None if data.queries is None else test.splits == data.queries
        self.sampler = _sampler(settings, train)
        self._first_steps = [0]
        self.n_epochs = settings.epochs or 0
        while settings.steps is not None and self.first_step(self.n_epochs) < settings.steps:
            self.n_epochs += 1
        self.digests = data_digests(data)

    @property
    def n_steps(self) -> int:
        """Number of steps of the training."""
        return (
            self.first_step(self.n_epochs) if self.settings.steps is None else self.settings.steps
        )

    def first_step(self, epoch: int) -> int:
        """Return the number of the first step of an epoch, both counted from 0."""
        while len(self._first_steps) <= epoch:
            self._first_steps.append(
                self._first_steps[-1] + self.sampler.n_batches(len(self._first_steps) - 1)
            )
        return self._first_steps[epoch]

    def require_readable(self) -> None:
        """Check that images to train on, to select with and to evaluate with can be read."""
        for dataset in (self.untransformed, self.val, self.test):
            if isinstance(dataset, ImageDataset):
                dataset.require_readable()

    def space(self, dim: int) -> LabelSpace:
        """Return the classes of the training labels, and the dimension of the embeddings, for building a loss."""
        return LabelSpace.from_labels(dim, self.train.manifest.labelling)


def data_digests(data: DataSettings) -> dict[str, str]:
    """Return the SHA-256 of the files that a training reads besides images, by their names in the settings."""
    digests = {}
    for name, path in (("manifest", data.manifest), ("features", data.features)):
        if path is None:
            continue
        if not path.is_file():
            raise InputError(f"{path}: no such file, which data.{name} names")
        digests[name] = sha256_of(path)
    return digests


def read_training_manifest(data: DataSettings, root: Path | None = None) -> Manifest:
    """Read the manifest of a training, with the splits that its settings ask for."""
    manifest, split = read_manifest(data.manifest, root), data.random_split
    if split is None:
        return manifest
    level = split.level or manifest.level_names[0]
    if level not in manifest.level_names:
        raise ConfigurationError(
            f'data.random_split.level is "{level}"; the levels of {data.manifest} are '
            f"{', '.join(manifest.level_names)}"
        )
    if manifest.label_column(level) is None:
        raise ConfigurationError(
            f"data.random_split divides the classes of {level}, but images of {data.manifest} have several of them; "
            "divide the images with hgld manifest --test-share, and name the splits data.train and data.test"
        )
    return split_at_random(manifest, split.test_share, level, split.seed)


def validation_split(manifest: Manifest, data: DataSettings) -> str | None:
    """Return the split that selects a checkpoint: the one in the settings, or ``val`` if there is one."""
    if data.val is None and "val" in manifest.split_names and "val" not in data.other_splits:
        return "val"
    return data.val


def evaluation_manifest(manifest: Manifest, data: DataSettings) -> Manifest:
    """Return the images to evaluate with; the labels of queries and gallery share one numbering."""
    if data.test is not None:
        return manifest.select_split(data.test)
    queries = manifest.rows_of(data.queries, data.manifest)
    gallery = manifest.rows_of(data.gallery, data.manifest)
    return manifest.take(np.union1d(queries, gallery))


def _sampler(settings: TrainingSettings, manifest: Manifest) -> BatchSampler:
    options = settings.sampler.model_dump(exclude={"name"})

    def make_sampler(labels: LabelMatrix) -> BatchSampler:
        if isinstance(settings.sampler, HierarchicalSettings):
            return HierarchicalSampler(labels, settings.batch_size, **options, seed=settings.seed)
        return ClassBalancedSampler(labels, settings.batch_size, **options, seed=settings.seed)

    if manifest.label_sets is None:
        sampler = make_sampler(manifest.labels)
    else:
        sampler = LabelSetSampler(manifest.label_sets, make_sampler, seed=settings.seed)
    log_small_classes(
        manifest.labelling, settings.sampler.per_class, settings.sampler.small_classes
    )
    return sampler

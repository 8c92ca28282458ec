"""The images of a training: those to train on, in batches, and those that show what was learned."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.datasets.batch import ExampleDataset
from hgld.datasets.feature_dataset import FeatureDataset
from hgld.datasets.image_dataset import ImageDataset
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.samplers import BatchSampler, ClassBalancedSampler, HierarchicalSampler
from hgld.datasets.transforms import evaluation_transform, training_transform
from hgld.errors import ConfigurationError, InputError
from hgld.io.files import sha256_of
from hgld.losses.loss_specs import LabelSpace
from hgld.training.training_settings import DataSettings, HierarchicalSettings, TrainingSettings


class TrainingImages:
    """The images that settings name.

    Args:
        settings: of the training.

    Attributes:
        train: the images to train on.
        untransformed: the same, as they are embedded in tests.
        sampler: of their batches.
        test: the images to evaluate with; queries and gallery together, where they are apart.
        is_query: bool, shape (n_test,): which of them are queries; None where all are, and are ranked for each other.
        digests: SHA-256 of what was read.

    Raises:
        InputError: the manifest or the features cannot be read, or the folder of the images does not exist.
        ConfigurationError: there is no such split, or batches cannot be made of what there is.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        data = settings.data
        root = data.root or data.manifest.parent
        manifest = read_manifest(data.manifest)
        train, test = manifest.select_split(data.train), evaluation_manifest(manifest, data)
        self.train: ExampleDataset
        self.untransformed: ExampleDataset
        self.test: ExampleDataset
        if data.features is None:
            self.train = ImageDataset(train, root, training_transform(settings.image))
            self.untransformed = ImageDataset(train, root, evaluation_transform(settings.image))
            self.test = ImageDataset(test, root, evaluation_transform(settings.image))
        else:
            assert settings.model.n_features is not None
            self.train = self.untransformed = FeatureDataset(train, data.features, settings.model.n_features)
            self.test = FeatureDataset(test, data.features, settings.model.n_features)
        self.is_query = None if data.queries is None else test.splits == data.queries
        self.sampler = _sampler(settings, train)
        self.digests = data_digests(data)

    def space(self, dim: int) -> LabelSpace:
        """What a loss has to know of the labels and of the embeddings, ``dim`` numbers each."""
        return LabelSpace.from_labels(dim, self.train.manifest.labels)

    def __str__(self) -> str:
        train, test = self.train.manifest, self.test.manifest
        names = ", ".join(train.level_names)
        classes = "{} of the levels {}".format(", ".join(f"{n:,}" for n in train.n_classes), names)
        ranked = f"{len(test):,} ranked for each other"
        if self.is_query is not None:
            ranked = f"{int(self.is_query.sum()):,} queries, {int((~self.is_query).sum()):,} in the gallery"
        return f"train: {len(train):,} images, classes: {classes}\ntest: {ranked}"


def data_digests(data: DataSettings) -> dict[str, str]:
    """SHA-256 of the files that a training reads besides pictures, by their names in the settings.

    Raises:
        InputError: there is no such file.
    """
    given = {name: path for name in ("manifest", "features") if (path := getattr(data, name)) is not None}
    for name, path in given.items():
        if not path.is_file():
            raise InputError(f"{path}: no such file, which data.{name} names")
    return {name: sha256_of(path) for name, path in given.items()}


def evaluation_manifest(manifest: Manifest, data: DataSettings) -> Manifest:
    """The images to evaluate with; labels of queries and gallery are numbered together.

    Raises:
        ConfigurationError: there is no such split.
    """
    if data.test is not None:
        return manifest.select_split(data.test)
    wanted: npt.NDArray[np.bool_] = np.zeros(len(manifest), bool)
    for split in (data.queries, data.gallery):
        chosen = manifest.splits == split
        if not chosen.any():
            raise ConfigurationError(
                f'{data.manifest}: there is no split "{split}"; expected one of {", ".join(manifest.split_names)}'
            )
        wanted |= chosen
    return manifest.take(np.flatnonzero(wanted))


def _sampler(settings: TrainingSettings, manifest: Manifest) -> BatchSampler:
    chosen, labels, size, seed = settings.sampler, manifest.labels, settings.batch_size, settings.seed
    if isinstance(chosen, HierarchicalSettings):
        return HierarchicalSampler(
            labels, size, chosen.per_class, chosen.super_classes, chosen.batches_per_tuple, seed=seed
        )
    return ClassBalancedSampler(labels, size, chosen.per_class, max_per_class=chosen.max_per_class, seed=seed)

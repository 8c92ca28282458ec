"""The images of a training: those to train on, in batches, and those to evaluate with; evaluating a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.processes import Processes
from hgld.datasets.image_dataset import FeatureDataset, ImageDataset
from hgld.datasets.loading import ExampleDataset, SkippedImage, evaluation_batches
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
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import split_task
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.label_matrix import take_images
from hgld.io.files import sha256_of
from hgld.io.remote import folder_of
from hgld.losses.registry import LabelSpace
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.image_embedder import embed_batches
from hgld.training.training_settings import DataSettings, HierarchicalSettings, TrainingSettings


class TrainingImages:
    """The datasets that the settings of a training name.

    Attributes:
        untransformed: Training images with the transform of the evaluation.
        n_epochs: Number of epochs of the training, of which the last may be incomplete.
        val: Images that select the best checkpoint; None if the manifest has none.
        test: Images to evaluate with; queries and gallery together, where they are separate splits.
        is_query: bool, shape (n_test,); which test images are queries. None if every test image is a query and is
            ranked against the others.
        digests: SHA-256 of the files read.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        self.settings = settings
        data = settings.data
        root = data.root or folder_of(data.manifest)
        manifest = read_training_manifest(data, root if data.features is None else None)
        train, test = manifest.select_split(data.train), evaluation_manifest(manifest, data)

        def evaluated(part: Manifest) -> ExampleDataset:
            if data.features is None:
                return ImageDataset(part, root, evaluation_transform(settings.image))
            assert settings.model.n_features is not None
            return FeatureDataset(part, data.features, settings.model.n_features)

        self.untransformed, self.test = evaluated(train), evaluated(test)
        self.train = self.untransformed
        if data.features is None:
            self.train = ImageDataset(train, root, training_transform(settings.image))
        val = validation_split(manifest, data)
        self.val = None if val is None else evaluated(manifest.select_split(val))
        del manifest  # its labels are as large as those of the training images
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
        return self.first_step(self.n_epochs) if self.settings.steps is None else self.settings.steps

    def first_step(self, epoch: int) -> int:
        """Return the number of the first step of an epoch, both counted from 0."""
        while len(self._first_steps) <= epoch:
            self._first_steps.append(self._first_steps[-1] + self.sampler.n_batches(len(self._first_steps) - 1))
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
    paths = {name: path for name in ("manifest", "features") if (path := getattr(data, name)) is not None}
    for name, path in paths.items():
        if not path.is_file():
            raise InputError(f"{path}: no such file, which data.{name} names")
    return {name: sha256_of(path) for name, path in paths.items()}


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
    rows = [manifest.rows_of(split) for split in (data.queries, data.gallery)]
    return manifest.take(np.unique(np.concatenate(rows)))


def _sampler(settings: TrainingSettings, manifest: Manifest) -> BatchSampler:
    kind = HierarchicalSampler if isinstance(settings.sampler, HierarchicalSettings) else ClassBalancedSampler
    options = settings.sampler.model_dump(exclude={"name"})

    def make_sampler(labels: LabelMatrix) -> BatchSampler:
        return kind(labels, settings.batch_size, **options, seed=settings.seed)

    sampler = (
        make_sampler(manifest.labels)
        if manifest.label_sets is None
        else LabelSetSampler(manifest.label_sets, make_sampler, seed=settings.seed)
    )
    log_small_classes(manifest.labelling, settings.sampler.per_class, settings.sampler.small_classes)
    return sampler


@dataclass(frozen=True, eq=False)
class EmbeddedImages:
    """Embeddings of the images of a dataset that could be read.

    Args:
        vectors: float32, shape (n, d).
        rows: int64, shape (n,); rows of the dataset, in ascending order.
    """

    vectors: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    skipped: list[SkippedImage]


def evaluate_model(
    model: EmbeddingModel,
    dataset: ExampleDataset,
    is_query: npt.NDArray[np.bool_] | None = None,
    *,
    metrics: Sequence[str] = (),
    batch_size: int,
    workers: int,
    processes: Processes,
) -> tuple[RetrievalResult, EmbeddedImages]:
    """Embed images, in float32 whatever the precision of the training, and rank those that could be read.

    The queries of the result are numbered in the order of the images.

    Args:
        is_query: bool, shape (n,): which images are queries; the others are their gallery. None if every image is a
            query and is ranked against the others.
        processes: Processes that share the images, then the queries; all of them return all embeddings.
    """
    share = np.array_split(np.arange(len(dataset)), processes.count)[processes.rank]
    own = embed_batches(model.eval(), evaluation_batches(dataset, share, batch_size=batch_size, workers=workers))
    vectors, rows, skipped = zip(*processes.gather((own.vectors.numpy(), own.rows.numpy(), own.skipped)), strict=True)
    embedded = EmbeddedImages(
        np.concatenate(vectors), np.concatenate(rows), [each for part in skipped for each in part]
    )
    is_query = None if is_query is None else is_query[embedded.rows]
    if not len(embedded.rows) or (is_query is not None and is_query.all() == is_query.any()):
        raise InputError("no images are left to rank: no query or no gallery image could be read")
    labels = take_images(dataset.manifest.labelling, embedded.rows)
    ranking = RankingConfig(device=str(model.device), distance=model.settings.distance)
    config = EvaluationConfig(metrics=tuple(metrics) or None, ranking=ranking, processes=processes)
    (result,) = evaluate_tasks([split_task(torch.from_numpy(embedded.vectors), labels, is_query)], config)
    return result, embedded

"""Numbers of images and bytes of the trainings and evaluations of a comparison, for the estimate of its cost."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.benchmark.benchmark_settings import (
    DymlEvaluation,
    Evaluation,
    Gldv2Evaluation,
    ManifestsEvaluation,
    RevisitedEvaluation,
)
from hgld.benchmark.evaluations.dyml import image_ids
from hgld.datasets.dyml_files import read_test_set
from hgld.datasets.image_sources import read_images
from hgld.errors import InputError
from hgld.evaluation.metric_registry import Metric
from hgld.evaluation.protocols.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.gldv2.files import N_IMAGES, N_SHARDS, SHARD_BYTES
from hgld.hierarchy.label_sets import Labelling
from hgld.training.training_images import TrainingImages, evaluation_manifest, read_training_manifest
from hgld.training.training_settings import TrainingSettings

#: Landmarks, super-categories and roots of the train split of H-GLDv2 (paper, Sec. VII).
_GLDV2_CLASSES = (46_593, 78, 2)
#: Number of images that are read to time reading.
_READ_IMAGES = 32


@dataclass(frozen=True, eq=False)
class TrainingSize:
    """Numbers of images of a training.

    Args:
        labels: Labels of the training images, int64, shape (N, L), or label sets; without images, a row per landmark.
        batch: Labels of a batch, int64, shape (B, L); of label sets (B, K, L), padded with -1.
        steps: Number of steps.
        n_test: Number of test images; 0 without images.
        n_val: Number of validation images.
        n_evaluations: Number of evaluations before, during and after the training.
        n_bytes: Bytes of all images in tar files.
        read_s: Seconds that one process needs to read an image; 0 without images.
        missing: Error messages about missing files.
    """

    labels: Labelling
    batch: NDArray[np.int64]
    steps: int
    n_test: int
    n_val: int
    n_evaluations: int
    n_bytes: int
    read_s: float
    missing: tuple[str, ...] = ()

    @property
    def n_checkpoints(self) -> int:
        """Number of checkpoints that a run keeps: the last, and the best where there are validation images."""
        return 2 if self.n_val else 1


@dataclass(frozen=True)
class EvaluationSize:
    """Number and bytes of the images that an evaluation embeds, and error messages about missing files."""

    n_images: int = 0
    n_bytes: int = 0
    missing: tuple[str, ...] = ()


def training_size(settings: TrainingSettings, *, published: bool) -> TrainingSize:
    """Return the numbers of images of a training, by default GLDv2's published ones if ``published``.

    Raises:
        InputError: The images are missing, and either ``published`` is false or the length is set in epochs.
        ConfigurationError: The images do not fill a batch, or a metric of the training does not exist.
    """
    try:
        images = TrainingImages(settings)
    except InputError as error:
        if not published or settings.steps is None:
            raise
        landmarks, per_class = np.arange(_GLDV2_CLASSES[0]), settings.sampler.per_class
        labels = np.stack([landmarks % n for n in _GLDV2_CLASSES], axis=1)
        batch = np.repeat(labels[: settings.batch_size // per_class], per_class, axis=0)
        n_bytes = N_SHARDS["train"] * SHARD_BYTES["train"]
        return TrainingSize(labels, batch, settings.steps, 0, 0, 0, n_bytes, 0.0, (str(error),))
    train, test = images.train.manifest, images.test.manifest
    for name in settings.evaluation.metrics:
        Metric.from_name(name, len(test.level_names))
    rows = images.sampler.batches(0)[0]
    return TrainingSize(
        labels=train.labelling,
        batch=train.labels[rows] if train.label_sets is None else train.label_sets.padded(rows),
        steps=images.n_steps,
        n_test=len(test),
        n_val=0 if images.val is None else len(images.val),
        n_evaluations=count_evaluations(images.n_epochs, settings.evaluation.every),
        n_bytes=sum(int(part.sizes[part.sizes > 0].sum()) for part in (train, test)),
        read_s=_time_reading(images),
    )


def count_evaluations(n_epochs: int, every: int) -> int:
    """Return the number of evaluations: before the first step, after each ``every`` epochs, and after the last step.

    Args:
        n_epochs: Number of epochs of the training, of which the last may be incomplete.
        every: Number of epochs between evaluations.

    >>> count_evaluations(n_epochs=10, every=4)  # after 0, 4, 8 and 10 epochs
    4
    """
    return 1 + -(-n_epochs // every)


def evaluation_size(evaluation: Evaluation, training: TrainingSettings) -> EvaluationSize | None:
    """Return the numbers of the images that an evaluation embeds; None if they are the test images of the training.

    Args:
        evaluation: Evaluation of the comparison.
        training: Settings of one of its trainings, which name the splits of the manifests.
    """
    if isinstance(evaluation, Gldv2Evaluation):
        return gldv2_size(evaluation)
    if isinstance(evaluation, ManifestsEvaluation):
        return manifests_size(evaluation, training)
    if isinstance(evaluation, RevisitedEvaluation):
        return revisited_size(evaluation)
    if isinstance(evaluation, DymlEvaluation):
        return dyml_size(evaluation)
    return None


def gldv2_size(evaluation: Gldv2Evaluation) -> EvaluationSize:
    """Return the numbers of GLDv2's protocol, the published ones for images that are missing."""
    n_images, n_bytes, missing = 0, 0, []
    for split, path in (("test", evaluation.queries), ("index", evaluation.gallery)):
        try:
            images = read_images(path)
            n_images, n_bytes = n_images + len(images), n_bytes + int(images.sizes[images.sizes > 0].sum())
        except InputError as error:
            n_images, n_bytes = n_images + N_IMAGES[split], n_bytes + N_SHARDS[split] * SHARD_BYTES[split]
            missing.append(str(error))
    files = (evaluation.ground_truth / SOLUTION, evaluation.ground_truth / LANDMARKS, evaluation.hierarchy)
    return EvaluationSize(n_images, n_bytes, (*missing, *_missing_files(files)))


def manifests_size(evaluation: ManifestsEvaluation, training: TrainingSettings) -> EvaluationSize:
    """Return the numbers of the test images of several manifests, which are not in tar files."""
    n_images, missing = 0, []
    for path in evaluation.manifests.values():
        data = training.data.model_copy(update={"manifest": path})
        try:
            n_images += len(evaluation_manifest(read_training_manifest(data), data))
        except InputError as error:
            missing.append(str(error))
    return EvaluationSize(n_images, 0, tuple(missing))


def revisited_size(evaluation: RevisitedEvaluation) -> EvaluationSize:
    """Return the number of the images of ROxford and RParis, at each scale, which are not in tar files."""
    n_images, missing = 0, []
    tables: list[tuple[Path, Path | None]] = [(data.manifest, data.root) for data in evaluation.datasets.values()]
    if evaluation.distractors is not None:
        tables.append((evaluation.distractors, None))
    for path, root in tables:
        try:
            n_images += len(read_images(path, root))
        except InputError as error:
            missing.append(str(error))
    files = [data.ground_truth for data in evaluation.datasets.values()]
    return EvaluationSize(len(evaluation.scales) * n_images, 0, (*missing, *_missing_files(files)))


def dyml_size(evaluation: DymlEvaluation) -> EvaluationSize:
    """Return the number of the test images of DyML, which are not in tar files."""
    try:
        return EvaluationSize(len(image_ids(read_test_set(evaluation.root))))
    except InputError as error:
        return EvaluationSize(missing=(str(error),))


def _missing_files(paths: Iterable[Path]) -> list[str]:
    return [f"{path}: no such file" for path in paths if not path.exists()]


def _time_reading(images: TrainingImages) -> float:
    """Return the seconds that one process needs for an image, from a sample spread over all of them."""
    rows = np.linspace(0, len(images.train) - 1, _READ_IMAGES).astype(int).tolist()
    start = time.perf_counter()
    for row in rows:
        images.train[row, 0]
    return (time.perf_counter() - start) / len(rows)

"""What a comparison reads, as far as it is there; GLDv2's published sizes where it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgld.benchmark.benchmark_settings import Gldv2Evaluation
from hgld.datasets.image_sources import read_images
from hgld.errors import InputError
from hgld.evaluation.protocols.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.gldv2.files import N_IMAGES, N_SHARDS, SHARD_BYTES
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.training.training_images import TrainingImages
from hgld.training.training_settings import TrainingSettings

#: The landmarks, super-categories and roots of H-GLDv2 that the paper trains on.
_TREE = (46_593, 78, 2)
#: The test images of GLDv2 that are scored, and how often the gallery is ranked for them: by labels and by lists.
_SCORED, _RANKINGS = 1_129, 2


@dataclass(frozen=True)
class Passes:
    """Images that are embedded and ranked, without being learned from.

    Args:
        n_images: that are embedded, each as often as it is.
        n_pairs: of a query and an image of the gallery, likewise.
    """

    n_images: int = 0
    n_pairs: int = 0

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.n_images + other.n_images, self.n_pairs + other.n_pairs)

    def __mul__(self, times: int) -> Passes:
        return Passes(self.n_images * times, self.n_pairs * times)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a training reads.

    Args:
        images: None where they are not there.
        labels: int64, shape (N, L): of the images to train on, or one row for each published landmark.
        batch: int64, shape (B, L): of a batch.
        steps: of the training.
        besides: images that it embeds, but does not learn from; none where they are not there.
        test: an evaluation, likewise.
        n_bytes: of all images in tar files.
        missing: why they are not there.
    """

    images: TrainingImages | None
    labels: LabelMatrix
    batch: LabelMatrix
    steps: int
    besides: Passes
    test: Passes
    n_bytes: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationData:
    """What GLDv2's protocol reads.

    Args:
        test: the evaluation of a model.
        n_bytes: of its images.
        missing: why some of it is not there.
    """

    test: Passes
    n_bytes: int
    missing: tuple[str, ...]


def training_data(settings: TrainingSettings, *, published: bool) -> TrainingData:
    """What a training reads.

    Args:
        settings: of the training.
        published: whether the images are GLDv2's, whose landmarks are known before they are there.

    Raises:
        InputError: they are not there, and not GLDv2's; or epochs are set, whose length only they tell.
        ConfigurationError: batches cannot be made of what there is.
    """
    try:
        images = TrainingImages(settings)
    except InputError as error:
        if not published or settings.steps is None:
            raise
        return _published(settings, settings.steps, str(error))
    train, test, n_batches = images.train.manifest, images.test.manifest, len(images.sampler)
    steps = (settings.epochs or 0) * n_batches if settings.steps is None else settings.steps
    n_queries = len(test) if images.is_query is None else int(images.is_query.sum())
    n_gallery = len(test) if images.is_query is None else len(test) - n_queries
    evaluation = Passes(len(test), n_queries * n_gallery)
    n_evaluations = evaluations(steps, n_batches, settings.evaluation.every)
    initial = Passes() if settings.model.projection == "random" else Passes(len(train))
    return TrainingData(
        images=images,
        labels=train.labels,
        batch=train.labels[images.sampler.batches(0)[0]],
        steps=steps,
        besides=initial + evaluation * n_evaluations,
        test=evaluation,
        n_bytes=_n_bytes(train.sizes) + _n_bytes(test.sizes),
    )


def evaluations(steps: int, n_batches: int, every: int) -> int:
    """How often a training is evaluated: before it, after each ``every`` epochs of so many batches, and at its end.

    >>> evaluations(steps=100, n_batches=10, every=4)  # 0, 4, 8, 10
    4
    """
    n_epochs = -(-steps // n_batches)
    return 1 + -(-n_epochs // every)


def evaluation_data(evaluation: Gldv2Evaluation) -> EvaluationData:
    """What GLDv2's protocol reads."""
    counts, n_bytes, missing = {}, 0, []
    for split, path in (("test", evaluation.queries), ("index", evaluation.gallery)):
        try:
            images = read_images(path)
            counts[split] = len(images)
            n_bytes += _n_bytes(images.sizes)
        except InputError as error:
            counts[split] = N_IMAGES[split]
            n_bytes += N_SHARDS[split] * SHARD_BYTES[split]
            missing.append(str(error))
    files = (evaluation.ground_truth / SOLUTION, evaluation.ground_truth / LANDMARKS, evaluation.hierarchy)
    missing += [f"{path}: no such file" for path in files if not path.exists()]
    n_pairs = _RANKINGS * min(_SCORED, counts["test"]) * counts["index"]
    return EvaluationData(Passes(sum(counts.values()), n_pairs), n_bytes, tuple(missing))


def _published(settings: TrainingSettings, steps: int, missing: str) -> TrainingData:
    """Of GLDv2 before it is there: the tree has the published size, and whose child is whose does not matter."""
    landmarks = np.arange(_TREE[0])
    labels = np.stack([landmarks % n for n in _TREE], axis=1)
    per_class = settings.sampler.per_class
    return TrainingData(
        images=None,
        labels=labels,
        batch=np.repeat(labels[: settings.batch_size // per_class], per_class, axis=0),
        steps=steps,
        besides=Passes(),
        test=Passes(),
        n_bytes=N_SHARDS["train"] * SHARD_BYTES["train"],
        missing=(missing,),
    )


def _n_bytes(sizes: NDArray[np.int64]) -> int:
    """Of images in tar files; those in files of their own have no size."""
    return int(sizes[sizes > 0].sum())

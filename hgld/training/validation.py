"""Evaluation of a model with the test images of its training: in the middle of it, and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.processes import Processes
from hgld.datasets.batch import SkippedImage
from hgld.errors import InputError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import split_task
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.inference import embed_rows
from hgld.progress import NoProgress, Progress
from hgld.training.training_images import TrainingImages


@dataclass(frozen=True, eq=False)
class EmbeddedImages:
    """The embeddings of test images, as far as these could be read.

    Args:
        vectors: float32, shape (n, d).
        rows: int64, shape (n,); which of the test images they are, in order.
        skipped: the others.
    """

    vectors: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    skipped: list[SkippedImage]


@dataclass(frozen=True)
class ModelEvaluation:
    """What an evaluation found, and the images that could not be read for it."""

    result: RetrievalResult
    skipped: list[SkippedImage]


def evaluate_model(
    model: EmbeddingModel,
    images: TrainingImages,
    *,
    metrics: Sequence[str] = (),
    batch_size: int,
    workers: int,
    processes: Processes,
) -> ModelEvaluation:
    """Embed the test images and rank them.

    Args:
        model: that embeds.
        images: of the training; those to evaluate with are used.
        metrics: by name; those of the papers if there are none.
        batch_size: images that are embedded at a time.
        workers: processes that read them.
        processes: that share the images, and then the queries.

    Raises:
        InputError, ConfigurationError: see :func:`embed_test_images` and :func:`rank_test_images`.
    """
    embedded = embed_test_images(model, images, batch_size=batch_size, workers=workers, processes=processes)
    result = rank_test_images(embedded, images, metrics=metrics, device=str(model.device), processes=processes)
    return ModelEvaluation(result, embedded.skipped)


def embed_test_images(
    model: EmbeddingModel,
    images: TrainingImages,
    *,
    batch_size: int,
    workers: int,
    processes: Processes,
    progress: Progress | None = None,
) -> EmbeddedImages:
    """Embed the test images as ``hgld embed-images`` does, in float32 whatever the precision of the training.

    Every process gets all of them. For the arguments see :func:`evaluate_model`.

    Raises:
        InputError: an archive cannot be read, or embeddings are not finite.
        ConfigurationError: images do not fit into the memory of the device.
    """
    share = np.array_split(np.arange(len(images.test)), processes.count)[processes.rank]
    progress = progress or NoProgress()
    progress.start(len(share))
    own = embed_rows(model.eval(), images.test, share, batch_size=batch_size, workers=workers, progress=progress)
    everyone = processes.gather((own.vectors.numpy(), own.rows.numpy(), own.skipped))
    vectors, rows = (np.concatenate([found[n] for found in everyone]) for n in (0, 1))
    return EmbeddedImages(vectors, rows, [one for _, _, some in everyone for one in some])


def rank_test_images(
    embedded: EmbeddedImages,
    images: TrainingImages,
    *,
    metrics: Sequence[str] = (),
    device: str,
    processes: Processes,
) -> RetrievalResult:
    """Rank test images: for each other, or those of the gallery for the queries.

    The queries of the result are numbered, in the order of the images. For the arguments see :func:`evaluate_model`.

    Raises:
        InputError: too few images are left.
        ConfigurationError: there is no such metric.
    """
    is_query = None if images.is_query is None else images.is_query[embedded.rows]
    if not len(embedded.rows) or (is_query is not None and is_query.all() == is_query.any()):
        raise InputError("no test images are left to rank: none of the queries, or none of the gallery, can be read")
    labels = images.test.manifest.labels[embedded.rows]
    config = EvaluationConfig(
        metrics=tuple(metrics) or None, ranking=RankingConfig(device=device), processes=processes
    )
    (result,) = evaluate_tasks([split_task(torch.from_numpy(embedded.vectors), labels, is_query)], config)
    return result

"""Evaluate a model with images of its training, during the training and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.processes import Processes
from hgld.datasets.loading import ExampleDataset, SkippedImage, evaluation_batches
from hgld.errors import InputError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import split_task
from hgld.hierarchy.label_sets import take_images
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.image_embedder import embed_batches
from hgld.progress import NoProgress, Progress


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


@dataclass(frozen=True)
class ModelEvaluation:
    """Result of an evaluation, and the images that could not be read for it."""

    result: RetrievalResult
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
) -> ModelEvaluation:
    """Embed images and rank them.

    Args:
        is_query: bool, shape (n,): which images are queries; the others are their gallery. None if every image is a
            query and is ranked against the others.
        processes: Processes that share the images, then the queries.
    """
    embedded = embed_dataset(model, dataset, batch_size=batch_size, workers=workers, processes=processes)
    ranking = RankingConfig(device=str(model.device), distance=model.settings.distance)
    result = rank_embedded(embedded, dataset, is_query, metrics=metrics, ranking=ranking, processes=processes)
    return ModelEvaluation(result, embedded.skipped)


def embed_dataset(
    model: EmbeddingModel,
    dataset: ExampleDataset,
    *,
    batch_size: int,
    workers: int,
    processes: Processes,
    progress: Progress | None = None,
) -> EmbeddedImages:
    """Embed images as ``hgld embed-images`` does, in float32 whatever the precision of the training.

    Every process returns all embeddings. See :func:`evaluate_model` for the arguments.
    """
    share = np.array_split(np.arange(len(dataset)), processes.count)[processes.rank]
    progress = progress or NoProgress()
    progress.start(len(share))
    batches = evaluation_batches(dataset, share, batch_size=batch_size, workers=workers)
    own = embed_batches(model.eval(), batches, progress=progress)
    shares = processes.gather((own.vectors.numpy(), own.rows.numpy(), own.skipped))
    vectors = np.concatenate([vectors for vectors, _, _ in shares])
    rows = np.concatenate([rows for _, rows, _ in shares])
    return EmbeddedImages(vectors, rows, [image for _, _, skipped in shares for image in skipped])


def rank_embedded(
    embedded: EmbeddedImages,
    dataset: ExampleDataset,
    is_query: npt.NDArray[np.bool_] | None = None,
    *,
    metrics: Sequence[str] = (),
    ranking: RankingConfig,
    processes: Processes,
) -> RetrievalResult:
    """Rank the images that could be read against each other, or those of the gallery for the queries.

    The queries of the result are numbered in the order of the images. See :func:`evaluate_model` for the arguments.
    """
    is_query = None if is_query is None else is_query[embedded.rows]
    if not len(embedded.rows) or (is_query is not None and is_query.all() == is_query.any()):
        raise InputError("no images are left to rank: no query or no gallery image could be read")
    labels = take_images(dataset.manifest.labelling, embedded.rows)
    config = EvaluationConfig(metrics=tuple(metrics) or None, ranking=ranking, processes=processes)
    (result,) = evaluate_tasks([split_task(torch.from_numpy(embedded.vectors), labels, is_query)], config)
    return result

"""Embed the images that a model is evaluated with, and rank them, during its training and in comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hgld.arrays import Booleans
from hgld.compute.processes import Processes
from hgld.datasets.loading import ExampleDataset, evaluation_batches
from hgld.errors import InputError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import split_task
from hgld.hierarchy.label_sets import take_images
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.image_embedder import EmbeddingShard, embed_batches


def embed_dataset(
    model: EmbeddingModel,
    dataset: ExampleDataset,
    *,
    batch_size: int,
    workers: int,
    processes: Processes,
) -> EmbeddingShard:
    """Embed images, in float32 for any precision of the training.

    The processes share the images, and each process returns all embeddings.
    """
    share = np.array_split(np.arange(len(dataset)), processes.count)[processes.rank]
    batches = evaluation_batches(dataset, share, batch_size=batch_size, workers=workers)
    shard = embed_batches(model.eval(), batches)
    vectors = processes.gather(shard.vectors.numpy())
    rows = processes.gather(shard.rows.numpy())
    skipped = []
    for images in processes.gather(shard.skipped):
        skipped += images
    return EmbeddingShard(
        torch.from_numpy(np.concatenate(vectors)), torch.from_numpy(np.concatenate(rows)), skipped
    )


def rank_embedded(
    embedded: EmbeddingShard,
    dataset: ExampleDataset,
    is_query: Booleans | None = None,
    *,
    metrics: Sequence[str] = (),
    ranking: RankingConfig,
    processes: Processes,
) -> RetrievalResult:
    """Rank the images that could be read against each other, or the gallery for the queries.

    The queries of the result are numbered in the order of the images; the processes share them.

    Args:
        is_query: bool, shape (n,): which images are queries; the others are their gallery. None if every image is a
            query and is ranked against the others.
        metrics: Names of metrics; () for the metrics of the papers.
    """
    rows = embedded.rows.numpy()
    if is_query is not None:
        is_query = is_query[rows]
    if not len(rows) or (is_query is not None and is_query.all() == is_query.any()):
        raise InputError("no images are left to rank: no query or no gallery image could be read")
    labels = take_images(dataset.manifest.labelling, rows)
    config = EvaluationConfig(metrics=tuple(metrics) or None, ranking=ranking, processes=processes)
    (result,) = evaluate_tasks([split_task(embedded.vectors, labels, is_query)], config)
    return result

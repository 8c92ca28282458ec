"""Embed the images that a model is evaluated with, and rank them, during its training and in comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

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
    """Embed images, in float32 whatever the precision of the training.

    The processes share the images, and all of them return all embeddings.
    """
    share = np.array_split(np.arange(len(dataset)), processes.count)[processes.rank]
    own = embed_batches(
        model.eval(), evaluation_batches(dataset, share, batch_size=batch_size, workers=workers)
    )
    vectors, rows, skipped = zip(
        *processes.gather((own.vectors.numpy(), own.rows.numpy(), own.skipped)), strict=True
    )
    vectors, rows = (torch.from_numpy(np.concatenate(parts)) for parts in (vectors, rows))
    return EmbeddingShard(vectors, rows, [each for part in skipped for each in part])


def rank_embedded(
    embedded: EmbeddingShard,
    dataset: ExampleDataset,
    is_query: npt.NDArray[np.bool_] | None = None,
    *,
    metrics: Sequence[str] = (),
    ranking: RankingConfig,
    processes: Processes,
) -> RetrievalResult:
    """Rank the images that could be read against each other, or those of the gallery for the queries.

    The queries of the result are numbered in the order of the images; the processes share them.

    Args:
        is_query: bool, shape (n,): which images are queries; the others are their gallery. None if every image is a
            query and is ranked against the others.
        metrics: Names of metrics; () for those of the papers.
    """
    rows = embedded.rows.numpy()
    is_query = None if is_query is None else is_query[rows]
    if not len(rows) or (is_query is not None and is_query.all() == is_query.any()):
        raise InputError("no images are left to rank: no query or no gallery image could be read")
    labels = take_images(dataset.manifest.labelling, rows)
    config = EvaluationConfig(metrics=tuple(metrics) or None, ranking=ranking, processes=processes)
    (result,) = evaluate_tasks([split_task(embedded.vectors, labels, is_query)], config)
    return result

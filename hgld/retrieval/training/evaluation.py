"""Evaluation of a model in the middle of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hgld.errors import InputError
from hgld.retrieval.datasets.images import Skipped
from hgld.retrieval.embed_images import EmbedImagesConfig, embed_rows
from hgld.retrieval.evaluation import evaluate_retrieval
from hgld.retrieval.models.embedding import EmbeddingModel
from hgld.retrieval.processes import Processes
from hgld.retrieval.results import RetrievalResult
from hgld.retrieval.training.images import TrainingImages


@dataclass(frozen=True)
class ModelEvaluation:
    """What an evaluation found, and the images that could not be read for it."""

    result: RetrievalResult
    skipped: list[Skipped]


def evaluate_model(
    model: EmbeddingModel,
    images: TrainingImages,
    *,
    metrics: Sequence[str] = (),
    batch_size: int,
    workers: int,
    processes: Processes,
) -> ModelEvaluation:
    """Embed the test images and rank them: for each other, or those of the gallery for the queries.

    They are embedded as ``hgld embed-images`` does, in float32 whatever the precision of the training.

    Args:
        model: that embeds.
        images: of the training; those to evaluate with are used.
        metrics: by name; those of the papers if there are none.
        batch_size: images that are embedded at a time.
        workers: processes that read them.
        processes: that share the images, and then the queries.

    Raises:
        InputError: an archive cannot be read, too few images could be, or embeddings are not finite.
        ConfigurationError: there is no such metric, or images do not fit into the memory of the device.
    """
    device = str(model.device)
    share = np.array_split(np.arange(len(images.test)), processes.count)[processes.rank]
    config = EmbedImagesConfig(device=device, batch_size=batch_size, workers=workers)
    own = embed_rows(model.eval(), images.test, share, config)
    everyone = processes.gather((own.vectors.numpy(), own.rows.numpy(), own.skipped))
    embeddings, kept = (np.concatenate([found[n] for found in everyone]) for n in (0, 1))
    labels = images.test.manifest.labels[kept]
    if images.is_query is None:
        halves = [(embeddings, labels)]
    else:
        is_query = images.is_query[kept]
        halves = [(embeddings[half], labels[half]) for half in (is_query, ~is_query)]
    if min(len(vectors) for vectors, _ in halves) == 0:
        raise InputError("no test images are left to rank: none of the queries, or none of the gallery, can be read")
    result = evaluate_retrieval(
        *(values for half in halves for values in half),
        metrics=metrics or None,
        device=device,
        processes=processes,
    )
    return ModelEvaluation(result, [one for _, _, some in everyone for one in some])

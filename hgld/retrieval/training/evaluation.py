"""Evaluation of a model in the middle of its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from hgld.errors import InputError
from hgld.retrieval.datasets.images import Skipped
from hgld.retrieval.datasets.loading import test_batches
from hgld.retrieval.evaluation import evaluate_retrieval
from hgld.retrieval.models.embedding import EmbeddingModel
from hgld.retrieval.processes import Processes
from hgld.retrieval.results import RetrievalResult
from hgld.retrieval.training.images import TrainingImages

#: Convolutions are the faster for it, on CPUs as well.
LAYOUT = torch.channels_last


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
    autocast: Callable[[], AbstractContextManager[object]],
    processes: Processes,
) -> ModelEvaluation:
    """Embed the test images and rank them: for each other, or those of the gallery for the queries.

    Args:
        model: that embeds.
        images: of the training; those to evaluate with are used.
        metrics: by name; those of the papers if there are none.
        batch_size: images that are embedded at a time.
        workers: processes that read them.
        autocast: the context of the model's forward pass.
        processes: that share the images, and then the queries.

    Raises:
        InputError: an archive cannot be read, or too few images could be.
        ConfigurationError: there is no such metric.
    """
    device = next(model.parameters()).device
    share = np.array_split(np.arange(len(images.test)), processes.count)[processes.rank]
    parts, rows, skipped = [torch.empty(0, model.dim)], [torch.empty(0, dtype=torch.int64)], []
    model.eval()
    with torch.inference_mode():
        for batch in test_batches(images.test, share, batch_size=batch_size, workers=workers):
            with autocast():
                parts.append(model(batch.images.to(device, memory_format=LAYOUT)).float().cpu())
            rows.append(batch.rows)
            skipped += batch.skipped
    everyone = processes.gather((torch.cat(parts).numpy(), torch.cat(rows).numpy(), skipped))
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
        device=str(device),
        processes=processes,
    )
    return ModelEvaluation(result, [one for _, _, some in everyone for one in some])

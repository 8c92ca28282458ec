"""Evaluation on images of a manifest: those of the training, or those of several test sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.benchmark.benchmark_settings import ManifestsEvaluation
from hgld.benchmark.evaluations.base import EvaluationContext, embedding_file, join_sets
from hgld.evaluation.results import RetrievalResult
from hgld.hierarchy.label_sets import main_labels
from hgld.models.embedding_model import MEMORY_FORMAT, EmbeddingModel
from hgld.models.model_loading import load_checkpoint_model
from hgld.tables.embeddings import write_embeddings
from hgld.training.run_folder import RunFolder
from hgld.training.training_images import TrainingImages
from hgld.training.validation import embed_dataset, rank_embedded

#: Name of the set of embeddings of the evaluation images of a training.
SPLIT_EMBEDDINGS = "embeddings"


class SplitRunEvaluation:
    """Evaluation on the evaluation images of the training."""

    files: Mapping[str, Path] = {}
    embedding_sets = (SPLIT_EMBEDDINGS,)

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        """See :meth:`hgld.benchmark.evaluations.RunEvaluation.evaluate`."""
        return [_evaluate_images(context, _load(context), TrainingImages(context.run.settings), SPLIT_EMBEDDINGS)]

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """See :meth:`hgld.benchmark.evaluations.RunEvaluation.join`."""
        (result,) = results
        return result


@dataclass(frozen=True)
class ManifestsRunEvaluation:
    """Evaluation on the test images of several manifests."""

    settings: ManifestsEvaluation

    @property
    def files(self) -> Mapping[str, Path]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.files`."""
        return {f"manifest/{name}": path for name, path in self.settings.manifests.items()}

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.embedding_sets`."""
        return tuple(self.settings.manifests)

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        """See :meth:`hgld.benchmark.evaluations.RunEvaluation.evaluate`."""
        model, training = _load(context), context.run.settings
        results = []
        for name, manifest in self.settings.manifests.items():
            data = training.data.model_copy(update={"manifest": manifest, "val": None})
            images = TrainingImages(training.model_copy(update={"data": data}))
            results.append(replace(_evaluate_images(context, model, images, name), name=name))
        return results

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """See :func:`hgld.benchmark.evaluations.base.join_sets`."""
        return join_sets(results)


def _load(context: EvaluationContext) -> EmbeddingModel:
    network = load_checkpoint_model(RunFolder(context.run.folder).result).network
    model: EmbeddingModel = network.to(context.device).to(memory_format=MEMORY_FORMAT)
    return model


def _evaluate_images(
    context: EvaluationContext, model: EmbeddingModel, images: TrainingImages, name: str
) -> RetrievalResult:
    """Embed the test images, write their embeddings, and rank them."""
    embedded = embed_dataset(
        model,
        images.test,
        batch_size=context.run.settings.evaluation.batch_size,
        workers=context.run.settings.workers,
        processes=context.processes,
        progress=context.progress,
    )
    manifest = images.test.manifest.take(embedded.rows)
    if context.processes.rank == 0:
        vectors = torch.from_numpy(embedded.vectors)
        write_embeddings(embedding_file(context.run, name), vectors, manifest.ids.tolist())
    result = rank_embedded(
        embedded,
        images.test,
        images.is_query,
        metrics=context.metrics,
        device=context.device,
        processes=context.processes,
    )
    queries = np.arange(len(manifest)) if images.is_query is None else np.flatnonzero(images.is_query[embedded.rows])
    classes = np.array(manifest.class_names[0], object)[main_labels(manifest.labelling)[queries, 0]]
    per_query = result.per_query.set_axis(pd.Index(manifest.ids[queries], name="query"))
    counts = result.counts | {"images_not_read": len(embedded.skipped)}
    return replace(result, per_query=per_query.assign(**{"class": classes}), counts=counts)

"""Evaluation by DyML's protocol: a test set for each level, and the means over the levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.benchmark.benchmark_settings import DymlEvaluation
from hgld.benchmark.evaluations.base import EvaluationContext, embedding_file, evaluation_folder, join_sets
from hgld.datasets.dyml_files import DymlLevel, label_files, read_test_set
from hgld.datasets.manifest import write_manifest
from hgld.datasets.readers.base import build_manifest
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.results import RetrievalResult
from hgld.models.embed_images_config import EmbedImagesConfig
from hgld.models.image_embedding import embed_images
from hgld.models.model_loading import load_checkpoint_model
from hgld.tables import Provenance, input_digests
from hgld.training.run_folder import RunFolder

_EMBEDDINGS = "embeddings"


@dataclass(frozen=True)
class DymlRunEvaluation:
    """Evaluation on the test sets of DyML-Vehicle, -Animal or -Product."""

    settings: DymlEvaluation

    @property
    def files(self) -> Mapping[str, Path]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.files`."""
        root = self.settings.root
        return {path.relative_to(root).as_posix(): path for path in label_files(root)}

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.embedding_sets`."""
        return (_EMBEDDINGS,)

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        """See :meth:`hgld.benchmark.evaluations.RunEvaluation.evaluate`."""
        root, training = self.settings.root, context.run.settings
        levels = read_test_set(root)
        images, embeddings = (
            evaluation_folder(context.run) / "images.parquet",
            embedding_file(context.run, _EMBEDDINGS),
        )
        if context.processes.rank == 0:
            ids = image_ids(levels)
            manifest = build_manifest(root, {"path": ids, "split": ["test"] * len(ids)}, {"image": ids})
            images.parent.mkdir(parents=True, exist_ok=True)
            write_manifest(images, manifest, Provenance("benchmark", {}, input_digests(**self.files)))
        context.processes.gather(None)  # the other processes wait for the manifest
        embed_images(
            images,
            embeddings,
            load_checkpoint_model(RunFolder(context.run.folder).result),
            EmbedImagesConfig(
                device=context.device, batch_size=training.evaluation.batch_size, workers=training.workers
            ),
            root=root,
            force=context.force,
            processes=context.processes,
            progress=context.progress,
        )
        config = EvaluationConfig(
            metrics=context.metrics or None,
            ranking=RankingConfig(device=context.device),
            processes=context.processes,
        )
        results = evaluate_files(EvaluationFiles(embeddings=embeddings, ground_truth=root), "dyml", config).results
        return [_with_classes(result, levels[result.name]) for result in results]

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """Return the results of the levels as one, with the mean of each metric over the levels.

        The metrics of a level begin with its name (``fine AP``). The values of the others (``AP``) are weighted such
        that their mean over all queries is the mean over the levels, of which each counts the same. Queries without a
        value count in neither.
        """
        joined = join_sets(results)
        means = {
            metric: _weighted_alike([result.per_query[metric].to_numpy() for result in results])
            for metric in results[0].metrics
        }
        return replace(joined, per_query=joined.per_query.assign(**means), metrics=(*means, *joined.metrics))


def image_ids(levels: Mapping[str, DymlLevel]) -> list[str]:
    """Return the paths of all test images, relative to the folder of the data set, each once."""
    return list(dict.fromkeys(name for level in levels.values() for name in (*level.query_ids, *level.gallery_ids)))


def _weighted_alike(levels: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Scale the values of each level such that the mean over all queries is the mean over the levels.

    >>> float(np.nanmean(_weighted_alike([np.array([0.25, 0.75, np.nan]), np.array([1.0])])))
    0.75
    """
    counts = np.array([np.count_nonzero(~np.isnan(values)) for values in levels])
    weights = counts.sum() / (len(levels) * np.maximum(counts, 1))
    return np.concatenate([weight * values for weight, values in zip(weights, levels, strict=True)])


def _with_classes(result: RetrievalResult, level: DymlLevel) -> RetrievalResult:
    """Add the column ``class``: the level and the label, which mean nothing to another level."""
    classes = [f"{result.name} {label}" for label in level.query_labels.tolist()]
    return replace(result, per_query=result.per_query.assign(**{"class": classes}))

"""Evaluation on ROxford5k and RParis6k (Radenovic et al., CVPR 2018), with or without distractors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hgld.benchmark.benchmark_settings import RevisitedEvaluation
from hgld.benchmark.evaluations.base import EvaluationContext, embedding_file, join_sets
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.results import RetrievalResult
from hgld.models.embed_images_config import EmbedImagesConfig
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.image_embedding import embed_images
from hgld.models.model_loading import load_checkpoint_model
from hgld.training.run_folder import RunFolder

_DISTRACTORS = "distractors"
_SPLITS = ("query", "gallery")


@dataclass(frozen=True)
class RevisitedRunEvaluation:
    """Evaluation of each setting, easy, medium and hard, of each of the data sets."""

    settings: RevisitedEvaluation

    @property
    def files(self) -> Mapping[str, Path]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.files`."""
        files: dict[str, Path] = {}
        for name, data in self.settings.datasets.items():
            files |= {f"{name}/manifest": data.manifest, f"{name}/ground_truth": data.ground_truth}
        if self.settings.distractors is not None:
            files[_DISTRACTORS] = self.settings.distractors
        return files

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.embedding_sets`."""
        sets = [_set_name(name, split) for name in self.settings.datasets for split in _SPLITS]
        return (*sets, *([] if self.settings.distractors is None else [_DISTRACTORS]))

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        """See :meth:`hgld.benchmark.evaluations.RunEvaluation.evaluate`."""
        model = load_checkpoint_model(RunFolder(context.run.folder).result)
        distractors = None
        if self.settings.distractors is not None:
            distractors = embedding_file(context.run, _DISTRACTORS)
            self._embed(context, model, self.settings.distractors, distractors)
        results = []
        for name, data in self.settings.datasets.items():
            for split in _SPLITS:
                out = embedding_file(context.run, _set_name(name, split))
                self._embed(context, model, data.manifest, out, split=split, root=data.root)
            results += self._rank(context, name, name)
            if distractors is not None:
                results += self._rank(context, name, f"{name}+{_DISTRACTORS}", distractors)
        return results

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """See :func:`hgld.benchmark.evaluations.base.join_sets`."""
        return join_sets(results)

    def _embed(
        self,
        context: EvaluationContext,
        model: ImageEmbedder,
        images: Path,
        out: Path,
        *,
        split: str | None = None,
        root: Path | None = None,
    ) -> None:
        training = context.run.settings
        config = EmbedImagesConfig(
            split=split,
            scales=self.settings.scales,
            device=context.device,
            batch_size=training.evaluation.batch_size,
            workers=training.workers,
        )
        embed_images(
            images,
            out,
            model,
            config,
            root=root,
            force=context.force,
            processes=context.processes,
            progress=context.progress,
        )

    def _rank(
        self, context: EvaluationContext, name: str, title: str, distractors: Path | None = None
    ) -> list[RetrievalResult]:
        queries, gallery = (embedding_file(context.run, _set_name(name, split)) for split in _SPLITS)
        files = EvaluationFiles(
            query_embeddings=queries,
            gallery_embeddings=gallery,
            ground_truth=self.settings.datasets[name].ground_truth,
            distractor_embeddings=distractors,
        )
        config = EvaluationConfig(ranking=RankingConfig(device=context.device), processes=context.processes)
        results = evaluate_files(files, "roxford", config).results  # the protocol of both
        return [_with_classes(replace(result, name=f"{title} {result.name}")) for result in results]


def _set_name(name: str, split: str) -> str:
    return f"{name}_{split}"


def _with_classes(result: RetrievalResult) -> RetrievalResult:
    """Add the column ``class``: the landmark, which the name of a query begins with, such as all_souls_000013."""
    landmarks = np.array([str(query).rpartition("_")[0] for query in result.per_query.index], object)
    return replace(result, per_query=result.per_query.assign(**{"class": landmarks}))

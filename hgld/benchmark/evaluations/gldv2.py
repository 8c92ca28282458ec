"""Evaluation by GLDv2's retrieval protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from hgld.benchmark.benchmark_settings import Gldv2Evaluation
from hgld.benchmark.evaluations.base import EvaluationContext, embedding_file
from hgld.benchmark.runs import Run
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.protocols.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.evaluation.results import RetrievalResult
from hgld.gldv2.ground_truth import query_landmarks, read_image_to_landmark, read_retrieval_solution
from hgld.models.embed_images_config import EmbedImagesConfig
from hgld.models.image_embedding import embed_images
from hgld.models.model_loading import load_checkpoint_model
from hgld.training.run_folder import RunFolder

_OFFICIAL = "map100_official"
_QUERIES, _GALLERY = "queries", "gallery"


def gldv2_files(evaluation: Gldv2Evaluation, run: Run) -> EvaluationFiles:
    """Return the files of a run's evaluation by GLDv2's protocol."""
    return EvaluationFiles(
        query_embeddings=embedding_file(run, _QUERIES),
        gallery_embeddings=embedding_file(run, _GALLERY),
        hierarchy=evaluation.hierarchy,
        ground_truth=evaluation.ground_truth,
    )


@dataclass(frozen=True)
class Gldv2RunEvaluation:
    """Evaluation of the test images of GLDv2 against its index."""

    settings: Gldv2Evaluation

    @property
    def files(self) -> Mapping[str, Path]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.files`."""
        return {
            "queries": self.settings.queries,
            "gallery": self.settings.gallery,
            "solution": self.settings.ground_truth / SOLUTION,
            "landmarks": self.settings.ground_truth / LANDMARKS,
            "hierarchy": self.settings.hierarchy,
        }

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        """See :attr:`hgld.benchmark.evaluations.RunEvaluation.embedding_sets`."""
        return _QUERIES, _GALLERY

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        """See :meth:`hgld.benchmark.evaluations.RunEvaluation.evaluate`."""
        evaluation, training = self.settings, context.run.settings
        model = load_checkpoint_model(RunFolder(context.run.folder).result)
        config = EmbedImagesConfig(
            device=context.device, batch_size=training.evaluation.batch_size, workers=training.workers
        )
        files = gldv2_files(evaluation, context.run)
        for images, out in (
            (evaluation.queries, files.query_embeddings),
            (evaluation.gallery, files.gallery_embeddings),
        ):
            assert out is not None
            embed_images(
                images,
                out,
                model,
                config,
                force=context.force,
                processes=context.processes,
                progress=context.progress,
            )
        ranking = RankingConfig(device=context.device)
        evaluation_config = EvaluationConfig(
            metrics=context.metrics or None, ranking=ranking, processes=context.processes
        )
        results = evaluate_files(files, "gldv2-retrieval", evaluation_config).results
        solution = read_retrieval_solution(evaluation.ground_truth / SOLUTION)
        landmarks = query_landmarks(solution, read_image_to_landmark(evaluation.ground_truth / LANDMARKS))
        names = pd.Series(landmarks.landmark_ids.astype(str), index=list(solution.query_ids))
        return [
            replace(result, per_query=result.per_query.assign(**{"class": names[result.per_query.index]}))
            for result in results
        ]

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """Add the official values of all queries to the result of the queries with hierarchical labels."""
        labelled, *official = results
        values = pd.concat([part.per_query[[_OFFICIAL, "class"]] for part in official])
        per_query = values.join(labelled.per_query.drop(columns="class"))
        return replace(labelled, per_query=per_query, metrics=(*labelled.metrics, _OFFICIAL))

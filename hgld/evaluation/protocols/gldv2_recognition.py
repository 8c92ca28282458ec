"""GLDv2's recognition protocol: which landmark an image shows, if any, scored by GAP.

Public and Private test images are scored apart, as by Google's published code; ignored ones count nowhere. Where no
image of a part shows a landmark, its metrics are NaN (the published code divides by zero). Predictions come from a
file, or from embeddings (:mod:`hgld.evaluation.protocols.landmark_answers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.evaluation_files import EvaluationFiles, EvaluationInputs
from hgld.evaluation.global_average_precision import RECOGNITION_METRICS, RecognitionResult, rank_predictions
from hgld.evaluation.protocols.landmark_answers import LandmarkAnswers, answer_test_images
from hgld.evaluation.protocols.protocol import EvaluationProtocol, InputSet
from hgld.evaluation.rejected_queries import SCORE
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.gldv2.recognition import (
    LandmarkPrediction,
    RecognitionSolution,
    read_recognition_predictions,
    read_recognition_solution,
)

SOLUTION = "recognition_solution_v2.1.csv"


def recognition_results(
    predictions: Mapping[str, LandmarkPrediction],
    solution: RecognitionSolution,
    metrics: tuple[str, ...] = RECOGNITION_METRICS,
) -> list[RecognitionResult]:
    """Score predictions of Public and of Private test images.

    Args:
        predictions: Predicted landmark by test image; those without a prediction are absent.
        solution: Landmarks of the test images.
        metrics: Metrics to report.
    """
    results = []
    for usage, landmarks in solution.landmarks.items():
        image_ids = np.array(list(landmarks), np.str_)
        answers = [predictions.get(image) for image in landmarks]
        scores = np.array([-np.inf if answer is None else answer.score for answer in answers], np.float64)
        right = [
            answer is not None and answer.landmark in landmarks[image]
            for image, answer in zip(landmarks, answers, strict=True)
        ]
        order = rank_predictions(scores, image_ids)
        result = RecognitionResult.from_answers(
            f"recognition {usage.lower()}",
            image_ids[order],
            np.array([answer is not None for answer in answers], bool)[order],
            np.array(right, bool)[order],
            np.array([bool(own) for own in landmarks.values()], bool)[order],
            metrics=metrics,
        )
        results.append(replace(result, counts=result.counts | {"ignored_queries": len(solution.ignored_ids)}))
    return results


def _score_predictions(files: EvaluationFiles, config: EvaluationConfig) -> list[RetrievalResult]:
    assert files.predictions is not None
    assert files.ground_truth is not None
    metrics = _chosen_metrics(config)
    solution = read_recognition_solution(_solution_file(files.ground_truth))
    predictions = read_recognition_predictions(files.predictions, solution)
    return list(recognition_results(predictions, solution, metrics))


def _answer_queries(
    inputs: EvaluationInputs, config: EvaluationConfig
) -> tuple[list[RetrievalResult], LandmarkAnswers]:
    metrics = _chosen_metrics(config)
    if config.rejection is not None and config.rejection.unknown:
        raise ConfigurationError(
            "the ground truth of gldv2-recognition says which test images show no landmark; leave out `unknown`"
        )
    solution = read_recognition_solution(_solution_file(inputs.ground_truth))
    answers = answer_test_images(inputs, solution, config)
    results = recognition_results(answers.predictions, solution, metrics)
    return [_with_scores(result, answers) for result in results], answers


def _with_scores(result: RecognitionResult, answers: LandmarkAnswers) -> RecognitionResult:
    """Return a result with the rejection score of each image, NaN for those without a prediction."""
    predictions = [answers.predictions.get(image) for image in result.per_query.index]
    scores = [np.nan if answer is None else -answer.score for answer in predictions]
    per_query = result.per_query.assign(**{SCORE: np.array(scores, np.float64)})
    return replace(result, per_query=per_query, counts={**result.counts, **answers.counts})


def _chosen_metrics(config: EvaluationConfig) -> tuple[str, ...]:
    metrics = tuple(dict.fromkeys(config.metrics or RECOGNITION_METRICS))
    if unknown := [name for name in metrics if name not in RECOGNITION_METRICS]:
        raise ConfigurationError(
            f"the metrics of gldv2-recognition are {', '.join(RECOGNITION_METRICS)}, and `metrics` asks for "
            f"{', '.join(unknown)}; leave it out"
        )
    return metrics


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    raise ConfigurationError(
        f"the protocol gldv2-recognition ranks no gallery for single queries of {inputs.queries.path}"
    )


def _solution_file(ground_truth: Path) -> Path:
    return ground_truth / SOLUTION if ground_truth.is_dir() else ground_truth


GLDV2_RECOGNITION = EvaluationProtocol(
    name="gldv2-recognition",
    inputs=(
        InputSet(("query_embeddings", "gallery_embeddings", "ground_truth"), ("labels", "hierarchy", "split")),
        InputSet(("predictions", "ground_truth")),
    ),
    build_tasks=_build_tasks,
    answer_queries=_answer_queries,
    score_predictions=_score_predictions,
    descriptions={"ground_truth": f"{SOLUTION}, or its folder"},
)

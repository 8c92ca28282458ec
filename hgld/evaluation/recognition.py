"""Landmark recognition: which landmark an image shows, if any; global average precision (GAP).

GAP ranks the predictions of all images by score (Weyand et al., "Google Landmarks Dataset v2", CVPR
2020), and is also called micro-AP: GAP = (1/M) sum_i P(i) rel(i). P(i) is the share of correct
predictions among the first i, rel(i) is 1 if the i-th prediction is correct, and M is the number of
images that show a landmark, with or without a prediction. An image without a landmark has no
correct answer: a prediction for it lowers the precision at all lower ranks.

By the protocol of GLDv2, Public and Private test images are scored apart, as in Google's published
code; ignored images are not counted. If no image of a part shows a landmark, its metrics are NaN
(the published code divides by zero). Predictions come from a file, or from embeddings: the landmark
of the nearest gallery image.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.resampling import Interval, check_resampling, percentile_interval
from hgld.datasets.image_labels import ImageLabels
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.evaluation_files import (
    EvaluationInputs,
    EvaluationProtocol,
    InputSet,
    LandmarkAnswers,
)
from hgld.evaluation.reranking import first_items
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.settings import EvaluationFiles
from hgld.gldv2.recognition_ground_truth import (
    LandmarkPrediction,
    RecognitionSolution,
    read_recognition_predictions,
    read_recognition_solution,
)
from hgld.hierarchy.label_sets import LabelSets
from hgld.io.text_array import TextArray
from hgld.tables.embeddings import Embeddings

log = logging.getLogger(__name__)

#: GAP; GAP over the images that show a landmark; share of correct predictions for these images.
RECOGNITION_METRICS = ("gap", "gap_ignore_non_landmark", "top1")
_SETTINGS = {
    "mean": "over the images that show a landmark",
    "ranking": "by score, equal scores by image id",
}


def recognition_values(
    answered: Booleans, right: Booleans, has_landmark: Booleans
) -> dict[str, Floats]:
    """Return the contribution of each image to the metrics.

    A metric is the mean of the contributions over the images that show a landmark.

    Args:
        answered: Whether an image has a prediction, bool, shape (n,). Images are in the order of
            their predictions' ranks; images without a prediction may be anywhere.
        right: Whether the prediction is one of the image's landmarks; False without a prediction.
        has_landmark: Whether the image shows a landmark.

    Returns:
        float64, shape (n,), by metric; NaN for images that show no landmark.
    """
    gap = _precision_of_hits(right, answered)
    gap_of_landmarks = _precision_of_hits(right, answered & has_landmark)
    return {
        "gap": np.where(has_landmark, gap, np.nan),
        "gap_ignore_non_landmark": np.where(has_landmark, gap_of_landmarks, np.nan),
        "top1": np.where(has_landmark, right.astype(np.float64), np.nan),
    }


def _precision_of_hits(right: Booleans, counted: Booleans) -> Floats:
    """Return the precision at each correct prediction among the counted ones, and 0 elsewhere."""
    n_right = np.cumsum(right, dtype=np.float64)
    n_counted = np.maximum(np.cumsum(counted), 1)
    return np.where(right, n_right / n_counted, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class RecognitionResult(RetrievalResult):
    """Result of landmark recognition.

    Its table has a row per image, by rank, with the values of :func:`recognition_values` and the
    column ``answered``. The contribution of an image to GAP depends on all images ranked above it,
    so parts and resamples are ranked again.
    """

    def part(self, name: str, queries: Booleans) -> RecognitionResult:
        """Return the result of some of the images, ranked among themselves, under another name."""
        answered, right, has_landmark = self._answers()
        values = recognition_values(answered[queries], right[queries], has_landmark[queries])
        per_query = self.per_query[queries].assign(**values)
        counts = self.counts | _counts(per_query)
        return replace(self, name=name, per_query=per_query, counts=counts)

    def intervals(
        self, confidence: float = 0.95, *, n_resamples: int = 1000, seed: int = 0
    ) -> dict[str, Interval]:
        """Return bootstrap confidence intervals by the percentile method.

        Images are drawn with replacement and ranked. Images with and without a landmark are drawn
        separately, since a benchmark chooses their numbers, and GAP depends on them. In
        simulations, intervals of images drawn together were up to 3 % wider. Both kinds of
        intervals held about as often as they promise: at a confidence of 95 %, 92 to 95 % of the
        intervals of images drawn separately and 92 to 96 % of the others. The difference matters
        most if few images show a landmark.

        Arguments and errors are the same as in :meth:`RetrievalResult.intervals`. NaN if no image
        shows a landmark.
        """
        check_resampling(confidence, n_resamples)
        answered, right, has_landmark = self._answers()
        n_images = len(has_landmark)
        with_landmark = np.flatnonzero(has_landmark)
        without_landmark = np.flatnonzero(~has_landmark)
        rng = np.random.default_rng(seed)
        draws = np.full((n_resamples, len(self.metrics)), np.nan)
        if len(with_landmark):
            for draw in range(n_resamples):
                drawn = _draw(with_landmark, rng)
                if len(without_landmark):
                    drawn = np.concatenate([drawn, _draw(without_landmark, rng)])
                # Sorted rows keep the images in the order of their ranks.
                n_draws = np.bincount(drawn, minlength=n_images)
                rows = np.repeat(np.arange(n_images), n_draws)
                values = recognition_values(answered[rows], right[rows], has_landmark[rows])
                for column, name in enumerate(self.metrics):
                    draws[draw, column] = np.nansum(values[name]) / len(with_landmark)
        intervals = {}
        for column, name in enumerate(self.metrics):
            intervals[name] = percentile_interval(draws[:, column], confidence)
        return intervals

    def _answers(self) -> tuple[Booleans, Booleans, Booleans]:
        """Return masks of the images with a prediction, with a correct one, and with a landmark."""
        top1 = self.per_query["top1"].to_numpy()
        return self.per_query["answered"].to_numpy(), top1 == 1, ~np.isnan(top1)


def _draw(positions: Integers, rng: np.random.Generator) -> Integers:
    """Draw as many positions as given, with replacement."""
    drawn: Integers = positions[rng.integers(len(positions), size=len(positions))]
    return drawn


def _counts(per_query: pd.DataFrame) -> dict[str, int]:
    """Count the images, and the images without a landmark or a prediction."""
    return {
        "queries": len(per_query),
        "images_without_a_landmark": int(per_query["top1"].isna().sum()),
        "images_without_a_prediction": int((~per_query["answered"]).sum()),
    }


SOLUTION = "recognition_solution_v2.1.csv"


def recognition_results(
    predictions: Mapping[str, LandmarkPrediction],
    solution: RecognitionSolution,
    metrics: tuple[str, ...] = RECOGNITION_METRICS,
) -> list[RecognitionResult]:
    """Score predictions of Public and of Private test images.

    Args:
        predictions: Predicted landmark by test image; test images without a prediction are absent.
        solution: Ground truth.
        metrics: Metrics of the results.
    """
    results = []
    for usage, landmarks in solution.landmarks.items():
        image_ids = np.array(list(landmarks), np.str_)
        scores = np.full(len(landmarks), -np.inf)
        answered = np.zeros(len(landmarks), bool)
        right = np.zeros(len(landmarks), bool)
        has_landmark = np.zeros(len(landmarks), bool)
        for row, (image, correct_landmarks) in enumerate(landmarks.items()):
            has_landmark[row] = bool(correct_landmarks)
            prediction = predictions.get(image)
            if prediction is not None:
                answered[row] = True
                scores[row] = prediction.score
                right[row] = prediction.landmark in correct_landmarks
        order = np.lexsort((image_ids, -scores))  # by score, the highest first, then by image id
        answered = answered[order]
        values = recognition_values(answered, right[order], has_landmark[order])
        index = pd.Index(image_ids[order], name="query")
        per_query = pd.DataFrame(values | {"answered": answered}, index=index)
        counts = _counts(per_query)
        counts["ignored_queries"] = len(solution.ignored_ids)
        name = f"recognition {usage.lower()}"
        results.append(RecognitionResult(name, per_query, metrics, counts, dict(_SETTINGS)))
    return results


def answer_test_images(
    inputs: EvaluationInputs, solution: RecognitionSolution, config: EvaluationConfig
) -> LandmarkAnswers:
    """Answer the embedded test images by the labelled gallery images that are not test images.

    Test images without an embedding, such as unreadable ones, are not answered; a warning says so.

    Args:
        inputs: Embeddings of the test images and of the gallery, with landmark ids or a file of
            labels.
        solution: Ground truth, which lists the test images.
        config: Settings of the ranking, and processes.

    Raises:
        InputError: Files do not fit each other, or no gallery image is left.
        ConfigurationError: Test images have no ids, or there are no landmark ids.
    """
    test_ids = sorted(solution.scored_ids | solution.ignored_ids)
    queries, rows = _embedded(inputs.queries, test_ids)
    not_embedded = solution.scored_ids.difference(queries)
    if not_embedded:
        log.warning(
            "%s: %s of %s scored test images are not embedded, such as %s; they have no prediction",
            inputs.queries.path,
            f"{len(not_embedded):,}",
            f"{len(solution.scored_ids):,}",
            min(not_embedded),
        )
    labels = inputs.gallery_labels()
    _require_landmark_ids(labels)
    in_gallery = np.zeros(len(inputs.gallery), bool)
    if inputs.gallery.ids is not None:
        in_gallery = TextArray(test_ids).find(inputs.gallery.ids) >= 0
    mask = labels.labelled & ~in_gallery
    if not mask.any():
        raise InputError(
            f"{inputs.gallery.path}: no image is left that has a landmark and is no test image"
        )
    ranking = config.ranking
    gallery = inputs.gallery.vectors
    block_size = ranking.queries_per_block(len(gallery))
    share = _share(len(rows), block_size, *config.processes.part)
    predictions: dict[str, LandmarkPrediction] = {}
    if share.stop > share.start:
        vectors = inputs.queries.vectors[torch.from_numpy(rows[share])]
        cosines, positions = first_items(
            vectors, gallery, 1, ranking, ranking.reranking, gallery_mask=mask
        )
        landmarks = labels.labels[positions[:, 0], 0].tolist()
        confidences = cosines[:, 0].tolist()
        answers = zip(queries[share], landmarks, confidences, strict=True)
        for image, landmark, confidence in answers:
            predictions[image] = LandmarkPrediction(landmark, confidence)
    all_predictions: dict[str, LandmarkPrediction] = {}
    for predictions_of_process in config.processes.gather(predictions):
        all_predictions.update(predictions_of_process)
    counts = {
        "gallery": int(mask.sum()),
        "gallery_without_labels": int((~labels.labelled).sum()),
        "test_images_in_gallery": int(in_gallery.sum()),
    }
    return LandmarkAnswers(tuple(test_ids), all_predictions, counts)


def _require_landmark_ids(labels: ImageLabels) -> None:
    """Raise an InputError unless each gallery image has one landmark id."""
    if isinstance(labels.labelling, LabelSets):
        raise InputError(
            "the gallery has several labels per image; recognition needs the landmark id of each image"
        )
    if not labels.names:
        return
    for name in labels.names[0].values():
        if not name.isdecimal():
            raise InputError(
                f'the labels of the gallery are not landmark ids, such as "{name}" of the level '
                f"{labels.level_names[0]}; recognition needs the landmark id of each image"
            )


def _embedded(images: Embeddings, test_ids: list[str]) -> tuple[list[str], Integers]:
    """Return the test images that are embedded, and the rows of their embeddings."""
    if images.ids is None:
        raise ConfigurationError(
            f"{images.path}: has no ids, and test images are known by theirs; write them, one a line, to "
            f"{images.path.with_suffix('.ids.txt').name} beside it"
        )
    rows = images.ids.find(TextArray(test_ids))
    embedded = np.flatnonzero(rows >= 0)
    if not len(embedded):
        example = test_ids[0] if test_ids else "none"
        raise InputError(
            f"{images.path}: none of its {len(images):,} images, such as {images.ids[0]}, is a test image of the "
            f"solution, such as {example}; embed the test images"
        )
    return [test_ids[position] for position in embedded.tolist()], rows[embedded]


def _share(n_queries: int, block_size: int, rank: int, n_processes: int) -> slice:
    """Return the queries of a process: whole blocks, which do not depend on the number of processes."""
    n_blocks = math.ceil(n_queries / block_size)
    first_block = n_blocks * rank // n_processes
    end_block = n_blocks * (rank + 1) // n_processes
    return slice(first_block * block_size, min(end_block * block_size, n_queries))


def _score_predictions(files: EvaluationFiles, config: EvaluationConfig) -> list[RetrievalResult]:
    """Score the predictions of a file."""
    assert files.predictions is not None
    assert files.ground_truth is not None
    metrics = _chosen_metrics(config)
    solution = read_recognition_solution(_solution_file(files.ground_truth))
    predictions = read_recognition_predictions(files.predictions, solution)
    return list(recognition_results(predictions, solution, metrics))


def _answer_queries(
    inputs: EvaluationInputs, config: EvaluationConfig
) -> tuple[list[RetrievalResult], LandmarkAnswers]:
    """Answer the test images by embeddings, and score the answers."""
    metrics = _chosen_metrics(config)
    solution = read_recognition_solution(_solution_file(inputs.ground_truth))
    answers = answer_test_images(inputs, solution, config)
    results: list[RetrievalResult] = []
    for result in recognition_results(answers.predictions, solution, metrics):
        results.append(replace(result, counts={**result.counts, **answers.counts}))
    return results, answers


def _chosen_metrics(config: EvaluationConfig) -> tuple[str, ...]:
    """Return the metrics to report, without repetition."""
    metrics = tuple(dict.fromkeys(config.metrics or RECOGNITION_METRICS))
    unknown = [name for name in metrics if name not in RECOGNITION_METRICS]
    if unknown:
        raise ConfigurationError(
            f"the metrics of gldv2-recognition are {', '.join(RECOGNITION_METRICS)}, and `metrics` asks for "
            f"{', '.join(unknown)}; leave it out"
        )
    return metrics


def _solution_file(ground_truth: Path) -> Path:
    """Return the path of the solution: the given file, or the file in the given folder."""
    if ground_truth.is_dir():
        return ground_truth / SOLUTION
    return ground_truth


GLDV2_RECOGNITION = EvaluationProtocol(
    name="gldv2-recognition",
    inputs=(
        InputSet(
            ("query_embeddings", "gallery_embeddings", "ground_truth"),
            ("labels", "hierarchy", "split"),
        ),
        InputSet(("predictions", "ground_truth")),
    ),
    answer_queries=_answer_queries,
    score_predictions=_score_predictions,
    descriptions={"ground_truth": f"{SOLUTION}, or its folder"},
)

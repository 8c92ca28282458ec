"""Landmark recognition: global average precision (GAP), and GLDv2's protocol, which landmark an image shows, if any.

GAP ranks the predictions of all images (Weyand et al., "Google Landmarks Dataset v2", CVPR 2020), and is also called
micro-AP: with the predictions ranked by score, GAP = (1/M) sum_i P(i) rel(i). P(i) is the share of right ones among
the first i predictions, rel(i) is 1 where the i-th is right, and M is the number of images that show a landmark,
whether predicted or not. An image without a landmark has no right answer: predicting one for it costs those ranked
below.

By the protocol, Public and Private test images are scored apart, as by Google's published code; ignored ones count
nowhere. Where no image of a part shows a landmark, its metrics are NaN (the published code divides by zero).
Predictions come from a file, or from embeddings: the landmark of the nearest gallery image.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.resampling import Interval, check_resampling, percentile_interval
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
from hgld.gldv2.ground_truth import (
    LandmarkPrediction,
    RecognitionSolution,
    read_recognition_predictions,
    read_recognition_solution,
)
from hgld.hierarchy.label_matrix import LabelSets
from hgld.io.text_array import TextArray
from hgld.tables.embeddings import Embeddings

log = logging.getLogger(__name__)


#: GAP; GAP over the images that show a landmark only; share of right predictions among these images.
RECOGNITION_METRICS = ("gap", "gap_ignore_non_landmark", "top1")
_SETTINGS = {
    "mean": "over the images that show a landmark",
    "ranking": "by score, equal scores by image id",
}


def recognition_values(
    answered: Booleans, right: Booleans, has_landmark: Booleans
) -> dict[str, Floats]:
    """Return what each image adds to the metrics: a metric is its mean over the images that show a landmark.

    Args:
        answered: Whether there is a prediction for an image, bool, shape (n,). Images are in the order of their
            predictions' ranks; the place of those without a prediction does not matter.
        right: Whether the prediction is one of the image's landmarks; never where there is no prediction.
        has_landmark: Whether the image shows a landmark.

    Returns:
        float64, shape (n,), by metric; NaN for images that show no landmark.
    """
    hits = np.cumsum(right, dtype=np.float64)

    def precision_of_hits(counted: Booleans) -> Floats:
        return np.where(right, hits / np.maximum(np.cumsum(counted), 1), 0.0)

    values = (
        precision_of_hits(answered),
        precision_of_hits(answered & has_landmark),
        right.astype(np.float64),
    )
    columns = zip(RECOGNITION_METRICS, values, strict=True)
    return {name: np.where(has_landmark, column, np.nan) for name, column in columns}


@dataclass(frozen=True, eq=False, repr=False)
class RecognitionResult(RetrievalResult):
    """Result of landmark recognition.

    Its table has a row per image, by rank, with the values of :func:`recognition_values` and the column ``answered``.
    What an image adds to GAP depends on all images ranked above it, so that parts and resamples are ranked anew.
    """

    def part(self, name: str, queries: Booleans) -> RecognitionResult:
        """Return the result of some of the images, ranked among themselves, under another name."""
        answered, right, has_landmark = (column[queries] for column in self._answers())
        values = recognition_values(answered, right, has_landmark)
        per_query = self.per_query[queries].assign(**values)
        return replace(
            self, name=name, per_query=per_query, counts=self.counts | _counts(per_query)
        )

    def intervals(
        self, confidence: float = 0.95, *, n_resamples: int = 1000, seed: int = 0
    ) -> dict[str, Interval]:
        """Return bootstrap confidence intervals: images drawn with replacement and ranked, percentile method.

        Images that show a landmark and those that do not are drawn apart: a benchmark chooses how many there are of
        each, and GAP depends on it. In simulations, intervals of images drawn together are up to 3 % wider, and both
        hold about as often as they promise: at a confidence of 95 %, 92 to 95 % of intervals of images drawn apart
        and 92 to 96 % of those drawn together held. It matters most where few images show a landmark.

        Arguments and errors are those of :meth:`RetrievalResult.intervals`. NaN where no image shows a landmark.
        """
        check_resampling(confidence, n_resamples)
        rng = np.random.default_rng(seed)
        *answers, has_landmark = self._answers()
        n_images = len(has_landmark)
        kinds = [
            kind
            for kind in (np.flatnonzero(has_landmark), np.flatnonzero(~has_landmark))
            if len(kind)
        ]
        draws = np.full((n_resamples, len(self.metrics)), np.nan)
        for draw in range(n_resamples if has_landmark.any() else 0):
            drawn = np.concatenate(
                [kind[rng.integers(len(kind), size=len(kind))] for kind in kinds]
            )
            # Sorted positions keep the images in the order of their ranks.
            rows = np.repeat(np.arange(n_images), np.bincount(drawn, minlength=n_images))
            values = recognition_values(answers[0][rows], answers[1][rows], has_landmark[rows])
            draws[draw] = [np.nansum(values[name]) / has_landmark.sum() for name in self.metrics]
        return {
            name: percentile_interval(draws[:, i], confidence)
            for i, name in enumerate(self.metrics)
        }

    def _answers(self) -> tuple[Booleans, Booleans, Booleans]:
        """Return which images are answered, answered right, and show a landmark."""
        top1 = self.per_query["top1"].to_numpy()
        return self.per_query["answered"].to_numpy(), top1 == 1, ~np.isnan(top1)


def _counts(per_query: pd.DataFrame) -> dict[str, int]:
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
        predictions: Predicted landmark by test image; those without a prediction are absent.
    """
    results = []
    for usage, landmarks in solution.landmarks.items():
        image_ids = np.array(list(landmarks), np.str_)
        answers = [predictions.get(image) for image in landmarks]
        scores = np.array(
            [-np.inf if answer is None else answer.score for answer in answers], np.float64
        )
        right = [
            answer is not None and answer.landmark in landmarks[image]
            for image, answer in zip(landmarks, answers, strict=True)
        ]
        order = np.lexsort((image_ids, -scores))  # by score, the highest first, then by image id
        answered = np.array([answer is not None for answer in answers], bool)[order]
        has_landmark = np.array([bool(own) for own in landmarks.values()], bool)[order]
        values = recognition_values(answered, np.array(right, bool)[order], has_landmark)
        per_query = pd.DataFrame(
            values | {"answered": answered}, index=pd.Index(image_ids[order], name="query")
        )
        counts = _counts(per_query) | {"ignored_queries": len(solution.ignored_ids)}
        results.append(
            RecognitionResult(
                f"recognition {usage.lower()}", per_query, metrics, counts, dict(_SETTINGS)
            )
        )
    return results


def answer_test_images(
    inputs: EvaluationInputs, solution: RecognitionSolution, config: EvaluationConfig
) -> LandmarkAnswers:
    """Answer the test images that are embedded by the labelled gallery images that are not test images.

    Test images that are not embedded, such as unreadable ones, are not answered; a warning says so.

    Args:
        inputs: Embeddings of the test images and of the gallery, with landmark ids or a file of labels.
        solution: Ground truth, which says what the test images are.

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
    if isinstance(labels.labelling, LabelSets):
        raise InputError(
            "the gallery has several labels per image; recognition needs the landmark id of each image"
        )
    texts = (
        [name for name in labels.names[0].values() if not name.isdecimal()] if labels.names else []
    )
    if texts:
        raise InputError(
            f'the labels of the gallery are not landmark ids, such as "{texts[0]}" of the level '
            f"{labels.level_names[0]}; recognition needs the landmark id of each image"
        )
    in_gallery = np.zeros(len(inputs.gallery), bool)
    if inputs.gallery.ids is not None:
        in_gallery = TextArray(test_ids).find(inputs.gallery.ids) >= 0
    mask = labels.labelled & ~in_gallery
    if not mask.any():
        raise InputError(
            f"{inputs.gallery.path}: no image is left that has a landmark and is no test image"
        )
    gallery = inputs.gallery.vectors
    own = _share(len(rows), config.ranking.queries_per_block(len(gallery)), *config.processes.part)
    predictions: dict[str, LandmarkPrediction] = {}
    if own.stop > own.start:
        vectors = inputs.queries.vectors[torch.from_numpy(rows[own])]
        ranking = config.ranking
        cosines, positions = first_items(
            vectors, gallery, 1, ranking, ranking.reranking, gallery_mask=mask
        )
        landmarks = labels.labels[positions[:, 0], 0].tolist()
        confidences = cosines[:, 0].tolist()
        for image, landmark, confidence in zip(queries[own], landmarks, confidences, strict=True):
            predictions[image] = LandmarkPrediction(landmark, confidence)
    shares = config.processes.gather(predictions)
    return LandmarkAnswers(
        tuple(test_ids),
        {image: answer for share in shares for image, answer in share.items()},
        {
            "gallery": int(mask.sum()),
            "gallery_without_labels": int((~labels.labelled).sum()),
            "test_images_in_gallery": int(in_gallery.sum()),
        },
    )


def _embedded(images: Embeddings, test_ids: list[str]) -> tuple[list[str], Integers]:
    """Return the test images that are embedded, and their rows."""
    if images.ids is None:
        raise ConfigurationError(
            f"{images.path}: has no ids, and test images are known by theirs; write them, one a line, to "
            f"{images.path.with_suffix('.ids.txt').name} beside it"
        )
    found = images.ids.find(TextArray(test_ids))
    places = np.flatnonzero(found >= 0)
    if not len(places):
        raise InputError(
            f"{images.path}: none of its {len(images):,} images, such as {images.ids[0]}, is a test image of the "
            f"solution, such as {test_ids[0] if test_ids else 'none'}; embed the test images"
        )
    return [test_ids[place] for place in places.tolist()], found[places]


def _share(n_queries: int, block_size: int, rank: int, count: int) -> slice:
    """Return the queries of a process: whole blocks, which do not depend on the number of processes."""
    n_blocks = -(-n_queries // block_size)
    start, stop = (n_blocks * process // count * block_size for process in (rank, rank + 1))
    return slice(start, min(stop, n_queries))


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
    solution = read_recognition_solution(_solution_file(inputs.ground_truth))
    answers = answer_test_images(inputs, solution, config)
    results: list[RetrievalResult] = []
    for result in recognition_results(answers.predictions, solution, metrics):
        results.append(replace(result, counts={**result.counts, **answers.counts}))
    return results, answers


def _chosen_metrics(config: EvaluationConfig) -> tuple[str, ...]:
    metrics = tuple(dict.fromkeys(config.metrics or RECOGNITION_METRICS))
    if unknown := [name for name in metrics if name not in RECOGNITION_METRICS]:
        raise ConfigurationError(
            f"the metrics of gldv2-recognition are {', '.join(RECOGNITION_METRICS)}, and `metrics` asks for "
            f"{', '.join(unknown)}; leave it out"
        )
    return metrics


def _solution_file(ground_truth: Path) -> Path:
    return ground_truth / SOLUTION if ground_truth.is_dir() else ground_truth


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

"""Global average precision (GAP), the metric of landmark recognition: one ranking of the predictions of all images.

Weyand et al., "Google Landmarks Dataset v2" (CVPR 2020), also called micro-AP: with the predictions of all
images ranked by score, GAP = (1/M) sum_i P(i) rel(i). P(i) is the share of right ones among the first i predictions,
rel(i) is 1 where the i-th is right, and M is the number of images that show a landmark, whether predicted or not.
An image without a landmark has no right answer: predicting one for it costs those ranked below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.compute.resampling import Interval, check_resampling, percentile_interval
from hgld.evaluation.results import RetrievalResult

Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

#: GAP; GAP over the images that show a landmark only; share of right predictions among these images.
RECOGNITION_METRICS = ("gap", "gap_ignore_non_landmark", "top1")
_SETTINGS = {"mean": "over the images that show a landmark", "ranking": "by score, equal scores by image id"}


def rank_predictions(scores: Floats, image_ids: npt.NDArray[np.str_]) -> npt.NDArray[np.intp]:
    """Return the positions of predictions by rank: by score, the highest first, then by image id as text.

    Args:
        scores: Scores, float64, shape (n,); no NaN.
        image_ids: Ids of the images, str, shape (n,); unique.
    """
    return np.lexsort((image_ids, -scores))


def recognition_values(answered: Booleans, right: Booleans, has_landmark: Booleans) -> dict[str, Floats]:
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

    values = (precision_of_hits(answered), precision_of_hits(answered & has_landmark), right.astype(np.float64))
    columns = zip(RECOGNITION_METRICS, values, strict=True)
    return {name: np.where(has_landmark, column, np.nan) for name, column in columns}


@dataclass(frozen=True, eq=False, repr=False)
class RecognitionResult(RetrievalResult):
    """Result of landmark recognition.

    Its table has a row per image, by rank, with the values of :func:`recognition_values` and the column ``answered``.
    What an image adds to GAP depends on all images ranked above it, so that parts and resamples are ranked anew.
    """

    @classmethod
    def from_answers(
        cls,
        name: str,
        image_ids: npt.NDArray[np.str_],
        answered: Booleans,
        right: Booleans,
        has_landmark: Booleans,
        *,
        metrics: tuple[str, ...] = RECOGNITION_METRICS,
    ) -> RecognitionResult:
        """Return the result of images in the order of their ranks.

        Args:
            name: Name of the images.
            image_ids: Ids of the images, shape (n,).
            answered: See :func:`recognition_values`, as for the next two.
            right: Whether each prediction is right.
            has_landmark: Whether each image shows a landmark.
            metrics: Metrics to report.
        """
        values = recognition_values(answered, right, has_landmark)
        per_query = pd.DataFrame(values | {"answered": answered}, index=pd.Index(image_ids, name="query"))
        return cls(name, per_query, metrics, _counts(per_query), dict(_SETTINGS))

    def part(self, name: str, queries: Booleans) -> RecognitionResult:
        """Return the result of some of the images, ranked among themselves, under another name."""
        answered, right, has_landmark = (column[queries] for column in self._answers())
        values = recognition_values(answered, right, has_landmark)
        per_query = self.per_query[queries].assign(**values)
        return replace(self, name=name, per_query=per_query, counts=self.counts | _counts(per_query))

    def with_answered(self, answered: Booleans) -> RecognitionResult:
        """Return the result of some of the predictions; images without a landmark or a prediction stay in the counts.

        Args:
            answered: Images whose prediction is kept, bool, shape (n,), by rank.
        """
        made, right, has_landmark = self._answers()
        kept = made & answered
        values = recognition_values(kept, right & kept, has_landmark)
        per_query = self.per_query.assign(**values, answered=kept)
        return replace(self, per_query=per_query, counts=self.counts | _counts(per_query))

    def intervals(self, confidence: float = 0.95, *, n_resamples: int = 1000, seed: int = 0) -> dict[str, Interval]:
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
        kinds = [kind for kind in (np.flatnonzero(has_landmark), np.flatnonzero(~has_landmark)) if len(kind)]
        draws = np.full((n_resamples, len(self.metrics)), np.nan)
        for draw in range(n_resamples if has_landmark.any() else 0):
            drawn = np.concatenate([kind[rng.integers(len(kind), size=len(kind))] for kind in kinds])
            # Sorted positions keep the images in the order of their ranks.
            rows = np.repeat(np.arange(n_images), np.bincount(drawn, minlength=n_images))
            values = recognition_values(answers[0][rows], answers[1][rows], has_landmark[rows])
            draws[draw] = [np.nansum(values[name]) / has_landmark.sum() for name in self.metrics]
        return {name: percentile_interval(draws[:, i], confidence) for i, name in enumerate(self.metrics)}

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

"""Metrics of the detection of unknown images, whose landmark is not in the index, by a score.

Scores are higher for images less like the index, and an image is accepted if its score is at most a
threshold. An ideal score is lower for every known image than for any unknown image. Measure two
kinds of unknown images separately: near images show landmarks that the index lacks, far images show
no landmark.

Published code has two conventions for the false positive rate at a true positive rate of 95 %, with
very different results (up to 0.41 on the scores of the tests). Here the name states the positive
class:

- ``fpr95_known``: known images are the positives, as in Eq. 5.9 of the thesis and in heatood. The
  threshold is the 95th percentile of the known scores (linearly interpolated); the rate is the
  share of unknown images strictly below.
- ``fpr95_unknown``: unknown images are the positives, as in OpenOOD and pytorch-ood. The threshold
  is the highest score that 95 % of the unknown scores reach; the rate is the share of known images
  that reach it.

All metrics only depend on the number of known and of unknown images with each score. They are
computed from these counts, for many resamples at once. The tests compare them with scikit-learn,
which handles one resample at a time and refuses infinite scores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.arrays import Floats
from hgld.errors import InputError

Counts = npt.NDArray[np.int64]

#: Titles of the metrics of :func:`detection_metrics` in tables and figures; lower is better for
#: FPR95.
DETECTION_METRICS = {
    "auroc": "AUROC",
    "auroc_strict": "AUROC (strict)",
    "fpr95_known": "FPR95 (known)",
    "fpr95_unknown": "FPR95 (unknown)",
    "aupr_known": "AUPR (known)",
    "aupr_unknown": "AUPR (unknown)",
    "aupr_known_trapezoid": "AUPR (known, trapezoid)",
    "aupr_unknown_trapezoid": "AUPR (unknown, trapezoid)",
    "detection_accuracy": "detection accuracy",
}
_TRUE_POSITIVE_RATE = 0.95


def detection_metrics(known: npt.ArrayLike, unknown: npt.ArrayLike) -> dict[str, float]:
    """Return the metrics of the detection of unknown images by a score.

    - ``auroc``: probability that a known image has a lower score than an unknown image, where equal
      scores count a half; in ``auroc_strict``, equal scores count as failures (Eq. 5.8 of the
      thesis).
    - ``fpr95_known`` and ``fpr95_unknown``: false positive rate at a true positive rate of 95 %,
      with known and with unknown images as positives; see the module.
    - ``aupr_known`` and ``aupr_unknown``: average precision with known and with unknown images as
      positives (sum over thresholds of precision times the step in recall), which depends on their
      numbers; ``_trapezoid`` interpolates precision linearly between thresholds, beginning with
      precision 1 at recall 0, as OpenOOD and pytorch-ood do.
    - ``detection_accuracy``: mean of the share of known images accepted and the share of unknown
      images rejected, at the best threshold.

    Args:
        known: Scores of known images, float, shape (n,); may be infinite.
        unknown: Scores of unknown images, float, shape (m,); may be infinite.

    Returns:
        Value by metric, each from 0 to 1.

    Raises:
        InputError: Scores of known or of unknown images are empty, NaN or have another shape.

    >>> metrics = detection_metrics([0.1, 0.2, 0.3], [0.25, 0.9])
    >>> {name: round(metrics[name], 3) for name in ("auroc", "fpr95_known", "fpr95_unknown", "aupr_unknown")}
    {'auroc': 0.833, 'fpr95_known': 0.5, 'fpr95_unknown': 0.333, 'aupr_unknown': 0.833}
    """
    known_scores = checked_scores(known, "known")
    unknown_scores = checked_scores(unknown, "unknown")
    values, codes = np.unique(np.concatenate([known_scores, unknown_scores]), return_inverse=True)
    known_counts = np.bincount(codes[: len(known_scores)], minlength=len(values))
    unknown_counts = np.bincount(codes[len(known_scores) :], minlength=len(values))
    metrics = metrics_of_counts(values, known_counts[None], unknown_counts[None])
    return {name: float(value[0]) for name, value in metrics.items()}


def metrics_of_counts(values: Floats, known: Counts, unknown: Counts) -> dict[str, Floats]:
    """Return the metrics of several resamples, from the number of images with each score.

    Args:
        values: Distinct scores, ascending, float64, shape (n_values,); no NaN.
        known: Number of known images with each score, int64, shape (n_samples, n_values).
        unknown: Number of unknown images with each score, int64, same shape.

    Returns:
        float64, shape (n_samples,), by metric of :data:`DETECTION_METRICS`; NaN for a resample
        without known or without unknown images.
    """
    accepted_known = np.cumsum(known, axis=1)
    accepted_unknown = np.cumsum(unknown, axis=1)
    n_known = accepted_known[:, -1]
    n_unknown = accepted_unknown[:, -1]
    # Thresholds from the highest to the lowest; images with this score or a higher score are
    # rejected.
    rejected_known = np.cumsum(known[:, ::-1], axis=1)
    rejected_unknown = np.cumsum(unknown[:, ::-1], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        n_pairs = n_known * n_unknown
        strict = (unknown * (accepted_known - known)).sum(1) / n_pairs
        ties = (unknown * known).sum(1) / n_pairs
        share_accepted = accepted_known / n_known[:, None]
        share_mistaken = accepted_unknown / n_unknown[:, None]
        balanced = (share_accepted + 1 - share_mistaken) / 2
        aupr_known, aupr_known_trapezoid = _areas_under_precision(
            known, accepted_known, accepted_unknown
        )
        aupr_unknown, aupr_unknown_trapezoid = _areas_under_precision(
            unknown[:, ::-1], rejected_unknown, rejected_known
        )
        metrics = {
            "auroc": strict + ties / 2,
            "auroc_strict": strict,
            "fpr95_known": _fpr95_known(values, accepted_known, accepted_unknown),
            "fpr95_unknown": _fpr95_unknown(rejected_unknown, rejected_known),
            "aupr_known": aupr_known,
            "aupr_unknown": aupr_unknown,
            "aupr_known_trapezoid": aupr_known_trapezoid,
            "aupr_unknown_trapezoid": aupr_unknown_trapezoid,
            "detection_accuracy": balanced.max(1),
        }
    is_defined = (n_known > 0) & (n_unknown > 0)
    return {name: np.where(is_defined, metrics[name], np.nan) for name in DETECTION_METRICS}


def _fpr95_known(values: Floats, accepted_known: Counts, accepted_unknown: Counts) -> Floats:
    """Return the share of unknown scores below the 95th percentile of the known scores."""
    position = _TRUE_POSITIVE_RATE * np.maximum(accepted_known[:, -1] - 1, 0)
    rank = position.astype(np.int64)
    fraction = position - rank
    low = values[(accepted_known > rank[:, None]).argmax(1)]
    next_values = values[(accepted_known > rank[:, None] + 1).argmax(1)]
    # At a whole position, the next score has no weight and may not exist.
    high = np.where(fraction > 0, next_values, low)
    # The two branches of numpy's percentile give the same rounding as numpy.
    with np.errstate(invalid="ignore", over="ignore"):
        step = high - low
        percentile = np.where(fraction < 0.5, low + step * fraction, high - step * (1 - fraction))
    # Infinite scores cannot be interpolated: the higher of the two scores accepts 95 %.
    percentile = np.where(np.isfinite(step), percentile, high)
    n_below = np.searchsorted(values, percentile)
    n_mistaken = np.take_along_axis(accepted_unknown, np.maximum(n_below - 1, 0)[:, None], axis=1)
    return np.where(n_below > 0, n_mistaken[:, 0], 0) / accepted_unknown[:, -1]


def _fpr95_unknown(rejected_unknown: Counts, rejected_known: Counts) -> Floats:
    """Return the share of rejected known images at a threshold that rejects 95 % of unknown."""
    share_rejected = rejected_unknown / rejected_unknown[:, -1:]
    threshold = (share_rejected >= _TRUE_POSITIVE_RATE).argmax(1)
    n_mistaken = np.take_along_axis(rejected_known, threshold[:, None], axis=1)
    return n_mistaken[:, 0] / rejected_known[:, -1]


def _areas_under_precision(
    positives: Counts, true_positives: Counts, false_positives: Counts
) -> tuple[Floats, Floats]:
    """Return the area under precision over recall by steps and by trapezoids.

    Args:
        positives: Number of positives at each threshold, shape (n_samples, n_values).
        true_positives: Cumulative number of positives, same shape.
        false_positives: Cumulative number of negatives, same shape.
    """
    retrieved = true_positives + false_positives
    precision = np.where(retrieved > 0, true_positives / np.maximum(retrieved, 1), 1.0)
    n_positives = true_positives[:, -1]
    step_area = (positives * precision).sum(1) / n_positives
    previous = np.concatenate([np.ones((len(precision), 1)), precision[:, :-1]], axis=1)
    trapezoid_area = (positives * (precision + previous)).sum(1) / 2 / n_positives
    return step_area, trapezoid_area


def checked_scores(scores: npt.ArrayLike, name: str) -> Floats:
    """Return scores as float64, shape (n,).

    Raises:
        InputError: Scores are empty, NaN or have another shape.
    """
    array = np.asarray(scores)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InputError(
            f"`{name}` has the shape {array.shape} and the type {array.dtype}; expected numbers of the shape (n,)"
        )
    if not len(array):
        raise InputError(f"`{name}` is empty; expected the score of at least one image")
    missing = np.isnan(array)
    if missing.any():
        raise InputError(
            f"`{name}` has {int(missing.sum()):,} NaN of {len(array):,} scores, the first at position "
            f"{int(missing.argmax()):,}; score these images again or exclude them"
        )
    return array.astype(np.float64)

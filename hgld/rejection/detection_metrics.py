"""Metrics of telling known images, whose landmark is in the index, from unknown ones by a score.

Scores are higher for what is less like the index, and an image is accepted where its score is at most a threshold. An
ideal score is lower for every known image than for any unknown one. Which images are unknown decides what a number
means: near ones show landmarks that the index lacks, far ones no landmark, and they are to be measured apart.

Published code has two conventions for the false positive rate at a true positive rate of 95 %, and the numbers differ
widely (up to 0.41 on the scores of the tests). Here the name says which class is accepted or detected at 95 %:

- ``fpr95_known``: known images are the positives, as in Eq. 5.9 of the thesis and in heatood. The threshold is the
  95th percentile of the known scores (linearly interpolated); the rate is the share of unknown images strictly below.
- ``fpr95_unknown``: unknown images are the positives, as in OpenOOD and pytorch-ood. The threshold is the highest at
  which 95 % of the unknown scores are as high or higher; the rate is the share of known images as high or higher.

All metrics depend on how often each score occurs among the known and among the unknown images only. They are computed
from these counts, for many resamples at once; scikit-learn computes one pair of sets at a time, refuses infinite
scores, and is the reference of the tests.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.arrays import Floats
from hgld.errors import InputError

Counts = npt.NDArray[np.int64]

#: Titles of the metrics of :func:`detection_metrics` in tables and figures; lower is better for those of FPR95.
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
    """Return how well scores tell known from unknown images.

    - ``auroc``: probability that a known image has a lower score than an unknown one, equal scores counting a half;
      ``auroc_strict`` counts them as failures (Eq. 5.8 of the thesis).
    - ``fpr95_known`` and ``fpr95_unknown``: false positive rate at a true positive rate of 95 %, with known and with
      unknown images as positives; see the module.
    - ``aupr_known`` and ``aupr_unknown``: average precision with known and with unknown images as positives (sum over
      thresholds of precision times the step in recall), which depends on their numbers; ``_trapezoid`` interpolates
      precision linearly between thresholds, beginning with precision 1 at recall 0, as OpenOOD and pytorch-ood do.
    - ``detection_accuracy``: mean of the shares of known images accepted and of unknown ones rejected, at the best
      threshold.

    Args:
        known: Scores of known images, float, shape (n,); may be infinite.
        unknown: Scores of unknown images, float, shape (m,); may be infinite.

    Returns:
        Value by metric, each from 0 to 1.

    Raises:
        InputError: There are no scores of either kind, or scores that are NaN or have another shape.

    >>> metrics = detection_metrics([0.1, 0.2, 0.3], [0.25, 0.9])
    >>> {name: round(metrics[name], 3) for name in ("auroc", "fpr95_known", "fpr95_unknown", "aupr_unknown")}
    {'auroc': 0.833, 'fpr95_known': 0.5, 'fpr95_unknown': 0.333, 'aupr_unknown': 0.833}
    """
    known_scores, unknown_scores = (
        checked_scores(known, "known"),
        checked_scores(unknown, "unknown"),
    )
    values, codes = np.unique(np.concatenate([known_scores, unknown_scores]), return_inverse=True)
    known_counts = np.bincount(codes[: len(known_scores)], minlength=len(values))
    unknown_counts = np.bincount(codes[len(known_scores) :], minlength=len(values))
    metrics = metrics_of_counts(values, known_counts[None], unknown_counts[None])
    return {name: float(value[0]) for name, value in metrics.items()}


def metrics_of_counts(values: Floats, known: Counts, unknown: Counts) -> dict[str, Floats]:
    """Return the metrics of several pairs of sets, such as resamples, from how often each score occurs.

    Args:
        values: Distinct scores, ascending, float64, shape (n_values,); no NaN.
        known: Number of known images with each score, int64, shape (n_pairs, n_values).
        unknown: Number of unknown images with each score, as ``known``.

    Returns:
        float64, shape (n_pairs,), by metric of :data:`DETECTION_METRICS`; NaN for a pair without images of a kind.
    """
    accepted_known, accepted_unknown = np.cumsum(known, axis=1), np.cumsum(unknown, axis=1)
    n_known, n_unknown = accepted_known[:, -1], accepted_unknown[:, -1]
    # Thresholds from the highest to the lowest, at which images with that score or a higher one are rejected.
    rejected = [np.cumsum(counts[:, ::-1], axis=1) for counts in (unknown, known)]
    with np.errstate(invalid="ignore", divide="ignore"):
        strict = (unknown * (accepted_known - known)).sum(1) / (n_known * n_unknown)
        ties = (unknown * known).sum(1) / (n_known * n_unknown)
        balanced = (
            accepted_known / n_known[:, None] + 1 - accepted_unknown / n_unknown[:, None]
        ) / 2
        aupr_known, aupr_known_trapezoid = _areas_under_precision(
            known, accepted_known, accepted_unknown
        )
        aupr_unknown, aupr_unknown_trapezoid = _areas_under_precision(unknown[:, ::-1], *rejected)
        metrics = {
            "auroc": strict + ties / 2,
            "auroc_strict": strict,
            "fpr95_known": _fpr95_known(values, accepted_known, accepted_unknown),
            "fpr95_unknown": _fpr95_unknown(*rejected),
            "aupr_known": aupr_known,
            "aupr_unknown": aupr_unknown,
            "aupr_known_trapezoid": aupr_known_trapezoid,
            "aupr_unknown_trapezoid": aupr_unknown_trapezoid,
            "detection_accuracy": balanced.max(1),
        }
    measurable = (n_known > 0) & (n_unknown > 0)
    return {name: np.where(measurable, metrics[name], np.nan) for name in DETECTION_METRICS}


def _fpr95_known(values: Floats, accepted_known: Counts, accepted_unknown: Counts) -> Floats:
    """Return the share of unknown scores below the 95th percentile of the known ones, interpolated linearly."""
    position = _TRUE_POSITIVE_RATE * np.maximum(accepted_known[:, -1] - 1, 0)
    below = position.astype(np.int64)
    fraction = position - below
    low = values[(accepted_known > below[:, None]).argmax(1)]
    # At a whole position, the next score has no weight, and there may be none.
    high = np.where(fraction > 0, values[(accepted_known > below[:, None] + 1).argmax(1)], low)
    # Both forms of numpy's percentile, to equal it to the last bit.
    with np.errstate(invalid="ignore", over="ignore"):
        step = high - low
        percentile = np.where(fraction < 0.5, low + step * fraction, high - step * (1 - fraction))
    # Nothing lies between an infinite score and another one: of the two, the higher accepts 95 %.
    percentile = np.where(np.isfinite(step), percentile, high)
    n_below = np.searchsorted(values, percentile)
    n_accepted = np.take_along_axis(accepted_unknown, np.maximum(n_below - 1, 0)[:, None], axis=1)[
        :, 0
    ]
    return np.where(n_below > 0, n_accepted, 0) / accepted_unknown[:, -1]


def _fpr95_unknown(rejected_unknown: Counts, rejected_known: Counts) -> Floats:
    """Return the share of known scores at or above the highest threshold that rejects 95 % of the unknown ones."""
    first = (rejected_unknown / rejected_unknown[:, -1:] >= _TRUE_POSITIVE_RATE).argmax(1)
    return np.take_along_axis(rejected_known, first[:, None], axis=1)[:, 0] / rejected_known[:, -1]


def _areas_under_precision(
    positives: Counts, found: Counts, mistaken: Counts
) -> tuple[Floats, Floats]:
    """Return the area under precision over recall by steps and by trapezoids."""
    retrieved = found + mistaken
    precision = np.where(retrieved > 0, found / np.maximum(retrieved, 1), 1.0)
    n_positives = found[:, -1]
    steps = (positives * precision).sum(1) / n_positives
    before = np.concatenate([np.ones((len(precision), 1)), precision[:, :-1]], axis=1)
    return steps, (positives * (precision + before)).sum(1) / 2 / n_positives


def checked_scores(scores: npt.ArrayLike, name: str) -> Floats:
    """Return scores as float64, shape (n,).

    Raises:
        InputError: There are no scores, or they are NaN or have another shape.
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
            f"{int(missing.argmax()):,}; score these images again or leave them out"
        )
    return array.astype(np.float64)

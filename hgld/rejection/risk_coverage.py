"""Risk against coverage: how many of the accepted answers are wrong, over how many are accepted.

Answers are accepted by a score, those of the lowest scores first. The coverage of a threshold is the share of images
whose score is at most the threshold, and its (selective) risk is the share of wrong answers among these: El-Yaniv and
Wiener, "On the Foundations of Noise-free Selective Classification" (JMLR 11, 2010). Images of equal scores are
accepted together. For an image that shows no landmark of the index, every answer is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hgld.compute.resampling import Interval, check_resampling, percentile_interval, resample_blocks, resampled_counts
from hgld.errors import InputError
from hgld.rejection.detection_metrics import checked_scores

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk and coverage at each threshold, the lowest first.

    Args:
        thresholds: Distinct scores, ascending, float64, shape (m,).
        n_accepted: Number of images that each threshold accepts, int64, shape (m,); all images at the last.
        n_right: Number of right answers among these, int64, shape (m,).
    """

    thresholds: Floats
    n_accepted: Counts
    n_right: Counts

    @cached_property
    def coverage(self) -> Floats:
        """Share of images that are accepted, shape (m,)."""
        return self.n_accepted / float(self.n_accepted[-1])

    @cached_property
    def risk(self) -> Floats:
        """Share of wrong answers among the accepted images, shape (m,)."""
        return 1 - self.n_right / self.n_accepted

    @property
    def area(self) -> float:
        """Area under the curve (AURC): mean over the images of the risk at the threshold that accepts them.

        It is that of Geifman, Uziel and El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers"
        (ICLR 2019); lower is better. It also depends on how many answers are right at all.
        """
        n_images = np.diff(self.n_accepted, prepend=0)
        return float(n_images @ self.risk / self.n_accepted[-1])

    @property
    def best_area(self) -> float:
        """Area of the best possible order of these answers: all right ones are accepted before any wrong one."""
        n, n_right = int(self.n_accepted[-1]), int(self.n_right[-1])
        n_wrong = np.arange(1, n - n_right + 1)
        return float((n_wrong / (n_right + n_wrong)).sum() / n)

    @property
    def excess_area(self) -> float:
        """Area above that of the best order (E-AURC of the same paper): 0 for a score that orders perfectly."""
        return self.area - self.best_area


def risk_coverage(scores: npt.ArrayLike, right: npt.ArrayLike) -> RiskCoverage:
    """Return risk and coverage of answers at each threshold of their scores.

    Args:
        scores: Scores, the lowest for what is to be accepted first, float, shape (n,); may be infinite.
        right: Whether each answer is right, bool, shape (n,).

    Raises:
        InputError: There are no scores, scores are NaN, or an input has another shape or type.

    >>> curve = risk_coverage([0.1, 0.2, 0.2, 0.9], [True, True, False, False])
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.33, 0.5])
    >>> round(curve.area, 3), round(curve.excess_area, 3)
    (0.292, 0.083)
    """
    values, is_right = checked_answers(scores, right)
    thresholds, codes = np.unique(values, return_inverse=True)
    n_accepted = np.bincount(codes, minlength=len(thresholds)).cumsum()
    n_right = np.bincount(codes[is_right], minlength=len(thresholds)).cumsum()
    return RiskCoverage(thresholds, n_accepted, n_right)


def area_interval(
    scores: npt.ArrayLike,
    right: npt.ArrayLike,
    *,
    known: npt.ArrayLike | None = None,
    confidence: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Return a bootstrap confidence interval of the area under risk over coverage, percentile method.

    With ``known``, bool, shape (n,), known and unknown images are drawn apart, because a benchmark chooses how many
    there are of each; otherwise together.

    Raises:
        InputError: See :func:`risk_coverage`, as for ``known``.
        ConfigurationError: The confidence is not between 0 and 1, or there are no resamples.
    """
    check_resampling(confidence, n_resamples)
    values, is_right = checked_answers(scores, right)
    thresholds, places = np.unique(values, return_inverse=True)
    codes, n_codes = 2 * places + is_right, 2 * len(thresholds)
    is_known = np.ones(len(values), bool) if known is None else _checked_booleans(known, "known", len(values))
    # A generator of its own for each kind of images, so that the draws do not depend on the size of the blocks.
    generators = np.random.default_rng(seed).spawn(2)
    kinds = [(codes[rows], rng) for rows, rng in zip((is_known, ~is_known), generators, strict=True) if rows.any()]
    areas = []
    for n_rows in resample_blocks(n_resamples, len(codes)):
        counts = np.sum([resampled_counts(own, n_codes, n_rows, rng) for own, rng in kinds], axis=0)
        wrong, hits = np.moveaxis(counts.reshape(n_rows, -1, 2), 2, 0)
        n_accepted = np.cumsum(wrong + hits, axis=1)
        risk = np.cumsum(wrong, axis=1) / np.maximum(n_accepted, 1)
        areas.append(((wrong + hits) * risk).sum(1) / len(codes))
    return percentile_interval(np.concatenate(areas), confidence)


def checked_answers(scores: npt.ArrayLike, right: npt.ArrayLike) -> tuple[Floats, Booleans]:
    """Return scores as float64 and whether each answer is right as bool, both of the shape (n,).

    Raises:
        InputError: See :func:`risk_coverage`.
    """
    values = checked_scores(scores, "scores")
    return values, _checked_booleans(right, "right", len(values))


def _checked_booleans(given: npt.ArrayLike, name: str, n: int) -> Booleans:
    """Return an input as bool, shape (n,), or raise an :class:`InputError`."""
    booleans = np.asarray(given)
    if booleans.dtype != np.bool_ or booleans.shape != (n,):
        raise InputError(
            f"`{name}` has the shape {booleans.shape} and the type {booleans.dtype}; expected bool of the shape "
            f"{(n,)}, one for each score"
        )
    return booleans

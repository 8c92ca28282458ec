"""Risk against coverage, and thresholds of a score for a wanted precision among the accepted answers.

Answers are accepted by a score, those of the lowest scores first. The coverage of a threshold is the share of images
whose score is at most the threshold, and its (selective) risk is the share of wrong answers among these: El-Yaniv and
Wiener, "On the Foundations of Noise-free Selective Classification" (JMLR 11, 2010). Images of equal scores are
accepted together. For an image that shows no landmark of the index, every answer is wrong.

A threshold is chosen on calibration images that resemble those to come, in the share of unknown ones above all, and
that nothing else was fitted on. A precision that was reached there holds for other images only roughly, for two
reasons: the number of accepted images is small, and the threshold was chosen because it looked good. Two choices:

- The highest threshold that reaches the precision on the calibration images. On other images its precision is below
  the wanted one about as often as above, and more often where precision hardly depends on the score.
- ``conservative``: the highest threshold whose precision is at least the wanted one with a confidence of 95 %. The
  thresholds that are tried do not depend on which answers are right: they accept n, 0.84 n, 0.71 n, ... images, four
  for each halving. Each is tested by the exact binomial lower bound of Clopper and Pearson (1934). The tests share
  the 5 %, from the lowest threshold to the highest: a test that succeeds passes its part on to the next (the fallback
  procedure of Wiens, Pharmaceutical Statistics 2, 2003), so that the confidence holds for the one that is chosen,
  which is the highest that succeeds. Geifman and El-Yaniv, "Selective Classification for Deep Neural Networks"
  (NeurIPS 2017), search for a guaranteed risk by bisection.

In a simulation of 2,000 calibrations for a precision of 0.9 (``tests/rejection/test_risk_coverage.py``), where
answers with the score u, from 0 to 1, are right with probability 1 - u², so that up to 55 % of them can be accepted,
the true precision was too low in 52 % of the cases for the first choice, and in at most 0.4 % for the conservative
one, which accepted 7 % of the answers after calibration on 200 images, 43 % on 1,000 and 49 % on 5,000. Where all
answers are right with probability 0.899, whatever their score, a threshold was found in 98 to 99 % of the cases by
the first choice, and in 1 % by the conservative one: no more than the 5 % that it promises.

Images count as independent. Where calibration images show few landmarks many times, confidence is overstated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hgld.arrays import Booleans, Floats
from hgld.compute.resampling import Interval, check_resampling, percentile_interval, resampled_groups
from hgld.errors import ConfigurationError, InputError
from hgld.rejection.detection_metrics import checked_scores

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
    areas = []
    for counts in resampled_groups([codes[is_known], codes[~is_known]], n_codes, n_resamples, seed):
        wrong, hits = np.moveaxis(np.sum(counts, axis=0).reshape(-1, len(thresholds), 2), 2, 0)
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


#: Number of thresholds tried by the conservative choice for each halving of the number of accepted images.
_PER_HALVING = 4
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Threshold:
    """A threshold, how precise the answers are that it accepts, and what it costs; all on the calibration images.

    Args:
        value: An answer is accepted where its score is at most this; None if no threshold reaches the target, so that
            every answer is to be rejected.
        target: Wanted precision, 0 to 1.
        highest: Highest precision that any threshold reaches; for the conservative choice, the highest of the lower
            bounds that are compared with the target.
        precision: Share of right answers among the accepted ones; None if nothing is accepted.
        interval: Exact binomial (Clopper-Pearson) interval of the precision at a fixed threshold. It does not account
            for the choice of the threshold. (0, 1) if nothing is accepted.
        coverage: Share of answers that are accepted.
        right_rejected: Share of the right answers that are rejected; 0 if no answer is right.
        n_images: Number of calibration images.
        n_accepted: Number of these that are accepted.
        confidence: Confidence level of the interval, and of the conservative choice.
        conservative: Whether the target is reached with confidence, and not only on the calibration images.
    """

    value: float | None
    target: float
    highest: float
    precision: float | None
    interval: Interval
    coverage: float
    right_rejected: float
    n_images: int
    n_accepted: int
    confidence: float
    conservative: bool

    def accepts(self, scores: npt.ArrayLike) -> Booleans:
        """Return which answers are accepted."""
        values = np.asarray(scores)
        return np.zeros(values.shape, bool) if self.value is None else values <= self.value


def threshold_for_precision(
    scores: npt.ArrayLike,
    right: npt.ArrayLike,
    precision: float,
    *,
    conservative: bool = False,
) -> Threshold:
    """Return the threshold that accepts the most answers of a wanted precision.

    Args:
        scores: Scores of the calibration images, float, shape (n,); lower for what is to be accepted.
        right: Whether the answer for each image is right, bool, shape (n,); never for an unknown image.
        precision: Wanted share of right answers among the accepted ones, above 0, at most 1.
        conservative: Whether to reach the precision with a confidence of 95 %, not on these images only; see the
            module.

    Raises:
        InputError: There are no scores, scores are NaN, or an input has another shape or type.
        ConfigurationError: The precision is out of range.

    >>> threshold = threshold_for_precision([0.1, 0.2, 0.3, 0.4, 0.9], [True, True, False, True, False], 0.75)
    >>> threshold.value, threshold.precision, threshold.coverage, threshold.right_rejected
    (0.4, 0.75, 0.8, 0.0)
    >>> threshold_for_precision([0.1, 0.2], [False, True], 0.9).value is None
    True
    """
    if not 0 < precision <= 1:
        raise ConfigurationError(f"the wanted precision is {precision}; expected more than 0 and at most 1")
    curve = risk_coverage(scores, right)
    if conservative:
        tried = _tried_thresholds(curve, precision)
        reached = _lower_bounds(curve.n_right[tried], curve.n_accepted[tried], precision)
    else:
        tried = np.arange(len(curve.thresholds))
        reached = curve.n_right / curve.n_accepted
    suitable = tried[reached >= precision]
    n_images, n_right = int(curve.n_accepted[-1]), int(curve.n_right[-1])
    value, n_accepted, n_right_accepted = None, 0, 0
    if len(suitable):
        columns = (curve.thresholds, curve.n_accepted, curve.n_right)
        value, n_accepted, n_right_accepted = (column[suitable.max()].item() for column in columns)
    return Threshold(
        value=value,
        target=float(precision),
        highest=float(reached.max(initial=0.0)),
        precision=n_right_accepted / n_accepted if n_accepted else None,
        interval=exact_binomial_interval(n_right_accepted, n_accepted),
        coverage=n_accepted / n_images,
        right_rejected=1 - n_right_accepted / n_right if n_right else 0.0,
        n_images=n_images,
        n_accepted=n_accepted,
        confidence=_CONFIDENCE,
        conservative=conservative,
    )


def exact_binomial_interval(n_right: int, n: int, confidence: float = _CONFIDENCE) -> Interval:
    """Return the interval of Clopper and Pearson for a share; (0, 1) for none of none.

    >>> tuple(round(end, 3) for end in exact_binomial_interval(9, 10))
    (0.555, 0.997)
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = betaincinv(n_right, n - n_right + 1, tail) if n_right else 0.0
    high = betaincinv(n_right + 1, n - n_right, 1 - tail) if n_right < n else 1.0
    return float(low), float(high)


def _tried_thresholds(curve: RiskCoverage, precision: float) -> npt.NDArray[np.intp]:
    """Return the positions of the thresholds that the conservative choice tries; none of too few images."""
    n_images = int(curve.n_accepted[-1])
    fewest = math.inf if precision == 1 else math.log(1 - _CONFIDENCE) / math.log(precision)
    n_steps = math.floor(_PER_HALVING * math.log2(n_images / fewest)) if fewest <= n_images else -1
    n_wanted = n_images * 2.0 ** (-np.arange(n_steps + 1) / _PER_HALVING)
    # Of images of equal scores none is accepted without the others: the highest threshold that accepts no more.
    positions = np.searchsorted(curve.n_accepted, np.floor(n_wanted), side="right") - 1
    return np.unique(positions[positions >= 0])


def _lower_bounds(n_right: Counts, n: Counts, target: float) -> Floats:
    """Return a lower bound of the precision of each tried threshold, by the fallback procedure."""
    from scipy.special import betainc, betaincinv

    # Probability of as many right answers or more at the wanted precision, exact by the binomial distribution.
    some = np.maximum(n_right, 1)
    p_values = np.where(n_right > 0, betainc(some, n - some + 1, target), 1.0)
    errors = np.empty(len(n))
    passed_on = 0.0
    for position, p_value in enumerate(p_values):
        errors[position] = (1 - _CONFIDENCE) / len(n) + passed_on
        passed_on = errors[position] if p_value <= errors[position] else 0.0
    return np.where(n_right > 0, betaincinv(some, n - some + 1, errors), 0.0)

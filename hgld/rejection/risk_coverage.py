"""Risk-coverage curve of answers that are accepted in the order of ascending scores.

The coverage of a threshold is the share of images whose score is at most the threshold. The
(selective) risk is the share of wrong answers among these images: El-Yaniv and Wiener, "On the
Foundations of Noise-free Selective Classification" (JMLR 11, 2010). Images of equal scores are
accepted together. For an image that shows no landmark of the index, every answer is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hgld.arrays import Booleans, Floats, Integers
from hgld.rejection.detection_metrics import checked_scores


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk and coverage at each threshold, the lowest first.

    Args:
        thresholds: Distinct scores, ascending, float64, shape (m,).
        n_accepted: Number of images that each threshold accepts, int64, shape (m,); all images at
            the last.
        n_right: Number of right answers among the accepted images, int64, shape (m,).
    """

    thresholds: Floats
    n_accepted: Integers
    n_right: Integers

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
        """Area under the curve (AURC): mean over images of the risk at the threshold of the score.

        Lower is better. The area also depends on the total number of right answers. See Geifman,
        Uziel and El-Yaniv, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers" (ICLR
        2019).
        """
        n_images = np.diff(self.n_accepted, prepend=0)
        return float(n_images @ self.risk / self.n_accepted[-1])


def risk_coverage(scores: npt.ArrayLike, right: Booleans) -> RiskCoverage:
    """Return risk and coverage of answers at each threshold of their scores.

    Args:
        scores: Scores, lowest for the answers to accept first, float, shape (n,); may be infinite.
        right: Whether each answer is right, bool, shape (n,).

    Raises:
        InputError: Scores are empty, NaN or have another shape.

    >>> curve = risk_coverage([0.1, 0.2, 0.2, 0.9], np.array([True, True, False, False]))
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.33, 0.5])
    >>> round(curve.area, 3)
    0.292
    """
    thresholds, codes = np.unique(checked_scores(scores, "scores"), return_inverse=True)
    n_accepted = np.bincount(codes, minlength=len(thresholds)).cumsum()
    n_right = np.bincount(codes[right], minlength=len(thresholds)).cumsum()
    return RiskCoverage(thresholds, n_accepted, n_right)

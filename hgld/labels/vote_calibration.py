"""Turn votes into the probability that the group with the most votes is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgld.labels.group_votes import GroupVotes


@dataclass(frozen=True, eq=False)
class VoteCalibration:
    """A logistic regression on the share of votes and the similarity of the nearest references.

    Args:
        mean: float64, shape (2,); mean of each quantity on the landmarks of known group.
        scale: float64, shape (2,); standard deviation of each.
        weights: float64, shape (2,); coefficients of the standardised quantities.
        intercept: Intercept of the regression.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    intercept: float

    def scores(self, votes: GroupVotes) -> NDArray[np.float64]:
        """Return the probability that the first choice for each landmark is right: float64, shape (n,)."""
        logits = (_quantities(votes) - self.mean) / self.scale @ self.weights + self.intercept
        return np.asarray(1 / (1 + np.exp(-logits)))


def fit_calibration(votes: GroupVotes, right: NDArray[np.bool_]) -> VoteCalibration:
    """Fit a calibration to landmarks whose group was hidden from the votes.

    Args:
        votes: Votes on these landmarks, at least one.
        right: bool, shape (n,); whether the first choice is the group.
    """
    from sklearn.linear_model import LogisticRegression

    quantities = _quantities(votes)
    mean, deviation = quantities.mean(axis=0), quantities.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    if right.all() or not right.any():
        # No regression separates one outcome from none; Laplace's rule of succession is the share to expect.
        share = (right.sum() + 1) / (len(right) + 2)
        return VoteCalibration(mean, scale, np.zeros(len(mean)), float(np.log(share / (1 - share))))
    model = LogisticRegression().fit((quantities - mean) / scale, right)
    return VoteCalibration(mean, scale, model.coef_[0], float(model.intercept_[0]))


def _quantities(votes: GroupVotes) -> NDArray[np.float64]:
    return np.stack([votes.shares(), votes.similarity], axis=1)

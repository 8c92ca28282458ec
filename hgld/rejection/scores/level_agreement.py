"""Agreement of the nearest images at each level of the hierarchy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.label_votes import (
    TEMPERATURE,
    elect,
    labelled_neighbours,
    labels_of_winners,
    softmax_weights,
    winning_weights,
)
from hgld.rejection.detector import Cosines, Input, NeighbourDetector, Positions, Scores
from hgld.rejection.option_checks import check_above_0, check_at_least_1


class LevelAgreement(NeighbourDetector):
    """The negative share of the neighbours, by their weights, that agree with the answer at a level.

    The answer is the vote of ``hgld search``, chosen from the coarsest level down, and the score of an index whose
    images are all labelled is minus the share that is shown there; see :func:`hgld.hierarchy.label_votes.vote`. An
    unlabelled neighbour agrees with nothing. At a coarser level at least as many neighbours agree, so a query whose
    neighbours are all churches, but different ones, is unsure at the landmark and sure at the church.

    A share says nothing of how similar the neighbours are: all may be equally far away.

    Args:
        k: Number of neighbours.
        temperature: Difference of cosines that changes the weight of a neighbour by the factor e.

    >>> index, labels = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[7, 1], [4, 1]])
    >>> LevelAgreement().fit(index, labels).score_levels(np.array([[2.0, 1.0]])).round(2).tolist()
    [[-0.5, -1.0]]
    """

    name = "level_agreement"
    requires = frozenset[Input]({"labels"})

    def __init__(self, k: int = 10, temperature: float = TEMPERATURE) -> None:
        check_at_least_1(k=k)
        check_above_0(temperature=temperature)
        self.k, self.temperature = k, temperature

    @property
    def n_neighbours(self) -> int:
        """``k``."""
        return self.k

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the scores at the finest level."""
        return self.score_neighbour_levels(cosines, positions, queries)[:, 0]

    def score_neighbour_levels(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative shares at each level, finest first."""
        labels = self._neighbour_labels(positions)
        weights, voters, winner = self._vote(cosines, labels)
        return -np.minimum(winning_weights(weights, labels, voters, winner), 1.0).astype(cosines.dtype)

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels that the neighbours vote for; -1 without any vote."""
        labels = self._neighbour_labels(positions)
        return labels_of_winners(labels, self._vote(cosines, labels)[2])

    def _vote(
        self, cosines: Cosines, labels: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return the weights, which add up to 1, the neighbours that have a vote, and the nearest of the winners."""
        weights = softmax_weights(cosines, ~np.isnan(cosines), self.temperature)
        voters = labelled_neighbours(cosines, labels)
        return weights, voters, elect(weights, labels, voters)

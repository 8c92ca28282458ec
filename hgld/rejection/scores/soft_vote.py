"""Soft vote of the nearest images on the landmark."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.label_votes import elect, labelled_neighbours, labels_of_winners, winning_weights
from hgld.rejection.detector import Cosines, Input, NeighbourDetector, Positions, Scores
from hgld.rejection.option_checks import check_above_0, check_at_least_1


class SoftVote(NeighbourDetector):
    """The negative sum of the weights of the neighbours that show the landmark with the largest sum.

    With weights that are cosines and k = 3 it is the soft voting of K. Ozaki, S. Yokoo, *Large-scale Landmark
    Retrieval/Recognition under a Noisy and Diverse Dataset*, arXiv 1906.04087, third in Google's landmark recognition
    challenge of 2019, without its verification by local features. Their code (``exp/submit_recognition.py`` of
    ``lyakaap/Landmark2019-1st-and-3rd-Place-Solution``) adds up 2 cos - 1, one minus the squared Euclidean distance.

    The answer is that landmark, which need not be the nearest image's. Unlabelled images among the neighbours have no
    vote, and without any vote the score is 0.

    Args:
        k: Number of neighbours.
        temperature: The weight of a neighbour is exp((cos - 1) / temperature); its cosine by default.
        top_down: Whether to choose from the coarsest level down, as ``hgld search`` does, rather than among all
            landmarks; see :func:`hgld.hierarchy.label_votes.elect`.

    >>> index, labels = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]]), np.array([7, 4, 4])
    >>> SoftVote().fit(index, labels).score(np.array([[1.0, 0.0]])).round(2).tolist()
    [-1.4]
    """

    name = "soft_vote"
    requires = frozenset[Input]({"labels"})

    def __init__(self, k: int = 3, temperature: float | None = None, top_down: bool = False) -> None:
        check_at_least_1(k=k)
        check_above_0(temperature=temperature)
        self.k, self.temperature, self.top_down = k, temperature, top_down

    @property
    def n_neighbours(self) -> int:
        """``k``."""
        return self.k

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative sums of weights."""
        labels = self._neighbour_labels(positions)
        weights, voters, winner = self._vote(cosines, labels)
        return -winning_weights(weights, labels[..., :1], voters, winner)[:, 0].astype(cosines.dtype)

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels of the landmark with the largest sum; -1 without any vote."""
        labels = self._neighbour_labels(positions)
        return labels_of_winners(labels, self._vote(cosines, labels)[2])

    def _vote(
        self, cosines: Cosines, labels: npt.NDArray[np.int64]
    ) -> tuple[Cosines, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return the weights, the neighbours that have a vote, and the nearest with the winning landmark."""
        voters = labelled_neighbours(cosines, labels)
        weights = cosines if self.temperature is None else np.exp((cosines - 1) / self.temperature)
        return weights, voters, elect(weights, labels if self.top_down else labels[..., :1], voters)

"""Cosine to the nearest image of a landmark, less the similarity of both images with distractors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import LabelMatrix, labelled_rows
from hgld.hierarchy.label_votes import labelled_neighbours, labels_of_winners
from hgld.rejection.detector import Cosines, Input, NeighbourDetector, Positions, Scores, scoring_config
from hgld.rejection.inputs import DetectorInputs
from hgld.rejection.option_checks import check_at_least_1


class DistractorPenalty(NeighbourDetector):
    """The least of w (d(query) + d(image)) - cos(query, image) among the k nearest labelled images.

    d is the mean cosine to the nearest distractors: photographs of no landmark, which are the images of the index
    whose labels are -1. An image that resembles them is a poor reason to answer, be it the query or the image found:
    C. Henkel, P. Singer, *Supporting large-scale image recognition with out-of-domain samples*, arXiv 2010.01650,
    first in Google's landmark recognition challenge of 2020, re-rank by the similarity to images without a landmark.
    A mean of the ten nearest, subtracted, is that of
    ``kumar-shubham-ml/5th-Place-Solution-to-Google-Landmark-Retrieval-2021``.

    The answer is the landmark of the image with the least value. A query whose k nearest images are all distractors
    has none, and the score w d(query) + 1.

    Args:
        k: Number of nearest images to choose from.
        n_distractors: Number of nearest distractors whose cosines are averaged.
        weight: w, weight of the penalties.

    >>> index, labels = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), np.array([7, 4, -1])
    >>> DistractorPenalty().fit(index, labels).score(np.array([[0.8, 0.6]])).round(2).tolist()
    [-0.2]
    """

    name = "distractor_penalty"
    requires = frozenset[Input]({"labels"})
    similarities: torch.Tensor

    def __init__(self, k: int = 10, n_distractors: int = 10, weight: float = 1.0) -> None:
        check_at_least_1(k=k, n_distractors=n_distractors)
        if not 0 <= weight < float("inf"):
            raise ConfigurationError(f"`weight` is {weight}; expected 0 or more")
        self.k, self.n_distractors, self.weight = k, n_distractors, weight

    @property
    def n_neighbours(self) -> int:
        """``k``."""
        return self.k

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the least values; the queries are compared with all distractors."""
        values, _ = self._best(cosines, positions)
        penalties = self.weight * self._similarities(queries)
        return (penalties - values).astype(cosines.dtype)

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels of the image with the least value; -1 where all neighbours are distractors."""
        return labels_of_winners(self._neighbour_labels(positions), self._best(cosines, positions)[1])

    def state(self) -> dict[str, torch.Tensor]:
        """Return the index, and the similarity of each of its images with the distractors."""
        return super().state() | {"similarities": self.similarities}

    def _fit(self, images: DetectorInputs) -> None:
        super()._fit(images)
        assert self.labels is not None
        n_distractors = int((~labelled_rows(self.labels)).sum())
        if n_distractors in (0, len(images)):
            raise InputError(
                f"the score {self.name} needs images of landmarks and distractors, which have the label -1, and "
                f"{n_distractors:,} of {len(images):,} images have it; append distractors to the index"
            )
        self.similarities = torch.from_numpy(self._similarities(self.index))

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        super()._restore(state)
        self.similarities = state["similarities"]

    def _similarities(self, images: torch.Tensor) -> npt.NDArray[np.floating[Any]]:
        """Return the mean cosine of each image to its nearest distractors, float, shape (n,)."""
        assert self.labels is not None
        distractors = self.index[torch.from_numpy(np.flatnonzero(~labelled_rows(self.labels)))]
        k = min(self.n_distractors, len(distractors))
        mean: npt.NDArray[np.floating[Any]] = nearest_neighbours(
            images, distractors, k, config=scoring_config(images)
        )[0].mean(axis=1)
        return mean

    def _best(self, cosines: Cosines, positions: Positions) -> tuple[Cosines, Positions]:
        """Return the largest penalised cosine to labelled neighbours, -1 if there are none, and its column or -1."""
        labelled = labelled_neighbours(cosines, self._neighbour_labels(positions))
        penalised = cosines - self.weight * self.similarities.numpy()[positions]
        best = np.where(labelled, penalised, -np.inf).argmax(axis=1)
        answered = labelled.any(axis=1)
        values = np.where(answered, penalised[np.arange(len(best)), best], -1.0)
        return values, np.where(answered, best, -1)

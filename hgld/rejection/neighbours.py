"""Scores of the nearest images of the index, or of the nearest class means."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import at_least_float32
from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, labelled_rows
from hgld.hierarchy.neighbour_vote import (
    TEMPERATURE,
    elect,
    labelled_neighbours,
    labels_of_winners,
    softmax_weights,
    winning_weights,
)
from hgld.ragged import RaggedIndices
from hgld.rejection.detector import (
    Cosines,
    Detector,
    DetectorInputs,
    Input,
    NeighbourDetector,
    Positions,
    Scores,
    fitted,
    option,
    scoring_config,
)
from hgld.rejection.gaussians import unit_length

#: Weights of neighbours, those that have a vote, and the nearest of the winners.
_Votes = tuple[npt.NDArray[Any], npt.NDArray[np.bool_], npt.NDArray[np.int64]]
_BLOCK = 8192  # images averaged at once
_EXCLUDED = 2**24  # images that one search excludes, over all of its queries
_NO_DIRECTION = 1e-6  # length below which the mean of vectors of length 1 is rounding


@dataclass(eq=False)
class Top1Cosine(NeighbourDetector):
    """The negative cosine of an image to the nearest image of the index.

    >>> Top1Cosine().fit(np.eye(2)).score(np.array([[3.0, 0.0], [1.0, -1.0]])).round(2).tolist()
    [-1.0, -0.71]
    """

    name: ClassVar[str] = "top1_cosine"

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative first cosines; 1, that of a cosine of -1, where all images are excluded."""
        return -np.where(positions[:, 0] >= 0, cosines[:, 0], cosines.dtype.type(-1))


@dataclass(eq=False)
class _Vote(NeighbourDetector):
    """A score of the votes of the nearest images, whose answer is what they vote for; -1 without any vote."""

    requires: ClassVar[frozenset[Input]] = frozenset[Input]({"labels"})

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels of the nearest image that shows what wins the vote; -1 without any vote."""
        labels = self._neighbour_labels(positions)
        return labels_of_winners(labels, self._vote(cosines, labels)[2])

    @abstractmethod
    def _vote(self, cosines: Cosines, labels: LabelMatrix) -> _Votes:
        """Count the votes of neighbours with these labels, int64, shape (n, k, L)."""


@dataclass(eq=False)
class SoftVote(_Vote):
    """The negative sum of the cosines of the neighbours that show the landmark with the largest sum.

    The soft voting of K. Ozaki, S. Yokoo, *Large-scale Landmark Retrieval/Recognition under a Noisy and Diverse
    Dataset*, arXiv 1906.04087, third in Google's landmark recognition challenge of 2019, without its verification by
    local features. Their code (``exp/submit_recognition.py`` of
    ``lyakaap/Landmark2019-1st-and-3rd-Place-Solution``) adds up 2 cos - 1, one minus the squared Euclidean distance.

    The answer is that landmark, which need not be the nearest image's. Unlabelled images among the neighbours have no
    vote, and without any vote the score is 0.

    Args:
        k: Number of neighbours.

    >>> index, labels = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]]), np.array([7, 4, 4])
    >>> SoftVote().fit(index, labels).score(np.array([[1.0, 0.0]])).round(2).tolist()
    [-1.4]
    """

    name: ClassVar[str] = "soft_vote"
    k: int = option(3, "at least 1")

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative sums of cosines."""
        labels = self._neighbour_labels(positions)
        weights, voters, winner = self._vote(cosines, labels)
        return -winning_weights(weights, labels[..., :1], voters, winner)[:, 0].astype(cosines.dtype)

    def _vote(self, cosines: Cosines, labels: LabelMatrix) -> _Votes:
        voters = labelled_neighbours(cosines, labels)
        return cosines, voters, elect(cosines, labels[..., :1], voters)


@dataclass(eq=False)
class LevelAgreement(_Vote):
    """The negative share of the neighbours, by their weights, that agree with the answer at a level.

    The answer is the vote of ``hgld search``, chosen from the coarsest level down, and the score of an index whose
    images are all labelled is minus the share that is shown there; see :func:`hgld.hierarchy.vote`. An
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

    name: ClassVar[str] = "level_agreement"
    k: int = option(10, "at least 1")
    temperature: float = option(TEMPERATURE, "a number above 0")

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the scores at the finest level."""
        return self.score_neighbour_levels(cosines, positions, queries)[:, 0]

    def score_neighbour_levels(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative shares at each level, finest first."""
        labels = self._neighbour_labels(positions)
        weights, voters, winner = self._vote(cosines, labels)
        return -np.minimum(winning_weights(weights, labels, voters, winner), 1.0).astype(cosines.dtype)

    def _vote(self, cosines: Cosines, labels: LabelMatrix) -> _Votes:
        weights = softmax_weights(cosines, ~np.isnan(cosines), self.temperature)
        voters = labelled_neighbours(cosines, labels)
        return weights, voters, elect(weights, labels, voters)


@dataclass(eq=False)
class Margin(NeighbourDetector):
    """The cosine to the nearest image of any other landmark, minus that to the nearest image, its landmark's.

    The margin is exact. Where all k neighbours of a query show one landmark, the nearest image of another one is
    searched for as well, which takes another pass over the index: complete the neighbours of many queries at once.
    Unlabelled images are of no landmark, and left out. The answer is the landmark of the nearest labelled image.

    Args:
        k: Number of neighbours to look for another landmark in first; it changes the time, not the score.

    >>> index, labels = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]]), np.array([7, 7, 4])
    >>> Margin().fit(index, labels).score(np.array([[1.0, 0.0]])).round(2).tolist()
    [-0.4]
    """

    name: ClassVar[str] = "margin"
    requires: ClassVar[frozenset[Input]] = frozenset[Input]({"labels"})
    k: int = option(10, "at least 1")

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative margins of completed neighbours.

        Where there is no image of another landmark, or of any landmark, because all others are excluded, its cosine
        counts as -1.
        """
        first, second = self._best_two(cosines, positions)
        padded = np.concatenate([cosines, np.full((len(cosines), 1), -1, cosines.dtype)], axis=1)
        rows = np.arange(len(cosines))
        scores: Scores = padded[rows, second] - padded[rows, first]
        return scores

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels of the nearest labelled image; -1 if there is none."""
        labels = self._neighbour_labels(positions)
        none = np.full((len(labels), 1, self.n_levels), -1)
        best = self._best_two(cosines, positions)[0]
        answers: LabelMatrix = np.concatenate([labels, none], axis=1)[np.arange(len(labels)), best]
        return answers

    def complete_neighbours(
        self,
        cosines: Cosines,
        positions: Positions,
        queries: torch.Tensor,
        *,
        excluded: RaggedIndices | None = None,
        gallery_mask: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Cosines, Positions]:
        """Add the nearest labelled image, and the nearest of another landmark, where they are not among the first k.

        See :meth:`hgld.rejection.detector.NeighbourDetector.complete_neighbours`.
        """
        assert self.labels is not None
        labelled = labelled_rows(self.labels)
        mask = labelled if gallery_mask is None else labelled & gallery_mask
        excluded = RaggedIndices.empty(len(queries)) if excluded is None else excluded
        has_more = ~np.isnan(cosines[:, -1])
        # The first search adds the nearest labelled image where all k are unlabelled, the second another landmark.
        for _ in range(2):
            first, second = self._best_two(cosines, positions)
            rows = np.flatnonzero(has_more & (second == cosines.shape[1]))
            if not len(rows):
                break
            codes, images = _images_by_code(self.labels[:, 0])
            cosines = np.pad(cosines, [(0, 0), (0, 1)], constant_values=np.nan)
            positions = np.pad(positions, [(0, 0), (0, 1)], constant_values=-1)
            own = codes[positions[rows, first[rows]]]
            n_parts = min(-(-int(images.counts()[own].sum()) // _EXCLUDED) or 1, len(rows))
            for part in np.array_split(np.arange(len(rows)), n_parts):
                cosines[rows[part], -1:], positions[rows[part], -1:] = nearest_neighbours(
                    queries[rows[part]],
                    self.index,
                    1,
                    excluded=excluded.take(rows[part]) | images.take(own[part]),
                    gallery_mask=mask,
                    config=scoring_config(queries),
                )
        return cosines, positions

    def _fit(self, images: DetectorInputs) -> None:
        super()._fit(images)
        assert self.labels is not None
        landmarks = self.labels[labelled_rows(self.labels), 0]
        if not len(landmarks) or (landmarks == landmarks[0]).all():
            raise InputError(
                f"the score {self.name} compares landmarks, and `labels` have {min(len(landmarks), 1)} of them; "
                "expected at least 2"
            )

    def _best_two(self, cosines: Cosines, positions: Positions) -> tuple[Positions, Positions]:
        """Return the columns of the nearest labelled image and of the nearest of another landmark; k for none."""
        labels = self._neighbour_labels(positions)
        labelled, landmarks = labelled_neighbours(cosines, labels), labels[..., 0]
        best = labelled.argmax(axis=1)
        others = labelled & (landmarks != landmarks[np.arange(len(best)), best][:, None])
        k = cosines.shape[1]
        return np.where(labelled.any(axis=1), best, k), np.where(others.any(axis=1), others.argmax(axis=1), k)


def _images_by_code(labels: npt.NDArray[np.int64]) -> tuple[Positions, RaggedIndices]:
    """Return labels renumbered from 0, and the positions of the images of each; the last label has no images."""
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(counts), [len(labels)]])
    return np.append(codes, len(counts)), RaggedIndices(offsets, np.argsort(codes, kind="stable"))


@dataclass(eq=False)
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

    name: ClassVar[str] = "distractor_penalty"
    requires: ClassVar[frozenset[Input]] = frozenset[Input]({"labels"})
    similarities: torch.Tensor = field(init=False, repr=False, metadata=fitted())
    k: int = option(10, "at least 1")
    n_distractors: int = option(10, "at least 1")
    weight: float = option(1.0, "a number of 0 or more")

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the least values; the queries are compared with all distractors."""
        values, _ = self._best(cosines, positions)
        penalties = self.weight * self._similarities(queries)
        return (penalties - values).astype(cosines.dtype)

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels of the image with the least value; -1 where all neighbours are distractors."""
        return labels_of_winners(self._neighbour_labels(positions), self._best(cosines, positions)[1])

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

    def _similarities(self, images: torch.Tensor) -> npt.NDArray[np.floating[Any]]:
        """Return the mean cosine of each image to its nearest distractors, float, shape (n,)."""
        assert self.labels is not None
        distractors = self.index[torch.from_numpy(np.flatnonzero(~labelled_rows(self.labels)))]
        k = min(self.n_distractors, len(distractors))
        cosines = nearest_neighbours(images, distractors, k, config=scoring_config(images))[0]
        mean: npt.NDArray[np.floating[Any]] = cosines.mean(axis=1)
        return mean

    def _best(self, cosines: Cosines, positions: Positions) -> tuple[Cosines, Positions]:
        """Return the largest penalised cosine to labelled neighbours, -1 if there are none, and its column or -1."""
        labelled = labelled_neighbours(cosines, self._neighbour_labels(positions))
        penalised = cosines - self.weight * self.similarities.numpy()[positions]
        best = np.where(labelled, penalised, -np.inf).argmax(axis=1)
        answered = labelled.any(axis=1)
        values = np.where(answered, penalised[np.arange(len(best)), best], -1.0)
        return values, np.where(answered, best, -1)


@dataclass(eq=False)
class ClassMeans(Detector):
    """The negative cosine of an image to the nearest mean of a landmark's images, each scaled to length 1 before.

    Comparing with one vector per landmark instead of with every image takes less time and memory. Unlabelled images
    are left out, and so are landmarks whose images cancel each other, as two opposite ones do.

    >>> index = np.array([[1.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    >>> ClassMeans().fit(index, np.array([7, 7, 4])).score(np.array([[1.0, 1.0], [0.0, 1.0]])).round(2).tolist()
    [-1.0, -0.71]
    """

    name: ClassVar[str] = "class_means"
    requires: ClassVar[frozenset[Input]] = frozenset[Input]({"labels"})
    means: torch.Tensor = field(init=False, repr=False, metadata=fitted())

    def _fit(self, images: DetectorInputs) -> None:
        assert images.labels is not None
        labelled = np.flatnonzero(labelled_rows(images.labels))
        names, codes = np.unique(images.labels[labelled, 0], return_inverse=True)
        sums = torch.zeros(len(names), self.dim, dtype=torch.float64)
        for start in range(0, len(labelled), _BLOCK):
            block = slice(start, start + _BLOCK)
            vectors = images.embeddings[torch.from_numpy(labelled[block])].double()
            lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
            if not lengths.all():
                row = int(labelled[start + int((lengths == 0).nonzero()[0, 0])])
                raise InputError(f"`embeddings` have only zeros, first in row {row:,}; embed this image again")
            sums.index_add_(0, torch.from_numpy(codes[block]), vectors / lengths)
        means = sums / torch.from_numpy(np.bincount(codes, minlength=len(names)))[:, None]
        lengths = torch.linalg.vector_norm(means, dim=1, keepdim=True)
        means = (means / lengths)[lengths[:, 0] > _NO_DIRECTION]
        if not len(means):
            raise InputError(
                f"the score {self.name} has no mean of any landmark: {len(labelled):,} of {len(images):,} images "
                "have `labels` of 0 or more; give the landmarks of the index"
            )
        self.means = means.to(at_least_float32(images.embeddings[:0]).dtype)

    def _score(self, images: DetectorInputs) -> Scores:
        cosines, _ = nearest_neighbours(images.embeddings, self.means, 1, config=scoring_config(images.embeddings))
        return -cosines[:, 0]


@dataclass(eq=False)
class Knn(NeighbourDetector):
    """The Euclidean distance to the k-th nearest image, of embeddings of length 1 (Sun et al., ICML 2022).

    heatood and OpenOOD return the squared distance, which has the same order, and OpenOOD adds 1e-10 to each feature.
    Where a query has fewer than k neighbours, the last of them counts; where it has none, as all are excluded,
    the score is 2, the largest distance. Distances of embeddings as they are given:
    :class:`KnnRaw`.

    Args:
        k: Which neighbour, counted from 1. The paper has 50 for 5,000 images per class; an index of landmarks has few
            images of each, and beyond those the k-th is another landmark, so the default is 3. With 1 the order is
            that of ``top1_cosine``.
    """

    name: ClassVar[str] = "knn"
    k: int = option(3, "at least 1")

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return distances to the last of the k first neighbours."""
        last = (positions[:, : self.k] >= 0).sum(axis=1) - 1
        chosen = torch.from_numpy(positions)[torch.arange(len(positions)), torch.from_numpy(last)]
        # The square root of 2 - 2 cosine would lose half of the digits of small distances.
        differences = unit_length(queries) - unit_length(self.index[chosen]).to(at_least_float32(queries).dtype)
        distances: torch.Tensor = torch.linalg.vector_norm(differences, dim=1)
        distances[torch.from_numpy(last < 0)] = 2
        return distances.numpy()

    def _fit(self, images: DetectorInputs) -> None:
        _check_index_size(self.k, len(images))
        super()._fit(images)


def _check_index_size(k: int, n: int) -> None:
    if n < k:
        raise InputError(f"`k` is {k}, and the index has {n:,} images; lower `k`")


@dataclass(eq=False)
class KnnRaw(Detector):
    """The Euclidean distance to the k-th nearest image, of embeddings as they are given (Sun et al., ICML 2022).

    The variant without normalisation of :class:`Knn`, which the paper finds worse. Its
    neighbours are not those of a ranking by cosine, so it takes a search of its own.

    Args:
        k: Which neighbour, counted from 1.
    """

    name: ClassVar[str] = "knn_raw"
    index: torch.Tensor = field(init=False, repr=False, metadata=fitted())
    k: int = option(3, "at least 1")

    def _fit(self, images: DetectorInputs) -> None:
        _check_index_size(self.k, len(images))
        self.index = images.embeddings

    def _score(self, images: DetectorInputs) -> Scores:
        from sklearn.neighbors import NearestNeighbors

        queries, index = at_least_float32(images.embeddings), at_least_float32(self.index)
        search = NearestNeighbors(n_neighbors=self.k, algorithm="brute").fit(index.numpy())
        positions = torch.from_numpy(search.kneighbors(queries.numpy(), return_distance=False))
        # The squared distances of the search are rounded more than the distance itself.
        distances: torch.Tensor = torch.linalg.vector_norm(queries - index[positions[:, -1]], dim=1)
        return distances.numpy()

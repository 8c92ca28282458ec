"""Answers to queries of any kind, with a score by which they can be rejected.

A query is known at a level if the gallery has its label there. One that shows a landmark that the gallery lacks is
*near*: its answer cannot be right at the landmark, but may be at a coarser level ("a church"). One that shows no
landmark is *far*. Answers are accepted from the lowest score upwards, so the confidence by which GAP ranks them is
minus the score.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import ScoringConfig, Vectors, as_tensor
from hgld.errors import InputError
from hgld.evaluation.global_average_precision import RecognitionResult, rank_predictions
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.ragged import RaggedIndices
from hgld.rejection.detector import Detector, NeighbourDetector, Scores, scoring_config

Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Answers = TypeVar("Answers", bound="ScoredAnswers")


@dataclass(frozen=True, eq=False)
class ScoredAnswers:
    """Whether the answer to each query is right at each level, and the scores by which it can be rejected.

    Args:
        level_scores: Rejection score of the answer at each level, float64, shape (n, L), finest first; higher for
            what is less like the gallery.
        right: Whether each answer is right, bool, shape (n, L).
        known: Whether the gallery has a right answer, bool, shape (n, L).
    """

    level_scores: Floats
    right: Booleans
    known: Booleans

    def __len__(self) -> int:
        return len(self.right)

    @property
    def n_levels(self) -> int:
        """Number of levels L."""
        return int(self.right.shape[1])

    @property
    def scores(self) -> Floats:
        """Rejection score at the finest level, float64, shape (n,)."""
        scores: Floats = self.level_scores[:, 0]
        return scores

    def take(self: Answers, queries: Booleans | npt.NDArray[np.int64]) -> Answers:
        """Return the answers to some of the queries."""
        return replace(self, **{field.name: getattr(self, field.name)[queries] for field in fields(self)})

    def joined(self, others: ScoredAnswers) -> ScoredAnswers:
        """Return these answers followed by others."""
        return ScoredAnswers(
            *(
                np.concatenate([getattr(self, field.name), getattr(others, field.name)])
                for field in fields(ScoredAnswers)
            )
        )

    def recognition(
        self, name: str = "open set", *, column: int = 0, image_ids: npt.NDArray[np.str_] | None = None
    ) -> RecognitionResult:
        """Return GAP, GAP over the known queries alone, and the share of these that are answered right.

        Every query is answered. Those that are not known at the level have no right answer, near ones included: they
        count as the challenge's images without a landmark, and GAP is divided by the number of known ones.

        Args:
            name: Name of the result.
            column: Column of the level, 0 for the finest.
            image_ids: Ids of the queries, str, shape (n,), which order equal scores; their positions by default.
        """
        return rank_answers(
            name, self.level_scores[:, column], self.right[:, column], self.known[:, column], image_ids
        )


@dataclass(frozen=True, eq=False)
class OpenSetAnswers(ScoredAnswers):
    """The answer to each query at each level, and the scores by which it can be rejected.

    Args:
        level_scores: See :class:`ScoredAnswers`, as for the next two.
        right: Whether each answer is the query's label.
        known: Whether the gallery has the query's label.
        answers: Labels that are answered, int64, shape (n, L), finest first; -1 for no answer.
        has_landmark: Whether the query shows a landmark, in the gallery or not, bool, shape (n,).
    """

    answers: LabelMatrix
    has_landmark: Booleans

    @property
    def near(self) -> Booleans:
        """Whether the query shows a landmark that the gallery lacks, shape (n,)."""
        near: Booleans = self.has_landmark & ~self.known[:, 0]
        return near

    @property
    def far(self) -> Booleans:
        """Whether the query shows no landmark, shape (n,)."""
        return ~self.has_landmark


def rank_answers(
    name: str,
    scores: Floats,
    right: Booleans,
    known: Booleans,
    image_ids: npt.NDArray[np.str_] | None = None,
) -> RecognitionResult:
    """Return the result of recognition where every query is answered, see :meth:`ScoredAnswers.recognition`.

    Args:
        name: Name of the result.
        scores: Rejection scores, shape (n,).
        right: Whether each answer is right, shape (n,).
        known: Whether a right answer is possible, shape (n,).
        image_ids: Ids of the queries, shape (n,).
    """
    ids = np.array([f"{row:012}" for row in range(len(scores))], np.str_) if image_ids is None else image_ids
    order = rank_predictions(-scores, ids)
    return RecognitionResult.from_answers(name, ids[order], np.ones(len(ids), bool), right[order], known[order])


def open_set_answers(
    detector: Detector,
    gallery: Vectors,
    gallery_labels: LabelMatrix,
    queries: Vectors,
    query_labels: LabelMatrix,
    *,
    logits: Vectors | None = None,
    deviations: Vectors | None = None,
    excluded: RaggedIndices | None = None,
    gallery_mask: Booleans | None = None,
    config: ScoringConfig | None = None,
) -> OpenSetAnswers:
    """Answer queries by their nearest gallery images, and score them for rejection.

    A :class:`~hgld.rejection.detector.NeighbourDetector` scores and answers from one search of the gallery, which has
    to be the index that it was fitted on. Beside any other score the answer is the labels of the nearest image.

    Args:
        detector: Fitted score.
        gallery: Embeddings of the gallery, float, shape (n_gallery, d).
        gallery_labels: Labels of the gallery, int64, shape (n_gallery, L), finest first, or (n_gallery,); -1 for
            unlabelled images.
        queries: Embeddings of the queries, float, shape (n, d).
        query_labels: Labels of the queries, int64, shape (n, L) or (n,); any label, in the gallery or not, and -1 for
            a query that has no label at a level, as one without a landmark at all levels.
        logits: Logits of the queries, for scores that use them.
        deviations: Standard deviations of the feature maps of the queries, likewise.
        excluded: Gallery images that are no neighbours of each query, such as itself.
        gallery_mask: bool, shape (n_gallery,); False for gallery images that are no neighbours of any query. A label
            is known if images that are not excluded in either way have it.
        config: How the gallery is searched; in float64 by default where the queries are float64.

    Raises:
        InputError: Shapes do not fit each other, scores are NaN, a query has no neighbour left, or a detector of
            neighbours was fitted on another gallery, or other images have to be excluded from any other detector.
    """
    own = _label_matrix(query_labels, len(queries), "query")
    others = _label_matrix(gallery_labels, len(gallery), "gallery")
    if own.shape[1] != others.shape[1]:
        raise InputError(
            f"the labels of queries have {own.shape[1]} levels and those of the gallery {others.shape[1]}; give both "
            "the same levels"
        )
    query_vectors, gallery_vectors = as_tensor(queries), as_tensor(gallery)
    check_gallery(detector, gallery_vectors, excluded)
    n_neighbours = detector.n_neighbours if isinstance(detector, NeighbourDetector) else 1
    nearest = nearest_neighbours(
        query_vectors,
        gallery_vectors,
        n_neighbours,
        excluded=excluded,
        gallery_mask=gallery_mask,
        config=config or scoring_config(query_vectors),
    )
    if (nearest[1][:, 0] < 0).any():
        raise InputError(f"no gallery image is left for query {int(np.argmin(nearest[1][:, 0]))}: all are excluded")
    if isinstance(detector, NeighbourDetector):
        nearest = detector.complete_neighbours(*nearest, query_vectors, excluded=excluded, gallery_mask=gallery_mask)
        scores = detector.score_neighbour_levels(*nearest, query_vectors)
    else:
        scores = detector.score_levels(query_vectors, logits, deviations=deviations)
    if isinstance(detector, NeighbourDetector) and detector.labels is not None:
        answers = detector.answers(*nearest)
        if answers.shape != own.shape:
            raise InputError(
                f"the score {detector.name} was fitted on labels of {answers.shape[1]} levels, and the queries have "
                f"{own.shape[1]}; give both the same levels"
            )
    else:
        answers = others[nearest[1][:, 0]]
    return OpenSetAnswers(
        level_scores=level_scores(scores, own.shape[1]),
        right=(answers == own) & (own != -1),
        known=known_labels(own, others, excluded=excluded, gallery_mask=gallery_mask),
        answers=answers,
        has_landmark=own[:, 0] != -1,
    )


def known_labels(
    query_labels: LabelMatrix,
    gallery_labels: LabelMatrix,
    *,
    excluded: RaggedIndices | None = None,
    gallery_mask: Booleans | None = None,
) -> Booleans:
    """Return whether the gallery has the label of each query at each level, bool, shape (n, L).

    Args:
        query_labels: int64, shape (n, L); -1 for no label, which is never known.
        gallery_labels: int64, shape (n_gallery, L).
        excluded: Gallery images that do not count for each query.
        gallery_mask: bool, shape (n_gallery,); False for gallery images that do not count.
    """
    mask = np.ones(len(gallery_labels), bool) if gallery_mask is None else gallery_mask
    excluded = RaggedIndices.empty(len(query_labels)) if excluded is None else excluded
    rows, items = excluded.rows(), excluded.columns
    known = np.empty(query_labels.shape, bool)
    for column, (own, others) in enumerate(zip(query_labels.T, gallery_labels.T, strict=True)):
        labels, counts = np.unique(others[mask], return_counts=True)
        places = np.minimum(np.searchsorted(labels, own), len(labels) - 1)
        n_images = np.where(labels[places] == own, counts[places], 0) if len(labels) else np.zeros(len(own), np.int64)
        not_counted = rows[mask[items] & (others[items] == own[rows])]
        known[:, column] = (n_images > np.bincount(not_counted, minlength=len(own))) & (own != -1)
    return known


def check_gallery(detector: Detector, gallery: torch.Tensor, excluded: RaggedIndices | None) -> None:
    """Check that a detector can score queries of a gallery.

    Args:
        detector: Fitted score.
        gallery: Embeddings of the gallery, float, shape (n_gallery, d).
        excluded: Gallery images excluded for each query.

    Raises:
        InputError: See :func:`open_set_answers`.
    """
    if isinstance(detector, NeighbourDetector):
        if detector.index is not gallery and not torch.equal(detector.index, gallery):
            raise InputError(
                f"the score {detector.name} compares images with the {len(detector.index):,} embeddings that it was "
                f"fitted on, which are not the {len(gallery):,} of the gallery; fit it on this gallery"
            )
    elif excluded is not None and len(excluded.columns):
        raise InputError(
            f"the score {detector.name} is fitted on all gallery images, but some are not ranked for every query, "
            f"such as image {excluded.columns[0]:,} for query {excluded.rows()[0]:,}, and the score would know them; "
            "choose one of nearest neighbours, such as top1_cosine, or separate queries and gallery"
        )


def level_scores(scores: Scores, n_levels: int) -> Floats:
    """Return scores for each level of the answers, float64, shape (n, n_levels).

    Args:
        scores: Scores of a detector, shape (n, l). One that was fitted on labels of other levels, or on none, has one
            score for all levels, that of its finest.
        n_levels: Number of levels of the answers.

    Raises:
        InputError: A score is NaN, which has no rank.
    """
    values = np.asarray(scores, np.float64)
    if values.shape[1] != n_levels:
        values = np.repeat(values[:, :1], n_levels, axis=1)
    missing = np.isnan(values).any(axis=1)
    if missing.any():
        raise InputError(
            f"{missing.sum():,} of {len(values):,} rejection scores are NaN, the first that of query "
            f"{np.argmax(missing)}; fit the score on more images, or choose another"
        )
    return values


def _label_matrix(labels: LabelMatrix, n: int, role: str) -> LabelMatrix:
    matrix = np.asarray(labels)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.integer) or len(matrix) != n or not matrix.shape[1]:
        raise InputError(
            f"the {role} labels have the shape {np.shape(labels)} and the type {matrix.dtype}; expected integers of "
            f"the shape ({n}, L), finest first"
        )
    return matrix.astype(np.int64, copy=False)

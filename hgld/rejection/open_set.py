"""Answers to queries of any kind, with a score by which they can be rejected.

A query is known at a level if the gallery has its label there. One that shows a landmark that the gallery lacks is
*near*: its answer cannot be right at the landmark, but may be at a coarser level ("a church"). One that shows no
landmark is *far*. Answers are accepted from the lowest score upwards, so the confidence by which GAP ranks them is
minus the score.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch

from hgld.arrays import Booleans, Floats
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import ScoringConfig, Vectors, as_tensor
from hgld.errors import InputError
from hgld.evaluation.recognition import RecognitionResult, rank_predictions
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.ragged import RaggedIndices
from hgld.rejection.detector import Cosines, Detector, NeighbourDetector, Positions, scoring_config


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

    def take(self, queries: Booleans) -> ScoredAnswers:
        """Return the answers to some of the queries."""
        return ScoredAnswers(*(getattr(self, field.name)[queries] for field in fields(self)))

    def joined(self, others: ScoredAnswers) -> ScoredAnswers:
        """Return these answers followed by others."""
        names = [field.name for field in fields(self)]
        return ScoredAnswers(*(np.concatenate([getattr(self, name), getattr(others, name)]) for name in names))

    def recognition(self, column: int = 0) -> RecognitionResult:
        """Return the GAP of a level, see :func:`rank_answers`."""
        return rank_answers("open set", self.level_scores[:, column], self.right[:, column], self.known[:, column])


def rank_answers(name: str, scores: Floats, right: Booleans, known: Booleans) -> RecognitionResult:
    """Return GAP, GAP over the known queries alone, and the share of these that are answered right.

    Every query is answered, and equal scores are ranked by position. Queries that are not known have no right answer,
    near ones included: they count as the challenge's images without a landmark, and GAP is divided by the number of
    known ones.
    """
    ids = np.array([f"{row:012}" for row in range(len(scores))], np.str_)
    order = rank_predictions(-scores, ids)
    return RecognitionResult.from_answers(name, ids[order], np.ones(len(ids), bool), right[order], known[order])


def score_queries(
    detector: Detector,
    queries: torch.Tensor,
    nearest: tuple[Cosines, Positions],
    n_levels: int,
    *,
    deviations: Vectors | None = None,
    excluded: RaggedIndices | None = None,
    gallery_mask: Booleans | None = None,
) -> tuple[Floats, LabelMatrix | None]:
    """Return the scores of queries at each level, and the labels that the detector answers by vote.

    Args:
        detector: Fitted score, of the gallery where it is one of neighbours.
        queries: Embeddings, shape (n, d).
        nearest: Their nearest gallery images, both of shape (n, ``detector.n_neighbours``).
        n_levels: Number of levels L of the answers. A score that was fitted on labels of other levels, or on none,
            has one score for all levels, that of its finest.
        deviations: Standard deviations of the feature maps of the queries, for scores that use them.
        excluded: Gallery images that are not neighbours of each query, such as itself.
        gallery_mask: bool, shape (n_gallery,); False for gallery images that are not neighbours of any query.

    Returns:
        float64, shape (n, L), finest first; and int64, shape (n, L), or None where the nearest image is the answer.

    Raises:
        InputError: A score is NaN, which has no rank.
    """
    votes = None
    if isinstance(detector, NeighbourDetector):
        nearest = detector.complete_neighbours(*nearest, queries, excluded=excluded, gallery_mask=gallery_mask)
        scores = detector.score_neighbour_levels(*nearest, queries)
        if type(detector).answers is not NeighbourDetector.answers and detector.labels is not None:
            votes = detector.answers(*nearest)
    else:
        scores = detector.score_levels(queries, deviations=deviations)
    values = np.asarray(scores, np.float64)
    if values.shape[1] != n_levels:
        values = np.repeat(values[:, :1], n_levels, axis=1)
    missing = np.isnan(values).any(axis=1)
    if missing.any():
        raise InputError(
            f"{missing.sum():,} of {len(values):,} rejection scores are NaN, the first that of query "
            f"{np.argmax(missing)}; fit the score on more images, or choose another"
        )
    return values, votes


def answer_queries(
    detector: Detector,
    gallery: torch.Tensor,
    gallery_labels: LabelMatrix,
    queries: torch.Tensor,
    gallery_mask: Booleans | None = None,
    config: ScoringConfig | None = None,
    *,
    deviations: Vectors | None = None,
) -> tuple[LabelMatrix, Floats]:
    """Return the labels that are answered to queries, and the scores of the answers, both of shape (n, L).

    A :class:`~hgld.rejection.detector.NeighbourDetector` scores and answers from one search of the gallery, which has
    to be the index that it was fitted on. Beside any other score the answer is the labels of the nearest image.

    Args:
        gallery: Embeddings of the gallery, float, shape (n_gallery, d).
        gallery_labels: Labels of the gallery, int64, shape (n_gallery, L), finest first; -1 for unlabelled images.
        queries: Embeddings of the queries, float, shape (n, d).
        gallery_mask: bool, shape (n_gallery,); False for gallery images that are not neighbours of any query.
        config: How the gallery is searched; in float64 by default where the queries are float64.
        deviations: Standard deviations of the feature maps of the queries, for scores that use them.

    Raises:
        InputError: Scores are NaN, or a detector of neighbours was fitted on another gallery.
    """
    check_gallery(detector, gallery)
    nearest = nearest_neighbours(
        queries,
        gallery,
        detector.n_neighbours,
        gallery_mask=gallery_mask,
        config=config or scoring_config(queries),
    )
    n_levels = gallery_labels.shape[1]
    scores, votes = score_queries(
        detector, queries, nearest, n_levels, deviations=deviations, gallery_mask=gallery_mask
    )
    return gallery_labels[nearest[1][:, 0]] if votes is None else votes, scores


def open_set_answers(
    detector: Detector,
    gallery: Vectors,
    gallery_labels: LabelMatrix,
    queries: Vectors,
    query_labels: LabelMatrix,
    *,
    deviations: Vectors | None = None,
    gallery_mask: Booleans | None = None,
    config: ScoringConfig | None = None,
) -> ScoredAnswers:
    """Answer queries as :func:`answer_queries` does, and judge the answers.

    ``query_labels``, int64, shape (n, L), may be labels that the gallery lacks; -1 where a query has none at a level.
    """
    answers, scores = answer_queries(
        detector, as_tensor(gallery), gallery_labels, as_tensor(queries), gallery_mask, config, deviations=deviations
    )
    right = (answers == query_labels) & (query_labels != -1)
    return ScoredAnswers(scores, right, known_labels(query_labels, gallery_labels, gallery_mask))


def known_labels(
    query_labels: LabelMatrix, gallery_labels: LabelMatrix, gallery_mask: Booleans | None = None
) -> Booleans:
    """Return whether the gallery has the label of each query at each level, bool, shape (n, L); never for -1."""
    counted = gallery_labels if gallery_mask is None else gallery_labels[gallery_mask]
    columns = [np.isin(own, others) for own, others in zip(query_labels.T, counted.T, strict=True)]
    known: Booleans = np.stack(columns, axis=1) & (query_labels != -1)
    return known


def check_gallery(detector: Detector, gallery: torch.Tensor, excluded: RaggedIndices | None = None) -> None:
    """Check that a detector can score queries of a gallery.

    Raises:
        InputError: A detector of neighbours was fitted on another gallery, or images have to be excluded from any
            other detector.
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

"""Answers to queries of any kind, with a score by which they can be rejected.

A query is known at a level if the gallery has its label there. One that shows a landmark that the gallery lacks is
*near*: its answer cannot be right at the landmark, but may be at a coarser level ("a church"). One that shows no
landmark is *far*. Answers are accepted from the lowest score upwards, so the confidence by which GAP ranks them is
minus the score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import ScoringConfig, Vectors, as_tensor
from hgld.errors import InputError
from hgld.evaluation.global_average_precision import RecognitionResult, rank_predictions
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.ragged import RaggedIndices
from hgld.rejection.detector import Detector, NeighbourDetector

Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OpenSetAnswers:
    """The answer to each query at each level, and the score by which it can be rejected.

    Args:
        scores: Rejection scores, float64, shape (n,), higher for what is less like the gallery.
        answers: Labels that are answered, int64, shape (n, L), finest first.
        right: Whether each answer is the query's label, bool, shape (n, L).
        known: Whether the gallery has the query's label, bool, shape (n, L).
        has_landmark: Whether the query shows a landmark, in the gallery or not, bool, shape (n,).
    """

    scores: Floats
    answers: LabelMatrix
    right: Booleans
    known: Booleans
    has_landmark: Booleans

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def near(self) -> Booleans:
        """Whether the query shows a landmark that the gallery lacks, shape (n,)."""
        return self.has_landmark & ~self.known[:, 0]

    @property
    def far(self) -> Booleans:
        """Whether the query shows no landmark, shape (n,)."""
        return ~self.has_landmark

    def take(self, queries: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> OpenSetAnswers:
        """Return the answers to some of the queries."""
        return OpenSetAnswers(
            scores=self.scores[queries],
            answers=self.answers[queries],
            right=self.right[queries],
            known=self.known[queries],
            has_landmark=self.has_landmark[queries],
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
        return rank_answers(name, self.scores, self.right[:, column], self.known[:, column], image_ids)


def rank_answers(
    name: str,
    scores: Floats,
    right: Booleans,
    known: Booleans,
    image_ids: npt.NDArray[np.str_] | None = None,
) -> RecognitionResult:
    """Return the result of recognition where every query is answered, see :meth:`OpenSetAnswers.recognition`.

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
    k = detector.n_neighbours if isinstance(detector, NeighbourDetector) else 1
    cosines, positions = nearest_neighbours(
        query_vectors, gallery_vectors, k, excluded=excluded, config=config or _default_config(query_vectors)
    )
    if (positions[:, 0] < 0).any():
        raise InputError(f"no gallery image is left for query {int(np.argmin(positions[:, 0]))}: all are excluded")
    if isinstance(detector, NeighbourDetector):
        scores = detector.score_neighbours(cosines, positions, query_vectors)
    else:
        scores = detector.score(query_vectors, logits, deviations=deviations)
    answers = others[positions[:, 0]]
    return OpenSetAnswers(
        scores=checked_scores(scores),
        answers=answers,
        right=(answers == own) & (own != -1),
        known=np.stack([np.isin(own[:, c], others[:, c]) for c in range(own.shape[1])], axis=1) & (own != -1),
        has_landmark=own[:, 0] != -1,
    )


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
            f"the score {detector.name} was fitted on gallery images that are queries too, such as image "
            f"{excluded.columns[0]:,}, and would know them; choose a score of nearest neighbours such as "
            "top1_cosine, or queries of their own"
        )


def checked_scores(scores: npt.NDArray[np.floating]) -> Floats:
    """Return scores as float64.

    Raises:
        InputError: A score is NaN, which has no rank.
    """
    values = np.asarray(scores, np.float64)
    if np.isnan(values).any():
        raise InputError(
            f"{np.isnan(values).sum():,} of {len(values):,} rejection scores are NaN, the first that of query "
            f"{np.argmax(np.isnan(values))}; fit the score on more images, or choose another"
        )
    return values


def _default_config(queries: torch.Tensor) -> ScoringConfig:
    return ScoringConfig(precision="float64" if queries.dtype == torch.float64 else "float32")


def _label_matrix(labels: LabelMatrix, n: int, role: str) -> LabelMatrix:
    matrix = np.asarray(labels)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.integer) or len(matrix) != n or not matrix.shape[1]:
        raise InputError(
            f"the {role} labels have the shape {np.shape(labels)} and the type {matrix.dtype}; expected integers of "
            f"the shape ({n}, L), finest first"
        )
    return matrix.astype(np.int64, copy=False)

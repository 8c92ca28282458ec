"""Rejection of the queries of retrieval tasks: what is answered to a query, and the score of it.

The answer to a query is the first gallery image of its ranking, and right at the levels that it shares with the
query: R@1 at each level. Scores that answer by vote (:meth:`hgld.rejection.detector.NeighbourDetector.answers`) are
judged by the label that they answer, where queries have labels. A query is known at a level if a positive of that
level is left in its ranking.

Rankings that leave out images, such as the query itself, need scores of nearest neighbours. All others are fitted on
the whole gallery, where they would have seen the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import ScoringConfig
from hgld.datasets.image_labels import labels_from_landmarks
from hgld.errors import InputError
from hgld.evaluation.global_average_precision import RecognitionResult
from hgld.evaluation.open_set import ScoredAnswers, check_gallery, known_labels, level_scores
from hgld.evaluation.ranking import Ranked
from hgld.evaluation.rejection_config import RejectionConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.ragged import RaggedIndices
from hgld.rejection.detector import NeighbourDetector
from hgld.tables.embeddings import Embeddings

#: Scores and positions of nearest gallery images, both of shape (n, k).
Neighbours = tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.int64]]
#: Column of the rejection score in the table of queries; of coarser levels with ``_l1`` where theirs differ.
SCORE = "rejection_score"


@dataclass(frozen=True, eq=False)
class FirstItems:
    """The first items of the rankings of a block of queries.

    Args:
        queries: Slice of the queries.
        levels: Level of the first item of each ranking, uint8, shape (n,).
        neighbours: Scores and positions of the first items, where the detector needs them.
    """

    queries: slice
    levels: npt.NDArray[np.uint8]
    neighbours: Neighbours | None


def with_detector(task: RetrievalTask, rejection: RejectionConfig) -> RetrievalTask:
    """Return a task with the rejection score, fitted on its gallery.

    Raises:
        ConfigurationError: See :meth:`RejectionConfig.fitted`.
        InputError: Likewise, or the score cannot leave out images that are not ranked.
    """
    labels = task.gallery_labels if isinstance(task.gallery_labels, np.ndarray) else task.index_labels
    detector = rejection.fitted(task.gallery, labels, task.gallery_mask)
    check_gallery(detector, task.gallery, task.excluded)
    return replace(task, detector=detector)


def answer_columns(n_levels: int) -> list[str]:
    """Return the columns of :func:`answer_queries` in the table of queries."""
    return [f"{name}_l{level}" for name in (SCORE, "right") for level in range(n_levels, 0, -1)]


def first_items(ranked: Ranked) -> FirstItems:
    """Return what answers need of the rankings of a block, which the next block overwrites."""
    return FirstItems(ranked.queries, ranked.levels[:, 0].cpu().numpy().copy(), ranked.neighbours)


def answer_queries(
    task: RetrievalTask, blocks: Sequence[FirstItems]
) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.float64]]]:
    """Return the queries of blocks, their scores at each level, and whether their answers are right: 1 or 0.

    All are scored at once: a score may have to go through the index again, and does so once.

    Args:
        task: Task with a detector.
        blocks: The first items of all rankings, one block or more.
    """
    assert task.detector is not None
    n_levels = task.judgements.n_levels
    rows = np.concatenate([np.arange(block.queries.start, block.queries.stop) for block in blocks])
    neighbours = [block.neighbours for block in blocks if block.neighbours is not None]
    nearest = None
    if neighbours:
        cosines, positions = zip(*neighbours, strict=True)
        nearest = np.concatenate(cosines), np.concatenate(positions)
    queries = task.queries if len(rows) == len(task.queries) else task.queries[rows]
    excluded = None if task.excluded is None else task.excluded.take(rows)
    scores, votes = _score(task, queries, nearest, excluded)
    right = np.concatenate([block.levels for block in blocks])[:, None] >= np.arange(n_levels, 0, -1)
    if votes is not None and isinstance(task.query_labels, np.ndarray):
        right = votes == task.query_labels[rows]
    columns = np.concatenate([level_scores(scores, n_levels), right.astype(np.float64)], axis=1)
    return rows, dict(zip(answer_columns(n_levels), columns.T, strict=True))


def with_answers(per_query: pd.DataFrame, answers: pd.DataFrame, n_levels: int) -> pd.DataFrame:
    """Return the table of queries with their scores and whether their answers are right.

    Args:
        per_query: Table of :attr:`~hgld.evaluation.results.RetrievalResult.per_query`.
        answers: Columns of :func:`answer_queries`, in the same order.
        n_levels: Number of levels.
    """
    columns = {SCORE: answers[f"{SCORE}_l{n_levels}"].to_numpy()}
    for level in range(n_levels - 1, 0, -1):
        if not np.array_equal(coarser := answers[f"{SCORE}_l{level}"].to_numpy(), columns[SCORE]):
            columns[f"{SCORE}_l{level}"] = coarser
    right = {f"right_l{level}": answers[f"right_l{level}"].to_numpy() == 1 for level in range(n_levels, 0, -1)}
    table: pd.DataFrame = per_query.assign(**columns, **right)
    return table


def scored_answers(result: RetrievalResult) -> ScoredAnswers:
    """Return the answers in the table of queries of a result, of retrieval with a detector or of recognition.

    Images of recognition without a prediction have the score infinity: they are rejected by any threshold, and rank
    behind all predictions, where they change no GAP.
    """
    table = result.per_query
    if isinstance(result, RecognitionResult):
        top1 = table[["top1"]].to_numpy()
        return ScoredAnswers(table[[SCORE]].fillna(np.inf).to_numpy(), top1 == 1, ~np.isnan(top1))
    n_levels = sum(name.startswith("right_l") for name in table.columns)
    levels = range(n_levels, 0, -1)
    score_columns = [name if (name := f"{SCORE}_l{level}") in table else SCORE for level in levels]
    return ScoredAnswers(
        level_scores=table[score_columns].to_numpy(),
        right=table[[f"right_l{level}" for level in levels]].to_numpy(),
        known=table[[f"positives_l{level}" for level in levels]].to_numpy() > 0,
    )


def check_unknown(
    task: RetrievalTask, rejection: RejectionConfig, *, hierarchy: Hierarchy | None = None, split: str | None = None
) -> None:
    """Check sets of unknown images before the queries are ranked, which may take hours.

    Args:
        task: See :func:`unknown_answers`, as for the others.
        rejection: The sets of unknown images.
        hierarchy: Levels above landmarks.
        split: Split of the landmark ids.

    Raises:
        InputError: Images do not fit the gallery, or show landmarks of it.
    """
    for name, images in rejection.unknown.items():
        _checked_unknown(task, name, images, hierarchy, split)


def unknown_answers(
    task: RetrievalTask,
    rejection: RejectionConfig,
    *,
    hierarchy: Hierarchy | None = None,
    split: str | None = None,
    config: ScoringConfig | None = None,
) -> dict[str, ScoredAnswers]:
    """Answer and score the images that show no landmark of the gallery, by name of their set.

    An answer can be right at a coarser level where the images have landmark ids and the hierarchy has these.

    Args:
        task: Task with a detector.
        rejection: The sets of unknown images.
        hierarchy: Levels above landmarks.
        split: Split of the landmark ids, where the hierarchy has several.
        config: How neighbours are searched.

    Raises:
        InputError: See :func:`check_unknown`.
    """
    return {
        name: _answer_unknown(task, name, images, hierarchy, split, config or ScoringConfig())
        for name, images in rejection.unknown.items()
    }


def _answer_unknown(
    task: RetrievalTask,
    name: str,
    images: Embeddings,
    hierarchy: Hierarchy | None,
    split: str | None,
    config: ScoringConfig,
) -> ScoredAnswers:
    assert task.detector is not None
    own, known = _checked_unknown(task, name, images, hierarchy, split)
    k = task.detector.n_neighbours if isinstance(task.detector, NeighbourDetector) else 1
    neighbours = nearest_neighbours(images.vectors, task.gallery, k, gallery_mask=task.gallery_mask, config=config)
    scores, votes = _score(task, images.vectors, neighbours, None)
    right = np.zeros_like(known)
    if own is not None:
        assert isinstance(task.gallery_labels, np.ndarray)
        answers = task.gallery_labels[neighbours[1][:, 0]] if votes is None else votes
        right = (answers == own) & (own != -1)
    return ScoredAnswers(level_scores(scores, task.judgements.n_levels), right, known)


def _checked_unknown(
    task: RetrievalTask, name: str, images: Embeddings, hierarchy: Hierarchy | None, split: str | None
) -> tuple[LabelMatrix | None, npt.NDArray[np.bool_]]:
    """Return the labels of unknown images at the levels of the gallery's, if both have them, and what is known.

    Raises:
        InputError: See :func:`check_unknown`.
    """
    if images.dim != task.gallery.shape[1]:
        raise InputError(
            f"{images.path}: has {images.dim:,} dimensions, and the gallery {task.gallery.shape[1]:,}; embed both "
            "with the same model"
        )
    own = _unknown_labels(task, images, hierarchy, split)
    if own is not None and isinstance(task.gallery_labels, np.ndarray):
        known = known_labels(own, task.gallery_labels, gallery_mask=task.gallery_mask)
        _refuse_known(images, name, own[:, 0], known[:, 0])
        return own, known
    if images.landmark_ids is not None and task.index_labels is not None:
        _refuse_known(images, name, images.landmark_ids, np.isin(images.landmark_ids, task.index_labels[:, 0]))
    return None, np.zeros((len(images), task.judgements.n_levels), bool)


def _refuse_known(
    images: Embeddings, name: str, landmarks: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]
) -> None:
    """Raise an :class:`InputError` if images of an unknown set show landmarks of the gallery."""
    shown = np.flatnonzero(known & (landmarks >= 0))
    if shown.size:
        raise InputError(
            f"{images.path}: {shown.size:,} of {len(images):,} images of the unknown set {name} show landmarks of "
            f"the gallery, the first landmark {landmarks[shown[0]]}; leave these images out"
        )


def _unknown_labels(
    task: RetrievalTask, images: Embeddings, hierarchy: Hierarchy | None, split: str | None
) -> LabelMatrix | None:
    """Return the labels of images that have landmark ids, at the levels of the task; None if they have none."""
    if images.landmark_ids is None or (images.landmark_ids < 0).all():
        return None
    try:
        of_hierarchy = None if hierarchy is None else split or task.landmark_split
        labels = labels_from_landmarks(images.landmark_ids, hierarchy, of_hierarchy)
    except InputError:  # none of the landmarks is in the hierarchy
        return None
    known = isinstance(labels.labelling, np.ndarray) and labels.level_names == task.level_names
    return labels.labels if known else None


def _score(
    task: RetrievalTask, queries: torch.Tensor, neighbours: Neighbours | None, excluded: RaggedIndices | None
) -> tuple[npt.NDArray[np.floating[Any]], LabelMatrix | None]:
    """Return the scores of queries at each level, and the labels that they answer by vote; None without a vote.

    Args:
        task: Task with a detector.
        queries: Embeddings, shape (n, d).
        neighbours: Scores and positions of their nearest gallery images, where the detector needs them.
        excluded: Gallery images that are excluded for each query.
    """
    detector = task.detector
    if not isinstance(detector, NeighbourDetector):
        assert detector is not None
        return detector.score_levels(queries), None
    assert neighbours is not None
    completed = detector.complete_neighbours(*neighbours, queries, excluded=excluded, gallery_mask=task.gallery_mask)
    votes = type(detector).answers is not NeighbourDetector.answers and detector.labels is not None
    return detector.score_neighbour_levels(*completed, queries), detector.answers(*completed) if votes else None

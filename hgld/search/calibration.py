"""Calibrate thresholds of rejection scores, one for each level, on images that are not in the index.

Calibration queries are *known* where the index has their landmark, *near* where it lacks it, and *unlabelled* where
they show none; files of unknown images, which show no landmark of the index, have names that the user gives. An
answer is the label that the nearest images vote for, as in ``hgld search``. At a coarser level than the landmark, the
answer to a near query may be right; those to unlabelled and unknown images never are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.datasets.image_labels import ImageLabels
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, LabelMatrix, vote
from hgld.rejection import Detector
from hgld.rejection.detection_metrics import detection_intervals, detection_metrics
from hgld.rejection.detector_files import Calibration, Figure
from hgld.rejection.open_set import rank_answers
from hgld.rejection.risk_coverage import threshold_for_precision
from hgld.search.gallery import gallery_labels
from hgld.search.score_inputs import ScoreInputs, file_errors, read_score_inputs

#: Kinds of calibration queries: the index has their landmark, it lacks it, or they show none.
KNOWN, NEAR, UNLABELLED = "known", "near", "unlabelled"
#: Number of nearest images that vote on an answer, as in ``hgld search``.
N_VOTES = 10


@dataclass(frozen=True)
class CalibrationFiles:
    """Files of the images that thresholds are fitted on.

    Args:
        queries: Embeddings of queries, of landmarks that the index has and of others.
        query_labels: Labels of the queries. Default: as for the images of the index.
        unknown: Embeddings of images that show no landmark of the index, by name.
        precision: Wanted share of right answers among those that a threshold accepts.
        conservative: Choose thresholds that reach the precision on new images with a confidence of 95 %; see
            :mod:`hgld.rejection.risk_coverage`.

    Raises:
        ConfigurationError: Unknown images are called ``known``, or the precision is not a share.
    """

    queries: Path
    query_labels: Path | None = None
    unknown: Mapping[str, Path] = field(default_factory=dict)
    precision: float = 0.9
    conservative: bool = False

    def __post_init__(self) -> None:
        require_other_names(self.unknown, KNOWN)
        if not 0 < self.precision <= 1:
            raise ConfigurationError(f"`precision` is {self.precision:g}; expected more than 0 and at most 1")


def require_other_names(unknown: Mapping[str, Path], name: str) -> None:
    """Raise a :class:`ConfigurationError` if unknown images have a name that results use for other images."""
    if name in unknown:
        raise ConfigurationError(f"`unknown` names images {name}; choose another name, such as far")


@dataclass(frozen=True, eq=False)
class CalibrationImages:
    """Scores of calibration images, and answers to them.

    Args:
        groups: ``known``, ``near``, ``unlabelled``, or the name of unknown images, shape (n,).
        scores: Scores at each level, float32 or float64, shape (n, L).
        right: Whether the answer at each level is right, bool, shape (n, L).
    """

    groups: npt.NDArray[np.str_]
    scores: npt.NDArray[Any]
    right: npt.NDArray[np.bool_]


def calibrate(
    detector: Detector,
    index: ScoreInputs,
    labels: ImageLabels,
    files: CalibrationFiles,
    *,
    query_labels: Path | None = None,
    hierarchy: Hierarchy | None = None,
    split: str | None = None,
) -> Calibration:
    """Fit the thresholds of a score, one for each level, and measure it on the same images.

    Args:
        detector: Fitted score.
        index: Inputs of the score for the images of the index.
        labels: Labels of the images of the index.
        files: Files of the calibration images.
        query_labels: Labels of the queries where ``files`` has none. Default: those that their embeddings state.
        hierarchy: Levels above the landmarks of the queries.
        split: Split of the landmark ids of the queries.

    Raises:
        ConfigurationError: No query is known or none is unknown, it is not stated what the queries show, or a
            calibration image is an image of the index.
        InputError: A file is malformed or does not fit the index.
    """
    queries = read_score_inputs(files.queries, index.tensors, {})
    stated = gallery_labels(queries.embeddings, files.query_labels or query_labels, hierarchy, split)
    parts = [_answered_queries(detector, index, labels, queries, _matching_labels(stated, labels, files))]
    unknown = {name: read_score_inputs(path, index.tensors, {}) for name, path in files.unknown.items()}
    for name, inputs in unknown.items():
        scores = inputs.score(detector)
        parts.append(CalibrationImages(np.full(len(scores), name), scores, np.zeros(scores.shape, np.bool_)))
    columns = ("groups", "scores", "right")
    images = CalibrationImages(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))
    _require_known_and_unknown(images, files)
    for inputs in (queries, *unknown.values()):
        _require_not_of_index(inputs, index)
    return fit_thresholds(images, files.precision, conservative=files.conservative)


def fit_thresholds(images: CalibrationImages, precision: float, *, conservative: bool = False) -> Calibration:
    """Fit a threshold for each level on calibration images, with figures of the score on them."""
    finest, groups = images.scores[:, 0].astype(np.float64), images.groups
    known = groups == KNOWN
    result = rank_answers("calibration", finest, images.right[:, 0] & known, known)
    unknown = {name: finest[groups == name] for name in dict.fromkeys(groups[~known].tolist())}
    levels = zip(images.scores.T, images.right.T, strict=True)
    return Calibration(
        n_images={KNOWN: int(known.sum())} | {name: len(scores) for name, scores in unknown.items()},
        thresholds=tuple(threshold_for_precision(*level, precision, conservative=conservative) for level in levels),
        gap=Figure(value=result.means["gap"], interval=result.intervals()["gap"]),
        detection={name: detection_figures(finest[known], scores) for name, scores in unknown.items()},
        n_votes=N_VOTES,
    )


def detection_figures(known: npt.NDArray[Any], unknown: npt.NDArray[Any]) -> dict[str, Figure]:
    """Return the metrics of :func:`hgld.rejection.detection_metrics.detection_metrics` with their intervals."""
    intervals = detection_intervals(known, unknown)
    return {
        name: Figure(value=value, interval=intervals[name])
        for name, value in detection_metrics(known, unknown).items()
    }


def _answered_queries(
    detector: Detector, index: ScoreInputs, labels: ImageLabels, queries: ScoreInputs, query_labels: LabelMatrix
) -> CalibrationImages:
    """Answer queries by the vote of their nearest images, and score them."""
    scores = queries.score(detector)
    with file_errors(queries.embeddings.path):
        cosines, positions = nearest_neighbours(queries.embeddings.vectors, index.embeddings.vectors, N_VOTES)
    index_labels = labels.labels
    answers, _ = vote(cosines, np.where(positions[..., None] >= 0, index_labels[positions], -1))
    landmarks = query_labels[:, 0]
    is_known = np.isin(landmarks, index_labels[:, 0])
    groups = np.where(landmarks < 0, UNLABELLED, np.where(is_known, KNOWN, NEAR))
    return CalibrationImages(groups, scores, (answers == query_labels) & (query_labels >= 0))


def _matching_labels(stated: ImageLabels | None, labels: ImageLabels, files: CalibrationFiles) -> LabelMatrix:
    """Return the labels of queries, and check that they have the levels of the index."""
    if stated is None:
        raise ConfigurationError(
            f"{files.queries} does not say which landmark an image shows; give the labels of the queries as "
            "`query_labels`"
        )
    if stated.level_names != labels.level_names:
        raise ConfigurationError(
            f"the queries have the levels {', '.join(stated.level_names)}, and the index "
            f"{', '.join(labels.level_names)}; give `query_labels` with the same levels"
        )
    return stated.labels


def _require_not_of_index(images: ScoreInputs, index: ScoreInputs) -> None:
    """Raise a :class:`ConfigurationError` if images are in the index, where they would find themselves.

    Images are the same if their ids and their embeddings are equal, as equal ids alone may be chance.
    """
    ids, rows, index_rows = np.intersect1d(images.ids(), index.ids(), return_indices=True)
    ours, theirs = images.embeddings.vectors, index.embeddings.vectors
    if not len(ids) or ours.shape[1] != theirs.shape[1]:
        return
    same = (ours[torch.from_numpy(rows)] == theirs[torch.from_numpy(index_rows)]).all(dim=1)
    if same.any():
        n_same, first = int(same.sum()), ids[int(same.int().argmax())]
        raise ConfigurationError(
            f"{images.embeddings.path}: {n_same:,} of {len(images.embeddings):,} images are in the index, too, such "
            f"as {first}; calibrate on other images, or leave these out of the index"
        )


def _require_known_and_unknown(images: CalibrationImages, files: CalibrationFiles) -> None:
    """Raise an error unless some images are known and some are not."""
    n, n_known = len(images.groups), int((images.groups == KNOWN).sum())
    if n_known == n:
        raise ConfigurationError(
            f"{files.queries}: all {n:,} images show landmarks of the index, and a threshold needs others, too; add "
            "images that show none as `unknown`, or queries of other landmarks"
        )
    if not n_known:
        raise InputError(
            f"{files.queries}: no image shows a landmark of the index; are these labels of another index or split?"
        )

"""GLDv2's own retrieval protocol, in the two readings that are easily mixed up.

``map100_official`` goes by the lists of ``retrieval_solution_v2.1.csv``: the positives of a test image are the index
images listed for it, the gallery is all 761,757 index images, and Public and Private test images are told apart
(Weyand et al., CVPR 2020). ``map100_labelled`` goes by landmarks: the landmark of a test image is that of the first
image listed for it, its positives are all images of this landmark, and the gallery is the index images whose landmark
has hierarchical labels. The paper's Table VII reports the second, with H-AP, ASI and NDCG beside it. Both are
mAP@100, divided by min(R, 100).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from hgld.datasets.image_labels import labels_from_landmarks
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.evaluation.relevance_judgements import LabelJudgements, ListJudgements
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import EvaluationConfig, RetrievalTask
from hgld.gldv2.ground_truth import (
    USAGES,
    ImageLandmarks,
    RetrievalSolution,
    positive_positions,
    query_landmarks,
    read_image_to_landmark,
    read_retrieval_solution,
)
from hgld.hierarchy import Hierarchy
from hgld.tables.embeddings import Embeddings, rows_of

SOLUTION, LANDMARKS = "retrieval_solution_v2.1.csv", "index_image_to_landmark.csv"
_SCORED = "test images that are scored"
_OFFICIAL, _LABELLED = {"mAP@100": "map100_official"}, {"mAP@100": "map100_labelled"}


def evaluate_gldv2(
    queries: Embeddings, gallery: Embeddings, folder: Path, hierarchy: Hierarchy | None, how: EvaluationConfig
) -> tuple[list[RetrievalResult], RetrievalTask | None]:
    """Evaluate embeddings of GLDv2's test and index images.

    Args:
        queries: of the test images; those that the solution ignores may be there or not.
        gallery: of all index images.
        folder: holds ``retrieval_solution_v2.1.csv`` and ``index_image_to_landmark.csv``.
        hierarchy: H-GLDv2's levels of the index landmarks; without it only the official numbers are taken.
        how: metrics are those of the labelled part; the official part has mAP@100 alone.

    Returns:
        "labelled" (where there is a hierarchy), "official public" and "official private"; and the task of the first.

    Raises:
        InputError: the files of the ground truth are not what they should be, or images are not embedded.
        ConfigurationError: see :func:`hgld.evaluation.evaluate.evaluate`; metrics are asked for, but no hierarchy is
            given.
    """
    solution = read_retrieval_solution(folder / SOLUTION)
    landmarks = read_image_to_landmark(folder / LANDMARKS)
    results, task = [], None
    if hierarchy is not None:
        task = labelled_task(queries, gallery, solution, landmarks, hierarchy)
        results.append(task.run(how).renamed(_LABELLED))
    elif how.metrics is not None:
        raise ConfigurationError(
            "metrics are asked for, but the official part of GLDv2's protocol has mAP@100 alone; give the hierarchy, "
            "too"
        )
    official = official_task(queries, gallery, solution, landmarks).run(replace(how, metrics=None)).renamed(_OFFICIAL)
    usages = np.array(solution.usages)
    parts = [official.part(f"official {usage.lower()}", usages == usage) for usage in USAGES]
    return results + parts, task


def official_task(
    queries: Embeddings, gallery: Embeddings, solution: RetrievalSolution, landmarks: ImageLandmarks
) -> RetrievalTask:
    """Rank all index images by the lists of the solution.

    Raises:
        InputError: see :func:`evaluate_gldv2`.
    """
    _check_all_are_embedded(gallery, landmarks)
    assert gallery.ids is not None
    rows = rows_of(queries, solution.query_ids, _SCORED)
    return RetrievalTask(
        name="official",
        queries=queries.vectors[torch.from_numpy(rows)],
        gallery=gallery.vectors,
        judgements=ListJudgements(positive_positions(solution, gallery.ids), len(gallery)),
        query_ids=np.array(solution.query_ids),
        gallery_ids=gallery.ids,
        metrics=["mAP@100"],
        counts={"ignored_queries": solution.n_ignored},
    )


def labelled_task(
    queries: Embeddings,
    gallery: Embeddings,
    solution: RetrievalSolution,
    landmarks: ImageLandmarks,
    hierarchy: Hierarchy,
) -> RetrievalTask:
    """Rank the index images that have hierarchical labels, by landmark.

    Raises:
        InputError: see :func:`evaluate_gldv2`.
    """
    _check_all_are_embedded(gallery, landmarks)
    of_queries = query_landmarks(solution, landmarks)
    query_labels = labels_from_landmarks(of_queries.landmark_ids, hierarchy, "index")
    gallery_labels = labels_from_landmarks(_landmarks_of(gallery, landmarks), hierarchy, "index")
    labelled = query_labels.labelled
    rows = rows_of(queries, solution.query_ids, _SCORED)
    return RetrievalTask(
        name="labelled",
        queries=queries.vectors[torch.from_numpy(rows[labelled])],
        gallery=gallery.vectors,
        judgements=LabelJudgements(query_labels.labels[labelled], gallery_labels.labels),
        query_ids=np.array(solution.query_ids)[labelled],
        gallery_ids=gallery.ids,
        query_labels=query_labels.labels[labelled],
        gallery_labels=gallery_labels.labels,
        level_names=gallery_labels.level_names,
        gallery_mask=gallery_labels.labelled,
        counts={
            "ignored_queries": solution.n_ignored,
            "queries_without_labels": int((~labelled).sum()),
            "queries_of_several_landmarks": of_queries.n_mixed,
            "gallery_without_labels": int((~gallery_labels.labelled).sum()),
        },
    )


def _landmarks_of(gallery: Embeddings, landmarks: ImageLandmarks) -> npt.NDArray[np.int64]:
    """The landmark of each gallery image, in the order of the embeddings."""
    assert gallery.ids is not None
    order = np.argsort(landmarks.ids)
    return landmarks.landmark_ids[order[np.searchsorted(landmarks.ids, gallery.ids, sorter=order)]]


def _check_all_are_embedded(gallery: Embeddings, landmarks: ImageLandmarks) -> None:
    rows_of(gallery, landmarks.ids, f"index images in {LANDMARKS}")
    if len(gallery) > len(landmarks.ids):
        assert gallery.ids is not None
        others = np.setdiff1d(gallery.ids, landmarks.ids).tolist()
        raise InputError(
            f"{gallery.path}: {len(others):,} embeddings are of images that {LANDMARKS} does not have; the protocol "
            f"ranks all index images and no others:\n{indented_list(others)}"
        )

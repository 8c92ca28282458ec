"""GLDv2's retrieval protocol, in the two readings that are easily mixed up.

``map100_official`` goes by the lists of ``retrieval_solution_v2.1.csv``: the positives of a test image are the index
images listed for it, the gallery is all 761,757 index images, and Public and Private test images are reported apart
(Weyand et al., CVPR 2020). ``map100_labelled`` goes by landmarks: the landmark of a test image is that of the first
image listed for it, its positives are all images of this landmark, and the gallery is the index images whose landmark
has hierarchical labels. The paper's Table VII reports the second, with H-AP, ASI and NDCG beside it. Both are
mAP@100, divided by min(R, 100).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from hgld.datasets.image_labels import labels_from_landmarks
from hgld.errors import InputError, indented_list
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.evaluation_files import EvaluationFiles, EvaluationInputs
from hgld.evaluation.protocols.gldv2_predictions import labelled_result, official_results
from hgld.evaluation.protocols.protocol import EvaluationProtocol, InputSet
from hgld.evaluation.relevance_judgements import ListJudgements
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask, label_judgements
from hgld.gldv2.ground_truth import (
    USAGES,
    ImageLandmarks,
    RetrievalSolution,
    positive_positions,
    query_landmarks,
    read_image_to_landmark,
    read_retrieval_predictions,
    read_retrieval_solution,
)
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.label_sets import take_images
from hgld.tables.embeddings import Embeddings, rows_of

SOLUTION, LANDMARKS = "retrieval_solution_v2.1.csv", "index_image_to_landmark.csv"
_SCORED = "test images that are scored"


def official_task(
    queries: Embeddings, gallery: Embeddings, solution: RetrievalSolution, landmarks: ImageLandmarks
) -> RetrievalTask:
    """Rank all index images by the lists of the solution; Public and Private test images get results of their own.

    Args:
        queries: Embeddings of the test images; those that the solution ignores may be absent.
        gallery: Embeddings of all index images.
        solution: Positives of each test image.
        landmarks: Landmarks of the index images, on which rejection scores are fitted.

    Raises:
        InputError: Test images are not embedded.
    """
    assert gallery.ids is not None
    rows = rows_of(queries, solution.query_ids, _SCORED)
    usages = np.array(solution.usages)
    return RetrievalTask(
        name="official",
        queries=queries.vectors[torch.from_numpy(rows)],
        gallery=gallery.vectors,
        judgements=ListJudgements(positive_positions(solution, gallery.ids), len(gallery)),
        query_ids=np.array(solution.query_ids),
        gallery_ids=gallery.ids,
        n_positives=np.array([[len(positives)] for positives in solution.positives]),
        metrics=["mAP@100"],
        fixed_metrics=True,
        metric_names={"mAP@100": "map100_official"},
        query_groups={f"official {usage.lower()}": usages == usage for usage in USAGES},
        index_labels=_landmark_ids(gallery, landmarks)[:, None],
        landmark_split="index",
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

    Args:
        queries: Embeddings of the test images.
        gallery: Embeddings of all index images.
        solution: Positives of each test image.
        landmarks: Landmarks of the index images.
        hierarchy: H-GLDv2's levels of the index landmarks.

    Raises:
        InputError: Test images are not embedded, or no image has labels.
    """
    landmarks_of_queries = query_landmarks(solution, landmarks)
    query_labels = labels_from_landmarks(landmarks_of_queries.landmark_ids, hierarchy, "index")
    gallery_labels = labels_from_landmarks(_landmark_ids(gallery, landmarks), hierarchy, "index")
    labelled = query_labels.labelled
    labels_of_queries = take_images(query_labels.labelling, labelled)
    rows = rows_of(queries, solution.query_ids, _SCORED)
    return RetrievalTask(
        name="labelled",
        queries=queries.vectors[torch.from_numpy(rows[labelled])],
        gallery=gallery.vectors,
        **label_judgements(labels_of_queries, gallery_labels.labelling),
        query_ids=np.array(solution.query_ids)[labelled],
        gallery_ids=gallery.ids,
        query_labels=labels_of_queries,
        gallery_labels=gallery_labels.labelling,
        level_names=gallery_labels.level_names,
        landmark_split="index",
        gallery_mask=gallery_labels.labelled,
        metric_names={"mAP@100": "map100_labelled"},
        counts={
            "ignored_queries": solution.n_ignored,
            "queries_without_labels": int((~labelled).sum()),
            "queries_of_several_landmarks": landmarks_of_queries.n_mixed,
            "gallery_without_labels": int((~gallery_labels.labelled).sum()),
        },
    )


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    """Build the labelled task, where there is a hierarchy, and the official one."""
    solution = read_retrieval_solution(inputs.ground_truth / SOLUTION)
    landmarks = read_image_to_landmark(inputs.ground_truth / LANDMARKS)
    _check_gallery(inputs.gallery, landmarks)
    tasks = [official_task(inputs.queries, inputs.gallery, solution, landmarks)]
    if inputs.hierarchy is not None:
        tasks.insert(0, labelled_task(inputs.queries, inputs.gallery, solution, landmarks, inputs.hierarchy))
    return tasks


def _score_predictions(files: EvaluationFiles, config: EvaluationConfig) -> list[RetrievalResult]:
    """Score predictions by labels, where there is a hierarchy, and by the official lists."""
    assert files.predictions is not None
    assert files.ground_truth is not None
    solution = read_retrieval_solution(files.ground_truth / SOLUTION, may_lack_positives=True)
    test_images = (*solution.query_ids, *solution.ignored_ids)
    predictions = read_retrieval_predictions(files.predictions, test_images)
    results = official_results(predictions, solution)
    if files.hierarchy is not None:
        landmarks, hierarchy = read_image_to_landmark(files.ground_truth / LANDMARKS), load_hierarchy(files.hierarchy)
        results.insert(0, labelled_result(predictions, solution, landmarks, hierarchy, config))
    return results


def _landmark_ids(gallery: Embeddings, landmarks: ImageLandmarks) -> npt.NDArray[np.int64]:
    """Return the landmark of each gallery image, in the order of the embeddings."""
    assert gallery.ids is not None
    order = np.argsort(landmarks.ids)
    return landmarks.landmark_ids[order[np.searchsorted(landmarks.ids, gallery.ids, sorter=order)]]


def _check_gallery(gallery: Embeddings, landmarks: ImageLandmarks) -> None:
    """Check that the gallery is all index images and no others."""
    rows_of(gallery, landmarks.ids, f"index images in {LANDMARKS}")
    if len(gallery) > len(landmarks.ids):
        assert gallery.ids is not None
        others = np.setdiff1d(gallery.ids, landmarks.ids).tolist()
        raise InputError(
            f"{gallery.path}: {len(others):,} embeddings are of images that {LANDMARKS} does not have; the protocol "
            f"ranks all index images and no others:\n{indented_list(others)}"
        )


GLDV2_RETRIEVAL = EvaluationProtocol(
    name="gldv2-retrieval",
    inputs=(
        InputSet(("query_embeddings", "gallery_embeddings", "ground_truth"), ("hierarchy",)),
        InputSet(("predictions", "ground_truth"), ("hierarchy",)),
    ),
    build_tasks=_build_tasks,
    score_predictions=_score_predictions,
    descriptions={"ground_truth": f"the folder of {SOLUTION} and {LANDMARKS}"},
    metrics_require="hierarchy",
)

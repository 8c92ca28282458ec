"""GLDv2's retrieval protocol, in its two readings: by the official positives, and by landmarks.

``map100_official`` takes the positives of a test image from ``retrieval_solution_v2.1.csv``. The
gallery is all 761,757 index images, and Public and Private test images are reported separately
(Weyand et al., CVPR 2020). ``map100_labelled`` uses landmarks: a test image has the landmark of its
first positive in the solution, its positives are all images of this landmark, and the gallery is the
index images whose landmark has hierarchical labels. The paper's Table VII reports
``map100_labelled``, with H-AP, ASI and NDCG. Both are mAP@100: the sum in each AP is divided by
min(R, 100), where R is the number of positives.

Predictions are the first index images of each ranking, without the rest. The first k images are
enough for all metrics at k or less, for mistake severity and for hF: the numbers of positives come
from the ground truth. AP, H-AP, wAP, NDCG, ASI, AHP and mAP@R need the whole ranking. Ranks
beyond the end of the predictions count as unrelated items; so do repeated and unknown images, which
take a rank each.

Predictions rank all index images, and ``map100_labelled`` excludes images without hierarchical labels:
the ranks after an excluded image move up. If fewer than 100 images are left, the number is a lower
bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.arrays import Integers
from hgld.datasets.image_labels import ImageLabels, labels_from_landmarks
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.evaluation.evaluate import EvaluationConfig, block_columns
from hgld.evaluation.evaluation_files import EvaluationInputs, EvaluationProtocol, InputSet
from hgld.evaluation.metrics import Metric
from hgld.evaluation.ranking_statistics import ranking_statistics
from hgld.evaluation.relevance import LevelWeights
from hgld.evaluation.results import RetrievalResult, count_queries, warn_without_positives
from hgld.evaluation.retrieval_task import ListJudgements, RetrievalTask, label_judgements
from hgld.evaluation.settings import EvaluationFiles
from hgld.gldv2.retrieval_ground_truth import (
    USAGES,
    ImageLandmarks,
    RetrievalPredictions,
    RetrievalSolution,
    positive_positions,
    query_landmarks,
    read_image_to_landmark,
    read_retrieval_predictions,
    read_retrieval_solution,
)
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.label_matrix import nested_codes
from hgld.hierarchy.label_sets import take_images
from hgld.io.text_array import TextArray
from hgld.tables.embeddings import Embeddings, required_ids, rows_of

SOLUTION = "retrieval_solution_v2.1.csv"
LANDMARKS = "index_image_to_landmark.csv"
#: Number of predicted images of a test image that are scored.
N_RANKS = 100
_SCORED = "test images that are scored"
_RANKING = "as predicted; what a list does not have counts as unrelated"


def official_task(
    queries: Embeddings, gallery: Embeddings, solution: RetrievalSolution
) -> RetrievalTask:
    """Build the task that ranks all index images, with the positives of the solution.

    Public and Private test images get separate results.

    Args:
        queries: Embeddings of the test images; test images that the solution ignores may be absent.
        gallery: Embeddings of the index images.
        solution: Positives of each test image.

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
        counts={"ignored_queries": solution.n_ignored},
    )


def labelled_task(
    queries: Embeddings,
    gallery: Embeddings,
    solution: RetrievalSolution,
    landmarks: ImageLandmarks,
    hierarchy: Hierarchy,
) -> RetrievalTask:
    """Build the task that ranks the index images with hierarchical labels, by landmark.

    Raises:
        InputError: Test images are not embedded, the gallery has images that are not index images, or
            no image has labels.
    """
    gallery_landmarks = _landmark_ids(gallery, landmarks)
    query_labels, gallery_labels, counts = _labels(
        solution, landmarks, gallery_landmarks, hierarchy
    )
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
        gallery_mask=gallery_labels.labelled,
        metric_names={"mAP@100": "map100_labelled"},
        counts=counts,
    )


def _labels(
    solution: RetrievalSolution,
    landmarks: ImageLandmarks,
    gallery_landmarks: Integers,
    hierarchy: Hierarchy,
) -> tuple[ImageLabels, ImageLabels, dict[str, int]]:
    """Return the labels of the test images and of the gallery, and counts of excluded images."""
    landmarks_of_queries = query_landmarks(solution, landmarks)
    queries = labels_from_landmarks(landmarks_of_queries.landmark_ids, hierarchy, "index")
    gallery = labels_from_landmarks(gallery_landmarks, hierarchy, "index")
    counts = {
        "ignored_queries": solution.n_ignored,
        "queries_without_labels": int((~queries.labelled).sum()),
        "queries_of_several_landmarks": landmarks_of_queries.n_mixed,
        "gallery_without_labels": int((~gallery.labelled).sum()),
    }
    return queries, gallery, counts


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    """Build the labelled task, if there is a hierarchy, and the official task."""
    solution = read_retrieval_solution(inputs.ground_truth / SOLUTION)
    landmarks = read_image_to_landmark(inputs.ground_truth / LANDMARKS)
    queries, gallery, hierarchy = inputs.queries, inputs.gallery, inputs.hierarchy
    _check_gallery(gallery, landmarks)
    tasks = []
    if hierarchy is not None:
        tasks.append(labelled_task(queries, gallery, solution, landmarks, hierarchy))
    tasks.append(official_task(queries, gallery, solution))
    return tasks


def _landmark_ids(gallery: Embeddings, landmarks: ImageLandmarks) -> Integers:
    """Return the landmark of each gallery image, in the order of the embeddings.

    Raises:
        InputError: The gallery has no ids, or images that are not index images.
    """
    ids = required_ids(gallery)
    rows = TextArray(landmarks.ids).find(ids)
    if (rows < 0).any():
        unknown = sorted(ids[rows < 0])
        raise InputError(
            f"{gallery.path}: {len(unknown):,} embeddings are of images that {LANDMARKS} does not have; the protocol "
            f"ranks all index images and no others:\n{indented_list(unknown)}"
        )
    return landmarks.landmark_ids[rows]


def _check_gallery(gallery: Embeddings, landmarks: ImageLandmarks) -> None:
    """Check that the gallery is all index images and no others."""
    rows_of(gallery, TextArray(landmarks.ids), f"index images in {LANDMARKS}")
    _landmark_ids(gallery, landmarks)


def official_results(
    predictions: RetrievalPredictions, solution: RetrievalSolution
) -> list[RetrievalResult]:
    """Score predictions by the positives of the solution, as the challenges do.

    The metric is mAP@100, for Public and Private test images separately. As in the published scorer,
    a positive that the solution repeats counts each time in the number of positives R, but is found
    only once, a test image without predictions has an AP of 0, and an empty list of positives is one
    positive, the empty id. The mean and median position are also the scorer's: the position of the
    first correct image, or 101 if the first 100 images are wrong.
    """
    levels = np.zeros((len(solution.query_ids), N_RANKS), np.uint8)
    queries = zip(solution.query_ids, solution.positives, strict=True)
    for row, (query, positives) in enumerate(queries):
        remaining = set(positives)
        for rank, image in enumerate(predictions.get(query, ())[:N_RANKS]):
            levels[row, rank] = image in remaining
            remaining.discard(image)
    n_positives = np.array([[len(positives)] for positives in solution.positives])
    first_positions = np.where(levels.any(axis=1), levels.argmax(axis=1) + 1.0, N_RANKS + 1.0)
    config = EvaluationConfig(metrics=("mAP@100",))
    result = _result("official", solution.query_ids, levels, n_positives, N_RANKS, config)
    result = result.renamed({"mAP@100": "map100_official"})
    result = replace(
        result,
        per_query=result.per_query.assign(first_position=first_positions),
        counts={"queries": len(result.per_query), "ignored_queries": solution.n_ignored},
        settings={"ranking": _RANKING},
    )
    usages = np.array(solution.usages)
    results = []
    for usage in USAGES:
        part = result.part(f"official {usage.lower()}", usages == usage)
        counts = part.counts | _count_without_predictions(predictions, part)
        settings = {
            **part.settings,
            "mean_position": part.per_query["first_position"].mean(),
            "median_position": part.per_query["first_position"].median(),
        }
        results.append(replace(part, counts=counts, settings=settings))
    return results


def labelled_result(
    predictions: RetrievalPredictions,
    solution: RetrievalSolution,
    landmarks: ImageLandmarks,
    hierarchy: Hierarchy,
    config: EvaluationConfig,
) -> RetrievalResult:
    """Score predictions by landmark and the levels above, over the index images with labels.

    Args:
        predictions: Predicted index images by test image.
        solution: Positives of each test image; the first gives its landmark.
        landmarks: Landmark of each index image.
        hierarchy: Levels above landmarks.
        config: Metrics and relevance; settings of the ranking are not used.

    Raises:
        ConfigurationError: A metric needs the whole ranking, or more than 100 ranks.
        InputError: Positives have no landmark, or no image has labels.
    """
    solution = _with_positives(solution)
    query_labels, gallery_labels, counts_of_excluded = _labels(
        solution, landmarks, landmarks.landmark_ids, hierarchy
    )
    labelled = query_labels.labelled
    query_ids = np.array(solution.query_ids)[labelled].tolist()
    query_codes, labelled_codes = nested_codes(
        query_labels.labels[labelled], gallery_labels.labels[gallery_labels.labelled]
    )
    index_codes = np.full((len(landmarks.ids), labelled_codes.shape[1]), -1, np.int32)
    index_codes[gallery_labels.labelled] = labelled_codes
    levels, n_short, n_unknown = _levels(
        predictions, query_ids, query_codes, landmarks, index_codes
    )
    n_positives = _count_positives(query_codes, labelled_codes)
    result = _result("labelled", query_ids, levels, n_positives, len(labelled_codes), config)
    result = result.renamed({"mAP@100": "map100_labelled"})
    warn_without_positives(result.name, result.per_query, range(1, query_codes.shape[1] + 1))
    counts = count_queries(result.per_query)
    counts["gallery"] = len(landmarks.ids)
    counts.update(counts_of_excluded)
    counts.update(_count_without_predictions(predictions, result))
    counts[f"queries_with_fewer_than_{N_RANKS}_labelled_images"] = n_short
    counts["predicted_images_that_the_index_lacks"] = n_unknown
    return replace(result, counts=counts)


def _levels(
    predictions: RetrievalPredictions,
    query_ids: Sequence[str],
    query_codes: npt.NDArray[np.int32],
    landmarks: ImageLandmarks,
    index_codes: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.uint8], int, int]:
    """Return the levels of the predicted images at ranks 1 to 100, and two counts.

    Args:
        predictions: Predicted index images by test image.
        query_ids: Ids of the labelled test images.
        query_codes: int32, shape (n_query, L); codes of their labels, finest first.
        landmarks: Ids of the index images.
        index_codes: int32, shape (n_index, L); codes of the labels of the index images, -1 for images
            without labels.

    Returns:
        Levels, uint8, shape (n_query, 100), the number of test images with fewer labelled predictions,
        and the number of predicted images that the index lacks.
    """
    predicted = [predictions.get(query, ()) for query in query_ids]
    predicted_ids: list[str] = []
    for images in predicted:
        predicted_ids.extend(images)
    all_positions = TextArray(landmarks.ids).find(TextArray(predicted_ids))
    n_labelled = int((index_codes[:, 0] >= 0).sum())
    full_length = min(N_RANKS, n_labelled)
    levels = np.zeros((len(predicted), N_RANKS), np.uint8)
    n_short = 0
    start = 0
    for row, images in enumerate(predicted):
        positions = all_positions[start : start + len(images)]
        start += len(images)
        is_ranked = (positions < 0) | (index_codes[positions, 0] >= 0)
        ranked = positions[is_ranked][:N_RANKS]
        if len(ranked) < full_length:
            n_short += 1
        is_first = np.zeros(len(ranked), bool)  # repeated images count once
        is_first[np.unique(ranked, return_index=True)[1]] = True
        shared_levels = (index_codes[ranked] == query_codes[row]).sum(1)
        levels[row, : len(ranked)] = np.where((ranked >= 0) & is_first, shared_levels, 0)
    return levels, n_short, int((all_positions < 0).sum())


def _count_positives(
    query_codes: npt.NDArray[np.int32], labelled_codes: npt.NDArray[np.int32]
) -> Integers:
    """Return the number of labelled index images of level 1, ..., L or finer: int64, shape (n_query, L)."""
    n_positives = np.zeros(query_codes.shape, np.int64)
    n_levels = query_codes.shape[1]
    for column in range(n_levels):
        queries = query_codes[:, column]
        n_codes = queries.max(initial=-1) + 1
        n_items = np.bincount(labelled_codes[:, column], minlength=n_codes)
        n_positives[:, n_levels - 1 - column] = n_items[queries]
    return n_positives


def _result(
    name: str,
    query_ids: Sequence[str],
    levels: npt.NDArray[np.uint8],
    n_positives: Integers,
    n_gallery: int,
    config: EvaluationConfig,
) -> RetrievalResult:
    """Return the result of rankings whose first 100 ranks are known.

    Args:
        name: Name of the result.
        query_ids: Ids of the n queries.
        levels: Levels at the first ranks, uint8, shape (n, 100).
        n_positives: Number of items of level 1, ..., L or finer, int64, shape (n, L).
        n_gallery: Number of ranked items.
        config: Metrics and relevance.

    Raises:
        ConfigurationError: A metric needs the whole ranking, or more than 100 ranks.
    """
    n_levels = n_positives.shape[1]
    k = min(N_RANKS, n_gallery)
    names = config.metrics or (
        "mAP@100",
        "R@1",
        f"NDCG@{k}",
        f"HP@{k}",
        f"AHP@{k}",
        "mistake_severity",
    )
    metrics = [Metric.from_name(name, n_levels) for name in names]
    for metric in metrics:
        if metric.n_ranks is None or not 1 <= metric.n_ranks <= N_RANKS:
            raise ConfigurationError(
                f"{metric.name} needs more of the ranking than the first {N_RANKS} images, which predictions hold; "
                f"choose metrics at k of 1 to {N_RANKS} such as mAP@100, NDCG@100 or HP@100, or mistake_severity"
            )
    weights = LevelWeights(
        (len(levels), n_levels + 1),
        relevance_alpha=config.relevance_alpha,
        level_weights=config.level_weights,
        relevance=config.relevance,
        gain=config.gain,
    )
    ranked = torch.from_numpy(levels)
    n_ranked = torch.full((len(levels),), n_gallery)
    cutoffs = [metric.k for metric in metrics if metric.k is not None]
    positives = torch.from_numpy(n_positives)
    statistics = ranking_statistics(
        ranked, n_levels, cutoffs, n_ranked=n_ranked, positives=positives
    )
    columns = block_columns(metrics, ranked, statistics, weights.block(slice(0, len(levels))))
    per_query = pd.DataFrame(columns, index=pd.Index(list(query_ids), name="query"))
    return RetrievalResult(
        name=name,
        per_query=per_query,
        metrics=tuple(metric.name for metric in metrics),
        counts=count_queries(per_query),
        settings={**weights.settings, "ranking": _RANKING},
    )


def _with_positives(solution: RetrievalSolution) -> RetrievalSolution:
    """Return the solution without the test images whose list of positives is empty."""
    query_ids = []
    usages = []
    positives = []
    rows = zip(solution.query_ids, solution.usages, solution.positives, strict=True)
    for query, usage, images in rows:
        if any(images):
            query_ids.append(query)
            usages.append(usage)
            positives.append(images)
    return replace(
        solution, query_ids=tuple(query_ids), usages=tuple(usages), positives=tuple(positives)
    )


def _count_without_predictions(
    predictions: RetrievalPredictions, result: RetrievalResult
) -> dict[str, int]:
    """Count the queries without predictions."""
    count = sum(not predictions.get(query) for query in result.per_query.index)
    return {"queries_without_predictions": count}


def _score_predictions(files: EvaluationFiles, config: EvaluationConfig) -> list[RetrievalResult]:
    """Score predictions by labels, if there is a hierarchy, and by the official positives."""
    assert files.predictions is not None
    assert files.ground_truth is not None
    solution = read_retrieval_solution(files.ground_truth / SOLUTION, may_lack_positives=True)
    test_images = solution.query_ids + solution.ignored_ids
    predictions = read_retrieval_predictions(files.predictions, test_images)
    results = official_results(predictions, solution)
    if files.hierarchy is not None:
        landmarks = read_image_to_landmark(files.ground_truth / LANDMARKS)
        hierarchy = load_hierarchy(files.hierarchy)
        results.insert(0, labelled_result(predictions, solution, landmarks, hierarchy, config))
    return results


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

"""GLDv2's retrieval protocol, in the two readings that are easily mixed up.

``map100_official`` goes by the lists of ``retrieval_solution_v2.1.csv``: the positives of a test image are the index
images listed for it, the gallery is all 761,757 index images, and Public and Private test images are reported apart
(Weyand et al., CVPR 2020). ``map100_labelled`` goes by landmarks: the landmark of a test image is that of the first
image listed for it, its positives are all images of this landmark, and the gallery is the index images whose landmark
has hierarchical labels. The paper's Table VII reports the second, with H-AP, ASI and NDCG beside it. Both are
mAP@100, divided by min(R, 100).

Predictions are lists of the first index images, without the rest of the ranking. What a list of k images says is
enough for all metrics at k or less, for mistake severity and for hF: the numbers of positives come from the ground
truth. AP, H-AP, wAP, NDCG, ASI, AHP and mAP@R need the whole ranking. Ranks beyond the end of a list count as items
that share nothing with the query; so do repeated images and unknown ones, which take a rank each.

The lists rank all index images, and the number by labels excludes those without hierarchical labels: their ranks are
closed up. Where fewer than 100 images are left, that number is a lower bound.
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
from hgld.gldv2.ground_truth import (
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
from hgld.hierarchy.label_matrix import nested_codes, take_images
from hgld.io.text_array import TextArray
from hgld.tables.embeddings import Embeddings, rows_of

SOLUTION, LANDMARKS = "retrieval_solution_v2.1.csv", "index_image_to_landmark.csv"
_SCORED = "test images that are scored"
#: Number of images per list that are scored.
N_RANKS = 100
_RANKING = "as predicted; what a list does not have counts as unrelated"


def official_task(
    queries: Embeddings, gallery: Embeddings, solution: RetrievalSolution
) -> RetrievalTask:
    """Rank all index images by the lists of the solution; Public and Private test images get results of their own.

    Args:
        queries: Embeddings of the test images; those that the solution ignores may be absent.

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
    """Rank the index images that have hierarchical labels, by landmark.

    Raises:
        InputError: Test images are not embedded, or no image has labels.
    """
    query_labels, gallery_labels, counts = _labels(
        solution, landmarks, _landmark_ids(gallery, landmarks), hierarchy
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
    """Return the labels of the test images and of the gallery, and how many of them are left out."""
    of_queries = query_landmarks(solution, landmarks)
    queries = labels_from_landmarks(of_queries.landmark_ids, hierarchy, "index")
    gallery = labels_from_landmarks(gallery_landmarks, hierarchy, "index")
    counts = {
        "ignored_queries": solution.n_ignored,
        "queries_without_labels": int((~queries.labelled).sum()),
        "queries_of_several_landmarks": of_queries.n_mixed,
        "gallery_without_labels": int((~gallery.labelled).sum()),
    }
    return queries, gallery, counts


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    """Build the labelled task, where there is a hierarchy, and the official one."""
    solution = read_retrieval_solution(inputs.ground_truth / SOLUTION)
    landmarks = read_image_to_landmark(inputs.ground_truth / LANDMARKS)
    _check_gallery(inputs.gallery, landmarks)
    tasks = [official_task(inputs.queries, inputs.gallery, solution)]
    if inputs.hierarchy is not None:
        tasks.insert(
            0, labelled_task(inputs.queries, inputs.gallery, solution, landmarks, inputs.hierarchy)
        )
    return tasks


def _landmark_ids(gallery: Embeddings, landmarks: ImageLandmarks) -> Integers:
    """Return the landmark of each gallery image, in the order of the embeddings."""
    assert gallery.ids is not None
    return landmarks.landmark_ids[TextArray(landmarks.ids).find(gallery.ids)]


def _check_gallery(gallery: Embeddings, landmarks: ImageLandmarks) -> None:
    """Check that the gallery is all index images and no others."""
    rows_of(gallery, TextArray(landmarks.ids), f"index images in {LANDMARKS}")
    if len(gallery) > len(landmarks.ids):
        assert gallery.ids is not None
        others = sorted({*gallery.ids}.difference(landmarks.ids.tolist()))
        raise InputError(
            f"{gallery.path}: {len(others):,} embeddings are of images that {LANDMARKS} does not have; the protocol "
            f"ranks all index images and no others:\n{indented_list(others)}"
        )


def official_results(
    predictions: RetrievalPredictions, solution: RetrievalSolution
) -> list[RetrievalResult]:
    """Score predictions by the lists of the solution, as the challenges do: mAP@100, Public and Private apart.

    As in the published scorer, a positive counts as often as the solution lists it, a test image without predictions
    has an AP of 0, and an empty list of positives is one positive, the empty id. The mean and median position are
    that scorer's, too: of the first correct image, or 101 where the first 100 have none.
    """
    levels = np.zeros((len(solution.query_ids), N_RANKS), np.uint8)
    for row, (query, positives) in enumerate(
        zip(solution.query_ids, solution.positives, strict=True)
    ):
        left = set(positives)
        for rank, image in enumerate(predictions.get(query, ())[:N_RANKS]):
            levels[row, rank] = image in left
            left.discard(image)
    n_positives = np.array([[len(positives)] for positives in solution.positives])
    config = EvaluationConfig(metrics=("mAP@100",))
    result = _result("official", solution.query_ids, levels, n_positives, N_RANKS, config)
    usages = np.array(solution.usages)
    counts = {"queries": len(result.per_query), "ignored_queries": solution.n_ignored}
    result = replace(result, counts=counts, settings={"ranking": _RANKING})
    result = result.renamed({"mAP@100": "map100_official"})
    positions = np.where(levels.any(axis=1), levels.argmax(axis=1) + 1.0, N_RANKS + 1.0)
    result = replace(result, per_query=result.per_query.assign(first_position=positions))
    results = []
    for usage in USAGES:
        part = result.part(f"official {usage.lower()}", usages == usage)
        first = part.per_query["first_position"]
        counts = part.counts | _without_predictions(predictions, part)
        settings = part.settings | {
            "mean_position": first.mean(),
            "median_position": first.median(),
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
    """Score predictions by landmark and the levels above, over the index images that have hierarchical labels.

    Args:
        solution: Positives of each test image, of which the first gives its landmark.
        config: Metrics and relevance; how to rank is not used.

    Raises:
        ConfigurationError: A metric needs the whole ranking, or more than 100 ranks.
        InputError: Positives have no landmark, or no image has labels.
    """
    solution = _with_positives(solution)
    query_labels, gallery_labels, left_out = _labels(
        solution, landmarks, landmarks.landmark_ids, hierarchy
    )
    labelled = query_labels.labelled
    query_ids = [query for query, known in zip(solution.query_ids, labelled, strict=True) if known]
    query_codes, gallery_codes = nested_codes(
        query_labels.labels[labelled], gallery_labels.labels[gallery_labels.labelled]
    )
    codes = np.full((len(landmarks.ids), gallery_codes.shape[1]), -1, np.int32)
    codes[gallery_labels.labelled] = gallery_codes
    levels, n_short, n_unknown = _levels(predictions, query_ids, query_codes, landmarks, codes)
    n_labelled = len(gallery_codes)
    result = _result(
        "labelled",
        query_ids,
        levels,
        _count_positives(query_codes, gallery_codes),
        n_labelled,
        config,
    ).renamed({"mAP@100": "map100_labelled"})
    counts = {
        "gallery": len(landmarks.ids),
        **left_out,
        **_without_predictions(predictions, result),
        f"queries_with_fewer_than_{N_RANKS}_labelled_images": n_short,
        "predicted_images_that_the_index_lacks": n_unknown,
    }
    warn_without_positives(result.name, result.per_query, range(1, query_codes.shape[1] + 1))
    return replace(result, counts=count_queries(result.per_query) | counts)


def _levels(
    predictions: RetrievalPredictions,
    query_ids: Sequence[str],
    query_codes: npt.NDArray[np.int32],
    landmarks: ImageLandmarks,
    gallery_codes: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.uint8], int, int]:
    """Return the levels at ranks 1 to 100, the number of lists with fewer labelled images, and of unknown images."""
    lists = [predictions.get(query, ()) for query in query_ids]
    positions = TextArray(landmarks.ids).find(
        TextArray([image for images in lists for image in images])
    )
    ends = np.cumsum([len(images) for images in lists])
    levels = np.zeros((len(lists), N_RANKS), np.uint8)
    enough = min(N_RANKS, int((gallery_codes[:, 0] >= 0).sum()))
    n_short = 0
    for row, (images, end) in enumerate(zip(lists, ends, strict=True)):
        own = positions[end - len(images) : end]
        kept = own[(own < 0) | (gallery_codes[own, 0] >= 0)][:N_RANKS]
        n_short += len(kept) < enough
        shared = (gallery_codes[kept] == query_codes[row]).sum(1)
        first = np.zeros(len(kept), bool)
        first[np.unique(kept, return_index=True)[1]] = True
        levels[row, : len(kept)] = np.where((kept >= 0) & first, shared, 0)
    return levels, n_short, int((positions < 0).sum())


def _count_positives(
    query_codes: npt.NDArray[np.int32], gallery_codes: npt.NDArray[np.int32]
) -> Integers:
    """Return the number of gallery items of level 1, ..., L or finer: int64, shape (n_query, L)."""
    columns = zip(query_codes.T, gallery_codes.T, strict=True)
    counts = [
        np.bincount(gallery, minlength=queries.max(initial=-1) + 1)[queries]
        for queries, gallery in columns
    ]
    return np.stack(counts[::-1], axis=1)


def _result(
    name: str,
    query_ids: Sequence[str],
    levels: npt.NDArray[np.uint8],
    n_positives: Integers,
    n_gallery: int,
    config: EvaluationConfig,
) -> RetrievalResult:
    """Take the metrics of the first ranks."""
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
    rows = zip(solution.query_ids, solution.usages, solution.positives, strict=True)
    query_ids, usages, positives = zip(*(row for row in rows if any(row[2])), strict=True)
    return replace(solution, query_ids=query_ids, usages=usages, positives=positives)


def _without_predictions(
    predictions: RetrievalPredictions, result: RetrievalResult
) -> dict[str, int]:
    return {
        "queries_without_predictions": sum(
            not predictions.get(query) for query in result.per_query.index
        )
    }


def _score_predictions(files: EvaluationFiles, config: EvaluationConfig) -> list[RetrievalResult]:
    """Score predictions by labels, where there is a hierarchy, and by the official lists."""
    assert files.predictions is not None
    assert files.ground_truth is not None
    solution = read_retrieval_solution(files.ground_truth / SOLUTION, may_lack_positives=True)
    test_images = (*solution.query_ids, *solution.ignored_ids)
    predictions = read_retrieval_predictions(files.predictions, test_images)
    results = official_results(predictions, solution)
    if files.hierarchy is not None:
        landmarks, hierarchy = (
            read_image_to_landmark(files.ground_truth / LANDMARKS),
            load_hierarchy(files.hierarchy),
        )
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

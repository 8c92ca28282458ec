"""Score predictions of GLDv2's test images: lists of the first index images, without the rest of the ranking.

What a list of k images says is enough for all metrics at k or less, for mistake severity and for hF: the numbers of
positives come from the ground truth. AP, H-AP, wAP, NDCG, ASI, AHP and mAP@R need the whole ranking. Ranks beyond the
end of a list count as items that share nothing with the query; so do repeated images and unknown ones, which take a
rank each.

The lists rank all index images, and the number by labels excludes those without hierarchical labels: their ranks are
closed up. Where fewer than 100 images are left, that number is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch

from hgld.datasets.image_labels import labels_from_landmarks
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.level_weights import LevelWeights
from hgld.evaluation.metric_registry import Metric, RankedBlock
from hgld.evaluation.ranking_statistics import truncated_statistics
from hgld.evaluation.results import RetrievalResult, count_queries, warn_without_positives
from hgld.gldv2.ground_truth import USAGES, ImageLandmarks, RetrievalPredictions, RetrievalSolution, query_landmarks
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.label_matrix import nested_codes

#: Number of images per list that are scored.
N_RANKS = 100
_RANKING = "as predicted; what a list does not have counts as unrelated"


def official_results(predictions: RetrievalPredictions, solution: RetrievalSolution) -> list[RetrievalResult]:
    """Score predictions by the lists of the solution, as the challenges do: mAP@100, Public and Private apart.

    As in the published scorer, a positive counts as often as the solution lists it, a test image without predictions
    has an AP of 0, and an empty list of positives is one positive, the empty id.
    """
    levels = np.zeros((len(solution.query_ids), N_RANKS), np.uint8)
    for row, (query, positives) in enumerate(zip(solution.query_ids, solution.positives, strict=True)):
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
    parts = []
    for usage in USAGES:
        part = result.renamed({"mAP@100": "map100_official"}).part(f"official {usage.lower()}", usages == usage)
        own = [query for query, its_usage in zip(solution.query_ids, usages, strict=True) if its_usage == usage]
        parts.append(
            replace(part, counts=part.counts | {"queries_without_predictions": _n_without(predictions, own)})
        )
    return parts


def labelled_result(
    predictions: RetrievalPredictions,
    solution: RetrievalSolution,
    landmarks: ImageLandmarks,
    hierarchy: Hierarchy,
    config: EvaluationConfig,
) -> RetrievalResult:
    """Score predictions by landmark and the levels above, over the index images that have hierarchical labels.

    Args:
        predictions: Predicted images of the test images.
        solution: Positives of each test image, of which the first gives its landmark.
        landmarks: Landmarks of the index images.
        hierarchy: H-GLDv2's levels of the index landmarks.
        config: Metrics and relevance; how to rank is not used.

    Raises:
        ConfigurationError: A metric needs the whole ranking, or more than 100 ranks.
        InputError: Positives have no landmark, or no image has labels.
    """
    solution = _with_positives(solution)
    landmarks_of_queries = query_landmarks(solution, landmarks)
    query_labels = labels_from_landmarks(landmarks_of_queries.landmark_ids, hierarchy, "index")
    gallery_labels = labels_from_landmarks(landmarks.landmark_ids, hierarchy, "index")
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
        "labelled", query_ids, levels, _count_positives(query_codes, gallery_codes), n_labelled, config
    ).renamed({"mAP@100": "map100_labelled"})
    counts = {
        "gallery": len(landmarks.ids),
        "ignored_queries": solution.n_ignored,
        "queries_without_labels": int((~labelled).sum()),
        "queries_of_several_landmarks": landmarks_of_queries.n_mixed,
        "gallery_without_labels": len(landmarks.ids) - n_labelled,
        "queries_without_predictions": _n_without(predictions, query_ids),
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
    found = pc.index_in(
        pa.array([image for images in lists for image in images], pa.string()),
        value_set=pa.array(landmarks.ids, pa.string()),
    )
    positions = pc.fill_null(found, -1).to_numpy().astype(np.int64)
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
) -> npt.NDArray[np.int64]:
    """Return the number of gallery items of level 1, ..., L or finer: int64, shape (n_query, L)."""
    n_codes = max(int(query_codes.max(initial=-1)), int(gallery_codes.max(initial=-1))) + 1
    columns = zip(query_codes.T, gallery_codes.T, strict=True)
    counts = [np.bincount(gallery, minlength=n_codes)[queries] for queries, gallery in columns]
    return np.stack(counts[::-1], axis=1)


def _result(
    name: str,
    query_ids: Sequence[str],
    levels: npt.NDArray[np.uint8],
    n_positives: npt.NDArray[np.int64],
    n_gallery: int,
    config: EvaluationConfig,
) -> RetrievalResult:
    """Take the metrics of the first ranks."""
    n_levels = n_positives.shape[1]
    metrics = [Metric.from_name(metric, n_levels) for metric in config.metrics or _default_metrics(n_gallery)]
    for metric in metrics:
        if metric.n_ranks is None or not 1 <= metric.n_ranks <= N_RANKS:
            raise ConfigurationError(
                f"{metric.name} needs more of the ranking than the first {N_RANKS} images, which predictions hold; "
                f"choose metrics at k of 1 to {N_RANKS} such as mAP@100, NDCG@100 or HP@100, or mistake_severity"
            )
    weights = LevelWeights(
        config.relevance,
        config.relevance_alpha,
        config.gain,
        config.level_weights,
        shape=(len(levels), n_levels + 1),
    )
    ranked = torch.from_numpy(levels)
    positives = torch.from_numpy(n_positives)
    cutoffs = [metric.k for metric in metrics if metric.k is not None]
    statistics = truncated_statistics(ranked, positives, torch.full((len(levels),), n_gallery), cutoffs)
    block = RankedBlock(ranked, statistics, weights.block(slice(0, len(levels))))
    columns = {metric.name: metric.values(block).numpy() for metric in metrics}
    columns |= {f"positives_l{level}": n_positives[:, level - 1] for level in range(1, n_levels + 1)}
    per_query = pd.DataFrame(columns, index=pd.Index(list(query_ids), name="query"))
    return RetrievalResult(
        name=name,
        per_query=per_query,
        metrics=tuple(metric.name for metric in metrics),
        counts=count_queries(per_query),
        settings={**weights.settings, "ranking": _RANKING},
    )


def _default_metrics(n_gallery: int) -> list[str]:
    k = min(N_RANKS, n_gallery)
    return ["mAP@100", "R@1", f"NDCG@{k}", f"HP@{k}", f"AHP@{k}", "mistake_severity"]


def _with_positives(solution: RetrievalSolution) -> RetrievalSolution:
    rows = zip(solution.query_ids, solution.usages, solution.positives, strict=True)
    query_ids, usages, positives = zip(*(row for row in rows if any(row[2])), strict=True)
    return replace(solution, query_ids=query_ids, usages=usages, positives=positives)


def _n_without(predictions: RetrievalPredictions, query_ids: Sequence[str]) -> int:
    return sum(not predictions.get(query) for query in query_ids)

"""ROxford5k and RParis6k: mAP and mP@1, 5, 10 in each setting (Radenovic et al., CVPR 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

import numpy as np
import torch

from hgld.datasets.revisited_ground_truth import SETTINGS, RevisitedGroundTruth, read_ground_truth
from hgld.errors import InputError
from hgld.evaluation.evaluation_files import EvaluationInputs, EvaluationProtocol, InputSet
from hgld.evaluation.metrics import Metric, MetricSpec
from hgld.evaluation.ranking_statistics import RankingStatistics
from hgld.evaluation.relevance import ListJudgements
from hgld.evaluation.retrieval_task import RetrievalTask, with_distractors
from hgld.ragged import Integers, RaggedIndices
from hgld.tables.embeddings import Embeddings, rows_of

_KAPPAS = (1, 5, 10)


def revisited_tasks(
    queries: Embeddings, gallery: Embeddings, truth: RevisitedGroundTruth, distractors: Embeddings | None = None
) -> list[RetrievalTask]:
    """Build the tasks "easy", "medium" and "hard".

    Args:
        queries: Embeddings with the names of the queries as ids; folders and suffixes of ids do not matter.
        gallery: The same for the gallery; images that the ground truth does not name, such as those of the queries,
            are left out.
        truth: Ground truth.
        distractors: Further images of the gallery, all of which are negatives, such as the million of R1M.

    Returns:
        A task per setting, with the metrics of the protocol. A query without positives in a setting has no value
        there.

    Raises:
        InputError: Images are not embedded, two ids mean the same image, or distractors have another number of
            dimensions.
    """
    query_rows = rows_of(_with_names(queries), truth.query_names, "queries of the ground truth")
    gallery_rows = rows_of(_with_names(gallery), truth.gallery_names, "gallery images of the ground truth")
    vectors = queries.vectors[torch.from_numpy(query_rows)]
    gallery_vectors = gallery.vectors[torch.from_numpy(gallery_rows)]
    tasks = [
        RetrievalTask(
            name=setting,
            queries=vectors,
            gallery=gallery_vectors,
            judgements=ListJudgements(truth.positives(setting), len(gallery_vectors)),
            query_ids=np.array(truth.query_names),
            gallery_ids=np.array(truth.gallery_names),
            excluded=truth.ignored(setting),
            metrics=_METRICS,
            fixed_metrics=True,
            settings={"AP": "by trapezoids (Oxford)"},
        )
        for setting in SETTINGS
    ]
    return tasks if distractors is None else [with_distractors(task, distractors) for task in tasks]


def revisited_average_precision(ranks: Integers, n_positive: int) -> float:
    """Average precision of one query under the Oxford protocol, by trapezoids.

    The j-th positive (from 0) at rank r (from 0) stands for a step 1 / n_positive of recall, over which precision is
    the mean of that just before it, j / r (1 if r is 0), and that with it, (j + 1) / (r + 1). Eq. 9 of the paper on
    rank losses, and all other APs of hgld, take the second alone, which is never lower: of two positives at ranks 0
    and 3 it makes 0.75, as below, and the trapezoids 0.71.

    Args:
        ranks: Ranks of the retrieved positives, ascending, from 0, shape (n_retrieved,); ignored images do not count.
        n_positive: Number of positives of the query, retrieved or not.

    Returns:
        Value from 0 to 1; NaN for a query without positives.

    >>> revisited_average_precision(np.array([0, 3]), 2)
    0.7083333333333333
    """
    if not n_positive:
        return float("nan")
    before = np.arange(len(ranks))
    precision_before = np.where(ranks == 0, 1.0, before / np.maximum(ranks, 1))
    precision_with = (before + 1) / (ranks + 1)
    return float((precision_before + precision_with).sum() / 2 / n_positive)


def revisited_precision_at(ranks: Integers, k: int) -> float:
    """Precision among the first k of one query (mP@k), or up to the last positive where that comes earlier.

    Args:
        ranks: Ranks of all positives, ascending, from 0, shape (n_positive,); ignored images do not count.
        k: Cutoff.

    Returns:
        Value from 0 to 1; NaN for a query without positives.

    >>> revisited_precision_at(np.array([0, 3]), 10)
    0.5
    """
    if not len(ranks):
        return float("nan")
    cutoff = min(int(ranks[-1]) + 1, k)
    return float((ranks < cutoff).sum() / cutoff)


def _per_query(
    value: Callable[[Integers], float], ranks: RaggedIndices, statistics: RankingStatistics
) -> torch.Tensor:
    """Return a function of the positives' ranks for each query: float64, shape (n,)."""
    return torch.tensor([value(ranks.row(query)) for query in range(len(ranks))], dtype=torch.float64)


def _metric(name: str, value: Callable[[Integers], float]) -> Metric:
    return Metric(name, MetricSpec(partial(_per_query, value), positive_ranks=True))


_METRICS = (
    _metric("mAP", lambda ranks: revisited_average_precision(ranks, len(ranks))),
    *(_metric(f"mP@{k}", partial(revisited_precision_at, k=k)) for k in _KAPPAS),
)


def _with_names(images: Embeddings) -> Embeddings:
    """Return the embeddings with names for ids: the ground truth has neither folders nor suffixes."""
    if images.ids is None:
        return images
    names = [PurePosixPath(image).stem for image in images.ids.tolist()]
    if len(set(names)) < len(names):
        raise InputError(
            f"{images.path}: {len(names) - len(set(names)):,} ids differ from others in folder and suffix alone; the "
            "ground truth names images without them"
        )
    return replace(images, ids=np.array(names))


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    truth = read_ground_truth(inputs.ground_truth)
    return revisited_tasks(inputs.queries, inputs.gallery, truth, inputs.distractors)


_INPUTS = (InputSet(("query_embeddings", "gallery_embeddings", "ground_truth"), ("distractor_embeddings",)),)
ROXFORD = EvaluationProtocol("roxford", _INPUTS, _build_tasks, {"ground_truth": "gnd_roxford5k.pkl"})
RPARIS = EvaluationProtocol("rparis", _INPUTS, _build_tasks, {"ground_truth": "gnd_rparis6k.pkl"})

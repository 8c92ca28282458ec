"""ROxford5k and RParis6k: mAP and mP@1, 5, 10 in each setting (Radenovic et al., CVPR 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.datasets.revisited_ground_truth import SETTINGS, RevisitedGroundTruth, read_ground_truth
from hgld.errors import InputError
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.metric_registry import Metric, RankedBlock
from hgld.evaluation.protocols.protocol import EvaluationProtocol, InputSet
from hgld.evaluation.protocols.revisited_metrics import revisited_average_precision, revisited_precision_at
from hgld.evaluation.relevance_judgements import ListJudgements
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.ragged import Integers
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
    gallery_ids = np.array(truth.gallery_names)
    if distractors is not None:
        gallery_vectors, gallery_ids = _with_distractors(gallery_vectors, gallery_ids, distractors)

    return [
        RetrievalTask(
            name=setting,
            queries=vectors,
            gallery=gallery_vectors,
            judgements=ListJudgements(truth.positives(setting), len(gallery_vectors)),
            query_ids=np.array(truth.query_names),
            gallery_ids=gallery_ids,
            excluded=truth.ignored(setting),
            metrics=_METRICS,
            fixed_metrics=True,
            settings={"AP": "by trapezoids (Oxford)"},
        )
        for setting in SETTINGS
    ]


def _per_query(value: Callable[[Integers], float], block: RankedBlock) -> torch.Tensor:
    """Return a function of the positives' ranks for each query: float64, shape (n,)."""
    rankings = block.levels.cpu().numpy()
    return torch.tensor([value(np.flatnonzero(ranking)) for ranking in rankings], dtype=torch.float64)


_METRICS = (
    Metric("mAP", None, partial(_per_query, lambda ranks: revisited_average_precision(ranks, len(ranks)))),
    *(Metric(f"mP@{k}", None, partial(_per_query, partial(revisited_precision_at, k=k))) for k in _KAPPAS),
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


def _with_distractors(
    vectors: torch.Tensor, ids: NDArray[np.str_], distractors: Embeddings
) -> tuple[torch.Tensor, NDArray[np.str_]]:
    """Append distractors to the vectors and ids of a gallery; copies all of them into memory."""
    if distractors.dim != vectors.shape[1]:
        raise InputError(
            f"{distractors.path}: has {distractors.dim:,} dimensions, but the gallery has {vectors.shape[1]:,}; "
            "embed both with the same model"
        )
    names = [f"distractor {row}" for row in range(len(distractors))]
    all_ids = np.concatenate([ids, np.array(names) if distractors.ids is None else distractors.ids])
    return torch.cat([vectors, distractors.vectors.to(vectors.dtype)]), all_ids


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    truth = read_ground_truth(inputs.ground_truth)
    return revisited_tasks(inputs.queries, inputs.gallery, truth, inputs.distractors)


_INPUTS = (InputSet(("query_embeddings", "gallery_embeddings", "ground_truth"), ("distractor_embeddings",)),)
ROXFORD = EvaluationProtocol("roxford", _INPUTS, _build_tasks, {"ground_truth": "gnd_roxford5k.pkl"})
RPARIS = EvaluationProtocol("rparis", _INPUTS, _build_tasks, {"ground_truth": "gnd_rparis6k.pkl"})

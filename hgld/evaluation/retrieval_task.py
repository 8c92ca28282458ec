"""An evaluation that is ready to run: embeddings, who judges the pairs, and what stays out of the rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.processes import Processes
from hgld.datasets.image_labels import ImageLabels
from hgld.evaluation.evaluate import evaluate, items_sharing_ids
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.relevance_judgements import LabelJudgements, RelevanceJudgements
from hgld.evaluation.results import RetrievalResult
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.progress import Progress
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings

Ids = npt.NDArray[np.str_]


@dataclass(frozen=True)
class EvaluationConfig:
    """What to take of the rankings, and how to rank.

    Args:
        metrics: names, see :meth:`hgld.evaluation.metric_registry.Metric.of`; those of the task unless given.
        relevance_alpha: the alpha of Eq. 20.
        ranking: how to rank.
        processes: those that share the queries.
        progress: told of the queries of each task.
    """

    metrics: tuple[str, ...] | None = None
    relevance_alpha: float = 1.0
    ranking: RankingConfig = field(default_factory=RankingConfig)
    processes: Processes = field(default_factory=Processes)
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """Queries, the gallery that is ranked for them, and who judges it.

    Args:
        name: of the result.
        queries: float, shape (n_query, d).
        gallery: float, shape (n_gallery, d).
        judgements: of all pairs.
        query_ids: str, shape (n_query,), where the images have names.
        gallery_ids: str, shape (n_gallery,), likewise.
        query_labels: int64, shape (n_query, L), where labels judge.
        gallery_labels: int64, shape (n_gallery, L), likewise.
        level_names: of the L levels, finest first.
        excluded: gallery items to leave out of the ranking of each query.
        gallery_mask: bool, shape (n_gallery,); False for the items that are excluded from all rankings.
        metrics: what is usual for the task; those of :func:`~hgld.evaluation.metric_registry.default_metrics` unless
            given.
        counts: further counts of the result, such as of images that have no labels.
    """

    name: str
    queries: torch.Tensor
    gallery: torch.Tensor
    judgements: RelevanceJudgements
    query_ids: Ids | None = None
    gallery_ids: Ids | None = None
    query_labels: LabelMatrix | None = None
    gallery_labels: LabelMatrix | None = None
    level_names: tuple[str, ...] | None = None
    excluded: RaggedIndices | None = None
    gallery_mask: npt.NDArray[np.bool_] | None = None
    metrics: Sequence[str] | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def run(self, how: EvaluationConfig) -> RetrievalResult:
        """Evaluate.

        Raises:
            InputError: see :func:`hgld.evaluation.evaluate.evaluate`.
            ConfigurationError: likewise.
        """
        result = evaluate(
            self.queries,
            self.gallery,
            self.judgements,
            name=self.name,
            metrics=how.metrics or self.metrics,
            relevance_alpha=how.relevance_alpha,
            excluded=self.excluded,
            gallery_mask=self.gallery_mask,
            query_ids=self.query_ids,
            config=how.ranking,
            processes=how.processes,
            progress=how.progress,
        )
        return replace(result, counts=result.counts | self.counts)


def leave_one_out(images: Embeddings, labels: ImageLabels) -> RetrievalTask:
    """Every image against all others. Images without labels are left out, as queries and in the gallery."""
    ids = None if images.ids is None else images.ids[labels.labelled]
    vectors = images.vectors
    if not labels.labelled.all():
        vectors = vectors[torch.from_numpy(np.flatnonzero(labels.labelled))]
    known, n_images = labels.labels[labels.labelled], len(vectors)
    return RetrievalTask(
        name="leave-one-out",
        queries=vectors,
        gallery=vectors,
        judgements=LabelJudgements(known, known),
        query_ids=ids,
        gallery_ids=ids,
        query_labels=known,
        gallery_labels=known,
        level_names=labels.level_names,
        excluded=RaggedIndices(np.arange(n_images + 1), np.arange(n_images)),
        counts={"images_without_labels": int((~labels.labelled).sum())},
    )


def query_and_gallery(
    queries: Embeddings, query_labels: ImageLabels, gallery: Embeddings, gallery_labels: ImageLabels
) -> RetrievalTask:
    """Queries against a gallery of its own.

    Images without labels are left out on both sides, and so is a gallery image with the id of the query.
    """
    labelled = query_labels.labelled
    query_ids = None if queries.ids is None else queries.ids[labelled]
    excluded = None if query_ids is None or gallery.ids is None else items_sharing_ids(query_ids, gallery.ids)
    return RetrievalTask(
        name="retrieval",
        queries=queries.vectors if labelled.all() else queries.vectors[torch.from_numpy(np.flatnonzero(labelled))],
        gallery=gallery.vectors,
        judgements=LabelJudgements(query_labels.labels[labelled], gallery_labels.labels),
        query_ids=query_ids,
        gallery_ids=gallery.ids,
        query_labels=query_labels.labels[labelled],
        gallery_labels=gallery_labels.labels,
        level_names=gallery_labels.level_names,
        excluded=excluded,
        gallery_mask=gallery_labels.labelled,
        counts={
            "queries_without_labels": int((~labelled).sum()),
            "gallery_without_labels": int((~gallery_labels.labelled).sum()),
            "queries_in_gallery": 0 if excluded is None else int((np.diff(excluded.offsets) > 0).sum()),
        },
    )

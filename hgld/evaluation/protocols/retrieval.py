"""Retrieval: queries against a gallery of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from hgld.datasets.image_labels import ImageLabels
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.protocols.protocol import EvaluationProtocol, InputSet
from hgld.evaluation.retrieval_task import RetrievalTask, query_gallery_task
from hgld.hierarchy.label_sets import take_images
from hgld.tables.embeddings import Embeddings


def labelled_retrieval(
    queries: Embeddings, query_labels: ImageLabels, gallery: Embeddings, gallery_labels: ImageLabels
) -> RetrievalTask:
    """Rank the labelled gallery images for the labelled queries.

    Images without labels are excluded on both sides, and a gallery image with the id of the query from its ranking.
    """
    labelled = query_labels.labelled
    vectors = queries.vectors
    if not labelled.all():
        vectors = vectors[torch.from_numpy(np.flatnonzero(labelled))]
    task = query_gallery_task(
        vectors,
        take_images(query_labels.labelling, labelled),
        gallery.vectors,
        gallery_labels.labelling,
        query_ids=None if queries.ids is None else queries.ids[labelled],
        gallery_ids=gallery.ids,
        level_names=gallery_labels.level_names,
    )
    return replace(
        task,
        label_names=tuple(
            {**names, **own} for names, own in zip(gallery_labels.names, query_labels.names, strict=False)
        ),
        gallery_mask=gallery_labels.labelled,
        counts={
            "queries_without_labels": int((~labelled).sum()),
            "gallery_without_labels": int((~gallery_labels.labelled).sum()),
            "queries_in_gallery": 0 if task.excluded is None else int(np.count_nonzero(task.excluded.counts())),
        },
    )


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    return [labelled_retrieval(inputs.queries, inputs.query_labels(), inputs.gallery, inputs.gallery_labels())]


RETRIEVAL = EvaluationProtocol(
    name="retrieval",
    inputs=(
        InputSet(
            ("query_embeddings", "gallery_embeddings"),
            ("labels", "query_labels", "label_separator", "hierarchy", "split"),
        ),
    ),
    build_tasks=_build_tasks,
)

"""Protocols by labels alone: leave-one-out, and retrieval with queries against a gallery of their own."""

from __future__ import annotations

from dataclasses import replace

from hgld.datasets.image_labels import ImageLabels
from hgld.evaluation.evaluation_files import EvaluationInputs, EvaluationProtocol, InputSet
from hgld.evaluation.retrieval_task import (
    RetrievalTask,
    leave_one_out_task,
    query_gallery_task,
    with_distractors,
)
from hgld.tables.embeddings import Embeddings


def labelled_leave_one_out(images: Embeddings, labels: ImageLabels) -> RetrievalTask:
    """Rank every labelled image against all others; images without labels are excluded on both sides."""
    task = leave_one_out_task(images.vectors, labels.labelling, ids=images.ids, level_names=labels.level_names)
    return replace(task, label_names=labels.names)


def labelled_retrieval(
    queries: Embeddings, query_labels: ImageLabels, gallery: Embeddings, gallery_labels: ImageLabels
) -> RetrievalTask:
    """Rank the labelled gallery images for the labelled queries.

    Images without labels are excluded on both sides, and a gallery image with the id of the query from its ranking.
    """
    task = query_gallery_task(
        queries.vectors,
        query_labels.labelling,
        gallery.vectors,
        gallery_labels.labelling,
        query_ids=queries.ids,
        gallery_ids=gallery.ids,
        level_names=gallery_labels.level_names,
    )
    label_names = zip(gallery_labels.names, query_labels.names, strict=False)
    return replace(task, label_names=tuple({**names, **own} for names, own in label_names))


def _retrieval_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    task = labelled_retrieval(inputs.queries, inputs.query_labels(), inputs.gallery, inputs.gallery_labels())
    return [task if inputs.distractors is None else with_distractors(task, inputs.distractors)]


LEAVE_ONE_OUT = EvaluationProtocol(
    name="leave-one-out",
    inputs=(InputSet(("embeddings",), ("labels", "label_separator", "hierarchy", "split")),),
    build_tasks=lambda inputs: [labelled_leave_one_out(inputs.gallery, inputs.gallery_labels())],
)
RETRIEVAL = EvaluationProtocol(
    name="retrieval",
    inputs=(
        InputSet(
            ("query_embeddings", "gallery_embeddings"),
            ("distractor_embeddings", "labels", "query_labels", "label_separator", "hierarchy", "split"),
        ),
    ),
    build_tasks=_retrieval_tasks,
)

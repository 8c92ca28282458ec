"""Leave-one-out: every labelled image is a query, and all others are its gallery."""

from __future__ import annotations

from dataclasses import replace

from hgld.datasets.image_labels import ImageLabels
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.protocols.protocol import EvaluationProtocol, InputSet
from hgld.evaluation.retrieval_task import RetrievalTask, leave_one_out_task
from hgld.tables.embeddings import Embeddings


def labelled_leave_one_out(images: Embeddings, labels: ImageLabels) -> RetrievalTask:
    """Rank every labelled image against all others; images without labels are excluded on both sides."""
    task = leave_one_out_task(images.vectors, labels.labelling, ids=images.ids, level_names=labels.level_names)
    return replace(task, label_names=labels.names)


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    return [labelled_leave_one_out(inputs.gallery, inputs.gallery_labels())]


LEAVE_ONE_OUT = EvaluationProtocol(
    name="leave-one-out",
    inputs=(InputSet(("embeddings",), ("labels", "label_separator", "hierarchy", "split")),),
    build_tasks=_build_tasks,
)

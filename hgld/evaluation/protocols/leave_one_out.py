"""Leave-one-out: every labelled image is a query, and all others are its gallery."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from hgld.datasets.image_labels import ImageLabels
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.protocols.protocol import EvaluationProtocol, InputSet
from hgld.evaluation.retrieval_task import RetrievalTask, leave_one_out_task
from hgld.hierarchy.label_sets import take_images
from hgld.tables.embeddings import Embeddings


def labelled_leave_one_out(images: Embeddings, labels: ImageLabels) -> RetrievalTask:
    """Rank every labelled image against all others; images without labels are excluded on both sides."""
    labelled = labels.labelled
    vectors = images.vectors
    if not labelled.all():
        vectors = vectors[torch.from_numpy(np.flatnonzero(labelled))]
    task = leave_one_out_task(
        vectors,
        take_images(labels.labelling, labelled),
        ids=None if images.ids is None else images.ids[labelled],
        level_names=labels.level_names,
    )
    return replace(task, label_names=labels.names, counts={"images_without_labels": int((~labelled).sum())})


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    return [labelled_leave_one_out(inputs.gallery, inputs.gallery_labels())]


LEAVE_ONE_OUT = EvaluationProtocol(
    name="leave-one-out",
    inputs=(InputSet(("embeddings",), ("labels", "label_separator", "hierarchy", "split")),),
    build_tasks=_build_tasks,
)

"""Texts as queries: the name of a label finds images, and an image finds the name of its label.

Each level has two tasks. In the first, the text of each of its labels ranks all labelled images, of which those with
the label are relevant, and less so those with its parents. In the second, each image ranks the texts of the level;
R@1 is then the accuracy of zero-shot classification (Radford et al., Learning Transferable Visual Models From Natural
Language Supervision, ICML 2021, Sec. 3.1).
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import torch

from hgld.datasets.image_labels import ImageLabels
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.evaluation_files import EvaluationProtocol, InputSet
from hgld.evaluation.protocols.labels import labelled_retrieval
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.io.columns import preview
from hgld.tables.embeddings import Embeddings

log = logging.getLogger(__name__)

#: Metrics of images that rank the texts of a level, of which one is right.
IMAGE_METRICS = ("R@1",)


def text_tasks(texts: Embeddings, images: Embeddings, labels: ImageLabels) -> list[RetrievalTask]:
    """Build the two tasks of each level whose labels all have a text; other levels are left out with a warning.

    Args:
        texts: Embeddings whose ids are names of labels.
        images: Embeddings of images, in the space of those of the texts.
        labels: Their labels, one for each image, with names.

    Raises:
        ConfigurationError: Texts have no ids, or labels no names.
        InputError: No level has a text for each of its labels, or images have several labels.
    """
    if texts.ids is None or not labels.names:
        found = f"{texts.path} comes without ids" if texts.ids is None else "`labels` are numbers without names"
        raise ConfigurationError(
            f"{found}; expected texts whose ids are the names of labels, and a manifest of these"
        )
    row_of = {name: row for row, name in enumerate(texts.ids.tolist())}
    labelled = labels.labels[labels.labelled]
    tasks = []
    for column, level in enumerate(labels.level_names):
        values, first = np.unique(labelled[:, column], return_index=True)
        names = [labels.names[column][value] for value in values.tolist()]
        if missing := [name for name in names if name not in row_of]:
            log.warning(
                "%s: no text for %s of the %s labels of the level %s, which is left out: %s",
                texts.path,
                f"{len(missing):,}",
                f"{len(names):,}",
                level,
                preview(missing, 3),
            )
            continue
        levels = labels.level_names[column:]
        image_labels = ImageLabels(labels.labels[:, column:], levels, labels.labelled, labels.names[column:])
        text_labels = replace(
            image_labels, labelling=labelled[first, column:], labelled=np.ones(len(names), np.bool_)
        )
        vectors = texts.vectors[torch.tensor([row_of[name] for name in names])]
        # An image whose id is the name of a label is not the same item, and is ranked for it.
        level_texts = replace(texts, vectors=vectors, ids=np.array([f"text: {name}" for name in names]))
        find_images = labelled_retrieval(level_texts, text_labels, images, image_labels)
        find_texts = labelled_retrieval(images, image_labels, level_texts, text_labels)
        tasks += [
            replace(find_images, name=f"{level} to images"),
            replace(find_texts, name=f"images to {level}", metrics=IMAGE_METRICS),
        ]
    if not tasks:
        raise InputError(
            f"{texts.path}: no level has a text for each of its labels, and its ids look like "
            f"{preview(texts.ids.tolist(), 3)}"
        )
    return tasks


TEXTS = EvaluationProtocol(
    name="texts",
    inputs=(InputSet(("query_embeddings", "gallery_embeddings", "labels"), ("label_separator", "split")),),
    build_tasks=lambda inputs: text_tasks(inputs.queries, inputs.gallery, inputs.gallery_labels()),
    descriptions={"query_embeddings": "the texts, see hgld embed-texts"},
)

"""Images that a run was evaluated on, with their embeddings, labels and photographs, for figures and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgld.benchmark.evaluations import (
    SPLIT_EMBEDDINGS,
    Evaluation,
    Gldv2Evaluation,
    ManifestsEvaluation,
    PicturedEvaluation,
    embedding_file,
)
from hgld.benchmark.runs import Run
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.gldv2_retrieval import GLDV2_RETRIEVAL
from hgld.evaluation.retrieval_task import RetrievalTask, split_task
from hgld.hierarchy import LabelMatrix, load_hierarchy
from hgld.hierarchy.label_matrix import main_labels
from hgld.inspection.photos import (
    Photo,
    PhotoSource,
    find_images,
    landmark_names_of,
    landmark_titles,
    manifest_photos,
)
from hgld.tables.embeddings import read_embeddings
from hgld.training.training_images import evaluation_manifest, read_training_manifest


@dataclass(frozen=True, eq=False)
class EvaluatedImages:
    """Images that a run was evaluated on, without those that could not be read.

    Args:
        task: Retrieval task, with labels and ids of queries and gallery.
        class_names: Names of the classes of each level that the labels number, finest first.
        photos: Function from the file of a hierarchy, whose categories name the landmarks, to the descriptions and
            photographs of the images; None to show ids. GLDv2's protocol has a hierarchy of its own.
    """

    task: RetrievalTask
    class_names: tuple[Sequence[str], ...]
    photos: Callable[[Path | None], PhotoSource]

    def embeddings_and_labels(self) -> list[tuple[torch.Tensor, LabelMatrix]]:
        """Return the embeddings and labels of the gallery, and of the queries where they are other images.

        Rows of -1 are those of unlabelled images. An image with several labels has its first.
        """
        task = self.task
        assert task.query_labels is not None
        assert task.gallery_labels is not None
        parts = [(task.gallery, main_labels(task.gallery_labels))]
        return parts if task.queries is task.gallery else [*parts, (task.queries, main_labels(task.query_labels))]


def read_evaluated_images(evaluation: Evaluation, run: Run) -> EvaluatedImages:
    """Read the embeddings that a run was evaluated with; those of queries and gallery in files are memory-mapped.

    Of GLDv2's protocol, the task is that of the labelled images; of several manifests, that of the last.

    Raises:
        InputError: The run was not evaluated in this way, or a file of the evaluation is missing.
    """
    if isinstance(evaluation, Gldv2Evaluation):
        return _read_gldv2_images(evaluation, run)
    assert isinstance(evaluation, PicturedEvaluation)
    data, name = run.settings.data, SPLIT_EMBEDDINGS
    if isinstance(evaluation, ManifestsEvaluation):
        name, path = list(evaluation.manifests.items())[-1]
        data = data.model_copy(update={"manifest": path})
    folder = data.root or data.manifest.parent
    embeddings = read_embeddings(embedding_file(run.folder, name))
    assert embeddings.ids is not None
    manifest = evaluation_manifest(read_training_manifest(data, folder), data)
    row_of = {name: row for row, name in enumerate(manifest.ids)}
    manifest = manifest.take(np.array([row_of[name] for name in embeddings.ids.tolist()]))
    task = split_task(
        embeddings.vectors,
        manifest.labelling,
        None if data.queries is None else manifest.splits == data.queries,
        ids=embeddings.ids,
        level_names=manifest.level_names,
    )

    def photos(hierarchy: Path | None) -> PhotoSource:
        titles = {} if hierarchy is None else landmark_titles(load_hierarchy(hierarchy), manifest.class_names[0])
        return manifest_photos(manifest, folder, task.query_ids, task.gallery_ids, titles)

    return EvaluatedImages(task, manifest.class_names, photos)


def _read_gldv2_images(evaluation: Gldv2Evaluation, run: Run) -> EvaluatedImages:
    inputs = EvaluationInputs.read(evaluation.evaluation_files(run.folder))
    hierarchy = inputs.hierarchy
    assert hierarchy is not None
    task, _ = GLDV2_RETRIEVAL.build_tasks(inputs)

    def photo(ids: Any, labels: Any) -> Callable[[int], Photo]:
        return lambda position: Photo(str(ids[position]), landmark_names_of(hierarchy, labels, position))

    def photos(_: Path | None) -> PhotoSource:
        images = find_images(evaluation.gallery), find_images(evaluation.queries)
        gallery = photo(task.gallery_ids, task.gallery_labels)
        return PhotoSource(photo(task.query_ids, task.query_labels), gallery, *images)

    return EvaluatedImages(task, (list(map(str, hierarchy.landmark_ids.tolist())), *hierarchy.nodes), photos)

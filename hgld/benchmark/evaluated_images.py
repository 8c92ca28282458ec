"""Embeddings, labels and photographs of the images that a run was evaluated on, for figures and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hgld.benchmark.benchmark_settings import (
    Evaluation,
    Gldv2Evaluation,
    ManifestsEvaluation,
    PicturedEvaluation,
    SplitEvaluation,
)
from hgld.benchmark.evaluations import embedding_file
from hgld.benchmark.evaluations.gldv2 import gldv2_files
from hgld.benchmark.evaluations.splits import SPLIT_EMBEDDINGS
from hgld.benchmark.runs import Run
from hgld.datasets.manifest import Manifest
from hgld.evaluation.protocols.gldv2_retrieval import GLDV2_RETRIEVAL
from hgld.evaluation.retrieval_task import Ids, RetrievalTask, split_task
from hgld.hierarchy import Hierarchy, LabelMatrix, load_hierarchy
from hgld.hierarchy.label_sets import Labelling, main_labels
from hgld.inspection.photos import (
    Photo,
    PhotoSource,
    find_images,
    images_of_manifest,
    landmark_names_of,
    landmark_titles,
    manifest_photo,
)
from hgld.tables.embeddings import read_embeddings
from hgld.training.training_images import evaluation_manifest, read_training_manifest
from hgld.training.training_settings import DataSettings


@dataclass(frozen=True, eq=False)
class EvaluatedImages:
    """Images that a run was evaluated on, without those that could not be read.

    Args:
        task: Retrieval task, with labels and ids of queries and gallery.
        class_names: Names of the classes of each level that the labels number, finest first.
    """

    task: RetrievalTask
    class_names: tuple[Sequence[str], ...]

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

    Args:
        evaluation: Evaluation of the comparison. Of GLDv2's protocol, the task is that of the labelled images; of
            several manifests, that of the last.
        run: Evaluated run.

    Raises:
        InputError: The run was not evaluated in this way, or a file of the evaluation is missing.
    """
    if isinstance(evaluation, Gldv2Evaluation):
        inputs = gldv2_files(evaluation, run).read()
        assert inputs.hierarchy is not None
        labelled_task, _ = GLDV2_RETRIEVAL.build_tasks(inputs)
        return EvaluatedImages(labelled_task, _class_names(inputs.hierarchy))
    assert isinstance(evaluation, PicturedEvaluation)
    embeddings = read_embeddings(embedding_file(run, _embedding_set(evaluation)))
    assert embeddings.ids is not None
    manifest = _read_manifest(_data(evaluation, run))
    row_of = _rows_by_id(manifest)
    manifest = manifest.take(np.array([row_of[name] for name in embeddings.ids.tolist()]))
    queries = run.settings.data.queries
    task = split_task(
        embeddings.vectors,
        manifest.labelling,
        None if queries is None else manifest.splits == queries,
        ids=embeddings.ids,
        name="split",
        level_names=manifest.level_names,
    )
    return EvaluatedImages(task, manifest.class_names)


def evaluated_photos(
    evaluation: Evaluation, run: Run, task: RetrievalTask, hierarchy: Path | None = None
) -> PhotoSource:
    """Return the descriptions and photographs of the images of a task from :func:`read_evaluated_images`.

    Args:
        evaluation: Evaluation of the comparison.
        run: Evaluated run.
        task: Its task.
        hierarchy: Hierarchy of GLDv2 whose categories name the landmarks of the trainings' images; None to show ids.
            GLDv2's protocol has a hierarchy itself.

    Raises:
        InputError: The hierarchy, the manifest or the table of images cannot be read.
    """
    if isinstance(evaluation, Gldv2Evaluation):
        return _gldv2_photos(evaluation, task)
    assert isinstance(evaluation, PicturedEvaluation)
    data = _data(evaluation, run)
    manifest = _read_manifest(data)
    titles = {} if hierarchy is None else landmark_titles(load_hierarchy(hierarchy), manifest.class_names[0])
    row_of = _rows_by_id(manifest)

    def photos(ids: Ids | None) -> Callable[[int], Photo]:
        assert ids is not None
        return lambda position: manifest_photo(manifest, row_of[str(ids[position])], titles)

    images = images_of_manifest(manifest, _image_folder(data))
    return PhotoSource(photos(task.query_ids), photos(task.gallery_ids), images)


def _gldv2_photos(evaluation: Gldv2Evaluation, task: RetrievalTask) -> PhotoSource:
    hierarchy = load_hierarchy(evaluation.hierarchy)

    def photos(ids: Ids | None, labels: Labelling | None) -> Callable[[int], Photo]:
        assert ids is not None
        assert labels is not None
        return lambda position: Photo(str(ids[position]), landmark_names_of(hierarchy, labels, position))

    return PhotoSource(
        query=photos(task.query_ids, task.query_labels),
        gallery=photos(task.gallery_ids, task.gallery_labels),
        image=find_images(evaluation.gallery),
        query_image=find_images(evaluation.queries),
    )


def _class_names(hierarchy: Hierarchy) -> tuple[Sequence[str], ...]:
    return list(map(str, hierarchy.landmark_ids.tolist())), *hierarchy.nodes


def _embedding_set(evaluation: SplitEvaluation | ManifestsEvaluation) -> str:
    return list(evaluation.manifests)[-1] if isinstance(evaluation, ManifestsEvaluation) else SPLIT_EMBEDDINGS


def _data(evaluation: SplitEvaluation | ManifestsEvaluation, run: Run) -> DataSettings:
    data = run.settings.data
    if isinstance(evaluation, ManifestsEvaluation):
        return data.model_copy(update={"manifest": evaluation.manifests[_embedding_set(evaluation)]})
    return data


def _read_manifest(data: DataSettings) -> Manifest:
    return evaluation_manifest(read_training_manifest(data, _image_folder(data)), data)


def _image_folder(data: DataSettings) -> Path:
    return data.root or data.manifest.parent


def _rows_by_id(manifest: Manifest) -> dict[str, int]:
    return {name: row for row, name in enumerate(manifest.ids.tolist())}

"""Evaluate embeddings in files by a protocol: what ``hgld evaluate`` runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from hgld.datasets.image_labels import ImageLabels, labels_from_landmarks, read_labels
from hgld.errors import ConfigurationError
from hgld.evaluation.protocols.dyml import dyml_tasks, tasks_by_level
from hgld.evaluation.protocols.gldv2_retrieval import evaluate_gldv2
from hgld.evaluation.protocols.revisited import evaluate_revisited, read_ground_truth
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import EvaluationConfig, RetrievalTask, leave_one_out, query_and_gallery
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.tables import Provenance, digests_of_files
from hgld.tables.embeddings import Embeddings, read_embeddings

Protocol = Literal["leave-one-out", "retrieval", "gldv2-retrieval", "dyml", "roxford", "rparis"]


@dataclass(frozen=True)
class EvaluationFiles:
    """What to evaluate.

    Args:
        embeddings: of all images; or
        query_embeddings: of the queries, and
        gallery_embeddings: of the gallery.
        labels: of the images, see :func:`hgld.datasets.image_labels.read_labels`; embeddings may come with landmark ids
            instead.
        query_labels: of the queries, where they are not in ``labels``.
        hierarchy: the levels above landmarks: a file from ``hgld build`` or the released CSV files.
        split: the split of the landmark ids, where the hierarchy has several.
        ground_truth: of the protocol: the folder of GLDv2's or DyML's files, or the pickle file of ROxford or RParis.

    Raises:
        ConfigurationError: not either ``embeddings`` or both others are given.
    """

    embeddings: Path | None = None
    query_embeddings: Path | None = None
    gallery_embeddings: Path | None = None
    labels: Path | None = None
    query_labels: Path | None = None
    hierarchy: Path | None = None
    split: str | None = None
    ground_truth: Path | None = None

    def __post_init__(self) -> None:
        given = [self.embeddings is not None, self.query_embeddings is not None, self.gallery_embeddings is not None]
        if given not in ([True, False, False], [False, True, True]):
            raise ConfigurationError(
                "expected either `embeddings`, or `query_embeddings` and `gallery_embeddings`; found "
                f"{sum(given)} of the three"
            )

    def provenance(self, protocol: Protocol | None, how: EvaluationConfig) -> Provenance:
        """What an evaluation of these files is made of; reads all of them."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        paths = {name: path for name, path in given.items() if isinstance(path, Path)}
        parameters = {
            "protocol": protocol,
            "split": self.split,
            "metrics": how.metrics,
            "relevance_alpha": how.relevance_alpha,
            "precision": how.ranking.precision,
            "ties": how.ranking.ties,
        }
        return Provenance("evaluate", parameters, digests_of_files(paths))

    @property
    def separate(self) -> bool:
        """Whether queries and gallery are files of their own."""
        return self.embeddings is None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a protocol found.

    Args:
        results: of its parts.
        mean: over the parts, for protocols that say so.
        task: what the first result is of, where it ranks by labels of several levels.
        hierarchy: that was given.
    """

    results: tuple[RetrievalResult, ...]
    mean: dict[str, float] | None = None
    task: RetrievalTask | None = None
    hierarchy: Hierarchy | None = None


def evaluate_files(files: EvaluationFiles, protocol: Protocol | None, how: EvaluationConfig) -> Evaluation:
    """Evaluate embeddings in files.

    Args:
        files: what to evaluate.
        protocol: ``leave-one-out`` for one set of images, ``retrieval`` for queries and a gallery (each the default
            for what is given), or one that has ground truth of its own.
        how: to evaluate.

    Raises:
        ConfigurationError: files do not suit the protocol; a bad setting.
        InputError: a file is not what it should be, or does not fit another.
    """
    protocol = protocol or ("retrieval" if files.separate else "leave-one-out")
    if protocol not in get_args(Protocol):
        raise ConfigurationError(
            f"there is no protocol {protocol!r}; expected one of {', '.join(get_args(Protocol))}"
        )
    _check_files(files, protocol)
    hierarchy = load_hierarchy(files.hierarchy) if files.hierarchy else None
    queries, gallery = _read_both(files)
    truth = files.ground_truth
    if protocol == "gldv2-retrieval":
        assert truth is not None
        results, task = evaluate_gldv2(queries, gallery, truth, hierarchy, how)
        return Evaluation(tuple(results), task=task, hierarchy=hierarchy)
    if protocol in ("roxford", "rparis"):
        assert truth is not None
        return Evaluation(tuple(evaluate_revisited(queries, gallery, read_ground_truth(truth), how)))
    if protocol == "dyml":
        tasks = (
            tasks_by_level(gallery, _labels(files.labels, gallery, hierarchy, files.split))
            if truth is None
            else dyml_tasks(queries, gallery, truth)
        )
        results = [task.run(how) for task in tasks]
        mean = {name: float(np.mean([result.means[name] for result in results])) for name in results[0].metrics}
        return Evaluation(tuple(results), mean=mean)
    if protocol == "leave-one-out":
        task = leave_one_out(gallery, _labels(files.labels, gallery, hierarchy, files.split))
    else:
        query_labels = _labels(files.query_labels or files.labels, queries, hierarchy, files.split)
        gallery_labels = _labels(files.labels, gallery, hierarchy, files.split)
        task = query_and_gallery(queries, query_labels, gallery, gallery_labels)
    result = task.run(how)
    return Evaluation((result,), task=task, hierarchy=hierarchy)


def _check_files(files: EvaluationFiles, protocol: str) -> None:
    """Refuse what the protocol cannot use, and ask for what it needs."""
    if protocol == "leave-one-out" and files.separate:
        raise ConfigurationError("leave-one-out ranks images against each other; give --embeddings, not two files")
    if protocol in ("retrieval", "gldv2-retrieval", "roxford", "rparis") and not files.separate:
        raise ConfigurationError(f"{protocol} needs --query-embeddings and --gallery-embeddings, not --embeddings")
    if protocol in ("gldv2-retrieval", "roxford", "rparis") and files.ground_truth is None:
        raise ConfigurationError(
            f"{protocol} needs --ground-truth: "
            + (
                "the folder of retrieval_solution_v2.1.csv and index_image_to_landmark.csv"
                if protocol == "gldv2-retrieval"
                else f"gnd_{protocol}{'5k' if protocol == 'roxford' else '6k'}.pkl"
            )
        )
    if protocol == "dyml" and files.separate and files.ground_truth is None:
        raise ConfigurationError("dyml without --ground-truth ranks images against each other; give --embeddings")
    own_truth = protocol in ("gldv2-retrieval", "roxford", "rparis") or files.ground_truth is not None
    if files.ground_truth is not None and protocol in ("leave-one-out", "retrieval"):
        raise ConfigurationError(
            f"{protocol} takes --labels, not --ground-truth; or name the --protocol of these files"
        )
    if own_truth and (files.labels or files.query_labels):
        raise ConfigurationError(f"{protocol} has its labels from --ground-truth; leave --labels out")


def _read_both(files: EvaluationFiles) -> tuple[Embeddings, Embeddings]:
    """The embeddings of the queries and of the gallery; the same where there is one file."""
    if files.embeddings is not None:
        images = read_embeddings(files.embeddings)
        return images, images
    assert files.query_embeddings is not None
    assert files.gallery_embeddings is not None
    return read_embeddings(files.query_embeddings), read_embeddings(files.gallery_embeddings)


def _labels(path: Path | None, images: Embeddings, hierarchy: Hierarchy | None, split: str | None) -> ImageLabels:
    if path is not None:
        return read_labels(path, images, hierarchy, split=split)
    if images.landmark_ids is None:
        raise ConfigurationError(
            f"{images.path} does not say which landmark an image shows; give --labels, such as GLDv2's train.csv"
        )
    return labels_from_landmarks(images.landmark_ids, hierarchy, split)

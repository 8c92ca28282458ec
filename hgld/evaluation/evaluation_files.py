"""Evaluate embeddings in files by a protocol: the library side of ``hgld evaluate``.

A protocol declares the input files that it accepts, and builds tasks from their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from hgld.compute.machine import return_memory
from hgld.datasets.image_labels import ImageLabels, labels_from_landmarks, read_labels_of
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.evaluation.settings import PROTOCOLS, EvaluationFiles
from hgld.gldv2.recognition_ground_truth import LandmarkPrediction
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.io.markdown import join_names
from hgld.tables import Provenance, input_digests
from hgld.tables.embeddings import Embeddings, read_embeddings, read_vectors


@dataclass(frozen=True, eq=False)
class EvaluationInputs:
    """Contents of the input files, from which a protocol builds its tasks.

    files: Paths of the input files.
    queries: Embeddings of the queries, or of all images if there is one file.
    gallery: Embeddings of the gallery; the same object as ``queries`` if there is one file.
    hierarchy: Levels above landmarks.
    distractors: Embeddings of further gallery images that are relevant to no query.
    """

    files: EvaluationFiles
    queries: Embeddings
    gallery: Embeddings
    hierarchy: Hierarchy | None = None
    distractors: Embeddings | None = None

    @classmethod
    def read(cls, files: EvaluationFiles) -> EvaluationInputs:
        """Read the hierarchy and the embeddings; labels and ground truth are read by the protocols.

        Raises:
            InputError: A file is missing or malformed.
        """
        hierarchy = None
        if files.hierarchy is not None:
            hierarchy = load_hierarchy(files.hierarchy)
        if files.embeddings is not None:
            images = read_embeddings(files.embeddings)
            return cls(files, images, images, hierarchy)
        assert files.query_embeddings is not None
        assert files.gallery_embeddings is not None
        return cls(
            files,
            queries=read_embeddings(files.query_embeddings),
            gallery=read_embeddings(files.gallery_embeddings),
            hierarchy=hierarchy,
            distractors=_read_distractors(files.distractor_embeddings),
        )

    @property
    def ground_truth(self) -> Path:
        """Path of the ground truth, for protocols that require it."""
        assert self.files.ground_truth is not None
        return self.files.ground_truth

    def labels(self) -> tuple[ImageLabels, ImageLabels]:
        """Return the labels of the queries and of the gallery; see :meth:`gallery_labels`."""
        if self.files.query_labels is None:
            queries, gallery = self._labels(self.files.labels, self.queries, self.gallery)
        else:
            (queries,) = self._labels(self.files.query_labels, self.queries)
            gallery = self.gallery_labels()
        return queries, gallery

    def gallery_labels(self) -> ImageLabels:
        """Return the labels of the gallery.

        Raises:
            InputError: The file of labels is malformed, or does not fit the embeddings or the
                hierarchy.
            ConfigurationError: There is no such file, and embeddings have no landmark ids.
        """
        return self._labels(self.files.labels, self.gallery)[0]

    def _labels(self, path: Path | None, *images: Embeddings) -> list[ImageLabels]:
        """Return the labels of sets of images, from a file or from their landmark ids."""
        if path is not None:
            return read_labels_of(
                images,
                path,
                self.hierarchy,
                split=self.files.split,
                separator=self.files.label_separator,
            )
        labels = []
        for embeddings in images:
            if embeddings.landmark_ids is None:
                raise ConfigurationError(
                    f"{embeddings.path} does not say which landmark an image shows; give `labels`, such as GLDv2's "
                    "train.csv"
                )
            labels.append(
                labels_from_landmarks(embeddings.landmark_ids, self.hierarchy, self.files.split)
            )
        return labels


def _read_distractors(path: Path | None) -> Embeddings | None:
    """Read the embeddings of distractors; distractors in a folder get no ids.

    The ids of a hundred million images would take more memory than everything else.
    """
    if path is None:
        return None
    if path.is_dir():
        return Embeddings(read_vectors(path), None, None, path)
    return read_embeddings(path)


@dataclass(frozen=True)
class InputSet:
    """A combination of inputs that a protocol accepts.

    Args:
        required: Fields of :class:`EvaluationFiles`.
        optional: Further fields.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationProtocol:
    """A way to evaluate embeddings.

    Args:
        name: Name of the protocol.
        inputs: Combinations of inputs that it accepts, the usual one first.
        build_tasks: Function from the contents of the input files to the tasks. It raises an
            :class:`~hgld.errors.InputError` for ground truth that is malformed or does not fit the
            embeddings.
        descriptions: Meaning of inputs for this protocol, for messages.
        metrics_require: Input without which metrics cannot be chosen, if any.
        reports_mean: Whether the mean over the results is reported.
        answer_queries: Function from the contents of the input files to the results and the answers,
            for protocols that score an answer to each query instead of a ranking.
        score_predictions: Function from the input files to the results, for protocols that score
            ``predictions`` instead of ranking embeddings.
    """

    name: str
    inputs: tuple[InputSet, ...]
    build_tasks: Callable[[EvaluationInputs], list[RetrievalTask]] = lambda inputs: []
    descriptions: Mapping[str, str] = field(default_factory=dict)
    metrics_require: str | None = None
    reports_mean: bool = False
    answer_queries: (
        Callable[
            [EvaluationInputs, EvaluationConfig], tuple[list[RetrievalResult], LandmarkAnswers]
        ]
        | None
    ) = None
    score_predictions: (
        Callable[[EvaluationFiles, EvaluationConfig], list[RetrievalResult]] | None
    ) = None

    def check(self, files: EvaluationFiles, config: EvaluationConfig) -> None:
        """Check that the given inputs are one of the accepted combinations.

        Raises:
            ConfigurationError: An input is missing, or the protocol does not use it.
        """
        given = files.given()
        differences = []
        for inputs in self.inputs:
            missing = [name for name in inputs.required if name not in given]
            unexpected = sorted(given.difference(inputs.required, inputs.optional))
            differences.append((missing, unexpected))
        missing, unexpected = min(differences, key=lambda pair: len(pair[0]) + len(pair[1]))
        problems = []
        if missing:
            problems.append(f"needs {join_names([self._described(name) for name in missing])}")
        if unexpected:
            problems.append(f"does not use {join_names([f'`{name}`' for name in unexpected])}")
        if problems:
            raise ConfigurationError(f"the protocol {self.name} {' and '.join(problems)}")
        if config.metrics is None or self.metrics_require is None:
            return
        if self.metrics_require not in given:
            raise ConfigurationError(
                f"the protocol {self.name} takes `metrics` only with `{self.metrics_require}`"
            )

    def _described(self, name: str) -> str:
        """Return the name of an input with its description, for a message."""
        if name in self.descriptions:
            return f"`{name}` ({self.descriptions[name]})"
        return f"`{name}`"


@dataclass(frozen=True)
class LandmarkAnswers:
    """Predicted landmarks of test images.

    Args:
        image_ids: Ids of all test images, including images that are not scored.
        predictions: Prediction by test image, including ignored images; images without a prediction
            are absent.
        counts: Counts of images that were excluded.
    """

    image_ids: tuple[str, ...]
    predictions: Mapping[str, LandmarkPrediction]
    counts: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a protocol.

    Args:
        results: Results of its parts, in the order of the tasks.
        tasks: Tasks that were evaluated; empty if predictions or answers were scored.
        mean: Mean of each metric over the results, for protocols that report it.
        hierarchy: Levels above landmarks, if given.
        answers: Answers to the queries, for protocols that score answers.
    """

    results: tuple[RetrievalResult, ...]
    tasks: tuple[RetrievalTask, ...]
    mean: dict[str, float] | None = None
    hierarchy: Hierarchy | None = None
    answers: LandmarkAnswers | None = None


def evaluate_files(
    files: EvaluationFiles, protocol: str | None = None, config: EvaluationConfig | None = None
) -> Evaluation:
    """Evaluate embeddings in files.

    Args:
        files: Input files.
        protocol: Name of the protocol, one of :data:`hgld.evaluation.settings.PROTOCOLS`; by default
            ``leave-one-out`` for one set of images, ``retrieval`` for queries and a gallery, and
            ``gldv2-retrieval`` for predictions.
        config: Metrics and settings of the ranking.

    Raises:
        ConfigurationError: Files do not suit the protocol, or a setting is wrong.
        InputError: A file is missing or malformed, or does not fit another.
    """
    config = config or EvaluationConfig()
    if protocol is None:
        protocol = _default_protocol(files)
    chosen = get_protocol(protocol)
    chosen.check(files, config)
    if chosen.score_predictions is not None and files.predictions is not None:
        return Evaluation(tuple(chosen.score_predictions(files, config)), ())
    inputs = EvaluationInputs.read(files)
    tasks = chosen.build_tasks(inputs)
    return_memory()  # reading takes more memory than its result, and rankings take as much again
    if chosen.answer_queries is not None:
        answered, answers = chosen.answer_queries(inputs, config)
        return Evaluation(tuple(answered), (), hierarchy=inputs.hierarchy, answers=answers)
    results = evaluate_tasks(tasks, config)
    mean = None
    if chosen.reports_mean:
        mean = {}
        for name in results[0].metrics:
            mean[name] = float(np.mean([result.means[name] for result in results]))
    return Evaluation(tuple(results), tuple(tasks), mean, inputs.hierarchy)


def _default_protocol(files: EvaluationFiles) -> str:
    """Return the name of the protocol for the given kinds of files."""
    if files.predictions is not None:
        return "gldv2-retrieval"
    if files.embeddings is not None:
        return "leave-one-out"
    return "retrieval"


def get_protocol(name: str) -> EvaluationProtocol:
    """Return a protocol by its name.

    Raises:
        ConfigurationError: The protocol does not exist.
    """
    if name not in PROTOCOLS:
        raise ConfigurationError(
            f"there is no protocol {name!r}; expected one of {', '.join(PROTOCOLS)}"
        )
    protocol: EvaluationProtocol = resolve_name(f"hgld.evaluation.{PROTOCOLS[name]}")
    return protocol


def evaluation_provenance(
    files: EvaluationFiles, protocol: str | None, config: EvaluationConfig
) -> Provenance:
    """Return the provenance of an evaluation, with digests of all input files."""
    paths = {}
    for name in files.given():
        value = getattr(files, name)
        if isinstance(value, Path):
            paths[name] = value
    parameters: dict[str, Any] = {
        "protocol": protocol,
        "split": files.split,
        "metrics": config.metrics,
        "relevance_alpha": config.relevance_alpha,
        "level_weights": config.level_weights,
        "several_labels": config.several_labels,
        "label_separator": files.label_separator,
        "precision": config.ranking.precision,
        "ties": config.ranking.ties,
        "distance": config.ranking.distance,
        "reranking": config.ranking.reranking.describe(),
    }
    return Provenance("evaluate", parameters, input_digests(**paths))

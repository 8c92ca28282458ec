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
from hgld.gldv2.ground_truth import LandmarkPrediction
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.io.markdown import in_words
from hgld.tables import Provenance, input_digests
from hgld.tables.embeddings import Embeddings, read_embeddings, read_vectors


@dataclass(frozen=True, eq=False)
class EvaluationInputs:
    """Contents of the input files, from which a protocol builds its tasks.

    Args:
        queries: Embeddings of the queries; of all images where there is one file.
        gallery: Embeddings of the gallery; the same object where there is one file.
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
        hierarchy = None if files.hierarchy is None else load_hierarchy(files.hierarchy)
        if files.embeddings is not None:
            images = read_embeddings(files.embeddings)
            return cls(files, images, images, hierarchy)
        assert files.query_embeddings is not None
        assert files.gallery_embeddings is not None
        queries, gallery = (
            read_embeddings(files.query_embeddings),
            read_embeddings(files.gallery_embeddings),
        )
        distractors, path = None, files.distractor_embeddings
        if (
            path is not None
        ):  # ids of a hundred million images would take more memory than all the rest
            distractors = (
                Embeddings(read_vectors(path), None, None, path)
                if path.is_dir()
                else read_embeddings(path)
            )
        return cls(files, queries, gallery, hierarchy, distractors)

    @property
    def ground_truth(self) -> Path:
        """Path of the ground truth, for protocols that require it."""
        assert self.files.ground_truth is not None
        return self.files.ground_truth

    def labels(self) -> tuple[ImageLabels, ImageLabels]:
        """Return the labels of the queries and of the gallery; see :meth:`gallery_labels`."""
        if self.files.query_labels is None:
            queries, gallery = self._labels(self.files.labels, self.queries, self.gallery)
            return queries, gallery
        return self._labels(self.files.query_labels, self.queries)[0], self.gallery_labels()

    def gallery_labels(self) -> ImageLabels:
        """Return the labels of the gallery.

        Raises:
            InputError: The file of labels is malformed or does not fit the embeddings or the hierarchy.
            ConfigurationError: There is neither such a file nor a landmark id with each embedding.
        """
        return self._labels(self.files.labels, self.gallery)[0]

    def _labels(self, path: Path | None, *images: Embeddings) -> list[ImageLabels]:
        if path is not None:
            return read_labels_of(
                images,
                path,
                self.hierarchy,
                split=self.files.split,
                separator=self.files.label_separator,
            )
        labels = []
        for each in images:
            if each.landmark_ids is None:
                raise ConfigurationError(
                    f"{each.path} does not say which landmark an image shows; give `labels`, such as GLDv2's "
                    "train.csv"
                )
            labels.append(
                labels_from_landmarks(each.landmark_ids, self.hierarchy, self.files.split)
            )
        return labels


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
        inputs: Combinations of inputs that it accepts, the usual one first.
        build_tasks: Function from the contents of the input files to the tasks. It raises an
            :class:`~hgld.errors.InputError` for ground truth that is malformed or does not fit the embeddings.
        descriptions: What an input is for this protocol, for messages.
        metrics_require: Input without which metrics cannot be chosen, if any.
        reports_mean: Whether the mean over the results is reported.
        answer_queries: Function from the contents of the input files to the results and the answers, for protocols
            that score an answer to each query instead of a ranking.
        score_predictions: Function from the input files to the results, for protocols that score ``predictions``
            instead of ranking embeddings.
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

        def differences(inputs: InputSet) -> tuple[list[str], list[str]]:
            missing = [name for name in inputs.required if name not in given]
            return missing, sorted(given.difference(inputs.required, inputs.optional))

        missing, unexpected = min(
            map(differences, self.inputs), key=lambda each: len(each[0]) + len(each[1])
        )
        problems = []
        if missing:
            descriptions = {
                name: f" ({description})" for name, description in self.descriptions.items()
            }
            problems.append(
                f"needs {in_words(f'`{name}`' + descriptions.get(name, '') for name in missing)}"
            )
        if unexpected:
            problems.append(f"does not use {in_words(f'`{name}`' for name in unexpected)}")
        if problems:
            raise ConfigurationError(f"the protocol {self.name} {' and '.join(problems)}")
        if (
            config.metrics is not None
            and self.metrics_require is not None
            and self.metrics_require not in given
        ):
            raise ConfigurationError(
                f"the protocol {self.name} takes `metrics` only with `{self.metrics_require}`"
            )


@dataclass(frozen=True)
class LandmarkAnswers:
    """Predicted landmarks of test images.

    Args:
        image_ids: Ids of all test images, those that are not scored included.
        predictions: Prediction by test image, ignored ones included; those without a prediction are absent.
        counts: Counts of images that were left out.
    """

    image_ids: tuple[str, ...]
    predictions: Mapping[str, LandmarkPrediction]
    counts: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a protocol.

    Args:
        results: Results of its parts, in the order of the tasks.
        tasks: Tasks that were evaluated; none where predictions or answers were scored.
        mean: Mean of each metric over the results, for protocols that report it.
        hierarchy: Levels above landmarks, if given.
        answers: Answers to the queries, for protocols that score these.
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
            ``leave-one-out`` for one set of images, ``retrieval`` for queries and a gallery, and ``gldv2-retrieval``
            for predictions.
        config: Metrics, and how to rank.

    Raises:
        ConfigurationError: Files do not suit the protocol, or a setting is wrong.
        InputError: A file is missing or malformed, or does not fit another.
    """
    config = config or EvaluationConfig()
    if protocol is None and files.predictions is not None:
        protocol = "gldv2-retrieval"
    chosen = get_protocol(
        protocol or ("retrieval" if files.embeddings is None else "leave-one-out")
    )
    chosen.check(files, config)
    if chosen.score_predictions is not None and files.predictions is not None:
        return Evaluation(tuple(chosen.score_predictions(files, config)), ())
    inputs = EvaluationInputs.read(files)
    tasks = chosen.build_tasks(inputs)
    return_memory()  # reading takes more than what it leaves, and rankings take as much again
    if chosen.answer_queries is not None:
        answered, answers = chosen.answer_queries(inputs, config)
        return Evaluation(tuple(answered), (), hierarchy=inputs.hierarchy, answers=answers)
    results = evaluate_tasks(tasks, config)
    mean = None
    if chosen.reports_mean:
        mean = {
            name: float(np.mean([result.means[name] for result in results]))
            for name in results[0].metrics
        }
    return Evaluation(tuple(results), tuple(tasks), mean, inputs.hierarchy)


def get_protocol(name: str) -> EvaluationProtocol:
    """Return a protocol by its name.

    Raises:
        ConfigurationError: There is no such protocol.
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
    """Return the provenance of an evaluation; reads all files."""
    paths = {name: path for name in files.given() if isinstance(path := getattr(files, name), Path)}
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

"""Input files of an evaluation, and what is read from them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hgld.datasets.image_labels import ImageLabels, labels_from_landmarks, read_labels
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.tables import Provenance, input_digests
from hgld.tables.embeddings import Embeddings, read_embeddings


@dataclass(frozen=True)
class EvaluationFiles:
    """Input files of an evaluation.

    Args:
        embeddings: Embeddings of all images; otherwise ``query_embeddings`` and ``gallery_embeddings``.
        query_embeddings: Embeddings of the queries.
        gallery_embeddings: Embeddings of the gallery.
        labels: Labels of the images, see :func:`hgld.datasets.image_labels.read_labels`; by default the landmark ids
            that come with the embeddings.
        query_labels: Labels of the queries, where they are not in ``labels``.
        hierarchy: Levels above landmarks: a file from ``hgld build`` or the released CSV files.
        split: Split of the landmark ids, where the hierarchy has several; or of a manifest in ``labels``, of which
            other images are not used.
        ground_truth: Ground truth of the protocol: the folder of GLDv2's or DyML's files, the pickle file of ROxford
            or RParis, or the CSV file of GLDv2's recognition track.
        label_separator: Separator between the labels of an image in ``labels`` and ``query_labels``, see
            :func:`hgld.datasets.image_labels.read_labels`.
        predictions: Predictions of GLDv2's test images to score, see :mod:`hgld.gldv2.ground_truth` and
            :mod:`hgld.gldv2.recognition`; instead of embeddings.
        distractor_embeddings: Embeddings of further gallery images that are relevant to no query.

    Raises:
        ConfigurationError: It is not one of ``embeddings``, ``query_embeddings`` with ``gallery_embeddings``, and
            ``predictions`` that is given; or there is a separator without labels.
    """

    embeddings: Path | None = None
    query_embeddings: Path | None = None
    gallery_embeddings: Path | None = None
    labels: Path | None = None
    query_labels: Path | None = None
    hierarchy: Path | None = None
    split: str | None = None
    ground_truth: Path | None = None
    label_separator: str | None = None
    predictions: Path | None = None
    distractor_embeddings: Path | None = None

    def __post_init__(self) -> None:
        sources = ("embeddings", "query_embeddings", "gallery_embeddings", "predictions")
        given = [name for name in sources if getattr(self, name) is not None]
        if given not in (["embeddings"], ["query_embeddings", "gallery_embeddings"], ["predictions"]):
            raise ConfigurationError(
                "expected either `embeddings`, or `query_embeddings` and `gallery_embeddings`, or `predictions`; "
                f"found {' and '.join(f'`{name}`' for name in given) or 'none of them'}"
            )
        if self.label_separator is not None and self.labels is None:
            raise ConfigurationError("`label_separator` is for the columns of `labels`, which is not given")

    def given(self) -> set[str]:
        """Return the names of the inputs that are given."""
        return {field.name for field in fields(self) if getattr(self, field.name) is not None}

    def provenance(self, protocol: str | None, config: EvaluationConfig) -> Provenance:
        """Return the provenance of an evaluation; reads all files."""
        paths = {name: path for name in self.given() if isinstance(path := getattr(self, name), Path)}
        parameters: dict[str, Any] = {
            "protocol": protocol,
            "split": self.split,
            "metrics": config.metrics,
            "relevance_alpha": config.relevance_alpha,
            "level_weights": config.level_weights,
            "several_labels": config.several_labels,
            "label_separator": self.label_separator,
            "precision": config.ranking.precision,
            "ties": config.ranking.ties,
        }
        if config.rejection is not None:
            parameters["rejection"] = {"score": config.rejection.name, "options": config.rejection.all_options()}
        return Provenance("evaluate", parameters, input_digests(**paths))

    def read(self) -> EvaluationInputs:
        """Read the hierarchy and the embeddings; labels and ground truth are read by the protocols.

        Raises:
            InputError: A file is missing or malformed.
        """
        hierarchy = None if self.hierarchy is None else load_hierarchy(self.hierarchy)
        if self.embeddings is not None:
            images = read_embeddings(self.embeddings)
            return EvaluationInputs(self, images, images, hierarchy)
        assert self.query_embeddings is not None
        assert self.gallery_embeddings is not None
        queries, gallery = read_embeddings(self.query_embeddings), read_embeddings(self.gallery_embeddings)
        distractors = None if self.distractor_embeddings is None else read_embeddings(self.distractor_embeddings)
        return EvaluationInputs(self, queries, gallery, hierarchy, distractors)


@dataclass(frozen=True, eq=False)
class EvaluationInputs:
    """Contents of the input files, from which a protocol builds its tasks.

    Args:
        files: The files.
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

    @property
    def ground_truth(self) -> Path:
        """Path of the ground truth, for protocols that require it."""
        assert self.files.ground_truth is not None
        return self.files.ground_truth

    def query_labels(self) -> ImageLabels:
        """Return the labels of the queries; see :meth:`gallery_labels`."""
        return self._labels(self.files.query_labels or self.files.labels, self.queries)

    def gallery_labels(self) -> ImageLabels:
        """Return the labels of the gallery.

        Raises:
            InputError: The file of labels is malformed or does not fit the embeddings or the hierarchy.
            ConfigurationError: There is neither such a file nor a landmark id with each embedding.
        """
        return self._labels(self.files.labels, self.gallery)

    def _labels(self, path: Path | None, images: Embeddings) -> ImageLabels:
        if path is not None:
            return read_labels(
                path, images, self.hierarchy, split=self.files.split, separator=self.files.label_separator
            )
        if images.landmark_ids is None:
            raise ConfigurationError(
                f"{images.path} does not say which landmark an image shows; give `labels`, such as GLDv2's train.csv"
            )
        return labels_from_landmarks(images.landmark_ids, self.hierarchy, self.files.split)

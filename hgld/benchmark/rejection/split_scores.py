"""Images of a split, and the scores of its queries, in files that a later run of the same comparison keeps.

::

    OUT/scores/EMBEDDING/split0/queries.parquet   a row per query: its set, class, and nearest image of the index
    OUT/scores/EMBEDDING/split0/SCORE.parquet     a row per query: its score, and whether the answer is right

Rows are in the order of the sets (calibration, known, near, other unknown images) and of their images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import ValidationError
from torch import Tensor

from hgld.arrays import Booleans, Integers
from hgld.benchmark.engine import ResultFile
from hgld.benchmark.rejection.settings import (
    CALIBRATION,
    INDEX,
    KNOWN,
    NEAR,
    EmbeddingSettings,
    OpenSetIndex,
    RejectionSettings,
    for_split,
    root_of,
)
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.splits import closed_set_split, near_and_query_images, split_at_random
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy import LabelMatrix
from hgld.io.files import sha256_of
from hgld.io.settings import to_dict
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_files import find_checkpoint
from hgld.models.model_loading import load_checkpoint_model, read_checkpoint
from hgld.rejection.classifiers import LinearClassifier, fit_linear_classifier
from hgld.rejection.detector import Detector
from hgld.rejection.heat import Heat
from hgld.rejection.logit_scores import ClassifierDetector
from hgld.rejection.registry import build_detector
from hgld.tables import Provenance, write_results
from hgld.tables.embeddings import has_deviations, read_deviations, read_embeddings, rows_of
from hgld.training.training_images import read_training_manifest
from hgld.training.training_settings import DataSettings

#: Number of features that a head embeds at once.
_BLOCK = 4096
_QUERIES = "queries"
#: Value of the option ``classifier`` of scores that fit one on the index.
_FITTED = "softmax"


@dataclass(frozen=True, eq=False)
class SplitImages:
    """Images of a split: the images of the index, then queries set by set: known, near and far queries.

    Args:
        table: Columns ``set``: ``index``, ``calibration``, ``known``, ``near``, or the name of other unknown images;
            ``kind``: the relation of the images to the index, with the names of sets, or ``far``; ``source``: key of
            their embeddings, ``index`` or the name of other unknown images; ``row`` in the manifest of the source;
            ``id``; and ``class``, the class of the images at the finest level of that manifest, such as a landmark.
        labels: int64, shape (n, L), finest first, numbered like the labels of the index. Far images have the label
            -1 at all levels, and near images of another manifest have it above the landmark.
    """

    table: pd.DataFrame
    labels: LabelMatrix

    @property
    def n_index(self) -> int:
        """Number of images of the index."""
        return int((self.table["set"] == INDEX).sum())


class SplitEmbeddings(NamedTuple):
    """Embeddings of images, float, shape (n, d), and standard deviations of feature maps, shape (n, c)."""

    vectors: Tensor
    deviations: Tensor | None

    def take(self, rows: slice | Integers) -> SplitEmbeddings:
        """Return the embeddings and deviations of some of the images."""
        deviations = self.deviations
        if deviations is not None:
            deviations = deviations[rows]
        return SplitEmbeddings(self.vectors[rows], deviations)


class ComparedImages:
    """The images of a comparison, from manifests that are read once, and only if needed."""

    def __init__(self, settings: RejectionSettings) -> None:
        self._settings = settings
        self.split = cache(self._split)
        self.digest = cache(_digest)

    @cached_property
    def manifests(self) -> dict[str, Manifest]:
        """Manifests by source."""
        manifests = {}
        for source, images in self._settings.sources.items():
            manifests[source] = read_manifest(images.manifest, root_of(images))
        return manifests

    def _split(self, seed: int) -> SplitImages:
        """Return the images of a split."""
        index, manifest = self._settings.index, self.manifests[INDEX]
        if isinstance(index, OpenSetIndex):
            rows_by_set = _open_set(manifest, index, seed)
        else:
            splits = {INDEX: index.index, CALIBRATION: index.calibration, KNOWN: index.known}
            rows_by_set = {}
            for name, split in splits.items():
                if split is not None:
                    rows_by_set[name] = manifest.rows_of(split, index.manifest)
        sets, labels = [], []
        for name, rows in rows_by_set.items():
            if not len(rows):
                raise ConfigurationError(
                    f"{index.manifest}, split {seed}: no images are left for {name}; change the shares, or choose "
                    "another seed"
                )
            sets.append(_image_set(name, name, INDEX, manifest, rows))
            labels.append(manifest.labels[rows])
        for name, images in self._settings.unknown.items():
            manifest = self.manifests[name]
            rows = manifest.rows_of(images.split, images.manifest)
            unknown_labels = np.full((len(rows), labels[0].shape[1]), -1, np.int64)
            if images.kind == "near":  # of landmarks that no image of the index shows
                n_index_classes = self.manifests[INDEX].n_classes[0]
                unknown_labels[:, 0] = n_index_classes + manifest.labels[rows, 0]
            sets.append(_image_set(name, images.kind, name, manifest, rows))
            labels.append(unknown_labels)
        return SplitImages(
            pd.concat(sets, ignore_index=True), np.concatenate(labels, dtype=np.int64)
        )


def _image_set(
    name: str, kind: str, source: str, manifest: Manifest, rows: Integers
) -> pd.DataFrame:
    classes = np.array(manifest.class_names[0], object)[manifest.labels[rows, 0]]
    columns = {
        "set": name,
        "kind": kind,
        "id": manifest.ids[rows],
        "source": source,
        "class": classes,
        "row": rows,
    }
    table: pd.DataFrame = pd.DataFrame(columns)
    return table


def _open_set(manifest: Manifest, settings: OpenSetIndex, seed: int) -> dict[str, Integers]:
    """Divide the images of a manifest; see :class:`OpenSetIndex`."""
    if settings.test_share is not None:
        divided = split_at_random(manifest, settings.test_share, manifest.level_names[0], seed)
        used = np.flatnonzero(divided.splits == "test")
    else:
        used = manifest.rows_of(settings.split, settings.manifest)
    labels = manifest.labels[used]
    query_share = settings.known_share + settings.calibration_share
    is_near, is_query = near_and_query_images(labels, settings.near_share, query_share, seed)
    is_calibration = is_query.copy()
    is_calibration[is_query] = closed_set_split(
        labels[is_query], settings.calibration_share / query_share, seed
    )
    return {
        INDEX: used[~is_near & ~is_query],
        CALIBRATION: used[is_calibration],
        KNOWN: used[is_query & ~is_calibration],
        NEAR: used[is_near],
    }


def embed_split(settings: EmbeddingSettings, images: SplitImages, seed: int) -> SplitEmbeddings:
    """Return the embeddings of the images of a split.

    Raises:
        InputError: A file cannot be read or lacks images, or has vectors of another length than the head expects.
        ConfigurationError: The head was trained on landmarks of the images.
    """
    head = None
    checkpoint = head_checkpoint(settings, seed)
    if checkpoint is not None:
        head = load_checkpoint_model(checkpoint).network.eval()
        _require_other_landmarks(checkpoint, images.table)
    files = {
        source: read_embeddings(path) for source, path in files_of_split(settings, seed).items()
    }
    with_deviations = all(has_deviations(file.path) for file in files.values())
    vectors, deviations = [], []
    for name, image_set in images.table.groupby("set", sort=False):
        file = files[image_set["source"].iloc[0]]
        ids = image_set["id"].to_numpy(np.str_)
        rows = rows_of(file, ids, f"images of {name}")
        set_vectors = file.vectors[torch.from_numpy(rows)]
        if head is not None:
            set_vectors = _head_embeddings(head, set_vectors, file.path)
        vectors.append(set_vectors)
        if with_deviations:
            deviations.append(read_deviations(file.path, ids))
    return SplitEmbeddings(torch.cat(vectors), torch.cat(deviations) if deviations else None)


def files_of_split(settings: EmbeddingSettings, split: int) -> dict[str, Path]:
    """Return the files of embeddings or features for a split, by the source of the images."""
    return {source: for_split(path, split) for source, path in settings.files.items()}


def head_checkpoint(settings: EmbeddingSettings, split: int) -> Path | None:
    """Return the checkpoint of the head for a split.

    Raises:
        InputError: There is no such run or file.
    """
    if settings.head is None:
        return None
    path = for_split(settings.head, split)
    checkpoint = find_checkpoint(path)
    if checkpoint is None or not checkpoint.is_file():
        raise InputError(
            f"{path}: no such run or checkpoint; train the head of `embeddings`, see `hgld train`"
        )
    return checkpoint


def _head_embeddings(head: EmbeddingModel, features: Tensor, path: Path) -> Tensor:
    n_expected = head.settings.n_features
    if features.shape[1] != n_expected:
        expected = "images" if n_expected is None else f"features of {n_expected:,}"
        raise InputError(
            f"{path}: vectors of {features.shape[1]:,} numbers, but the head expects {expected}; name the features "
            "it was trained on"
        )
    with torch.inference_mode():
        blocks = [head(block.float()) for block in torch.split(features, _BLOCK)]
    return torch.cat(blocks).clone()


def _require_other_landmarks(checkpoint: Path, images: pd.DataFrame) -> None:
    """Raise if the head was trained on a landmark of the index's manifest that the images show."""
    try:
        data = DataSettings.model_validate(read_checkpoint(checkpoint)["settings"]["data"])
    except (KeyError, ValidationError) as error:
        raise InputError(
            f"{checkpoint}: does not say what it was trained on ({error}); train it again"
        ) from error
    trained = read_training_manifest(data).select_split(data.train)
    used = set(images.loc[images["source"] == INDEX, "class"])
    shared = sorted(used.intersection(trained.class_names[0]))
    if shared:
        raise ConfigurationError(
            f"{checkpoint}: the head was trained on {len(shared):,} of the {len(used):,} landmarks that the "
            f"comparison tells apart, which would flatter it; train it on others:\n{indented_list(shared, limit=5)}"
        )


class ScoreRun(NamedTuple):
    """A score on one kind of embeddings, on a split."""

    embedding: str
    score: str
    split: int

    def __str__(self) -> str:
        return f"{self.embedding}, split {self.split}, {self.score}"


#: Results of scores, a row per query, see :meth:`SplitScores.read`.
ScoreResults: TypeAlias = Mapping[ScoreRun, pd.DataFrame]


class SplitScores:
    """Scores of the queries of a split on one kind of embeddings.

    Args:
        settings: Settings of the comparison.
        images: Images of the comparison.
        out: Folder of the comparison.
        embedding: Name of the embeddings.
        seed: Seed of the split.
    """

    def __init__(
        self,
        settings: RejectionSettings,
        images: ComparedImages,
        out: Path,
        embedding: str,
        seed: int,
    ) -> None:
        self._settings, self.all_images = settings, images
        self.embedding, self.seed = embedding, seed
        self._embedding_settings = settings.embeddings[embedding]
        self._folder = out / "scores" / embedding / f"split{seed}"

    def write_queries(self, *, force: bool) -> None:
        """Describe the queries, unless that is done.

        Raises:
            InputError: A file of the images or of the embeddings cannot be read or lacks images.
            ConfigurationError: The settings do not fit the images, or a head was trained on them.
        """
        if force or not self.result_file(_QUERIES).is_up_to_date():
            self._write(_QUERIES, self.describe_queries())

    def write_score(self, name: str) -> None:
        """Compute a score.

        Raises:
            HgldError: It cannot be computed, as where the index has too few images for a covariance.
        """
        scores = self.score(self._detector(name), self._settings.score_settings()[name].index_share)
        self._write(name, pd.concat([self._read(_QUERIES)[["set", "id"]], scores], axis=1))

    def read(self, name: str) -> pd.DataFrame:
        """Read the result of a score, a row per query.

        Returns:
            Columns ``set``, ``kind``, ``id``, ``source``, ``class``; ``nearest``, ``cosine`` and ``nearest_class`` of
            the nearest image of the index, and the finest ``level`` that the query shares with it, L for the same
            landmark, 0 if they share no level; ``score``, and ``right``, whether the answer by the score is the
            query's landmark.
        """
        scores = self._read(name)[["score", "right"]]
        table: pd.DataFrame = pd.concat([self._read(_QUERIES), scores], axis=1)
        return table

    def describe_queries(self) -> pd.DataFrame:
        """Return the set, the class and the nearest image of the index of each query; see :meth:`read`."""
        table, labels = self.images.table, self.images.labels
        n_index = self.images.n_index
        vectors = self.embedded.vectors
        cosines, positions = nearest_neighbours(vectors[n_index:], vectors[:n_index], 1)
        nearest = table.iloc[positions[:, 0]]
        columns = table.columns.drop("row")
        described: pd.DataFrame = table.loc[n_index:, columns].reset_index(drop=True)
        described["nearest"] = nearest["id"].to_numpy()
        described["cosine"] = cosines[:, 0]
        described["nearest_class"] = nearest["class"].to_numpy()
        described["level"] = (labels[n_index:] == labels[positions[:, 0]]).sum(1)
        return described

    def score(self, detector: Detector, index_share: float = 1) -> pd.DataFrame:
        """Fit a score on a share of the index, and return its columns ``score`` and ``right`` of each query."""
        if isinstance(detector, ClassifierDetector | Heat) and detector.classifier == _FITTED:
            detector = replace(detector, classifier=self._classifier)
        labels, n_index = self.images.labels, self.images.n_index
        chosen = np.arange(n_index)
        if index_share < 1:
            chosen = np.flatnonzero(closed_set_split(labels[:n_index], index_share, self.seed))
        index = self.embedded.take(chosen)
        queries = self.embedded.take(slice(n_index, None))
        detector.fit(index.vectors, labels[chosen, 0], deviations=index.deviations)
        scores = detector.score(queries.vectors, deviations=queries.deviations).astype(np.float64)
        missing = np.isnan(scores)
        if missing.any():
            raise InputError(
                f"{missing.sum():,} of {len(scores):,} rejection scores are NaN, the first that of query "
                f"{np.argmax(missing)}; fit the score on more images, or choose another"
            )
        right = _right_answers(
            index.vectors, labels[chosen, 0], queries.vectors, labels[n_index:, 0]
        )
        columns: pd.DataFrame = pd.DataFrame({"score": scores, "right": right})
        return columns

    @cached_property
    def images(self) -> SplitImages:
        """The images."""
        return self.all_images.split(self.seed)

    @cached_property
    def embedded(self) -> SplitEmbeddings:
        """Embeddings of the images."""
        return embed_split(self._embedding_settings, self.images, self.seed)

    @cached_property
    def _classifier(self) -> LinearClassifier:
        """The classifier of the index, which is fitted once for all scores of classifiers."""
        n_index = self.images.n_index
        return fit_linear_classifier(
            self.embedded.vectors[:n_index], self.images.labels[:n_index, 0]
        )

    def _detector(self, name: str) -> Detector:
        score = self._settings.score_settings()[name]
        return build_detector(score.score or name, score.options)

    def _read(self, name: str) -> pd.DataFrame:
        return pq.read_table(self.path(name)).to_pandas()  # type: ignore[no-any-return]

    def _write(self, name: str, table: pd.DataFrame) -> None:
        file = self.result_file(name)
        rows = pa.Table.from_pandas(table, preserve_index=False)
        write_results(file.path, rows, "rejection_scores/1", file.provenance)

    def path(self, name: str) -> Path:
        """Return the path of a score."""
        return self._folder / f"{name}.parquet"

    def result_file(self, name: str) -> ResultFile:
        """Return the file of a score, which settings, images, embeddings and options of the score determine."""
        settings = self._settings
        parameters: dict[str, Any] = {
            "index": to_dict(settings.index),
            "unknown": {key: to_dict(images) for key, images in settings.unknown.items()},
            "split": self.seed,
        }
        if name != _QUERIES:
            detector = self._detector(name)
            parameters |= {"score": detector.name, "options": detector.options()}
            share = settings.score_settings()[name].index_share
            if share < 1:
                parameters["index_share"] = share
        files = {f"manifest/{key}": images.manifest for key, images in settings.sources.items()}
        embeddings = files_of_split(self._embedding_settings, self.seed)
        files |= {f"embeddings/{key}": path for key, path in embeddings.items()}
        checkpoint = head_checkpoint(self._embedding_settings, self.seed)
        if checkpoint is not None:
            files["head"] = checkpoint
        digests = {role: self.all_images.digest(path) for role, path in files.items()}
        return ResultFile(self.path(name), Provenance("compare-rejection", parameters, digests))


def _right_answers(
    index: Tensor, index_labels: Integers, queries: Tensor, query_labels: Integers
) -> Booleans:
    """Return whether the nearest image of the index shows the landmark of each query, bool, shape (n,)."""
    _, positions = nearest_neighbours(queries, index, 1)
    right: Booleans = (index_labels[positions[:, 0]] == query_labels) & (query_labels >= 0)
    return right


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; write it, or name another in the settings")
    return sha256_of(path)

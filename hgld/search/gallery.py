"""The gallery of a search: embeddings of images with their ids, labels and photographs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from hgld.arrays import Integers
from hgld.datasets.image_dataset import read_images
from hgld.datasets.image_labels import ImageLabels, labels_from_landmarks, read_labels
from hgld.errors import ConfigurationError, HgldError
from hgld.hierarchy import Hierarchy, LabelMatrix, load_hierarchy
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.inspection.photos import FindImage, ManifestImages, find_images, label_name
from hgld.io.text_array import TextArray
from hgld.models.embedding_files import EmbeddingRecord, read_embedding_record
from hgld.tables.embeddings import Embeddings, read_embeddings


@dataclass(frozen=True, eq=False)
class Gallery:
    """Images to search in.

    Args:
        vectors: float16, float32, float64 or bfloat16, shape (N, d), of any length, in memory or
            memory-mapped; they are compared by their cosine.
        ids: N texts.
        labels: int32 or int64, shape (N, L), finest first and nested: indices into ``class_names``; -1
            in the rows of unlabelled images; or label sets of such indices, if images may have several
            labels. L is 0 without labels.
        level_names: Names of the L levels, finest first.
        class_names: Names of the labels of each level.
    """

    vectors: torch.Tensor
    ids: TextArray
    labels: Labelling
    level_names: tuple[str, ...] = ()
    class_names: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Dimension d of the vectors."""
        return int(self.vectors.shape[1])

    @property
    def n_levels(self) -> int:
        """Number of levels L."""
        return len(self.level_names)

    def labels_of(self, positions: Integers) -> Integers:
        """Return the labels of images: int64, shape (n, K, L), with rows of -1 after an image's labels."""
        exists = (positions >= 0)[:, None, None]
        if isinstance(self.labels, LabelSets):
            return np.where(exists, self.labels.padded(positions.clip(min=0)), -1)
        return np.where(exists, self.labels[positions][:, None, :], np.int64(-1))

    def names_of(self, position: int) -> tuple[str, ...]:
        """Return the names of an image's labels, finest first; empty if it is unlabelled.

        Several names of a level are separated by semicolons.
        """
        names_by_level: list[dict[str, None]] = [{} for _ in self.level_names]
        for labels in self.labels_of(np.array([position]))[0]:
            for column, name in enumerate(self.names(labels)):
                names_by_level[column][name] = None
        return tuple("; ".join(names) for names in names_by_level if names)

    def names(self, labels: Integers) -> tuple[str, ...]:
        """Return the names of a row of labels, finest first; empty if it is unlabelled."""
        if (labels < 0).any():
            return ()
        codes = labels.tolist()
        return tuple(names[code] for names, code in zip(self.class_names, codes, strict=True))


def read_gallery(
    path: Path, labels: Path | None = None, hierarchy: Path | None = None, split: str | None = None
) -> Gallery:
    """Read a gallery from files.

    Args:
        path: File of the embeddings; see :mod:`hgld.tables.embeddings`.
        labels: Labels of the images, as for hgld evaluate. Default: labels of the manifest that was
            embedded, or landmark_id of the embeddings.
        hierarchy: Levels above landmarks: the output of hgld build, or H-GLDv2's CSV files.
        split: Split of the landmark ids, if the hierarchy has several, or split of the manifest ``labels`` whose
            images are used.

    Raises:
        InputError: A file cannot be read or does not fit the embeddings.
        ConfigurationError: There is a hierarchy, but no landmarks.
    """
    embeddings = read_embeddings(path)
    levels = None
    if hierarchy is not None:
        levels = load_hierarchy(hierarchy)
    image_labels = _gallery_labels(embeddings, labels, levels, split)
    ids = embeddings.ids
    if ids is None:
        ids = TextArray(pa.array(np.arange(len(embeddings))).cast(pa.string()))
    if image_labels is None:
        return Gallery(embeddings.vectors, ids, np.empty((len(ids), 0), np.int64))
    labelling = image_labels.labelling
    level_names = image_labels.level_names
    if isinstance(labelling, LabelSets):
        codes, values_by_level = _renumbered(labelling.labels)
        renumbered: Labelling = LabelSets(codes, labelling.members)
    else:
        renumbered, values_by_level = _renumbered(labelling)
    class_names = []
    for column, values in enumerate(values_by_level):
        names = [
            label_name(image_labels.names, level_names, column, value, levels) for value in values
        ]
        class_names.append(tuple(names))
    return Gallery(embeddings.vectors, ids, renumbered, level_names, tuple(class_names))


def _renumbered(labels: LabelMatrix) -> tuple[npt.NDArray[np.int32], list[list[int]]]:
    """Return labels as indices into the sorted labels of each level, and these labels; -1 stays -1."""
    is_labelled = (labels >= 0).any(axis=1)
    codes = np.full(labels.shape, -1, np.int32)
    values_by_level = []
    for column in range(labels.shape[1]):
        codes[is_labelled, column], values = pd.factorize(labels[is_labelled, column], sort=True)
        values_by_level.append(values.tolist())
    return codes, values_by_level


def _gallery_labels(
    embeddings: Embeddings,
    path: Path | None = None,
    hierarchy: Hierarchy | None = None,
    split: str | None = None,
) -> ImageLabels | None:
    """Return the labels of the images of a gallery; None if there are no labels.

    Raises:
        InputError: A file cannot be read or does not fit the embeddings.
        ConfigurationError: There is a hierarchy, but no landmarks.
    """
    if path is None and hierarchy is None:
        path = _embedded_manifest(read_embedding_record(embeddings.path))
    if path is not None:
        return read_labels(path, embeddings, hierarchy, split=split)
    if embeddings.landmark_ids is not None:
        return labels_from_landmarks(embeddings.landmark_ids, hierarchy, split)
    if hierarchy is not None:
        raise ConfigurationError(
            f"{embeddings.path} does not say which landmark an image shows; give `labels`, such as GLDv2's train.csv"
        )
    return None


def _embedded_manifest(record: EmbeddingRecord | None) -> Path | None:
    """Return the manifest that was embedded, if it has levels."""
    if record is None or not record.sources.images.is_file():
        return None
    manifest = record.sources.images
    with suppress(HgldError):  # the file may have become another file
        if read_images(manifest).level_names:
            return manifest
    return None


def gallery_photographs(embeddings: Path, images: Path | None = None) -> FindImage:
    """Return a function that finds the photograph of an image of a gallery by its id.

    Args:
        embeddings: File of the embeddings of the gallery.
        images: Folder of the photographs, or the table from hgld index-images in it. Default: the folder
            of the embedded images; if it is missing, no photograph is found.

    Raises:
        InputError: ``images`` does not exist, or has another form.
    """
    if images is not None and not images.is_dir():
        return find_images(images)
    record = read_embedding_record(embeddings)
    if record is not None:
        root = images or record.sources.root
        with suppress(HgldError):  # the list of the images may be missing
            return ManifestImages(read_images(record.sources.images), root)
    if images is None:
        return lambda _: None
    return find_images(images)

"""The sets of images of a split, index, known, near and far unknown queries, and their embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError

from hgld.benchmark.rejection.settings import (
    CALIBRATION,
    INDEX,
    KNOWN,
    NEAR,
    EmbeddingSettings,
    FixedIndex,
    OpenSetIndex,
    RejectionSettings,
    UnknownImages,
    for_split,
)
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.splits import closed_set_split, near_and_query_images, split_at_random
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy import LabelMatrix
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_files import read_checkpoint
from hgld.models.model_loading import find_checkpoint, load_checkpoint_model
from hgld.tables.embeddings import deviations_path, read_deviations, read_embeddings, rows_of
from hgld.training.training_images import read_training_manifest
from hgld.training.training_settings import DataSettings

Rows = npt.NDArray[np.int64]
Kind = Literal["index", "calibration", "known", "near", "far"]
#: Number of features that a head embeds at once.
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Some images, what they are to the index, and their labels.

    Args:
        name: Name of the set: ``index``, ``calibration``, ``known``, ``near``, or that of other unknown images.
        kind: What the images are to the index.
        source: Key of their embeddings: ``index``, or the name of other unknown images.
        manifest: Manifest of the source.
        root: Folder of the images.
        rows: Rows of the images in the manifest, int64, shape (n,).
        labels: int64, shape (n, L), finest first, in one numbering with those of the index; -1 where an image has no
            label of the index's kind: far ones at all levels, near ones of another manifest above the landmark.
    """

    name: str
    kind: Kind
    source: str
    manifest: Manifest
    root: Path
    rows: Rows
    labels: LabelMatrix

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> npt.NDArray[np.str_]:
        """Ids of the images, shape (n,)."""
        return self.manifest.ids[self.rows].astype(np.str_)

    @property
    def classes(self) -> npt.NDArray[np.object_]:
        """Names of what the images show at the finest level of their manifest, such as landmarks, shape (n,)."""
        names = np.array(self.manifest.class_names[0], object)
        return np.asarray(names[self.manifest.labels[self.rows, 0]], object)


class ComparedImages:
    """The images of a comparison, from manifests that are read once, and only if needed.

    Args:
        settings: Settings of the comparison.
    """

    def __init__(self, settings: RejectionSettings) -> None:
        self._settings = settings
        self._sets = cache(self._read_sets)

    @cached_property
    def _index(self) -> Manifest:
        return read_manifest(self._settings.index.manifest, _root(self._settings.index))

    @cached_property
    def _unknown(self) -> dict[str, Manifest]:
        return {
            name: read_manifest(images.manifest, _root(images)) for name, images in self._settings.unknown.items()
        }

    def sets(self, split: int) -> dict[str, ImageSet]:
        """Return the sets of images of a split by name, the index first, then queries: known, near and far ones.

        Raises:
            InputError: A manifest cannot be read, or images of the index have several labels.
            ConfigurationError: A manifest has no such split, or the shares leave a set without images.
        """
        return self._sets(split)

    def _read_sets(self, split: int) -> dict[str, ImageSet]:
        index = self._settings.index
        parts = (
            _open_set(self._index, index, split) if isinstance(index, OpenSetIndex) else _fixed(self._index, index)
        )
        if empty := [name for name, (_, rows) in parts.items() if not len(rows)]:
            raise ConfigurationError(
                f"{index.manifest}, split {split}: no images are left for {empty[0]}; change the shares, or choose "
                "another seed"
            )
        labels = self._index.labels
        sets = {
            name: ImageSet(name, kind, INDEX, self._index, _root(index), rows, labels[rows])
            for name, (kind, rows) in parts.items()
        }
        unknown = self._settings.unknown
        return sets | {name: self._unknown_set(name, images) for name, images in unknown.items()}

    def _unknown_set(self, name: str, images: UnknownImages) -> ImageSet:
        manifest = self._unknown[name]
        rows = _rows_of_split(manifest, images.split, images.manifest)
        labels = np.full((len(rows), len(self._index.level_names)), -1, np.int64)
        if images.kind == "near":  # of landmarks that no image of the index shows
            labels[:, 0] = self._index.n_classes[0] + manifest.labels[rows, 0]
        return ImageSet(name, images.kind, name, manifest, _root(images), rows, labels)


def _open_set(manifest: Manifest, settings: OpenSetIndex, seed: int) -> dict[str, tuple[Kind, Rows]]:
    """Divide the images of a manifest; see :class:`OpenSetIndex`."""
    if settings.test_share is not None:
        divided = split_at_random(manifest, settings.test_share, manifest.level_names[0], seed)
        used = np.flatnonzero(divided.splits == "test")
    else:
        used = _rows_of_split(manifest, settings.split, settings.manifest)
    labels = manifest.labels[used]
    query_share = settings.known_share + settings.calibration_share
    is_near, is_query = near_and_query_images(labels, settings.near_share, query_share, seed)
    is_calibration = is_query.copy()
    is_calibration[is_query] = closed_set_split(labels[is_query], settings.calibration_share / query_share, seed)
    return {
        INDEX: ("index", used[~is_near & ~is_query]),
        CALIBRATION: ("calibration", used[is_calibration]),
        KNOWN: ("known", used[is_query & ~is_calibration]),
        NEAR: ("near", used[is_near]),
    }


def _fixed(manifest: Manifest, settings: FixedIndex) -> dict[str, tuple[Kind, Rows]]:
    parts: dict[str, tuple[Kind, Rows]] = {
        INDEX: ("index", _rows_of_split(manifest, settings.index, settings.manifest))
    }
    if settings.calibration is not None:
        parts[CALIBRATION] = ("calibration", _rows_of_split(manifest, settings.calibration, settings.manifest))
    parts[KNOWN] = ("known", _rows_of_split(manifest, settings.known, settings.manifest))
    return parts


def _rows_of_split(manifest: Manifest, split: str | None, path: Path) -> Rows:
    if split is None:
        return np.arange(len(manifest))
    rows = np.flatnonzero(manifest.splits == split)
    if not len(rows):
        raise ConfigurationError(
            f'{path}: there is no split "{split}"; expected one of {", ".join(manifest.split_names)}'
        )
    return rows


def _root(images: OpenSetIndex | FixedIndex | UnknownImages) -> Path:
    return images.root or images.manifest.parent


@dataclass(frozen=True, eq=False)
class SetEmbeddings:
    """Embeddings of the images of a set.

    Args:
        vectors: float32 or float64, shape (n, d).
        deviations: float32, shape (n, c): standard deviations of the feature maps; None if there are none.
    """

    vectors: torch.Tensor
    deviations: torch.Tensor | None = None


def embed_sets(settings: EmbeddingSettings, sets: Mapping[str, ImageSet], split: int) -> dict[str, SetEmbeddings]:
    """Return the embeddings of each set of images.

    Raises:
        InputError: A file cannot be read or lacks images, or has vectors of another length than the head expects.
        ConfigurationError: The head was trained on landmarks of the sets.
    """
    checkpoint = head_checkpoint(settings, split)
    head = None if checkpoint is None else load_checkpoint_model(checkpoint).network.eval()
    if checkpoint is not None:
        _require_other_landmarks(checkpoint, sets)
    files = {source: read_embeddings(path) for source, path in embedding_files(settings, split).items()}
    has_deviations = all(deviations_path(embeddings.path).is_file() for embeddings in files.values())
    embedded = {}
    for name, images in sets.items():
        embeddings = files[images.source]
        rows = torch.from_numpy(rows_of(embeddings, images.ids, f"images of {name}"))
        vectors = embeddings.vectors[rows]
        embedded[name] = SetEmbeddings(
            vectors if head is None else _apply(head, vectors, embeddings.path),
            read_deviations(embeddings.path, images.ids) if has_deviations else None,
        )
    return embedded


def embedding_files(settings: EmbeddingSettings, split: int) -> dict[str, Path]:
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
        raise InputError(f"{path}: no such run or checkpoint; train the head of `embeddings`, see `hgld train`")
    return checkpoint


def _apply(head: EmbeddingModel, features: torch.Tensor, path: Path) -> torch.Tensor:
    expected = head.settings.n_features
    if features.shape[1] != expected:
        raise InputError(
            f"{path}: vectors of {features.shape[1]:,} numbers, but the head expects "
            f"{'images' if expected is None else f'features of {expected:,}'}; name the features it was trained on"
        )
    with torch.inference_mode():
        starts = range(0, len(features), _BLOCK)
        blocks = [head(features[start : start + _BLOCK].float()) for start in starts]
    return torch.cat(blocks).clone()


def _require_other_landmarks(checkpoint: Path, sets: Mapping[str, ImageSet]) -> None:
    """Raise if the head was trained on a landmark of the index's manifest that the sets show."""
    try:
        data = DataSettings.model_validate(read_checkpoint(checkpoint)["settings"]["data"])
    except (KeyError, ValidationError) as error:
        raise InputError(f"{checkpoint}: does not say what it was trained on ({error}); train it again") from error
    trained = read_training_manifest(data).select_split(data.train)
    used = {name for images in sets.values() if images.source == INDEX for name in images.classes.tolist()}
    if shared := sorted(used.intersection(trained.class_names[0])):
        raise ConfigurationError(
            f"{checkpoint}: the head was trained on {len(shared):,} of the {len(used):,} landmarks that the "
            f"comparison tells apart, which would flatter it; train it on others:\n{indented_list(shared, limit=5)}"
        )

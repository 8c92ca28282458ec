"""The sets of images of a split: the index, known queries, near and far unknown ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from hgld.benchmark.rejection.comparison_settings import (
    CALIBRATION,
    INDEX,
    KNOWN,
    NEAR,
    FixedIndex,
    OpenSetIndex,
    RejectionSettings,
    UnknownImages,
)
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.splits import closed_set_split, near_and_query_images, split_at_random
from hgld.errors import ConfigurationError
from hgld.hierarchy import LabelMatrix

Rows = npt.NDArray[np.int64]
Kind = Literal["index", "calibration", "known", "near", "far"]


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
    """The images of a comparison, from manifests that are read once.

    Args:
        settings: Settings of the comparison.

    Raises:
        InputError: A manifest cannot be read, or images of the index have several labels.
        ConfigurationError: A manifest has no such split.
    """

    def __init__(self, settings: RejectionSettings) -> None:
        self._settings = settings
        self._index_root = _root(settings.index)
        self._index = read_manifest(settings.index.manifest, self._index_root)
        self._unknown = {
            name: (images, read_manifest(images.manifest, _root(images))) for name, images in settings.unknown.items()
        }

    def sets(self, split: int) -> dict[str, ImageSet]:
        """Return the sets of images of a split by name, the index first, then queries: known, near and far ones.

        Args:
            split: Seed of the split.

        Raises:
            ConfigurationError: The shares leave a set without images.
        """
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
            name: ImageSet(name, kind, INDEX, self._index, self._index_root, rows, labels[rows])
            for name, (kind, rows) in parts.items()
        }
        return sets | {name: self._unknown_set(name, images, own) for name, (images, own) in self._unknown.items()}

    def _unknown_set(self, name: str, images: UnknownImages, manifest: Manifest) -> ImageSet:
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

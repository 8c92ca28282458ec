"""Precomputed features in place of images, for training a head on a frozen backbone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from hgld.datasets.batch import Example, SkippedImage
from hgld.datasets.manifest import Manifest
from hgld.datasets.normalisation import Normalisation
from hgld.errors import InputError, indented_list
from hgld.tables.embeddings import read_embeddings


class FeatureDataset(Dataset[Example | SkippedImage]):
    """The features of a manifest's images, as written by ``hgld embed-images``.

    Interchangeable with :class:`~hgld.datasets.image_dataset.ImageDataset`. There is no augmentation, so the seed of
    an index is ignored. The ``image`` of an example is float32, shape (C,).

    Args:
        manifest: The images.
        path: File of features with the ids of the images.
        n_features: Expected number of features per image, C.

    Raises:
        InputError: The file is unusable, holds none of the images, or its features have another size.
    """

    def __init__(self, manifest: Manifest, path: Path, n_features: int) -> None:
        self.manifest, self._path = manifest, path
        self.normalisation: Normalisation | None = None
        embeddings = read_embeddings(path)
        if embeddings.ids is None:
            raise InputError(f"{path}: no ids to match features to images; write the file with hgld embed-images")
        row_of = {name: row for row, name in enumerate(embeddings.ids.tolist())}
        self._rows = np.array([row_of.get(name, -1) for name in manifest.ids.tolist()])
        if (self._rows < 0).all():
            raise InputError(
                f"{path}: has the features of none of the {len(manifest):,} images; was it made from the same "
                f"manifest?\n{indented_list(manifest.ids.tolist(), limit=5)}"
            )
        self._vectors = embeddings.vectors
        if self._vectors.shape[1] != n_features:
            raise InputError(
                f"{path}: features of {self._vectors.shape[1]:,} numbers, but the model expects {n_features:,}; set "
                "model.n_features, or name other features"
            )

    def __len__(self) -> int:
        return len(self.manifest)

    def __getitem__(self, index: int | tuple[int, int]) -> Example | SkippedImage:
        """Return the features of the image of a row, or a skipped image if it has none."""
        row = index[0] if isinstance(index, tuple) else index
        if self._rows[row] < 0:  # the image was unreadable when features were computed
            return SkippedImage(row, f"{self.manifest.ids[row]}: has no features in {self._path}")
        vector = self._vectors[self._rows[row]].to(torch.float32)
        return Example(vector, torch.from_numpy(self.manifest.labels_of(row)), row)

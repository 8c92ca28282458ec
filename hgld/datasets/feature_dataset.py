"""Features in place of pictures, for heads that are trained upon a backbone that stays as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from hgld.datasets.image_dataset import Example, Skipped
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError, listing
from hgld.tables.embeddings import read_embeddings


class FeatureDataset(Dataset[Example | Skipped]):
    """The features of a manifest's images, as ``hgld embed-images`` wrote them.

    Used as :class:`~hgld.datasets.image_dataset.ImageDataset` is, but that nothing is drawn: an image has the same
    features every time, so seeds are not looked at. The ``image`` of an example is float32 [C].

    Args:
        manifest: the images.
        path: of the features, with the ids of the images.
        n_features: C.

    Raises:
        InputError: the file cannot be used, has none of the images, or features of another size.
    """

    def __init__(self, manifest: Manifest, path: Path, n_features: int) -> None:
        self.manifest, self._path = manifest, path
        embeddings = read_embeddings(path)
        if embeddings.ids is None:
            raise InputError(f"{path}: has no ids, by which features are found; write them with hgld embed-images")
        row_of = {name: row for row, name in enumerate(embeddings.ids.tolist())}
        self._rows = np.array([row_of.get(name, -1) for name in manifest.ids.tolist()])
        if (self._rows < 0).all():
            raise InputError(
                f"{path}: has the features of none of the {len(manifest):,} images; was it made from the same "
                f"manifest?\n{listing(manifest.ids.tolist(), most=5)}"
            )
        self._vectors = embeddings.vectors
        if self._vectors.shape[1] != n_features:
            raise InputError(
                f"{path}: features of {self._vectors.shape[1]:,} numbers, but the model expects {n_features:,}; set "
                "model.n_features, or name other features"
            )

    def __len__(self) -> int:
        return len(self.manifest)

    def __getitem__(self, index: int | tuple[int, int]) -> Example | Skipped:
        """The features of the image of a row."""
        row = index[0] if isinstance(index, tuple) else index
        if self._rows[row] < 0:  # the image could not be read when features were made
            return Skipped(row, f"{self.manifest.ids[row]}: has no features in {self._path}")
        vector = self._vectors[self._rows[row]].to(torch.float32)
        return Example(vector, torch.from_numpy(self.manifest.labels[row].copy()), row)

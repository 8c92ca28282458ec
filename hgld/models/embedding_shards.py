"""Shards of embeddings of about a thousand consecutive images each, in files ``part_000000.safetensors``.

A shard depends on its images, the model and the settings alone. All shards together are the embeddings of all images.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from hgld.arrays import Integers
from hgld.datasets.encoded_images import SkippedImage
from hgld.io.files import atomic_write
from hgld.models.image_embedder import EmbeddingShard
from hgld.parted_output import Shards


class EmbeddingShards(Shards):
    """The shards of a folder.

    Args:
        folder: The folder.
        n_images: Number of all images.
        shard_size: Number of images per shard.
    """

    def __init__(self, folder: Path, n_images: int, shard_size: int) -> None:
        super().__init__(n_images, shard_size)
        self._folder = folder

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """Return the shards that do not exist yet, among some shards."""
        if not self._folder.is_dir():
            return list(numbers)
        # A listing is fresh where other computers write: a network file system may remember that a file was absent.
        existing = {path.name for path in self._folder.iterdir()}
        return [number for number in numbers if self._path(number).name not in existing]

    def write(self, number: int, shard: EmbeddingShard) -> None:
        """Write a shard, whose rows are among all images, atomically."""
        skipped = json.dumps([[image.row, image.reason] for image in shard.skipped])
        tensors = {"vectors": shard.vectors, "rows": shard.rows}
        if shard.deviations is not None:
            tensors["deviations"] = shard.deviations
        with atomic_write(self._path(number)) as draft:
            save_file(tensors, draft, metadata={"skipped": skipped})

    def n_skipped(self, numbers: Sequence[int]) -> int:
        """Return the number of images that could not be read, of some shards that exist."""
        n_skipped = 0
        for number in numbers:
            with safe_open(self._path(number), framework="pt") as file:
                n_skipped += len(json.loads(file.metadata()["skipped"]))
        return n_skipped

    def joined(self) -> EmbeddingShard:
        """Join all shards in order; vectors and deviations are in memory-mapped files of the folder."""
        rows = []
        skipped = []
        dims = {}
        for number in self.numbers:
            with safe_open(self._path(number), framework="pt") as file:
                rows.append(file.get_tensor("rows"))
                for row, reason in json.loads(file.metadata()["skipped"]):
                    skipped.append(SkippedImage(row, reason))
                for name in file.keys():  # noqa: SIM118 - the file is no mapping
                    # A shard without readable images has no deviations, as it does not know their number of channels.
                    if name != "rows":
                        _, dims[name] = file.get_slice(name).get_shape()
        ends = np.cumsum([len(shard_rows) for shard_rows in rows])
        tensors = {name: self._join_tensor(name, ends, dim) for name, dim in dims.items()}
        return EmbeddingShard(
            tensors["vectors"], torch.cat(rows), skipped, tensors.get("deviations")
        )

    def _join_tensor(self, name: str, ends: Integers, dim: int) -> Tensor:
        """Join a tensor of all shards; ``ends`` are the numbers of rows up to the end of each."""
        shape = (int(ends[-1]), dim)
        if not shape[0]:  # an empty file cannot be memory-mapped
            return torch.empty(shape)
        file_name = self._folder / f"{name}.npy"
        joined = torch.from_numpy(np.lib.format.open_memmap(file_name, "w+", np.float32, shape))
        start = 0
        for number, end in zip(self.numbers, ends, strict=True):
            if start < end:
                with safe_open(self._path(number), framework="pt") as file:
                    joined[start:end] = file.get_tensor(name)
            start = end
        return joined

    def _path(self, number: int) -> Path:
        return self._folder / f"part_{number:06}.safetensors"

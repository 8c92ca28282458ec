"""Shards of embeddings: files of an unfinished run, which are joined into the output."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from hgld.datasets.batch import SkippedImage
from hgld.errors import ConfigurationError, indented_list
from hgld.io.files import atomic_write
from hgld.tables import Provenance


@dataclass(frozen=True, eq=False)
class EmbeddingShard:
    """The embeddings of some images of a manifest.

    Args:
        vectors: float32, shape (n, d).
        rows: int64, shape (n,): rows of the images in the manifest.
        skipped: The images that could not be read.
        deviations: float32, shape (n, c): standard deviations of the feature maps, if they were asked for.
    """

    vectors: torch.Tensor
    rows: torch.Tensor
    skipped: list[SkippedImage]
    deviations: torch.Tensor | None = None


class EmbeddingShards:
    """A folder of shards, with a record of what they are made from.

    Args:
        folder: Folder of the shards.
        provenance: Settings and inputs that the shards are made from.
        count: Number of shards of a complete run.
    """

    def __init__(self, folder: Path, provenance: Provenance, count: int) -> None:
        self._folder, self._provenance, self._count = folder, provenance, count
        self._record = folder / "made_of.json"

    def open(self, *, discard: bool) -> None:
        """Create the folder, or reuse it with the shards in it.

        Args:
            discard: Whether to delete existing shards.

        Raises:
            ConfigurationError: Existing shards have other settings or inputs.
        """
        if discard:
            self.remove()
        elif self._record.is_file():
            self._check_provenance(Provenance.from_json(self._record.read_text()))
        with atomic_write(self._record) as draft:
            draft.write_text(self._provenance.to_json())

    def missing(self) -> list[int]:
        """Return the numbers of the shards that do not exist yet."""
        return [number for number in range(self._count) if not self._path(number).is_file()]

    def write(self, number: int, shard: EmbeddingShard) -> None:
        """Write a shard atomically."""
        skipped = json.dumps([[image.row, image.reason] for image in shard.skipped])
        with atomic_write(self._path(number)) as draft:
            tensors = {"vectors": shard.vectors, "rows": shard.rows, "deviations": shard.deviations}
            save_file({key: t for key, t in tensors.items() if t is not None}, draft, metadata={"skipped": skipped})

    def join(self) -> EmbeddingShard:
        """Join all shards in order; vectors and deviations are in memory-mapped files in the folder."""
        rows, skipped, shapes = [], [], dict[str, tuple[int, ...]]()
        for path in map(self._path, range(self._count)):
            with safe_open(path, framework="pt") as file:
                rows.append(file.get_tensor("rows"))
                skipped += [SkippedImage(*image) for image in json.loads(file.metadata()["skipped"])]
                # A shard without readable images has no deviations, whose number of channels it cannot know.
                shapes |= {name: file.get_slice(name).get_shape() for name in {*file.keys()} - {"rows"}}
        ends = np.cumsum([len(shard_rows) for shard_rows in rows])
        joined = {name: self._join_tensor(name, ends, shape[1]) for name, shape in shapes.items()}
        return EmbeddingShard(joined["vectors"], torch.cat(rows), skipped, joined.get("deviations"))

    def _join_tensor(self, name: str, ends: NDArray[np.int64], dim: int) -> torch.Tensor:
        """Join a tensor of all shards; ``ends`` are the numbers of rows up to the end of each."""
        shape = (int(ends[-1]), dim)
        if not shape[0]:  # an empty file cannot be memory-mapped
            return torch.empty(shape)
        joined = torch.from_numpy(np.lib.format.open_memmap(self._folder / f"{name}.npy", "w+", np.float32, shape))
        for start, end, path in zip([0, *ends], ends, map(self._path, range(self._count)), strict=False):
            if start < end:
                with safe_open(path, framework="pt") as file:
                    joined[start:end] = file.get_tensor(name)
        return joined

    def remove(self) -> None:
        """Remove the folder if it exists."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"part_{number:06}.safetensors"

    def _check_provenance(self, recorded: Provenance) -> None:
        """Raise if existing shards are made from something else."""
        if recorded.same_work(self._provenance):
            return
        raise ConfigurationError(
            f"{self._folder}: shards of an unfinished run with other settings; run with those settings to resume it, "
            f"or discard it with `force`:\n{indented_list(recorded.changes(self._provenance))}"
        )

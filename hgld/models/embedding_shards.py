"""Shards of embeddings: files of an unfinished run, which are joined into the output."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from hgld.compute.part import Part, format_numbers
from hgld.datasets.batch import SkippedImage
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.files import atomic_write
from hgld.io.part_locks import PartLocks, are_running
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
    """The folder of shards beside an output, with a record of what they are made from.

    Args:
        out: File that the shards are joined into.
        provenance: Settings and inputs that the shards are made from.
        count: Number of shards of a complete run.

    Attributes:
        numbers: Numbers of all shards.
        locks: Locks of parts.
    """

    def __init__(self, out: Path, provenance: Provenance, count: int) -> None:
        self._folder, self._out, self._provenance = out.with_name(f".{out.name}.parts"), out, provenance
        self.numbers, self.locks = range(count), PartLocks(self._folder, out)
        self._record, self._n_parts = self._folder / "made_of.json", self._folder / "parts.txt"

    def open(self, *, discard: bool, n_parts: int = 1) -> None:
        """Create the folder, or reuse it with the shards in it.

        Args:
            discard: Whether to delete existing shards.
            n_parts: Number of parts that the shards are divided into, for messages about missing ones.

        Raises:
            ConfigurationError: Existing shards have other settings or inputs.
        """
        # Shards without a record are what is left of a folder whose removal was interrupted.
        if discard or not self._record.is_file():
            self.remove()
        else:
            self._check_provenance()
        for path, text in ((self._n_parts, f"{n_parts}\n"), (self._record, self._provenance.to_json())):
            with atomic_write(path) as draft:
                draft.write_text(text)

    def require_complete(self) -> None:
        """Raise if shards are missing or parts are running.

        Raises:
            InputError: Shards are missing that no running part is going to write.
            ConfigurationError: The shards have other settings or inputs.
            BusyError: Parts are running.
        """
        if not self._record.is_file():
            raise InputError(f"{self._out}: no part of it has been run; run all of them (`part`), then merge")
        self._check_provenance()
        missing, running = set(self.missing(self.numbers)), self.locks.running()
        count = int(self._n_parts.read_text())
        parts = [part for part in (Part(n, count) for n in range(1, count + 1)) if str(part) not in running]
        to_run = [part.number for part in parts if not missing.isdisjoint(part.of(self.numbers))]
        if not to_run:
            return self.locks.require_idle()
        also = f" ({are_running(running)})" if running else ""
        raise InputError(
            f"{self._out}: {len(missing):,} of {len(self.numbers):,} shards are missing; run `part` N/{count} again "
            f"for N = {format_numbers(to_run)}, then merge{also}"
        )

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """Return those of some shards that do not exist yet."""
        # A listing is fresh where other computers write: a network file system may remember that a file was absent.
        existing = {path.name for path in self._folder.iterdir()}
        return [number for number in numbers if self._path(number).name not in existing]

    def n_skipped(self, numbers: Sequence[int]) -> int:
        """Return the number of images that could not be read, of some shards that exist."""
        n_skipped = 0
        for path in map(self._path, numbers):
            with safe_open(path, framework="pt") as file:
                n_skipped += len(json.loads(file.metadata()["skipped"]))
        return n_skipped

    def write(self, number: int, shard: EmbeddingShard) -> None:
        """Write a shard atomically."""
        skipped = json.dumps([[image.row, image.reason] for image in shard.skipped])
        with atomic_write(self._path(number)) as draft:
            tensors = {"vectors": shard.vectors, "rows": shard.rows, "deviations": shard.deviations}
            save_file({key: t for key, t in tensors.items() if t is not None}, draft, metadata={"skipped": skipped})

    def join(self) -> EmbeddingShard:
        """Join all shards in order; vectors and deviations are in memory-mapped files in the folder."""
        rows, skipped, shapes = [], [], dict[str, tuple[int, ...]]()
        for path in map(self._path, self.numbers):
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
        for start, end, path in zip([0, *ends], ends, map(self._path, self.numbers), strict=False):
            if start < end:
                with safe_open(path, framework="pt") as file:
                    joined[start:end] = file.get_tensor(name)
        return joined

    def remove(self) -> None:
        """Remove the folder if it exists."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"part_{number:06}.safetensors"

    def _check_provenance(self) -> None:
        """Raise if existing shards are made from something else."""
        recorded = Provenance.from_json(self._record.read_text())
        if recorded.same_work(self._provenance):
            return
        raise ConfigurationError(
            f"{self._folder}: shards of an unfinished run with other settings; run with those settings to resume it, "
            f"or discard it with `force`, or remove the folder:\n{indented_list(recorded.changes(self._provenance))}"
        )

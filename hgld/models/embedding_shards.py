"""A folder of parts of embeddings, which come one by one and become one whole."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from hgld.datasets.image_dataset import Skipped
from hgld.errors import ConfigurationError, listing
from hgld.io.files import atomic_write
from hgld.tables import Provenance


@dataclass(frozen=True, eq=False)
class Part:
    """The embeddings of some images.

    Args:
        vectors: float32, shape (n, d).
        rows: int64, shape (n,): of the manifest.
        skipped: the images that could not be read.
    """

    vectors: torch.Tensor
    rows: torch.Tensor
    skipped: list[Skipped]


class Parts:
    """Parts in files, and what they are made of.

    Args:
        folder: where they are.
        provenance: what they are made of.
        count: how many there will be.
    """

    def __init__(self, folder: Path, provenance: Provenance, count: int) -> None:
        self._folder, self._provenance, self._count = folder, provenance, count
        self._made_of = folder / "made_of.json"

    def begin(self, *, anew: bool) -> None:
        """Make the folder, or go on with it; ``anew`` drops the parts in it.

        Raises:
            ConfigurationError: the parts are made of something else.
        """
        if anew:
            self.remove()
        elif self._made_of.is_file():
            self._check(Provenance.from_json(self._made_of.read_text()))
        with atomic_write(self._made_of) as draft:
            draft.write_text(self._provenance.to_json())

    def missing(self) -> list[int]:
        """The numbers of the parts that are not there."""
        return [number for number in range(self._count) if not self._file(number).is_file()]

    def write(self, number: int, part: Part) -> None:
        """Write a part, atomically."""
        skipped = json.dumps([[one.row, one.reason] for one in part.skipped])
        with atomic_write(self._file(number)) as draft:
            save_file({"vectors": part.vectors, "rows": part.rows}, draft, metadata={"skipped": skipped})

    def join(self) -> Part:
        """All parts in order; the vectors are in a mapped file in the folder, not in memory."""
        files = [self._file(number) for number in range(self._count)]
        rows, skipped = [], []
        for file in files:
            with safe_open(file, framework="pt") as part:
                rows.append(part.get_tensor("rows"))
                skipped += [Skipped(*one) for one in json.loads(part.metadata()["skipped"])]
                dim = part.get_slice("vectors").get_shape()[1]
        shape = (sum(map(len, rows)), dim)
        if not shape[0]:  # nothing can be mapped
            return Part(torch.empty(shape), torch.cat(rows), skipped)
        joined = np.lib.format.open_memmap(self._folder / "joined.npy", "w+", np.float32, shape)
        vectors = torch.from_numpy(joined)
        at = 0
        for file, own in zip(files, rows, strict=True):
            with safe_open(file, framework="pt") as part:
                vectors[at : at + len(own)] = part.get_tensor("vectors")
            at += len(own)
        return Part(vectors, torch.cat(rows), skipped)

    def remove(self) -> None:
        """Remove the folder, if it is there."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self._folder / f"part_{number:06}.safetensors"

    def _check(self, found: Provenance) -> None:
        """Refuse to go on with parts that are made of something else."""
        if found.same_work(self._provenance):
            return
        then, now = ({**made.parameters, **made.inputs} for made in (found, self._provenance))
        differing = [f"{key}: {then.get(key)} then, {now.get(key)} now" for key in now if then.get(key) != now[key]]
        raise ConfigurationError(
            f"{self._folder}: holds parts of an unfinished run with other settings; run the same again to go on with "
            f"them, or drop them with --force:\n{listing(differing)}"
        )

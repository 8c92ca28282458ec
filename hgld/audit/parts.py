"""Parts of an audit: blocks of consecutive images, with files beside the output until all parts are joined."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from hgld.compute.executors import Part
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import InputError
from hgld.io.files import atomic_write, exclusive_lock
from hgld.ragged import RaggedIndices

#: Images that are searched with at once. Parts have whole blocks, as the last bits of cosines depend on the size.
BLOCK = 4096


def rows_of_part(part: Part, n_images: int) -> range:
    """Return the rows of a part of the images: whole blocks, maybe none."""
    starts = part.of(range(0, n_images, BLOCK))
    return range(n_images)[starts[0] : starts[-1] + BLOCK] if starts else range(0)


def blocks_of(rows: range, size: int | None = None) -> list[slice]:
    """Return the blocks of ``size`` rows, by default :data:`BLOCK`, that make up a range; the last may be smaller."""
    size = size or BLOCK
    return [slice(start, min(start + size, rows.stop)) for start in rows[::size]]


def nearest_images(
    vectors: torch.Tensor,
    rows: range,
    k: int,
    excluded: Callable[[NDArray[np.int64]], RaggedIndices],
    usable: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the cosines and rows of the k nearest of all images to some of them, best first, both (n, k).

    Args:
        vectors: float, shape (N, d), of all images.
        rows: Images that are searched with.
        k: Number of nearest images; where there are fewer, cosines are NaN and rows -1.
        excluded: Returns the images that each search excludes, given those that are searched with.
        usable: bool, shape (N,): whether an image may be found. Default: all.
    """
    found: list[tuple[NDArray[Any], ...]] = [(np.empty((0, k), np.float32), np.empty((0, k), np.int64))]
    for block in blocks_of(rows):
        others = excluded(np.arange(block.start, block.stop))
        found.append(nearest_neighbours(vectors[block], vectors, k, excluded=others, gallery_mask=usable))
    cosines, neighbours = map(np.concatenate, zip(*found, strict=True))
    return cosines, neighbours


def itself(rows: NDArray[np.int64]) -> RaggedIndices:
    """Return, for :func:`nearest_images`, each image as the only one that its own search excludes."""
    return RaggedIndices(np.arange(len(rows) + 1), rows)


@dataclass(frozen=True)
class AuditParts:
    """Files of the parts of an audit, in a hidden folder beside its output.

    Args:
        folder: The folder.
    """

    folder: Path

    @classmethod
    def of(cls, out: Path, *made_of: object) -> AuditParts:
        """Return the files for an output.

        Args:
            out: The output.
            *made_of: Settings and inputs of the audit; with other ones, the files are in another folder.
        """
        digest = hashlib.sha256(repr(made_of).encode()).hexdigest()
        return cls(out.with_name(f".{out.name}.{digest[:16]}.parts"))

    @contextmanager
    def joined(self, out: Path) -> Iterator[None]:
        """Lock the parts of an output while they are made and joined, and remove them after a success.

        Raises:
            BusyError: Another run is making or joining them.
        """
        with exclusive_lock(self.folder, name=str(out)):
            yield
            shutil.rmtree(self.folder)

    def path(self, part: Part, suffix: str = ".parquet") -> Path:
        """Return the path of the file of a part; the file is complete or does not exist."""
        return self.folder / f"{part.file_name}{suffix}"

    def has(self, suffix: str = ".parquet") -> Callable[[Part], bool]:
        """Return a function that tells whether the file of a part exists."""
        return lambda part: self.path(part, suffix).exists()

    def paths(self, count: int, suffix: str = ".parquet") -> list[Path]:
        """Return the files of all parts."""
        return [self.path(Part(number, count), suffix) for number in range(1, count + 1)]

    def write(self, part: Part, table: pa.Table) -> Path:
        """Write the table of a part, and return its file."""
        with atomic_write(self.path(part)) as draft:
            pq.write_table(table, draft, compression="zstd")
        return self.path(part)

    def read(self, count: int) -> pa.Table:
        """Return the rows of the tables of all parts."""
        tables = []
        for path in self.paths(count):
            with require_whole(path):
                tables.append(pq.read_table(path))
        return pa.concat_tables(tables)


@contextmanager
def require_whole(path: Path) -> Iterator[None]:
    """Raise an InputError, which says what to do, if the file of a part turns out to be damaged."""
    try:
        yield
    except (pa.ArrowException, SafetensorError) as error:
        raise InputError(f"{path}: damaged; remove it, and run the same command again: {error}") from error

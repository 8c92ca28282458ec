"""Pictures of a manifest as tensors; those that cannot be read are told, never replaced by others."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset

from hgld.datasets.manifest import Manifest
from hgld.datasets.transforms import Transform
from hgld.errors import InputError, listing
from hgld.gldv2.tar_images import TarFiles


class Example(NamedTuple):
    """A picture that could be read: float32 [3, h, w], its labels, int64 [L], and its row in the manifest.

    Where a backbone's features stand for pictures, ``image`` is float32 [C].
    """

    image: torch.Tensor
    labels: torch.Tensor
    row: int


@dataclass(frozen=True)
class Skipped:
    """A picture that could not be read.

    Args:
        row: in the manifest.
        reason: in words, beginning with the picture's id.
    """

    row: int
    reason: str


@dataclass(frozen=True, eq=False)
class Batch:
    """Pictures together; b may be less than was asked for, as pictures that could not be read are left out.

    Args:
        images: float32, shape (b, 3, h, w); or (b, C), features.
        labels: int64, shape (b, L), finest first; as in the manifest.
        rows: int64, shape (b,): in the manifest.
        skipped: the pictures left out.
    """

    images: torch.Tensor
    labels: torch.Tensor
    rows: torch.Tensor
    skipped: list[Skipped]

    def __len__(self) -> int:
        return len(self.images)

    def pin_memory(self) -> Batch:
        """The same in pinned memory, as torch's DataLoader asks for it."""
        return replace(self, images=self.images.pin_memory(), labels=self.labels.pin_memory())


class Examples(Protocol):
    """The images of a manifest, however they come; an index is a row, or a row and a seed of what is drawn for it."""

    manifest: Manifest

    def __len__(self) -> int: ...

    def __getitem__(self, index: int | tuple[int, int]) -> Example | Skipped: ...


class ImageDataset(Dataset[Example | Skipped]):
    """The pictures of a manifest; made to be used in worker processes, forked or spawned.

    An index is a row, or a row and a seed: what the transform draws from torch's generator depends on the seed alone,
    so that a picture has the same pixels in whatever process it is read. Without one, it draws as it comes.

    Args:
        manifest: the images.
        root: the folder that its paths are relative to.
        transform: see :mod:`hgld.datasets.transforms`.

    Raises:
        InputError: there is no such folder, or tar files are not in it.
    """

    def __init__(self, manifest: Manifest, root: Path, transform: Transform) -> None:
        self.manifest, self.root, self._transform = manifest, root, transform
        if not root.is_dir():
            raise InputError(f"{root}: no such folder; name the one that the paths of the manifest are relative to")
        tars = sorted(set(manifest.paths[manifest.offsets >= 0].tolist()))
        absent = [path for path in tars if not (root / path).is_file()]
        if absent:
            raise InputError(
                f"{root}: {len(absent):,} of the manifest's {len(tars):,} tar files are not in this folder; name the "
                f"folder that was indexed, or fetch them again:\n{listing(absent)}"
            )
        self._tars = TarFiles(root)

    def __len__(self) -> int:
        return len(self.manifest)

    def __getitem__(self, index: int | tuple[int, int]) -> Example | Skipped:
        """The picture of a row.

        Raises:
            InputError: its tar file cannot be read, or is not the one that was indexed.
        """
        row, seed = index if isinstance(index, tuple) else (index, None)
        try:
            image = _decoded(self._bytes(row))
        except _UnreadableError as error:
            return Skipped(row, f"{self.manifest.ids[row]}: {error}")
        with _drawing_from(seed):
            pixels = self._transform(image)
        return Example(pixels, torch.from_numpy(self.manifest.labels[row].copy()), row)

    def _bytes(self, row: int) -> bytes:
        path: str = self.manifest.paths[row]
        offset = int(self.manifest.offsets[row])
        if offset >= 0:
            return self._tars.read(path, offset, int(self.manifest.sizes[row]))
        try:
            return (self.root / path).read_bytes()
        except OSError as error:
            raise _UnreadableError(f"{self.root / path}: {error.strerror}") from error


def collate(examples: Sequence[Example | Skipped]) -> Batch:
    """The pictures that could be read as one batch, which has none where none could be, and the others beside it."""
    read = [example for example in examples if isinstance(example, Example)]
    nothing = Example(torch.empty(3, 0, 0), torch.empty(0, dtype=torch.int64), 0)
    images, labels, rows = zip(*(read or [nothing]), strict=True)
    n = len(read)
    return Batch(
        # Not torch.stack, whose threads wait for each other: with other work on the machine, twenty times as long.
        images=torch.from_numpy(np.stack([image.numpy() for image in images]))[:n],
        labels=torch.stack(labels)[:n],
        rows=torch.tensor(rows)[:n],
        skipped=[example for example in examples if isinstance(example, Skipped)],
    )


class _UnreadableError(Exception):
    """A picture cannot be read; the message says why."""


def _decoded(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data)).convert("RGB")
    except MemoryError:
        raise
    except UnidentifiedImageError as error:  # whose message is an address in memory
        raise _UnreadableError(f"no picture of a known format, in {len(data):,} bytes") from error
    except Exception as error:  # decoders raise whatever damaged bytes make them stumble over
        raise _UnreadableError(f"{type(error).__name__}: {error}") from error


@contextmanager
def _drawing_from(seed: int | None) -> Iterator[None]:
    """Let torch's generator of the CPU begin at a seed, and put it back afterwards."""
    if seed is None:
        yield
        return
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)

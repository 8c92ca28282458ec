"""Examples of a dataset, and the batches that they form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch

from hgld.datasets.manifest import Manifest

#: Images as one tensor, or as a list where their heights or widths differ.
Images: TypeAlias = torch.Tensor | list[torch.Tensor]


@dataclass(frozen=True)
class Normalisation:
    """Normalise pixels on the device of the model, so that workers pass on a byte a value instead of four.

    Pixel values x become (x / 255 - mean) / std, computed as x * (1 / (255 std)) - mean / std.

    Args:
        mean: Mean of red, green and blue, for values of 0 to 1.
        std: Standard deviation of red, green and blue.

    >>> white = torch.full((3, 1, 1), 255, dtype=torch.uint8)
    >>> Normalisation((0.0, 0.0, 0.5), (1.0, 0.5, 0.5))(white).flatten().tolist()
    [1.0, 2.0, 1.0]
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, pixels: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normalise pixels.

        Args:
            dtype: Type of the result, to which values computed in float32 are rounded.

        Returns:
            Shape (..., 3, h, w), with the colours of a pixel side by side in memory, as in torch's ``channels_last``.
        """
        std = np.array(self.std, np.float32)
        colours_last = pixels.movedim(-3, -1)
        *shape, width, n_colours = colours_last.shape
        # For a whole row, as operations on three values at a time take several times as long.
        factors = np.tile(1 / (255 * std), width)
        offsets = np.tile(np.array(self.mean, np.float32) / std, width)
        values = colours_last.reshape(*shape, width * n_colours).to(torch.float32)
        values *= torch.from_numpy(factors).to(pixels.device)
        values -= torch.from_numpy(offsets).to(pixels.device)
        return values.to(dtype).reshape(*shape, width, n_colours).movedim(-1, -3)


class Example(NamedTuple):
    """An image, or the features of one, with its labels.

    Args:
        image: uint8, shape (3, h, w), pixels before normalisation; or float32, shape (C,), the features of a frozen
            backbone.
        labels: int64, shape (L,), finest first, or (K, L) for images with several labels; see
            :meth:`~hgld.datasets.manifest.Manifest.labels_of`.
    """

    image: torch.Tensor
    labels: torch.Tensor
    row: int


@dataclass(frozen=True)
class SkippedImage:
    """An image that could not be read.

    Args:
        reason: Why it could not be read, beginning with the id of the image.
    """

    row: int
    reason: str


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of images; smaller than the requested batch size if images could not be read.

    Args:
        pixels: uint8, shape (b, 3, h, w); or float32, shape (b, C) for features; or, where heights or widths differ,
            a list of b tensors of shape (3, h, w).
        normalisation: Function from pixels to the input of the model; None for features, which are input as they are.
    """

    pixels: Images
    labels: torch.Tensor
    rows: torch.Tensor
    skipped: list[SkippedImage]
    normalisation: Normalisation | None

    def __len__(self) -> int:
        return len(self.pixels)

    @cached_property
    def images(self) -> Images:
        """The input of a model, on the CPU: float32, in the shape of the pixels, normalised; or the features."""
        return self.images_on("cpu")

    def images_on(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Images:
        """Return the input of a model, normalised on its device.

        Args:
            dtype: Type of normalised images; features remain float32.
        """

        def load(pixels: torch.Tensor) -> torch.Tensor:
            pixels = pixels.to(device, non_blocking=True)
            return pixels if self.normalisation is None else self.normalisation(pixels, dtype)

        return map_images(load, self.pixels)

    def pin_memory(self) -> Batch:
        """Copy the batch to pinned memory; called by torch's DataLoader."""
        pinned = map_images(torch.Tensor.pin_memory, self.pixels)
        return replace(self, pixels=pinned, labels=self.labels.pin_memory())


class ExampleDataset(Protocol):
    """A dataset over the rows of a manifest.

    An index is a row, or a pair of a row and the seed of its random augmentation.

    Attributes:
        normalisation: Function from the pixels of an example to the input of a model; None if examples are features.
    """

    manifest: Manifest
    normalisation: Normalisation | None

    def __len__(self) -> int: ...

    def __getitem__(self, index: int | tuple[int, int]) -> Example | SkippedImage: ...


def collate(examples: Sequence[Example | SkippedImage], normalisation: Normalisation | None) -> Batch:
    """Stack examples of a dataset into a batch, which is empty if every image was skipped."""
    readable = [example for example in examples if isinstance(example, Example)]
    placeholder = Example(torch.empty(3, 0, 0, dtype=torch.uint8), torch.empty(0, dtype=torch.int64), 0)
    images, labels, rows = zip(*(readable or [placeholder]), strict=True)
    n = len(readable)
    return Batch(
        pixels=_stack(images)[:n],
        labels=torch.stack(labels)[:n],
        rows=torch.tensor(rows)[:n],
        skipped=[example for example in examples if isinstance(example, SkippedImage)],
        normalisation=normalisation,
    )


def map_images(function: Callable[[torch.Tensor], torch.Tensor], images: Images) -> Images:
    """Apply a function, such as a copy to a device, to a batch of images or to each of a list."""
    return function(images) if isinstance(images, torch.Tensor) else [function(image) for image in images]


def _stack(images: Sequence[torch.Tensor]) -> Images:
    if len({image.shape for image in images}) > 1:
        return list(images)
    # Not torch.stack: its threads wait for each other, which takes twenty times as long on a busy machine.
    if images[0].ndim == 1:
        return torch.from_numpy(np.stack([image.numpy() for image in images]))
    # The colours of a pixel are side by side in memory, and stay so.
    return torch.from_numpy(np.stack([image.permute(1, 2, 0).numpy() for image in images])).permute(0, 3, 1, 2)

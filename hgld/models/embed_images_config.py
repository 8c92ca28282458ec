"""Settings of ``hgld embed-images``, and the counts of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from hgld.compute.part import Part
from hgld.errors import ConfigurationError


@dataclass(frozen=True)
class EmbedImagesConfig:
    """Settings of embedding images.

    Args:
        split: Split of the manifest to embed. Default: all images.
        scales: Factors of height and width; for several, see :meth:`EmbeddingModel.multi_scale`.
        half: Whether the backbone computes in 16 bits: float16 on CUDA, bfloat16 elsewhere.
        center: Whether to subtract the mean of all embeddings and normalise them again. Features of a backbone that
            was not trained for retrieval share a large, uninformative component. Not for queries and a gallery in
            separate files, which would lose different means.
        with_std: Whether to write standard deviations of the feature maps too, which
            :func:`hgld.tables.embeddings.read_deviations` reads; at one scale only.
        device: A torch device.
        batch_size: Number of images embedded at once.
        shard_size: Number of images per shard.
        workers: Number of processes that read images; 0 reads them in this one.

    Raises:
        ConfigurationError: A value is out of range, or there is no such kind of device.
    """

    split: str | None = None
    scales: Sequence[float] = (1.0,)
    half: bool = False
    center: bool = False
    with_std: bool = False
    device: str = "cpu"
    batch_size: int = 32
    shard_size: int = 1024
    workers: int = 2

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) <= 0:
            raise ConfigurationError(f"`scales` is {list(self.scales)}; expected at least one number, all above 0")
        if self.with_std and tuple(self.scales) != (1,):
            raise ConfigurationError(
                f"`with_std` is set and `scales` is {list(self.scales)}; standard deviations of feature maps are "
                "those of one scale, 1"
            )
        if min(self.batch_size, self.shard_size) < 1 or self.workers < 0:
            raise ConfigurationError(
                f"`batch_size` is {self.batch_size}, `shard_size` {self.shard_size}, `workers` {self.workers}; "
                "expected at least 1, 1 and 0"
            )
        try:
            torch.device(self.device)
        except RuntimeError as error:
            raise ConfigurationError(f'the device "{self.device}" cannot be used: {error}') from error

    def require_device(self) -> None:
        """Check that the device is available here; parts are also merged on computers without it.

        Raises:
            ConfigurationError: It is not.
        """
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
            raise ConfigurationError(f'the device "{self.device}" cannot be used: {error}') from error


@dataclass(frozen=True)
class EmbedImagesSummary:
    """Counts of a finished run.

    Args:
        images: Number of images in the output.
        dim: Number of dimensions of the embeddings.
        skipped: Ids of the images that could not be read.
        zeros: Ids of the images whose embedding is zero, such as blank ones whose features all are.
        embedded: Number of images processed by this run, as opposed to an interrupted one before it.
        seconds: Duration of this run.
        waiting_share: Share of the time of embedding that this process has waited for images to be read; None if
            nothing was left to embed.
        skipped_file: File that lists the images that could not be read.
    """

    images: int
    dim: int
    skipped: tuple[str, ...]
    zeros: tuple[str, ...]
    embedded: int
    seconds: float
    waiting_share: float | None
    skipped_file: Path


@dataclass(frozen=True)
class EmbedPartSummary:
    """Counts of a finished part.

    Args:
        part: The part.
        images: Number of images in the part.
        skipped: Number of images in the part that could not be read.
        embedded: Number of images processed by this run, as opposed to an interrupted one before it.
        seconds: Duration of this run.
        waiting_share: See :class:`EmbedImagesSummary`.
    """

    part: Part
    images: int
    skipped: int
    embedded: int
    seconds: float
    waiting_share: float | None

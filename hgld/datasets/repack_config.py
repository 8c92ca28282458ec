"""Settings of ``hgld repack``, its plan, and what it says in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgld.errors import ConfigurationError, require_at_least


@dataclass(frozen=True)
class RepackConfig:
    """Settings of writing images into tar files.

    Args:
        size: Shorter side of reduced images in pixels, or of their boxes; smaller ones stay as they are.
            Default: images are stored as they are.
        quality: Quality of JPEG of reduced images, 1 to 100.
        split: Split of the manifest. Default: all images.
        shard_size: Number of images per tar file.
        workers: Number of processes that reduce images; 0 reduces them in this one.
    """

    size: int | None = None
    quality: int = 90
    split: str | None = None
    shard_size: int = 10_000
    workers: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise ConfigurationError(f"`quality` is {self.quality}; expected 1 to 100")
        require_at_least(1, size=self.size, shard_size=self.shard_size)
        require_at_least(0, workers=self.workers)

    def parameters(self) -> dict[str, Any]:
        """Return what affects the tar files, as JSON values."""
        return {"size": self.size, "quality": self.quality, "shard_size": self.shard_size}


@dataclass(frozen=True)
class RepackPlan:
    """What a run is going to do; sizes and time are estimates from a sample of the images.

    Args:
        done: Number of them that earlier runs have dealt with.
        shards: Number of tar files for all images.
        source_bytes: Size of the files of the images that are left.
    """

    images: int
    done: int
    shards: int
    source_bytes: float
    n_bytes: float
    cpu_seconds: float
    free_bytes: int


@dataclass(frozen=True)
class RepackSummary:
    """Contents of the folder, and cost of the run.

    Args:
        copies: Number of them that are the original files.
        verified: Number of tar files of earlier runs whose SHA-256 is right; None if that was not asked for.
    """

    images: int
    copies: int
    skipped: tuple[str, ...]
    n_bytes: int
    shards: int
    written: int
    verified: int | None
    seconds: float

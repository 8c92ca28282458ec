"""Settings of images and of ``hgld repack``, in a module that is fast to import for help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hgld.errors import ConfigurationError, require_at_least

Fit = Literal["crop", "squash", "pad", "longest"]
Interpolation = Literal["bilinear", "bicubic", "lanczos"]


@dataclass(frozen=True)
class RepackConfig:
    """Settings of writing images into tar files.

    Args:
        size: Shorter side of reduced images in pixels, or of their boxes; smaller ones stay as they are.
            Default: images are stored as they are.
        quality: Quality of JPEG of reduced images, 1 to 100.
        split: Split of the manifest. Default: all images.
        shard_size: Number of images per tar file.
        workers: Number of processes that reduce images; 0 reduces images in the calling process.
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
        """Return the settings that affect the tar files, as JSON values."""
        return {"size": self.size, "quality": self.quality, "shard_size": self.shard_size}

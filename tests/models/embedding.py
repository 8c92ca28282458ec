"""A small job of embedding images, and progress that aborts it."""

from __future__ import annotations

from hgld.models.image_embedding import EmbedImagesConfig

PATHS = [f"{n % 3}/p{n:02}.jpg" for n in range(22)]
#: Five shards.
CONFIG = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0)
MODEL_OPTIONS = ["--model", "test_resnet", "--pretrained", "none", "--size", "32", "--resize", "32"]


class KilledError(Exception):
    pass


class KillAfter:
    """Progress that aborts the run after a number of images."""

    def __init__(self, images: int) -> None:
        self._remaining = images

    def start(self, total: int, done: int = 0) -> None:
        self.total = total

    def advance(self, units: int = 1, **details: float) -> None:
        self._remaining -= units
        if self._remaining < 0:
            raise KilledError

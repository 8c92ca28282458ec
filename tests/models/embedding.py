"""A small job of embedding images, and progress that aborts it."""

from pathlib import Path
from typing import Any

from hgld.compute.parts import Part
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.image_embedding import EmbedImagesSummary, EmbedPartSummary, embed_images, embed_part
from hgld.models.settings import EmbedImagesConfig
from hgld.progress import NoProgress
from hgld.tables.embeddings import Embeddings, read_embeddings
from tests.assertions import not_none

PATHS = [f"{n % 3}/p{n:02}.jpg" for n in range(22)]
#: Five shards.
CONFIG = EmbedImagesConfig(batch_size=3, shard_size=5, workers=0)
MODEL_OPTIONS = ["--model", "test_resnet", "--pretrained", "none", "--size", "32", "--resize", "32"]


class KilledError(Exception):
    pass


class KillAfter(NoProgress):
    """Progress that aborts the run after a number of images."""

    def __init__(self, images: int) -> None:
        self._remaining = images

    def start(self, total: int, done: int = 0) -> None:
        self.total = total

    def advance(self, units: int = 1, **details: float) -> None:
        self._remaining -= units
        if self._remaining < 0:
            raise KilledError


def embed(
    images: Path, out: Path, model: ImageEmbedder, config: EmbedImagesConfig = CONFIG, **options: Any
) -> EmbedImagesSummary:
    """Embed images, and return the summary of a run that has something to do."""
    return not_none(embed_images(images, out, model, config, **options))


def embed_some(
    images: Path, out: Path, model: ImageEmbedder, part: Part, config: EmbedImagesConfig = CONFIG, **options: Any
) -> EmbedPartSummary:
    """Embed a part of images, and return the summary of a run that has something to do."""
    summary = embed_part(images, out, model, config, part=part, **options)
    assert isinstance(summary, EmbedPartSummary)
    return summary


def read_with_ids(path: Path) -> tuple[Embeddings, list[str]]:
    """Return embeddings that have ids, and their ids."""
    embeddings = read_embeddings(path)
    return embeddings, not_none(embeddings.ids).tolist()


def assert_same_output(first: Path, second: Path) -> None:
    """Compare the files of two outputs; the record holds the time of writing."""
    names = sorted(path.name for path in first.parent.iterdir())
    assert names == sorted(path.name for path in second.parent.iterdir()), "shards and locks are removed"
    for name in names:
        if not name.endswith("made.json"):
            assert (first.parent / name).read_bytes() == (second.parent / name).read_bytes()

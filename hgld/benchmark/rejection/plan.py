"""What a comparison of rejection scores would compute: sizes, and how much of it is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hgld.benchmark.rejection.comparison_settings import RejectionSettings
from hgld.benchmark.rejection.image_sets import ComparedImages
from hgld.benchmark.rejection.model_embeddings import embedding_files, head_checkpoint
from hgld.benchmark.rejection.score_parts import n_finished
from hgld.errors import InputError

_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class RejectionPlan:
    """What a comparison would compute.

    Args:
        title: Title of the comparison.
        sizes: Number of images of each set, by seed of the split.
        n_embeddings: Number of kinds of embeddings.
        scores: Names of the scores.
        n_parts: Number of scores, embeddings and splits counted apart.
        n_finished: Number of those that are done.
        n_pairs: Number of pairs of queries and images of the index over all parts to do; each neighbour score
            compares them once.
        missing: Files of embeddings and heads that do not exist.
    """

    title: str
    sizes: dict[int, dict[str, int]]
    n_embeddings: int
    scores: tuple[str, ...]
    n_parts: int
    n_finished: int
    n_pairs: int
    missing: tuple[str, ...]


def plan_comparison(settings: RejectionSettings, out: Path) -> RejectionPlan:
    """Return what a comparison would compute; the manifests of the images have to exist.

    Raises:
        InputError: A manifest cannot be read.
        ConfigurationError: The settings do not fit the images.
    """
    images = ComparedImages(settings)
    sizes = {
        split: {name: len(images_of_set) for name, images_of_set in images.sets(split).items()}
        for split in settings.splits
    }
    scores = tuple(settings.score_settings())
    missing = _missing(settings)
    n_parts = len(settings.embeddings) * len(settings.splits) * len(scores)
    done = 0 if missing else n_finished(settings, out)
    pairs = [size["index"] * (sum(size.values()) - size["index"]) for size in sizes.values()]
    return RejectionPlan(
        title=settings.title,
        sizes=sizes,
        n_embeddings=len(settings.embeddings),
        scores=scores,
        n_parts=n_parts,
        n_finished=done,
        n_pairs=sum(pairs) * len(settings.embeddings) * len(scores),
        missing=missing,
    )


def _missing(settings: RejectionSettings) -> tuple[str, ...]:
    missing: dict[str, None] = {}
    for embedding in settings.embeddings.values():
        for split in settings.splits:
            for path in embedding_files(embedding, split).values():
                if not path.is_file():
                    missing[str(path)] = None
            try:
                head_checkpoint(embedding, split)
            except InputError:
                missing[str(embedding.head).replace("{split}", str(split))] = None
    return tuple(missing)

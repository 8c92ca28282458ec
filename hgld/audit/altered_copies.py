"""Measure how many altered copies of a sample of images would be found."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from hgld.audit.duplicates import (
    Duplicates,
    DuplicatesConfig,
    centred,
    details,
    mean_direction,
    searched_vectors,
    thumbnail,
    thumbnail_correlations,
)
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import Vectors, as_tensor
from hgld.datasets.image_dataset import EncodedImages
from hgld.io.images import open_image, upright_rgb

#: Returns embeddings of pictures, float, shape (n, d).
Embed = Callable[[Sequence[Image.Image]], Vectors]


def _re_encoded(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=40)
    return Image.open(file).convert("RGB")


def _resized(image: Image.Image) -> Image.Image:
    return image.resize((max(image.width // 2, 1), max(image.height // 2, 1)))


def _cropped(share: float) -> Callable[[Image.Image], Image.Image]:
    """Return a function that keeps a share of both sides, off the centre by a third of what is cut away."""

    def crop(image: Image.Image) -> Image.Image:
        width, height = (max(round(share * side), 1) for side in image.size)
        left, top = (image.width - width) // 3, (image.height - height) // 3
        return image.crop((left, top, left + width, top + height))

    return crop


#: Alterations by their names in tables.
ALTERATIONS: Mapping[str, Callable[[Image.Image], Image.Image]] = {
    "re-encoded (JPEG, quality 40)": _re_encoded,
    "half the size": _resized,
    "cropped to 95 % of both sides": _cropped(0.95),
    "cropped to 90 %": _cropped(0.9),
    "cropped to 80 %": _cropped(0.8),
    "mirrored": ImageOps.mirror,
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.4),
    "grey": lambda image: image.convert("L").convert("RGB"),
}


def measure_recall(
    found: Duplicates,
    root: Path,
    embeddings: torch.Tensor | None = None,
    embed: Embed | None = None,
    config: DuplicatesConfig | None = None,
    *,
    n_images: int = 100,
    seed: int = 0,
) -> dict[str, float]:
    """Return the share of altered copies of a sample that would be found, by alteration; see :data:`ALTERATIONS`.

    A copy is found if its original is among its nearest images and the pair passes the thresholds. The images are
    searched exactly, by the embeddings, shape (N, d), if there are any, which ``embed`` makes of the copies.
    """
    config, encoded = config or DuplicatesConfig(), EncodedImages(found.manifest, root)
    readable = ~np.isin(found.manifest.ids, [*found.unreadable])
    vectors, usable = searched_vectors(found.thumbnails, readable, embeddings)
    mean = None if embeddings is None else mean_direction(embeddings)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(usable))[:n_images]
    originals = [upright_rgb(open_image(encoded.read(row))) for row in rows]
    shares = {}
    for name, alter in ALTERATIONS.items():
        copies = [alter(image) for image in originals]
        thumbnails = np.stack([thumbnail(image) for image in copies])
        both = np.concatenate([found.thumbnails[rows], thumbnails])
        pairs = np.stack([np.arange(len(rows)), len(rows) + np.arange(len(rows))], axis=1)
        cosines = np.full(len(rows), np.nan, np.float32)
        queries = torch.from_numpy(details(thumbnails)).flatten(1)
        if mean is not None:
            assert embed is not None
            queries = centred(as_tensor(embed(copies)), mean)
            cosines = (queries * vectors[torch.from_numpy(rows)]).sum(1).numpy()
        _, nearest = nearest_neighbours(queries, vectors, config.neighbours, gallery_mask=usable)
        is_near = (nearest == rows[:, None]).any(axis=1)
        are_copies = config.are_copies(thumbnail_correlations(both, pairs), cosines)
        shares[name] = float((is_near & are_copies).mean())
    return shares

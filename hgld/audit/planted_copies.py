"""Measure how many altered copies of images the search for copies would find among them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from hgld.audit.alignment import compare
from hgld.audit.duplicates import as_pairs, nearest_layouts
from hgld.audit.grey_thumbnails import grey_thumbnail, read_thumbnails, whole_layouts
from hgld.audit.nearest_images import centred, mean_direction
from hgld.audit.settings import COPY, DuplicatesConfig
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import Vectors, as_tensor
from hgld.datasets.encoded_images import EncodedImages
from hgld.datasets.manifest import Manifest
from hgld.io.images import open_image, upright_rgb

#: Function from pictures to embeddings, float, shape (n, d).
Embed = Callable[[Sequence[Image.Image]], Vectors]


def _re_encoded(image: Image.Image) -> Image.Image:
    """Return an image after JPEG compression of low quality."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=40)
    return Image.open(file).convert("RGB")


def _resized(image: Image.Image) -> Image.Image:
    return image.resize((max(image.width // 2, 1), max(image.height // 2, 1)))


def _small(image: Image.Image) -> Image.Image:
    small = image.copy()
    small.thumbnail((64, 64))
    return small


def _cropped(share: float) -> Callable[[Image.Image], Image.Image]:
    """Return a function that keeps a share of both sides, and cuts twice as much at right and bottom."""

    def crop(image: Image.Image) -> Image.Image:
        width = max(round(share * image.width), 1)
        height = max(round(share * image.height), 1)
        left = (image.width - width) // 3
        top = (image.height - height) // 3
        return image.crop((left, top, left + width, top + height))

    return crop


def _turned(transposition: Image.Transpose) -> Callable[[Image.Image], Image.Image]:
    """Return a function that mirrors or turns an image."""
    return lambda image: image.transpose(transposition)


def _bordered(share: float, colour: str) -> Callable[[Image.Image], Image.Image]:
    """Return a function that adds a border, whose width is a share of the sides."""

    def add_border(image: Image.Image) -> Image.Image:
        widths = (round(share * image.width), round(share * image.height))
        return ImageOps.expand(image, widths, fill=colour)

    return add_border


#: Function from a picture to an altered copy.
Alter = Callable[[Image.Image], Image.Image]

#: Alterations by their names in tables.
ALTERATIONS: Mapping[str, Alter] = {
    "re-encoded (JPEG, quality 40)": _re_encoded,
    "half the size": _resized,
    "thumbnail of 64 pixels": _small,
    "cropped to 95 % of both sides": _cropped(0.95),
    "cropped to 90 %": _cropped(0.9),
    "cropped to 80 %": _cropped(0.8),
    "mirrored": ImageOps.mirror,
    "upside down": ImageOps.flip,
    "turned by 90 degrees": _turned(Image.Transpose.ROTATE_90),
    "turned by 180 degrees": _turned(Image.Transpose.ROTATE_180),
    "turned by 270 degrees": _turned(Image.Transpose.ROTATE_270),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.4),
    "grey": lambda image: image.convert("L").convert("RGB"),
    "black border of 5 %": _bordered(0.05, "black"),
    "white border of 10 %": _bordered(0.1, "white"),
    "red border of 10 %": _bordered(0.1, "red"),
}


def measure_recall(
    manifest: Manifest,
    root: Path,
    embeddings: torch.Tensor | None = None,
    embed: Embed | None = None,
    config: DuplicatesConfig | None = None,
    *,
    alterations: Mapping[str, Alter] = ALTERATIONS,
    n_images: int = 100,
    seed: int = 0,
) -> dict[str, float]:
    """Return the share of altered copies of a sample that would be found, by alteration.

    A copy is found if the search pairs it with its original, among all images and the copies altered in
    the same way, and the comparison classifies the two as copies.

    Args:
        manifest: N images.
        root: Folder to which the paths of the manifest are relative.
        embeddings: float, shape (N, d), for further candidates. Default: candidates are found by
            thumbnails alone.
        embed: Function that returns the embeddings of altered copies; needed if there are embeddings.
        config: Settings of the search.
        alterations: Alterations by name.
        n_images: Number of images that are altered.
        seed: Seed of the sample.
    """
    config = config or DuplicatesConfig()
    encoded = EncodedImages(manifest, root)
    thumbnails, _, _ = read_thumbnails(encoded)
    layouts = whole_layouts(thumbnails)
    usable = np.abs(layouts).max(axis=1) > 0
    mean = vectors = None
    if embeddings is not None:
        mean = mean_direction(embeddings)
        vectors = centred(embeddings, mean)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(usable))[:n_images]
    originals = [upright_rgb(open_image(encoded.read(row))) for row in rows]
    copy_rows = len(thumbnails) + np.arange(len(rows))
    shares = {}
    for name, alter in alterations.items():
        copies = [alter(image) for image in originals]
        copy_thumbnails = np.stack([grey_thumbnail(image) for image in copies])
        all_thumbnails = np.concatenate([thumbnails, copy_thumbnails])
        all_layouts = np.concatenate([layouts, whole_layouts(copy_thumbnails)])
        searched = np.concatenate([rows, copy_rows])
        can_be_found = np.abs(all_layouts).max(axis=1) > 0
        pairs = nearest_layouts(
            all_thumbnails, searched, all_layouts, can_be_found, config.neighbours
        )
        candidates = {(first, second) for first, second in pairs.tolist()}
        if vectors is not None and mean is not None and embed is not None:
            queries = centred(as_tensor(embed(copies)), mean)
            _, nearest = nearest_neighbours(
                queries, vectors, config.neighbours, gallery_mask=usable
            )
            for first, second in as_pairs(copy_rows, nearest).tolist():
                candidates.add((first, second))
        n_found = 0
        for original, copy in zip(rows.tolist(), copy_rows.tolist(), strict=True):
            comparison = compare(all_thumbnails[original], all_thumbnails[copy])
            is_copy = config.relation(comparison) == COPY
            if is_copy and (original, copy) in candidates:
                n_found += 1
        shares[name] = n_found / len(rows)
    return shares

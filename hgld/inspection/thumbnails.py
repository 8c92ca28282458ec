"""Photographs by their ids, from folders, tar files or a manifest, and small pictures of them inside of pages."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageOps

from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.gldv2.tar_images import ImageReader, TarFiles

#: A photograph by its id; None where it is not at hand.
FindImage = Callable[[str], Image.Image | None]

_SUFFIXES = (".jpg", ".jpeg", ".png")


def images_in_folder(folder: Path) -> FindImage:
    """Photographs in a folder as GLDv2's tar files unpack, ``a/b/c/abc….jpg``, or all in one, ``abc….jpg``."""

    def find(image_id: str) -> Image.Image | None:
        if not image_id or Path(image_id).name != image_id:
            return None  # not the name of a file
        for place in (folder.joinpath(*image_id[:3]), folder):
            for suffix in _SUFFIXES:
                path = place / f"{image_id}{suffix}"
                if path.is_file():
                    return _opened(path.read_bytes())
        return None

    return find


def images_in_shards(reader: ImageReader) -> FindImage:
    """Photographs in indexed tar files; those that are not in the index are not at hand.

    What it returns raises an InputError where a tar file is not the one that was indexed.
    """

    def find(image_id: str) -> Image.Image | None:
        try:
            position = int(reader.positions([image_id])[0])
        except InputError:
            return None
        return _opened(reader.read_at(position))

    return find


def images_of_manifest(manifest: Manifest, root: Path) -> FindImage:
    """Photographs of a manifest; those whose file is not below the folder are not at hand.

    What it returns raises an InputError where a tar file is not the one that was indexed.
    """
    rows = {name: row for row, name in enumerate(manifest.ids.tolist())}
    tars = TarFiles(root)

    def find(image_id: str) -> Image.Image | None:
        row = rows.get(image_id)
        if row is None or not (root / manifest.paths[row]).is_file():
            return None
        offset, size = int(manifest.offsets[row]), int(manifest.sizes[row])
        if offset < 0:
            return _opened((root / manifest.paths[row]).read_bytes())
        return _opened(tars.read(manifest.paths[row], offset, size))

    return find


def small(image: Image.Image | None, size: int) -> Image.Image | None:
    """An image in RGB whose longer side is at most ``size``; None where there is none, or one that is damaged."""
    if image is None:
        return None
    try:
        image.draft("RGB", (2 * size, 2 * size))
        image = ImageOps.exif_transpose(image).convert("RGB")
        image.thumbnail((size, size))
    except OSError:
        return None
    return image


def thumbnail(image: Image.Image | None, size: int) -> str | None:
    """A small JPEG as an address with the data in it; None where :func:`small` has none."""
    image = small(image, size)
    if image is None:
        return None
    data = io.BytesIO()
    image.save(data, "JPEG", quality=70, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"


def _opened(data: bytes) -> Image.Image | None:
    try:
        return Image.open(io.BytesIO(data))
    except (OSError, Image.DecompressionBombError):
        return None

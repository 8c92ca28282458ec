"""Find photographs by id in folders, tar files or a manifest, and make thumbnails of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.figures.thumbnails import UnreadableImageError, upright_rgb
from hgld.gldv2.tar_images import ImageReader, TarFiles

#: Returns the photograph of an id, or None where it is not available.
FindImage = Callable[[str], Image.Image | None]

_SUFFIXES = (".jpg", ".jpeg", ".png")


def images_in_folder(folder: Path) -> FindImage:
    """Find photographs in a folder, either nested like GLDv2 (``a/b/c/abc….jpg``) or flat (``abc….jpg``)."""

    def find(image_id: str) -> Image.Image | None:
        if not image_id or Path(image_id).name != image_id:
            return None  # not a file name
        for parent in (folder.joinpath(*image_id[:3]), folder):
            for suffix in _SUFFIXES:
                path = parent / f"{image_id}{suffix}"
                if path.is_file():
                    return _open_image(path.read_bytes())
        return None

    return find


def images_in_shards(reader: ImageReader) -> FindImage:
    """Find photographs in indexed tar files.

    The returned function raises an InputError where a tar file is not the one that was indexed.
    """

    def find(image_id: str) -> Image.Image | None:
        try:
            position = int(reader.positions([image_id])[0])
        except InputError:
            return None
        return _open_image(reader.read_at(position))

    return find


def images_of_manifest(manifest: Manifest, root: Path) -> FindImage:
    """Find photographs of a manifest below a folder.

    The returned function raises an InputError where a tar file is not the one that was indexed.
    """
    rows = {image_id: row for row, image_id in enumerate(manifest.ids.tolist())}
    tars = TarFiles(root)

    def find(image_id: str) -> Image.Image | None:
        row = rows.get(image_id)
        if row is None or not (root / manifest.paths[row]).is_file():
            return None
        offset, size = int(manifest.offsets[row]), int(manifest.sizes[row])
        if offset < 0:
            return _open_image((root / manifest.paths[row]).read_bytes())
        return _open_image(tars.read(manifest.paths[row], offset, size))

    return find


def shrink(image: Image.Image | None, size: int) -> Image.Image | None:
    """Return an upright RGB copy whose longer side is at most ``size`` pixels; None if it cannot be shown."""
    if image is None:
        return None
    try:
        image = upright_rgb(image, size)
        image.thumbnail((size, size))
    except UnreadableImageError:
        return None
    return image


def thumbnail_url(image: Image.Image | None, size: int) -> str | None:
    """Return a small JPEG as a ``data:`` URL; None if the image is missing or damaged."""
    image = shrink(image, size)
    if image is None:
        return None
    data = io.BytesIO()
    image.save(data, "JPEG", quality=70, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"


def _open_image(data: bytes) -> Image.Image | None:
    try:
        return Image.open(io.BytesIO(data))
    except (OSError, Image.DecompressionBombError):
        return None

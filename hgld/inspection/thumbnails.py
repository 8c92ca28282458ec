"""Find photographs by id in folders, tar files or a manifest, and make thumbnails of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath

from PIL import Image

from hgld.datasets.image_folders import find_in_tars, is_tar
from hgld.datasets.image_sources import manifest_of_images, read_images
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.figures.thumbnails import upright_copy
from hgld.gldv2.tar_images import ImageReader, TarFiles
from hgld.io.columns import column_names
from hgld.io.images import SUFFIXES, Box, UnreadableImageError, box_inside, open_image, upright_rgb

#: Returns the photograph of an id, or None where it is not available.
FindImage = Callable[[str], Image.Image | None]


def images_in_folder(folder: Path) -> FindImage:
    """Find photographs in a folder.

    Their ids are paths relative to the folder, or names without suffix of files that are in the folder itself or
    nested like GLDv2's (``a/b/c/abc….jpg``). Those that are no files are looked for in tar files below the folder.
    """

    @cache
    def in_tars() -> FindImage:
        return images_of_manifest(manifest_of_images(find_in_tars(folder)), folder)

    def find(image_id: str) -> Image.Image | None:
        path = PurePosixPath(image_id)
        if not path.name or path.is_absolute() or ".." in path.parts:
            return None  # not the path of a file in this folder
        files = [folder / path] if path.suffix.lower() in SUFFIXES else []
        if path.name == image_id:
            parents = (folder.joinpath(*image_id[:3]), folder)
            files += [parent / f"{image_id}{suffix}" for parent in parents for suffix in SUFFIXES]
        file = next((file for file in files if file.is_file()), None)
        return in_tars()(image_id) if file is None else _open_image(file.read_bytes())

    return find


def find_images(path: Path) -> FindImage:
    """Find photographs by id.

    Args:
        path: Folder of photographs or of tar files, such a tar file, or a manifest or the table from ``hgld
            index-images`` in the folder of the images.

    Raises:
        InputError: ``path`` is none of these.
    """
    if path.is_dir():
        return images_in_folder(path)
    if not is_tar(path) and "shard" in column_names(path):
        return images_in_shards(ImageReader(path, path.parent))
    return images_of_manifest(read_images(path), path.parent)


def images_in_shards(reader: ImageReader) -> FindImage:
    """Find photographs in indexed tar files.

    The returned function raises an InputError where a tar file is not the one that was indexed.
    """

    def find(image_id: str) -> Image.Image | None:
        try:
            position = int(reader.positions([image_id])[0])
        except InputError:
            return None
        return _open_image(reader.read_at(position)) if reader.tar_file(position).is_file() else None

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
            image = _open_image((root / manifest.paths[row]).read_bytes())
        else:
            image = _open_image(tars.read(manifest.paths[row], offset, size))
        box = manifest.box(row)
        return image if image is None or box is None else _crop(image, box)

    return find


def shrink(image: Image.Image | None, size: int) -> Image.Image | None:
    """Return an upright RGB copy whose longer side is at most ``size`` pixels; None if it cannot be shown."""
    if image is None:
        return None
    try:
        image = upright_copy(image, size)
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


def _crop(image: Image.Image, box: Box) -> Image.Image | None:
    try:
        upright = upright_rgb(image)
        return upright.crop(box_inside(box, upright))
    except UnreadableImageError:
        return None


def _open_image(data: bytes) -> Image.Image | None:
    try:
        return open_image(data)
    except UnreadableImageError:
        return None

"""Images to embed: a manifest, the table of ``hgld index-images``, a folder of pictures, or one picture."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from hgld.datasets.image_dataset import ImageDataset
from hgld.datasets.image_folders import FoundImages, find_images, format_suffixes, image_id, is_tar
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.transforms import Transform
from hgld.errors import InputError, indented_list
from hgld.io.columns import column_names
from hgld.io.images import SUFFIXES
from hgld.io.remote import folder_of, is_folder
from hgld.io.text_array import TextArray
from hgld.tables import IMAGES, read_table

log = logging.getLogger(__name__)


def open_images(
    images: Path, transform: Transform, *, root: Path | None = None, split: str | None = None
) -> ImageDataset:
    """Return a dataset of the images that a table lists or a folder contains.

    Args:
        images: A manifest, the table ``images``, a picture, or a folder, see :func:`read_images`.
        transform: Transform of the pixels.
        root: Folder that the paths of a table are relative to. Default: the folder of the table.
        split: Split of the manifest. Default: all images.

    Raises:
        InputError: The images cannot be listed, the folder does not exist, or tar files are missing from it.
        ConfigurationError: There is no such split.
    """
    manifest = read_images(images, root)
    if split is not None:
        manifest = manifest.select_split(split)
    return ImageDataset(manifest, root or (images if is_folder(images) else folder_of(images)), transform)


def read_images(path: Path, root: Path | None = None) -> Manifest:
    """Read the images that a table lists or a folder contains.

    Args:
        path: A manifest, the table ``images``, a picture, a folder of pictures or of tar files, or such a tar file.
            Of a folder, all pictures at any depth are taken in the order of their paths
            (:func:`hgld.datasets.image_folders.find_images`), with :func:`~hgld.datasets.image_folders.image_id` as
            id.
        root: Folder that the paths of a manifest are relative to, see
            :func:`~hgld.datasets.manifest.read_manifest`. Default: its own folder.

    Returns:
        A manifest; without levels unless ``path`` is a manifest.

    Raises:
        InputError: ``path`` is none of these, there are no images, or two pictures in a folder have the same id.
    """
    if is_folder(path) or is_tar(path):
        return _read_folder(path)
    if not path.exists():
        raise InputError(
            f"{path}: no such file; expected a manifest, the table of hgld index-images, or a folder of pictures"
        )
    if path.suffix.lower() in SUFFIXES:
        name = TextArray([path.name])
        return Manifest.without_levels(name, name)
    if "shard" in column_names(path):
        manifest = read_image_index(path)
    else:
        manifest = read_manifest(path, folder_of(path) if root is None else root)
    if not len(manifest):
        raise InputError(f"{path}: lists no images")
    return manifest


def read_image_index(path: Path) -> Manifest:
    """Read the table of ``hgld index-images`` as a manifest without levels.

    Raises:
        InputError: The file does not exist, or is another table.
    """
    table = read_table(path, IMAGES)
    return Manifest.without_levels(
        TextArray(table["id"]),
        TextArray.repeated(table["shard"]),
        table["offset"].to_numpy(),
        table["size"].to_numpy(),
    )


def manifest_of_images(found: FoundImages) -> Manifest:
    """Return images that were found in a folder as a manifest without levels, with ids as of :func:`read_images`."""
    offsets, sizes = ([-1 if each is None else each for each in values] for values in (found.offsets, found.sizes))
    ids = TextArray([image_id(name) for name in found.names])
    places = np.array(offsets, np.int64), np.array(sizes, np.int64)
    return Manifest.without_levels(ids, TextArray(found.files), *places)


def _read_folder(folder: Path) -> Manifest:
    found = find_images(folder)
    if found.other_files:
        log.info("%s: left out files that are no images: %s", folder, format_suffixes(found.other_files))
    manifest = manifest_of_images(found)
    names, counts = np.unique(np.asarray(manifest.ids), return_counts=True)
    if len(repeated := names[counts > 1]):
        files = np.array(found.names, object)
        examples = [f"{name}: {', '.join(files[manifest.ids == name])}" for name in repeated[:20]]
        raise InputError(
            f"{folder}: {len(repeated):,} images are there several times; embed the folder of each set by itself:\n"
            f"{indented_list(examples)}"
        )
    return manifest

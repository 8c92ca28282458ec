"""Images to embed: a manifest, the table of ``hgld index-images``, or a folder of pictures."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from hgld.datasets.image_folders import find_images, format_suffixes, image_id, is_tar
from hgld.datasets.manifest import Manifest, read_manifest, string_array
from hgld.errors import InputError, indented_list
from hgld.io.columns import column_names
from hgld.tables import IMAGES, read_table

log = logging.getLogger(__name__)


def read_images(path: Path) -> Manifest:
    """Read the images that a table lists or a folder contains.

    Args:
        path: A manifest, the table ``images``, or a folder of pictures or of tar files, or such a tar file. Of a
            folder, all pictures at any depth are taken in the order of their paths
            (:func:`hgld.datasets.image_folders.find_images`), with :func:`~hgld.datasets.image_folders.image_id` as
            id.

    Returns:
        A manifest; without levels unless ``path`` is a manifest.

    Raises:
        InputError: ``path`` is none of these, there are no images, or two pictures in a folder have the same id.
    """
    if path.is_dir() or is_tar(path):
        return _read_folder(path)
    if not path.exists():
        raise InputError(
            f"{path}: no such file; expected a manifest, the table of hgld index-images, or a folder of pictures"
        )
    manifest = read_image_index(path) if "shard" in column_names(path) else read_manifest(path)
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
        string_array(table["id"]),
        string_array(table["shard"]),
        table["offset"].to_numpy(),
        table["size"].to_numpy(),
    )


def _read_folder(folder: Path) -> Manifest:
    found = find_images(folder)
    if found.other_files:
        log.info("%s: left out files that are no images: %s", folder, format_suffixes(found.other_files))
    ids = np.array([image_id(name) for name in found.names], object)
    names, counts = np.unique(ids, return_counts=True)
    if len(repeated := names[counts > 1]):
        examples = [f"{name}: {', '.join(np.array(found.names, object)[ids == name])}" for name in repeated[:20]]
        raise InputError(
            f"{folder}: {len(repeated):,} images are there several times; embed the folder of each set by itself:\n"
            f"{indented_list(examples)}"
        )
    offsets, sizes = (
        np.array([-1 if value is None else value for value in values], np.int64)
        for values in (found.offsets, found.sizes)
    )
    return Manifest.without_levels(ids, np.array(found.files, object), offsets, sizes)

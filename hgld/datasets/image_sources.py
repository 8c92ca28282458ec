"""Images to embed: a manifest, the table of ``hgld index-images``, or a folder of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hgld.datasets.manifest import Manifest, read_manifest, string_array
from hgld.errors import InputError, indented_list
from hgld.gldv2.image_index import IMAGE_SUFFIXES
from hgld.io.columns import column_names
from hgld.tables import IMAGES, read_table


def read_images(path: Path) -> Manifest:
    """Read the images that a table lists or a folder contains.

    Args:
        path: A manifest, the table ``images``, or a folder. Of a folder, all pictures at any depth are taken in the
            order of their paths, with the file name without its suffix as id.

    Returns:
        A manifest; without levels unless ``path`` is a manifest.

    Raises:
        InputError: ``path`` is none of these, there are no images, or two pictures in a folder have the same id.
    """
    if path.is_dir():
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
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    if not files:
        raise InputError(
            f"{folder}: no pictures below this folder ({', '.join(IMAGE_SUFFIXES)}); for tar files, give the table "
            "of hgld index-images"
        )
    paths: dict[str, str] = {}
    duplicates = []
    for file in files:
        relative = file.relative_to(folder).as_posix()
        if (known := paths.setdefault(file.stem, relative)) != relative:
            duplicates.append(f"{file.stem}: {known}, {relative}")
    if duplicates:
        raise InputError(
            f"{folder}: {len(duplicates):,} pictures have the same name as another one; the name is the id and must "
            f"be unique:\n{indented_list(duplicates)}"
        )
    minus_one = np.full(len(paths), -1, np.int64)
    return Manifest.without_levels(
        np.array(list(paths), object), np.array(list(paths.values()), object), minus_one, minus_one.copy()
    )

"""Images without a manifest: a folder of pictures, or the table of ``hgld index-images``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hgld.datasets.manifest import Manifest, read_manifest, read_unlabelled
from hgld.errors import InputError, listing
from hgld.gldv2.image_index import PICTURE_SUFFIXES
from hgld.io.columns import column_names


def read_images(path: Path) -> Manifest:
    """The images that a table or a folder names.

    Args:
        path: a manifest; the table ``images``; or a folder, of which all pictures below are taken, in the order of
            their paths, the name without folders and ending being the id.

    Raises:
        InputError: it is none of these, there are no images, or two in a folder have the same id.
    """
    if path.is_dir():
        return _in_folder(path)
    if not path.exists():
        raise InputError(
            f"{path}: no such file; expected a manifest, the table of hgld index-images, or a folder of pictures"
        )
    manifest = read_unlabelled(path) if "shard" in column_names(path) else read_manifest(path)
    if not len(manifest):
        raise InputError(f"{path}: names no images")
    return manifest


def _in_folder(folder: Path) -> Manifest:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    if not files:
        raise InputError(
            f"{folder}: no pictures below this folder ({', '.join(PICTURE_SUFFIXES)}); for tar files, give the table "
            "of hgld index-images"
        )
    paths: dict[str, str] = {}
    twice = []
    for file in files:
        relative = file.relative_to(folder).as_posix()
        if (known := paths.setdefault(file.stem, relative)) != relative:
            twice.append(f"{file.stem}: {known}, {relative}")
    if twice:
        raise InputError(
            f"{folder}: {len(twice):,} pictures have the name of another; a name is the id of one picture:\n"
            f"{listing(twice)}"
        )
    nowhere = np.full(len(paths), -1, np.int64)
    return Manifest(
        ids=np.array(list(paths), object),
        paths=np.array(list(paths.values()), object),
        offsets=nowhere,
        sizes=nowhere.copy(),
        splits=np.full(len(paths), "all", object),
        labels=np.empty((len(paths), 0), np.int64),
        level_names=(),
        class_names=(),
    )

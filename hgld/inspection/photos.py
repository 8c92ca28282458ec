"""Captions and photographs of images in pages and pictures: ids, names of levels, files, thumbnails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow.compute as pc
from PIL import Image

from hgld.datasets.image_dataset import manifest_of_images, read_images
from hgld.datasets.image_folders import find_in_tars
from hgld.datasets.manifest import Manifest
from hgld.figures.photographs import data_url, encode_jpeg, upright_copy
from hgld.gldv2.tar_images import TarFiles
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.io.images import SUFFIXES, Box, UnreadableImageError, box_inside, open_image, upright_rgb
from hgld.wikimedia.titles import CATEGORY_PREFIX, title_of_url

#: Returns the photograph of an id, or None where it is not available.
FindImage = Callable[[str], Image.Image | None]


def images_in_folder(folder: Path) -> FindImage:
    """Find photographs in a folder.

    Their ids are paths relative to the folder, or names without suffix of files that are in the folder itself or
    nested like GLDv2's (``a/b/c/abc….jpg``). Those that are not files are looked for in tar files below the folder.
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
    """Find photographs by id, in a folder of them or of tar files, or in such a tar file.

    The path may also be a manifest or the table from ``hgld index-images`` in the folder of the images.

    Raises:
        InputError: ``path`` is none of these.
    """
    if path.is_dir():
        return images_in_folder(path)
    return images_of_manifest(read_images(path), path.parent)


def images_of_manifest(manifest: Manifest, root: Path) -> FindImage:
    """Find photographs of a manifest below a folder.

    The returned function raises an InputError where a tar file is not the one that was indexed.
    """
    ids = manifest.ids.to_arrow()
    tars = TarFiles(root)

    def find(image_id: str) -> Image.Image | None:
        row = pc.index(ids, value=image_id).as_py()
        if row < 0 or not (root / manifest.paths[row]).is_file():
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
    with suppress(UnreadableImageError):
        image = upright_copy(image, size)
        image.thumbnail((size, size))
        return image
    return None


def thumbnail_url(image: Image.Image | None, size: int, *, quality: int = 70) -> str | None:
    """Return a small JPEG as a URL that pages contain; None if the image is missing or damaged."""
    image = shrink(image, size)
    return None if image is None else data_url(encode_jpeg(image, quality))


def _crop(image: Image.Image, box: Box) -> Image.Image | None:
    with suppress(UnreadableImageError):
        upright = upright_rgb(image)
        return upright.crop(box_inside(box, upright))
    return None


def _open_image(data: bytes) -> Image.Image | None:
    with suppress(UnreadableImageError):
        return open_image(data)
    return None


@dataclass(frozen=True)
class Photo:
    """Description of an image.

    Args:
        id: Id by which the photograph is found.
        names: Names of what the image shows, finest first, such as the landmark and its group.
        link: Source of the photograph; pages ignore links that are not http or https.
        has_labels: Whether its labels are known; without them, it shares no level with anything.
    """

    id: str
    names: tuple[str, ...] = ()
    link: str | None = None
    has_labels: bool = True


@dataclass(frozen=True)
class PhotoSource:
    """Descriptions of queries and gallery items by position, and their photographs by id, None where there is none.

    ``query_image`` finds those of queries whose ids are not those of the gallery.
    """

    query: Callable[[int], Photo]
    gallery: Callable[[int], Photo]
    image: FindImage
    query_image: FindImage | None = None


def manifest_photo(manifest: Manifest, row: int, titles: Mapping[str, str] | None = None) -> Photo:
    """Return the description of an image in a row of a manifest; several labels are separated by semicolons.

    ``titles`` are those of classes of the finest level, by class name. Classes without a title whose name is only a
    number are shown with their level, e.g. "landmark 17".
    """
    labels = manifest.labels_of(row).reshape(-1, len(manifest.level_names))
    names = []
    for column, level in enumerate(manifest.level_names):
        classes = [
            manifest.class_names[column][code]
            for code in dict.fromkeys(labels[:, column].tolist())
            if code >= 0
        ]
        texts = [_with_level(level, name) for name in classes]
        if titles is not None and column == 0:
            texts = [titles.get(name, text) for name, text in zip(classes, texts, strict=True)]
        names.append("; ".join(texts))
    return Photo(manifest.ids[row], tuple(names))


def manifest_photos(
    manifest: Manifest,
    root: Path,
    queries: Any,
    gallery: Any,
    titles: Mapping[str, str] | None = None,
) -> PhotoSource:
    """Return the images of a manifest whose ids are those of queries and gallery; see :func:`manifest_photo`."""
    row_of = {name: row for row, name in enumerate(manifest.ids.tolist())}

    def photo(ids: Any) -> Callable[[int], Photo]:
        return lambda position: manifest_photo(manifest, row_of[str(ids[position])], titles)

    return PhotoSource(photo(queries), photo(gallery), images_of_manifest(manifest, root))


def landmark_names(hierarchy: Hierarchy, labels: LabelMatrix) -> tuple[str, str]:
    """Return the names of a landmark (the title of its category where known) and of its group."""
    row, group = labels[:2].tolist()
    if hierarchy.categories is None or hierarchy.categories[row] is None:
        landmark = f"landmark {hierarchy.landmark_ids[row]}"
    else:
        try:
            landmark = title_of_url(hierarchy.categories[row]).removeprefix(CATEGORY_PREFIX)
        except ValueError:  # not the URL of a category
            landmark = hierarchy.categories[row]
    return landmark, hierarchy.nodes[0][group]


def label_name(
    names: Sequence[Mapping[int, str]],
    level_names: Sequence[str],
    column: int,
    value: int,
    hierarchy: Hierarchy | None = None,
) -> str:
    """Return the name of a label; a number gets the name of its level in front."""
    if names:
        name = names[column].get(value, str(value))
    elif hierarchy is None:
        name = str(value)
    elif column:
        return hierarchy.nodes[column - 1][value]
    else:
        return landmark_names(hierarchy, hierarchy.labels[value])[0]
    return _with_level(level_names[column], name)


def _with_level(level: str, name: str) -> str:
    """Return a name, preceded by the name of its level if it is only a number: ``group 12``."""
    return f"{level.replace('_', ' ')} {name}" if name.isdecimal() else name


def landmark_names_of(hierarchy: Hierarchy, labels: Labelling, position: int) -> tuple[str, ...]:
    """Return the names of the landmark of an image and of its group, or of its groups between semicolons."""
    own = labels.of(position) if isinstance(labels, LabelSets) else labels[[position]]
    columns = zip(*(landmark_names(hierarchy, row) for row in own), strict=True)
    return tuple("; ".join(dict.fromkeys(names)) for names in columns)


def landmark_titles(hierarchy: Hierarchy, landmarks: Sequence[str]) -> dict[str, str]:
    """Return the titles of landmarks by their ids as text; landmarks that the hierarchy lacks are omitted."""
    ids = np.array([int(landmark) for landmark in landmarks if landmark.isdecimal()], np.int64)
    ids = ids[hierarchy.contains(ids)]
    return {
        str(landmark): landmark_names(hierarchy, labels)[0]
        for landmark, labels in zip(ids.tolist(), hierarchy.labels_of(ids), strict=True)
    }

"""Captions and photographs in pages and pictures: ids, names of labels, files, thumbnails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
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

#: Function that returns the photograph of an id, or None if it is not available.
FindImage = Callable[[str], Image.Image | None]


class FolderImages:
    """Photographs in a folder, found by their ids.

    Ids are paths relative to the folder, or names without suffix of files that are in the folder itself
    or nested like GLDv2's (``a/b/c/abc….jpg``). Images that are not files are searched in tar files
    below the folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, image_id: str) -> Image.Image | None:
        """Return the photograph of an id, or None if it is not available."""
        path = PurePosixPath(image_id)
        if not path.name or path.is_absolute() or ".." in path.parts:
            return None  # not the path of a file in this folder
        files = []
        if path.suffix.lower() in SUFFIXES:
            files.append(self._folder / path)
        if path.name == image_id:
            for parent in (self._folder.joinpath(*image_id[:3]), self._folder):
                files += [parent / f"{image_id}{suffix}" for suffix in SUFFIXES]
        for file in files:
            if file.is_file():
                return _open_image(file.read_bytes())
        return self._images_in_tars(image_id)

    @cached_property
    def _images_in_tars(self) -> ManifestImages:
        return ManifestImages(manifest_of_images(find_in_tars(self._folder)), self._folder)


def find_images(path: Path) -> FindImage:
    """Find photographs by id, in a folder of images or of tar files, or in such a tar file.

    The path may also be a manifest or the table from ``hgld index-images`` in the folder of the images.

    Raises:
        InputError: ``path`` has another form.
    """
    if path.is_dir():
        return FolderImages(path)
    return ManifestImages(read_images(path), path.parent)


class ManifestImages:
    """Photographs of a manifest below a folder, found by their ids.

    Args:
        manifest: The manifest.
        root: Folder to which the paths of the manifest are relative.
    """

    def __init__(self, manifest: Manifest, root: Path) -> None:
        self._manifest = manifest
        self._root = root
        self._ids = manifest.ids.to_arrow()
        self._tars = TarFiles(root)

    def __call__(self, image_id: str) -> Image.Image | None:
        """Return the photograph of an id, or None if it is not available.

        Raises:
            InputError: A tar file differs from the indexed file.
        """
        manifest = self._manifest
        row = pc.index(self._ids, value=image_id).as_py()
        if row < 0:
            return None
        path = manifest.paths[row]
        if not (self._root / path).is_file():
            return None
        offset = int(manifest.offsets[row])
        if offset < 0:
            data = (self._root / path).read_bytes()
        else:
            data = self._tars.read(path, offset, int(manifest.sizes[row]))
        image = _open_image(data)
        box = manifest.box(row)
        if image is None or box is None:
            return image
        return _crop(image, box)


def shrink(image: Image.Image | None, size: int) -> Image.Image | None:
    """Return an upright RGB copy of at most ``size`` pixels a side; None if it cannot be shown."""
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
    if image is None:
        return None
    return data_url(encode_jpeg(image, quality))


def _crop(image: Image.Image, box: Box) -> Image.Image | None:
    """Return the box of an image; None if it is damaged, or the box is outside."""
    with suppress(UnreadableImageError):
        upright = upright_rgb(image)
        return upright.crop(box_inside(box, upright))
    return None


def _open_image(data: bytes) -> Image.Image | None:
    """Open an image file; return None if it is damaged."""
    with suppress(UnreadableImageError):
        return open_image(data)
    return None


@dataclass(frozen=True)
class Photo:
    """Description of an image.

    Args:
        id: Id by which the photograph is found.
        names: Names of the image's labels, finest first, such as the landmark and its group.
        link: Source of the photograph; pages ignore links that are not http or https.
        has_labels: Whether its labels are known; an image without labels shares no level with others.
    """

    id: str
    names: tuple[str, ...] = ()
    link: str | None = None
    has_labels: bool = True


@dataclass(frozen=True)
class PhotoSource:
    """Descriptions of queries and gallery items by position, and their photographs by id.

    Args:
        query: Function that describes the query at a position.
        gallery: Function that describes the gallery item at a position.
        image: Function that returns the photograph of an id, or None if it is not available.
        query_image: The same for queries, if their ids differ from the gallery's.
    """

    query: Callable[[int], Photo]
    gallery: Callable[[int], Photo]
    image: FindImage
    query_image: FindImage | None = None


def manifest_photo(manifest: Manifest, row: int, titles: Mapping[str, str] | None = None) -> Photo:
    """Return the description of an image in a row of a manifest.

    Several labels are separated by semicolons.

    Classes without a title whose name is only a number are shown with their level, e.g. "landmark 17".

    Args:
        manifest: The manifest.
        row: Row of the image.
        titles: Titles of classes of the finest level, by class name.
    """
    labels = manifest.labels_of(row).reshape(-1, len(manifest.level_names))
    names = []
    for column, level in enumerate(manifest.level_names):
        texts = []
        for code in dict.fromkeys(labels[:, column].tolist()):
            if code < 0:
                continue
            name = manifest.class_names[column][code]
            text = _with_level(level, name)
            if titles is not None and column == 0:
                text = titles.get(name, text)
            texts.append(text)
        names.append("; ".join(texts))
    return Photo(manifest.ids[row], tuple(names))


def manifest_photos(
    manifest: Manifest,
    root: Path,
    queries: Any,
    gallery: Any,
    titles: Mapping[str, str] | None = None,
) -> PhotoSource:
    """Return the images of a manifest whose ids are the ids of queries and gallery items.

    Args:
        manifest: The manifest.
        root: Folder of its images.
        queries: Ids of the queries.
        gallery: Ids of the gallery items.
        titles: Titles of classes, see :func:`manifest_photo`.
    """
    rows = {image_id: row for row, image_id in enumerate(manifest.ids.tolist())}

    def describe(ids: Any, position: int) -> Photo:
        return manifest_photo(manifest, rows[str(ids[position])], titles)

    return PhotoSource(
        partial(describe, queries), partial(describe, gallery), ManifestImages(manifest, root)
    )


def landmark_names(hierarchy: Hierarchy, labels: LabelMatrix) -> tuple[str, str]:
    """Return the names of a landmark (the title of its category, if known) and of its group."""
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
    """Return the name of a label; the name of the level precedes names that are numbers.

    Args:
        names: Names of the labels at each level, if known.
        level_names: Names of the levels, finest first.
        column: Column of the level.
        value: Number of the label.
        hierarchy: Hierarchy with names of groups and landmarks.
    """
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
    if name.isdecimal():
        return f"{level.replace('_', ' ')} {name}"
    return name


def landmark_names_of(hierarchy: Hierarchy, labels: Labelling, position: int) -> tuple[str, ...]:
    """Return the names of an image's landmark and group, or of its groups between semicolons."""
    if isinstance(labels, LabelSets):
        labels_of_image = labels.of(position)
    else:
        labels_of_image = labels[[position]]
    landmarks: list[str] = []
    groups: list[str] = []
    for row in labels_of_image:
        landmark, group = landmark_names(hierarchy, row)
        landmarks.append(landmark)
        groups.append(group)
    return "; ".join(dict.fromkeys(landmarks)), "; ".join(dict.fromkeys(groups))


def landmark_titles(hierarchy: Hierarchy, landmarks: Sequence[str]) -> dict[str, str]:
    """Return the titles of landmarks by their ids; landmarks outside the hierarchy are omitted."""
    ids = np.array([int(landmark) for landmark in landmarks if landmark.isdecimal()], np.int64)
    ids = ids[hierarchy.contains(ids)]
    titles = {}
    for landmark, labels in zip(ids.tolist(), hierarchy.labels_of(ids), strict=True):
        titles[str(landmark)], _ = landmark_names(hierarchy, labels)
    return titles

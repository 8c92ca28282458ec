"""Datasets of images: the images of a manifest or their precomputed features, and lists of images.

:func:`open_images` also takes the table of ``hgld index-images``, a folder of pictures, a tar file, or
one picture.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from hgld.arrays import Pixels
from hgld.datasets.encoded_images import EncodedImages, SkippedImage
from hgld.datasets.image_folders import (
    FoundImages,
    find_images,
    format_suffixes,
    image_id,
    is_tar,
    places_of_repeated,
)
from hgld.datasets.loading import Example
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.transforms import Normalisation, Picture, Transform, open_picture
from hgld.errors import InputError, counted, indented_list
from hgld.io.columns import column_names
from hgld.io.images import SUFFIXES, UnreadableImageError, box_inside, open_image, upright_rgb
from hgld.io.text_array import TextArray
from hgld.tables import IMAGES, read_table
from hgld.tables.embeddings import read_embeddings

#: A picture, the path of an image file, or pixels: uint8, shape (h, w), (h, w, 3) or (h, w, 4).
AnyImage: TypeAlias = Image.Image | str | Path | Pixels
log = logging.getLogger(__name__)


class ImageDataset(Dataset[Example | SkippedImage]):
    """The images of a manifest, for use in forked or spawned worker processes.

    An index is a row, or a pair of a row and a seed. With a seed, the random numbers of the transform
    depend only on the seed, so an image has the same pixels in any process. Without a seed, the
    transform draws from torch's global generator. An unreadable image is reported, and never replaced
    by another image.

    Args:
        manifest: The images.
        root: Folder to which the paths of the manifest are relative.
        transform: Transform of the pixels.
    """

    def __init__(self, manifest: Manifest, root: Path, transform: Transform) -> None:
        self.manifest = manifest
        self.root = root
        self._transform = transform
        self.normalisation: Normalisation | None = transform.normalisation
        self._encoded = EncodedImages(manifest, root)

    def __len__(self) -> int:
        return len(self.manifest)

    def __getitem__(self, index: int | tuple[int, int]) -> Example | SkippedImage:
        """Return the image of a row, or the reason why it cannot be read."""
        seed = None
        if isinstance(index, tuple):
            row, seed = index
        else:
            row = index
        try:
            picture = open_picture(self._encoded.read(row))
            box = box_inside(self.manifest.box(row), picture)
            with torch.random.fork_rng([], enabled=seed is not None):
                if seed is not None:
                    torch.default_generator.manual_seed(seed)
                pixels = self._transform.pixels(picture, box)
        except UnreadableImageError as error:
            return SkippedImage(row, f"{self.manifest.ids[row]}: {error.description}")
        return Example(pixels, torch.from_numpy(self.manifest.labels_of(row)), row)

    def require_readable(self) -> None:
        """Raise an InputError, before any work, if no image can be read."""
        reasons = []
        for row in range(len(self)):
            example = self[row]
            if isinstance(example, Example):
                return
            reasons.append(example.reason)
        raise InputError(
            f"{self.root}: none of the {len(self):,} images can be read; is this the folder that the paths of the "
            f"manifest are relative to?\n{indented_list(reasons, limit=5)}"
        )


class FeatureDataset(Dataset[Example | SkippedImage]):
    """Features of a manifest's images, to train a head on a frozen backbone.

    ``hgld embed-images`` writes the features. The dataset takes the place of an
    :class:`ImageDataset`. There is no augmentation, so the seed of an index is ignored. The ``image``
    of an example is float32, shape (C,).

    Args:
        manifest: The images.
        path: File of features with the ids of the images.
        n_features: Number of features C that the model expects.
    """

    def __init__(self, manifest: Manifest, path: Path, n_features: int) -> None:
        self.manifest = manifest
        self._path = path
        self.normalisation: Normalisation | None = None
        embeddings = read_embeddings(path)
        if embeddings.ids is None:
            raise InputError(
                f"{path}: no ids to match features to images; write the file with hgld embed-images"
            )
        self._rows = embeddings.ids.find(manifest.ids)
        if (self._rows < 0).all():
            raise InputError(
                f"{path}: has the features of none of the {len(manifest):,} images; was it made from the same "
                f"manifest?\n{indented_list(manifest.ids.tolist(), limit=5)}"
            )
        self._vectors = embeddings.vectors
        if self._vectors.shape[1] != n_features:
            raise InputError(
                f"{path}: features of {self._vectors.shape[1]:,} numbers, but the model expects {n_features:,}; set "
                "model.n_features, or name other features"
            )

    def __len__(self) -> int:
        return len(self.manifest)

    def __getitem__(self, index: int | tuple[int, int]) -> Example | SkippedImage:
        """Return the features of the image of a row, or a skipped image if it has no features."""
        row = index[0] if isinstance(index, tuple) else index
        if self._rows[row] < 0:  # the image was unreadable when features were computed
            return SkippedImage(row, f"{self.manifest.ids[row]}: has no features in {self._path}")
        vector = self._vectors[self._rows[row]].to(torch.float32)
        return Example(vector, torch.from_numpy(self.manifest.labels_of(row)), row)


class ImageList(Dataset[Example | SkippedImage]):
    """Images in the order of a list, without labels; unlike in a manifest, all must be readable.

    Args:
        images: Pictures, paths or arrays of pixels.
        transform: Transform of the pixels.
    """

    def __init__(self, images: Sequence[AnyImage], transform: Transform) -> None:
        self._images = images
        self._transform = transform
        self.normalisation: Normalisation | None = transform.normalisation
        names = TextArray([f"image {number}" for number in range(len(images))])
        self.manifest = Manifest.without_levels(names, names)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int | tuple[int, int]) -> Example:
        """Return the image of a row, with empty labels.

        Raises:
            InputError: The image cannot be read.
        """
        row = index[0] if isinstance(index, tuple) else index
        image = self._images[row]
        name = f"image {row}"
        try:
            if isinstance(image, str | Path):
                name = str(image)
                picture = open_picture(_read(image))
            else:
                picture = Picture(as_rgb_image(image))
            pixels = self._transform.pixels(picture)
        except UnreadableImageError as error:
            raise InputError(f"{name}: {error.description}") from error
        return Example(pixels, torch.empty(0, dtype=torch.int64), row)


def as_rgb_image(image: AnyImage) -> Image.Image:
    """Return an image as an upright image in RGB.

    Raises:
        UnreadableImageError: The image is damaged, its file cannot be read, or it has another type or
            shape.

    >>> as_rgb_image(np.zeros((2, 3), np.uint8)).size
    (3, 2)
    """
    if isinstance(image, str | Path):
        image = open_image(_read(image))
    elif isinstance(image, np.ndarray):
        is_image = image.ndim in (2, 3) and image.shape[2:] in ((), (3,), (4,))
        if image.dtype != np.uint8 or not is_image:
            raise UnreadableImageError(
                f"an array of {image.dtype}, shape {image.shape}; expected uint8, shape (h, w), (h, w, 3) or "
                "(h, w, 4)"
            )
        if not image.size:
            raise UnreadableImageError(f"an array without pixels, shape {image.shape}")
        image = Image.fromarray(image)
    elif not isinstance(image, Image.Image):
        raise UnreadableImageError(
            f"of type {type(image).__name__}; expected a PIL image, a path or a uint8 array"
        )
    return upright_rgb(image)


def _read(path: str | Path) -> bytes:
    """Return the bytes of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableImageError(str(error.strerror)) from error


def open_images(
    images: Path,
    transform: Transform,
    *,
    root: Path | None = None,
    split: str | None = None,
) -> ImageDataset:
    """Return a dataset of the images that a table lists or a folder contains.

    Args:
        images: A manifest, the table ``images``, a picture, or a folder, see :func:`read_images`.
        transform: Transform of the pixels.
        root: Folder to which the paths of a table are relative. Default: the folder of the table.
        split: Split of the manifest. Default: all images.

    Raises:
        InputError: The images cannot be listed, the folder does not exist, or tar files are missing.
        ConfigurationError: The split does not exist.
    """
    manifest = read_images(images, root)
    if split is not None:
        manifest = manifest.select_split(split)
    if root is None:
        root = images if images.is_dir() else images.parent
    return ImageDataset(manifest, root, transform)


def read_images(path: Path, root: Path | None = None) -> Manifest:
    """Read the images that a table lists or a folder contains.

    Args:
        path: A manifest, the table ``images``, a picture, a folder of pictures or of tar files, or
            such a tar file. All pictures of a folder at any depth are taken in the order of their
            paths (:func:`hgld.datasets.image_folders.find_images`), with
            :func:`~hgld.datasets.image_folders.image_id` as id.
        root: Folder to which the paths of a manifest are relative, see
            :func:`~hgld.datasets.manifest.read_manifest`. Default: the manifest's folder.

    Returns:
        A manifest; without levels unless ``path`` is a manifest.

    Raises:
        InputError: ``path`` has another form, there are no images, or two pictures in a folder have
            the same id.
    """
    if path.is_dir() or is_tar(path):
        return _read_folder(path)
    is_picture = path.suffix.lower() in SUFFIXES
    if not path.exists():
        expected = "a manifest, the table of hgld index-images, or a folder of pictures"
        if is_picture:
            expected = "a picture"
        raise InputError(f"{path}: no such file; expected {expected}")
    if is_picture:
        name = TextArray([path.name])
        return Manifest.without_levels(name, name)
    if "shard" in column_names(path):
        manifest = read_image_index(path)
    else:
        manifest = read_manifest(path, root or path.parent)
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
    """Return images of a folder as a manifest without levels, with ids as in :func:`read_images`."""
    ids = TextArray([image_id(name) for name in found.names])
    offsets = [-1 if offset is None else offset for offset in found.offsets]
    sizes = [-1 if size is None else size for size in found.sizes]
    return Manifest.without_levels(
        ids, TextArray(found.files), np.array(offsets, np.int64), np.array(sizes, np.int64)
    )


def _read_folder(folder: Path) -> Manifest:
    """Return the images in a folder, at any depth, or in a tar file as a manifest without levels.

    Raises:
        InputError: There are no images, or two images have the same id.
    """
    found = find_images(folder)
    if found.other_files:
        log.info(
            "%s: left out files that are not images: %s", folder, format_suffixes(found.other_files)
        )
    if found.broken_links:
        log.warning(
            "%s: left out %s to images that are not there",
            folder,
            counted(found.broken_links, "broken link"),
        )
    manifest = manifest_of_images(found)
    repeated = places_of_repeated(manifest.ids.tolist(), found.names)
    if repeated:
        raise InputError(
            f"{folder}: {len(repeated):,} images are there several times; embed the folder of each set by itself:\n"
            f"{indented_list(repeated)}"
        )
    return manifest

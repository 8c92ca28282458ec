"""A list of pictures, paths and arrays as a dataset; unlike in a manifest, none of them may be unreadable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from hgld.datasets.batch import Example, SkippedImage
from hgld.datasets.manifest import Manifest
from hgld.datasets.normalisation import Normalisation
from hgld.datasets.pictures import DecodedPicture, Picture, open_picture
from hgld.datasets.transforms import Transform
from hgld.errors import InputError
from hgld.io.images import UnreadableImageError, open_image, upright_rgb

#: A picture, the path of an image file, or pixels: uint8, shape (h, w), (h, w, 3) or (h, w, 4).
AnyImage: TypeAlias = Image.Image | str | Path | NDArray[np.uint8]


class ImageList(Dataset[Example | SkippedImage]):
    """Images in the order of a list, without labels.

    Args:
        images: The images.
        transform: Transform of the pixels; see :mod:`hgld.datasets.transforms`.
    """

    def __init__(self, images: Sequence[AnyImage], transform: Transform) -> None:
        self._images, self._transform = images, transform
        self.normalisation: Normalisation | None = transform.normalisation
        names = np.array([f"image {number}" for number in range(len(images))], object)
        no_tar = np.full(len(images), -1, np.int64)
        self.manifest = Manifest.without_levels(names, names, no_tar, no_tar)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int | tuple[int, int]) -> Example:
        """Return an image.

        Raises:
            InputError: It cannot be read, or is none of the types above.
        """
        row = index[0] if isinstance(index, tuple) else index
        image = self._images[row]
        try:
            picture = _open(image) if isinstance(image, str | Path) else DecodedPicture(as_picture(image))
            pixels = self._transform.pixels(picture)
        except UnreadableImageError as error:
            name = f"{image}" if isinstance(image, str | Path) else f"image {row}"
            detail = f" ({error.detail})" if error.detail else ""
            raise InputError(f"{name}: {error}{detail}") from error
        return Example(pixels, torch.empty(0, dtype=torch.int64), row)


def as_picture(image: AnyImage) -> Image.Image:
    """Return an image as an upright picture in RGB.

    Args:
        image: A picture, the path of an image file, or pixels.

    Raises:
        UnreadableImageError: The image is damaged, its file cannot be read, or it is of another type or shape.

    >>> as_picture(np.zeros((2, 3), np.uint8)).size
    (3, 2)
    """
    if isinstance(image, str | Path):
        return upright_rgb(open_image(_read(image)))
    if isinstance(image, np.ndarray):
        return upright_rgb(_picture_of(image))
    if not isinstance(image, Image.Image):
        raise UnreadableImageError(f"of type {type(image).__name__}; expected a PIL image, a path or a uint8 array")
    return upright_rgb(image)


def _open(path: str | Path) -> Picture:
    return open_picture(_read(path))


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableImageError(str(error.strerror)) from error


def _picture_of(pixels: NDArray[np.uint8]) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,), (4,)):
        raise UnreadableImageError(
            f"an array of {pixels.dtype}, shape {pixels.shape}; expected uint8, shape (h, w), (h, w, 3) or (h, w, 4)"
        )
    if not pixels.size:
        raise UnreadableImageError(f"an array without pixels, shape {pixels.shape}")
    return Image.fromarray(pixels)

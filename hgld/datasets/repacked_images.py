"""Images as ``hgld repack`` stores them: reduced and encoded again, or, where they are small, as they are.

A reduced image has the pixels of :func:`hgld.io.images.upright_rgb`, such as those of the first frame, turned as EXIF
says. Files that are copied keep all of that, and are read like the original.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from hgld.compute.machine import usable_cores
from hgld.datasets.batch import SkippedImage
from hgld.datasets.encoded_images import EncodedImages
from hgld.datasets.resizing import prepare_resizing, resize
from hgld.errors import HgldError
from hgld.io.images import Box, UnreadableImageError, box_inside, open_image, upright_rgb

T = TypeVar("T")

#: Suffixes by format; the other formats that are read are kinds of JPEG.
_SUFFIXES = {"PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif"}
_JPEG = ".jpg"
#: Number of images that a worker process reads at once.
_CHUNK = 16


@dataclass(frozen=True)
class RepackedImage:
    """An encoded image.

    Args:
        data: Content of the file.
        suffix: Suffix of its format, such as ``.jpg``.
        box: The part of the image that counts, in its pixels; None for all of it.
        is_copy: Whether this is the original file.
    """

    data: bytes
    suffix: str
    box: Box | None
    is_copy: bool


def repack_image(data: bytes, box: Box | None, size: int | None, quality: int) -> RepackedImage:
    """Reduce an image, and encode it as JPEG, unless it is small already.

    The image is decoded in any case, so that what is damaged is found. JPEG files of more than twice the size are
    decoded at a half, a quarter or an eighth, which is still at least twice the size.

    Args:
        data: Content of the file.
        box: The part of the image that counts, in pixels: left, top, right, bottom; None for all of it.
        size: Length of the shorter side that an image is reduced to, or with a box that of the box, in pixels; the
            other side keeps the aspect ratio. None for the original file.
        quality: Quality of JPEG, 1 to 100.

    Returns:
        The reduced image; or the original file, if the image is no larger.

    Raises:
        UnreadableImageError: The image is damaged, or the box is outside of it.
    """
    image = open_image(data)
    suffix = _SUFFIXES.get(image.format or "", _JPEG)
    # A box is in pixels of the upright image at full size.
    upright = upright_rgb(image, size if box is None else None)
    part = box_inside(box, upright) or (0, 0, *upright.size)
    shorter = min(part[2] - part[0], part[3] - part[1])
    if size is None or shorter <= size:
        return RepackedImage(data, suffix, box, is_copy=True)
    width, height = (max(round(side * size / shorter), 1) for side in upright.size)
    encoded = io.BytesIO()
    Image.fromarray(resize(np.asarray(upright), (width, height), "bicubic")).save(encoded, "JPEG", quality=quality)
    x, y = width / upright.width, height / upright.height
    reduced_box = None if box is None else (part[0] * x, part[1] * y, part[2] * x, part[3] * y)
    return RepackedImage(encoded.getvalue(), _JPEG, reduced_box, is_copy=False)


class RepackedImages(Dataset["RepackedImage | SkippedImage"]):
    """The images of a manifest at their new size, by row.

    Args:
        encoded: The images.
        size: See :func:`repack_image`.
        quality: See :func:`repack_image`.
    """

    def __init__(self, encoded: EncodedImages, size: int | None, quality: int) -> None:
        self.root, self._encoded, self._size, self._quality = encoded.root, encoded, size, quality

    def __getitem__(self, row: int) -> RepackedImage | SkippedImage:
        """Return the image of a row, or why it cannot be read.

        Raises:
            InputError: The tar file of the image cannot be read, or is not the one that was indexed.
        """
        manifest = self._encoded.manifest
        try:
            return repack_image(self._encoded.read(row), manifest.box(row), self._size, self._quality)
        except UnreadableImageError as error:
            detail = f" ({error.detail})" if error.detail else ""
            return SkippedImage(row, f"{manifest.ids[row]}: {error}{detail}")

    def n_bytes(self, row: int) -> int:
        """Return the size of the original file of an image; 0 if there is none."""
        size, path = int(self._encoded.manifest.sizes[row]), self.root / self._encoded.manifest.paths[row]
        return size if size >= 0 else path.stat().st_size if path.is_file() else 0

    def load(self, ranges: Sequence[range], workers: int) -> Iterator[RepackedImage | SkippedImage]:
        """Yield the images of ranges of rows in order.

        Args:
            ranges: The rows.
            workers: Number of processes that read them, no more than there are cores; 0 reads them in this one.

        Raises:
            InputError: See :meth:`__getitem__`.
        """
        prepare_resizing()  # before workers are forked
        chunks = (rows[start : start + _CHUNK] for rows in ranges for start in range(0, len(rows), _CHUNK))
        loader = DataLoader(
            _Chunks(self),
            batch_size=None,
            sampler=chunks,
            num_workers=min(workers, usable_cores()),
            collate_fn=_identity,
            generator=torch.Generator(),  # otherwise the loader draws its seed from the global generator
        )
        for images in loader:
            if isinstance(images, HgldError):
                raise images
            yield from images


class _Chunks(Dataset["list[RepackedImage | SkippedImage] | HgldError"]):
    """Images by several rows; errors are values, since torch would replace their message by a traceback."""

    def __init__(self, images: RepackedImages) -> None:
        self._images = images

    def __getitem__(self, rows: range) -> list[RepackedImage | SkippedImage] | HgldError:
        try:
            return [self._images[row] for row in rows]
        except HgldError as error:
            return error


def _identity(images: T) -> T:
    return images

"""Pictures whose pixels are decoded when a transform asks for them, in full or at a fraction of their size.

JPEG files are decoded by torchvision where they are upright, which takes about half of Pillow's time; all others, and
those that torchvision refuses, by Pillow (:mod:`hgld.io.images`). Both use libjpeg-turbo. As a torchvision built with
another library would give other pixels, a few small files are decoded by both before torchvision is used. Its makers
announce that a later version will have no decoder; Pillow then decodes all files.
"""

from __future__ import annotations

import functools
import io
from contextlib import suppress

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode

from hgld.datasets.resizing import Pixels
from hgld.io.images import ORIENTATION, open_image, upright_rgb


class Picture:
    """A picture, upright and in RGB, that is decoded on demand.

    Args:
        image: Picture that is upright and in RGB already, or a JPEG file that was opened by Pillow.
        jpeg: Content of the JPEG file.
    """

    def __init__(self, image: Image.Image, jpeg: bytes | None = None) -> None:
        self._image, self._jpeg = image, jpeg
        self._orientation = 1 if jpeg is None else _orientation(image)
        # From 5 on, the camera lay on its side.
        self.width, self.height = image.size[::-1] if self._orientation >= 5 else image.size

    def decode(self, reduction: int = 1) -> Pixels:
        """Return the pixels.

        Args:
            reduction: 1, 2, 4 or 8, by which width and height may be divided (rounded up) if that is faster.
        """
        if self._jpeg is None:
            return np.array(self._image)
        mode = self._image.mode
        if reduction == 1 and self._orientation == 1 and mode in ("L", "RGB") and torchvision_decodes_alike():
            with suppress(RuntimeError):  # Pillow says what is wrong
                return decode_by_torchvision(self._jpeg)
        image = open_image(self._jpeg)
        if reduction > 1:
            image.draft(mode, (image.width // reduction, image.height // reduction))
        return np.array(upright_rgb(image))


def open_picture(data: bytes) -> Picture:
    """Open an image file, whose pixels are decoded at once unless it is of JPEG."""
    image = open_image(data)
    return Picture(image, data) if image.format == "JPEG" else Picture(upright_rgb(image))


def decode_by_torchvision(data: bytes) -> Pixels:
    """Decode a JPEG file of grey or coloured pixels in RGB, as it lies, by torchvision.

    Raises:
        RuntimeError: It is damaged.
        AttributeError: torchvision has no decoder.
    """
    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    # Not torchvision.io.decode_jpeg, which warns at every call that it will be moved to another package.
    decoded = torch.ops.image.decode_jpeg(encoded, ImageReadMode.RGB.value, False)
    pixels: Pixels = np.ascontiguousarray(decoded.permute(1, 2, 0).numpy())
    return pixels


@functools.cache
def torchvision_decodes_alike() -> bool:
    """Return whether torchvision decodes a few small files to the pixels of Pillow."""
    # Smooth colours: the interpolation of colours, which is stored at half of the resolution, differs most there.
    y, x = np.mgrid[:19, :22]
    colours = np.stack([12 * x, 13 * y, 255 - 6 * (x + y)], axis=2).astype(np.uint8)
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        file = io.BytesIO()
        Image.fromarray(colours).save(file, "JPEG", subsampling=subsampling)
        try:
            decoded = decode_by_torchvision(file.getvalue())
        except (RuntimeError, AttributeError):
            return False
        if not np.array_equal(decoded, np.asarray(upright_rgb(open_image(file.getvalue())))):
            return False
    return True


def _orientation(image: Image.Image) -> int:
    """Return how the camera was held, by the EXIF data: 1 to 8, 1 for upright."""
    with suppress(Exception):  # damaged EXIF data say nothing
        orientation = image.getexif().get(ORIENTATION, 1)
        if orientation in range(1, 9):
            return int(orientation)
    return 1

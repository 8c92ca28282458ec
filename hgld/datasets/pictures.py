"""Pictures whose pixels are decoded when a transform asks for them, in full or at a fraction of their size."""

from __future__ import annotations

from contextlib import suppress

from PIL import Image

from hgld.io.images import ORIENTATION, open_image, upright_rgb


class Picture:
    """A picture, upright and in RGB, that is decoded on demand.

    Args:
        image: Picture that is upright and in RGB already, or a JPEG file that was opened by Pillow.
        jpeg: Content of the JPEG file.
    """

    def __init__(self, image: Image.Image, jpeg: bytes | None = None) -> None:
        self._image, self._jpeg = image, jpeg
        # From 5 on, the camera lay on its side.
        is_turned = jpeg is not None and _orientation(image) >= 5
        self.width, self.height = image.size[::-1] if is_turned else image.size

    def decode(self, reduction: int = 1) -> Image.Image:
        """Return the decoded picture.

        Args:
            reduction: 1, 2, 4 or 8, by which width and height may be divided (rounded up) if that is faster.
        """
        if self._jpeg is None:
            return self._image
        image = open_image(self._jpeg)
        if reduction > 1:
            image.draft(image.mode, (image.width // reduction, image.height // reduction))
        return upright_rgb(image)


def open_picture(data: bytes) -> Picture:
    """Open an image file, whose pixels are decoded at once unless it is of JPEG."""
    image = open_image(data)
    return Picture(image, data) if image.format == "JPEG" else Picture(upright_rgb(image))


def _orientation(image: Image.Image) -> int:
    """Return how the camera was held, by the EXIF data: 1 to 8, 1 for upright."""
    with suppress(Exception):  # damaged EXIF data say nothing
        orientation = image.getexif().get(ORIENTATION, 1)
        if orientation in range(1, 9):
            return int(orientation)
    return 1

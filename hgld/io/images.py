"""Decode image files: also rotated, CMYK, 16-bit, transparent, animated, huge or damaged ones."""

from __future__ import annotations

import io
import warnings
from contextlib import suppress
from typing import Protocol, TypeAlias

from PIL import Image, ImageOps, UnidentifiedImageError

from hgld.errors import InputError

#: Left, top, right and bottom of a part of an image, in pixels.
Box: TypeAlias = tuple[float, float, float, float]

#: Suffixes of image files, in lower case.
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
#: Formats that are read, whatever the suffix of the file; decoders of others are never called.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
#: Behind transparent pixels.
_BACKGROUND = "white"
#: EXIF tag of the orientation of the camera; 1 is upright.
ORIENTATION = 0x0112


class UnreadableImageError(InputError):
    """An image cannot be decoded, for a short reason such as ``damaged``; ``detail`` is what the decoder says."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail

    @property
    def description(self) -> str:
        """The reason, followed by the detail in parentheses, if there is one."""
        return f"{self} ({self.detail})" if self.detail else str(self)


def open_image(data: bytes) -> Image.Image:
    """Open an image from the content of its file; pixels are decoded when they are needed.

    Raises:
        UnreadableImageError: The content is no image or damaged, or it claims more than 179 million pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # from half of the size that is refused
            return Image.open(io.BytesIO(data), formats=_FORMATS)
    except MemoryError:
        raise
    except Image.DecompressionBombError as error:
        raise UnreadableImageError("too large", str(error)) from error
    except UnidentifiedImageError as error:  # its own message is a memory address
        raise UnreadableImageError("not an image", f"in {len(data):,} bytes") from error
    except Exception as error:  # decoders of damaged files raise errors of many kinds
        raise UnreadableImageError("damaged", str(error)) from error


class _Sized(Protocol):
    @property
    def width(self) -> int: ...

    @property
    def height(self) -> int: ...


def box_inside(box: Box | None, image: _Sized) -> Box | None:
    """Return the part of a box that is inside an image, in whole pixels; None, for the whole image, remains None.

    Raises:
        UnreadableImageError: No part of the box is inside.
    """
    if box is None:
        return None
    left, top = max(round(box[0]), 0), max(round(box[1]), 0)
    right, bottom = min(round(box[2]), image.width), min(round(box[3]), image.height)
    if right <= left or bottom <= top:
        raise UnreadableImageError("box outside the image", f"{box} of {image.width} x {image.height} pixels")
    return left, top, right, bottom


def upright_rgb(image: Image.Image, size: int | None = None) -> Image.Image:
    """Return the first frame of an opened image in RGB, rotated as its EXIF data say.

    Grey values of 16 bits are scaled to 8 bits. Transparent pixels become white. If the ``size`` of the intended copy
    is given, JPEG files are decoded at no more than about twice this size.

    Raises:
        UnreadableImageError: The image is damaged, or its pixels are floating-point numbers of unknown range.
    """
    try:
        if size is not None:
            image.draft("RGB", (2 * size, 2 * size))
        image.load()
        with suppress(Exception):  # damaged EXIF data say nothing
            if image.getexif().get(ORIENTATION, 1) != 1:
                image = ImageOps.exif_transpose(image)
        return _opaque_rgb(image)
    except (MemoryError, UnreadableImageError):
        raise
    except Exception as error:  # as in open_image
        raise UnreadableImageError("damaged", str(error)) from error


def _opaque_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise UnreadableImageError("floating-point pixels", "save it with 8 or 16 bits per channel")
    if image.mode.startswith("I"):
        # 16 bits per pixel, which conversion alone would clip. A transparent grey would still be one of 16 bits.
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
        image.info.pop("transparency", None)
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, _BACKGROUND)
        background.alpha_composite(image.convert("RGBA"))
        image = background
    return image if image.mode == "RGB" else image.convert("RGB")

"""Decode image files, also rotated, CMYK, 16-bit, transparent, animated, huge or damaged files."""

from __future__ import annotations

import io
import struct
import warnings
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from hgld.errors import InputError

#: Left, top, right and bottom of a part of an image, in pixels.
Box: TypeAlias = tuple[float, float, float, float]

#: Suffixes of image files, in lower case.
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
#: Formats that are read, whatever the suffix of the file; decoders of other formats are never
#: called.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
#: Colour behind transparent pixels.
_BACKGROUND = "white"
#: First bytes of JPEG files.
_JPEG = b"\xff\xd8\xff"
#: First bytes of EXIF data in JPEG files.
_EXIF = b"Exif\0\0"
#: Transposition that makes an image upright, by the EXIF tag of the orientation of the camera.
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
#: Names in ``info`` of the metadata that may state the orientation.
_ORIENTED_METADATA = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")
#: Tags of a TIFF file that point to more tags.
_POINTERS = (ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo, ExifTags.IFD.Interop)
#: Formats of :mod:`struct` for the types SHORT and LONG of EXIF, by the number of the type.
_EXIF_INTEGERS = {3: "H", 4: "I"}


class UnreadableImageError(InputError):
    """An image cannot be decoded.

    Args:
        reason: A short reason such as ``damaged``.
        detail: Message of the decoder.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail

    @property
    def description(self) -> str:
        """The reason, followed by the detail in parentheses."""
        if self.detail:
            return f"{self} ({self.detail})"
        return str(self)


def open_image(data: bytes) -> Image.Image:
    """Open an image from the content of its file; pixels are decoded when they are needed.

    Raises:
        UnreadableImageError: The content is not an image or damaged, or it claims more than 179
            million pixels.
    """
    try:
        with warnings.catch_warnings():
            # Pillow warns from half of the size that it refuses.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(data), formats=_FORMATS)
    except MemoryError:
        raise
    except Image.DecompressionBombError as error:
        raise UnreadableImageError("too large", str(error)) from error
    except UnidentifiedImageError as error:  # its own message is a memory address
        if data.startswith(_JPEG) and _EXIF in data:
            return _open_around_exif(data)
        raise UnreadableImageError("not an image", f"in {len(data):,} bytes") from error
    except Exception as error:  # decoders of damaged files raise errors of many kinds
        raise UnreadableImageError("damaged", str(error)) from error


def _open_around_exif(data: bytes) -> Image.Image:
    """Open a JPEG file whose EXIF data Pillow cannot read, such as a malformed resolution."""
    image = open_image(data.replace(_EXIF, bytes(len(_EXIF))))
    start = data.index(_EXIF)
    length = int.from_bytes(data[start - 2 : start], "big")
    image.info["exif"] = data[start : start - 2 + length]
    return image


class _Sized(Protocol):
    @property
    def width(self) -> int: ...

    @property
    def height(self) -> int: ...


def box_inside(box: Box | None, image: _Sized) -> Box | None:
    """Return the part of a box that is inside an image, in whole pixels.

    Args:
        box: The box; None for the whole image, which is returned as None.
        image: The image.

    Raises:
        UnreadableImageError: No part of the box is inside.
    """
    if box is None:
        return None
    left = max(round(box[0]), 0)
    top = max(round(box[1]), 0)
    right = min(round(box[2]), image.width)
    bottom = min(round(box[3]), image.height)
    if right <= left or bottom <= top:
        raise UnreadableImageError(
            "box outside the image", f"{box} of {image.width} x {image.height} pixels"
        )
    return left, top, right, bottom


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened image: 1 to 8; 1 if it is upright or unknown.

    Other tags may be malformed, so they are not decoded. Pillow rotates TIFF files when it decodes
    them; their orientation is 1 from then on.
    """
    value: Any = None
    with suppress(Exception):  # a malformed tag may keep Pillow from reading the tags after it
        value = image.getexif().get(ExifTags.Base.Orientation)
    if value is None:
        value = _orientation_in(image.info.get("exif", b""))
    if value not in range(1, 9):
        return 1
    return int(value)


def _orientation_in(exif: bytes) -> int | None:
    """Return the value of the orientation tag in EXIF data; None if it is missing or not an integer."""
    tiff = exif.removeprefix(_EXIF)
    byte_order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if byte_order is None:
        return None
    try:
        (start,) = struct.unpack_from(f"{byte_order}I", tiff, 4)
        (n_tags,) = struct.unpack_from(f"{byte_order}H", tiff, start)
        for position in range(start + 2, start + 2 + 12 * n_tags, 12):
            tag, type_number, count = struct.unpack_from(f"{byte_order}HHI", tiff, position)
            if tag == ExifTags.Base.Orientation and type_number in _EXIF_INTEGERS and count == 1:
                (value,) = struct.unpack_from(
                    byte_order + _EXIF_INTEGERS[type_number], tiff, position + 8
                )
                return int(value)
    except struct.error:  # the data are truncated
        return None
    return None


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return the width and height of :func:`upright_rgb` of an opened image without decoding it."""
    width, height = image.size
    if image.format != "TIFF" and orientation(image) >= 5:  # the camera lay on its side
        return height, width
    return width, height


def upright_rgb(image: Image.Image, size: int | None = None) -> Image.Image:
    """Return the first frame of an opened image in RGB, rotated according to its EXIF data.

    Grey values of 16 bits are scaled to 8 bits. Transparent pixels become white.

    Args:
        image: The image.
        size: Size of the intended copy in pixels; JPEG files are decoded at no more than about
            twice this size. Default: full size.

    Raises:
        UnreadableImageError: The image is damaged, or its pixels are floating-point numbers or
            integers of unknown range.
    """
    try:
        if size is not None:
            image.draft("RGB", (2 * size, 2 * size))
        if image.format == "TIFF":
            # Pillow would read the tags that these point to, and fail at malformed ones.
            for pointer in _POINTERS:
                image.getexif().pop(pointer, None)
        image.load()
        transposition = _TRANSPOSITIONS.get(orientation(image))
        if transposition is not None:
            image = image.transpose(transposition)
            for name in _ORIENTED_METADATA:
                image.info.pop(name, None)
        return _opaque_rgb(image)
    except (MemoryError, UnreadableImageError):
        raise
    except Exception as error:  # as in open_image
        raise UnreadableImageError("damaged", str(error)) from error


def _opaque_rgb(image: Image.Image) -> Image.Image:
    """Convert a decoded image of any mode to RGB, in front of a white background."""
    if image.mode == "F":
        raise UnreadableImageError("floating-point pixels", "save it with 8 or 16 bits per channel")
    if image.mode == "I" and (image.format == "TIFF" or not _has_16_bits(image)):
        raise UnreadableImageError(
            "integer pixels of unknown range", "save it with 8 or 16 bits per channel"
        )
    if image.mode.startswith("I"):
        # Conversion alone would clip 16 bits per pixel. A transparent grey would still have 16
        # bits.
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
        image.info.pop("transparency", None)
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, _BACKGROUND)
        background.alpha_composite(image.convert("RGBA"))
        image = background
    if image.mode == "RGB":
        return image
    return image.convert("RGB")


def _has_16_bits(image: Image.Image) -> bool:
    """Return whether integer pixels fit into 16 bits.

    PNG files have 16 bits, which some versions of Pillow convert to 32 bits.
    """
    pixels = np.asarray(image)
    return bool(pixels.min() >= 0 and pixels.max() <= 65535)

"""Decode image files: also rotated, CMYK, 16-bit, transparent, animated, huge or damaged ones."""

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
#: Formats that are read, whatever the suffix of the file; decoders of others are never called.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
#: Behind transparent pixels.
_BACKGROUND = "white"
#: First bytes of JPEG files, and of EXIF data in them.
_JPEG, _EXIF = b"\xff\xd8\xff", b"Exif\0\0"
#: What makes an image upright, by the value of the EXIF tag of the orientation of the camera.
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
            warnings.simplefilter(
                "ignore", Image.DecompressionBombWarning
            )  # from half of the size that is refused
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
    """Open a JPEG file that Pillow takes for no image, as it does for some malformed resolutions in EXIF data."""
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
    """Return the part of a box that is inside an image, in whole pixels; None, for the whole image, remains None.

    Raises:
        UnreadableImageError: No part of the box is inside.
    """
    if box is None:
        return None
    left, top = max(round(box[0]), 0), max(round(box[1]), 0)
    right, bottom = min(round(box[2]), image.width), min(round(box[3]), image.height)
    if right <= left or bottom <= top:
        raise UnreadableImageError(
            "box outside the image", f"{box} of {image.width} x {image.height} pixels"
        )
    return left, top, right, bottom


def orientation(image: Image.Image) -> int:
    """Return how the camera was held, by the EXIF data of an opened image: 1 to 8, 1 for upright or unknown.

    The other tags may be malformed: no other tag is decoded, and none is ever written. TIFF files are turned by
    Pillow when they are decoded, and upright from then on.
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
    """Return the value of the orientation tag in EXIF data; None if it is absent or no integer."""
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
    """Return the width and height of :func:`upright_rgb` of an opened image, which is not decoded for that."""
    width, height = image.size
    if image.format != "TIFF" and orientation(image) >= 5:  # the camera lay on its side
        return height, width
    return width, height


def upright_rgb(image: Image.Image, size: int | None = None) -> Image.Image:
    """Return the first frame of an opened image in RGB, rotated as its EXIF data say.

    Grey values of 16 bits are scaled to 8 bits. Transparent pixels become white. If the ``size`` of the intended copy
    is given, JPEG files are decoded at no more than about twice this size.

    Raises:
        UnreadableImageError: The image is damaged, or its pixels are floating-point numbers or integers of unknown
            range.
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
    if image.mode == "F":
        raise UnreadableImageError("floating-point pixels", "save it with 8 or 16 bits per channel")
    if image.mode == "I" and (image.format == "TIFF" or not _has_16_bits(image)):
        raise UnreadableImageError(
            "integer pixels of unknown range", "save it with 8 or 16 bits per channel"
        )
    if image.mode.startswith("I"):
        # 16 bits per pixel, which conversion alone would clip. A transparent grey would still be one of 16 bits.
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
        image.info.pop("transparency", None)
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, _BACKGROUND)
        background.alpha_composite(image.convert("RGBA"))
        image = background
    return image if image.mode == "RGB" else image.convert("RGB")


def _has_16_bits(image: Image.Image) -> bool:
    """Return whether integer pixels fit into 16 bits, as PNG files have, which some versions of Pillow widen."""
    lowest, highest = np.asarray(image).min(), np.asarray(image).max()
    return bool(lowest >= 0 and highest <= 65535)

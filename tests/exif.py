"""EXIF data written byte by byte, as those of cameras and editors that Pillow would not write."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

#: Tag, type, count and values; see TIFF 6.0, section 2.
Tag = tuple[int, int, int, bytes]

BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED, SIGNED_SHORT, SIGNED_LONG, SIGNED_RATIONAL, FLOAT, DOUBLE = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
    12,
)
ORIENTATION, X_RESOLUTION, GPS, EXIF = 0x0112, 0x011A, 0x8825, 0x8769


def orientation_tag(byte_order: str, value: int) -> Tag:
    return ORIENTATION, SHORT, 1, struct.pack(f"{byte_order}H", value)


def malformed_tags(byte_order: str) -> dict[str, Tag]:
    """Return tags with values that their type or count forbids, by name."""

    def pack(values_format: str, *values: float) -> bytes:
        return struct.pack(byte_order + values_format, *values)

    return {
        "resolution as text": (X_RESOLUTION, ASCII, 3, b"72\0"),
        "resolution as long text": (X_RESOLUTION, ASCII, 9, b"72.00000\0"),
        "resolution as one character": (X_RESOLUTION, ASCII, 2, b"7\0"),
        "resolution as byte": (X_RESOLUTION, BYTE, 1, b"H"),
        "resolution as bytes": (X_RESOLUTION, UNDEFINED, 3, b"abc"),
        "resolution 0 / 0": (X_RESOLUTION, RATIONAL, 1, pack("II", 0, 0)),
        "resolution below 0": (X_RESOLUTION, SIGNED_RATIONAL, 1, pack("ii", -72, 1)),
        "resolution as signed integer": (X_RESOLUTION, SIGNED_LONG, 1, pack("i", -72)),
        "resolution that is no number": (X_RESOLUTION, DOUBLE, 1, pack("d", float("nan"))),
        "two resolutions": (X_RESOLUTION, RATIONAL, 2, pack("IIII", 72, 1, 72, 1)),
        "no resolution": (X_RESOLUTION, RATIONAL, 0, b""),
        "more resolutions than bytes": (X_RESOLUTION, RATIONAL, 0x7FFFFFFF, b"\0\0\0\x08"),
        "unit as text": (0x0128, ASCII, 2, b"2\0"),
        "unit below 0": (0x0128, SIGNED_SHORT, 1, pack("h", -2)),
        "GPS as text": (GPS, ASCII, 9, b"48.85 N \0"),
        "GPS below 0": (GPS, SIGNED_LONG, 1, pack("i", -5)),
        "GPS outside": (GPS, LONG, 1, pack("I", 0xFFFFFFF0)),
        "GPS as rational": (GPS, RATIONAL, 1, pack("II", 5, 2)),
        "two GPS": (GPS, LONG, 2, pack("II", 8, 8)),
        "more tags below 0": (EXIF, SIGNED_LONG, 1, pack("i", -5)),
        "more tags in a circle": (EXIF, LONG, 1, pack("I", 8)),
        "interoperability as text": (0xA005, ASCII, 4, b"abc\0"),
        "maker note": (0x927C, UNDEFINED, 20, bytes(range(20))),
        "software as rational": (0x0131, RATIONAL, 1, pack("II", 7, 0)),
        "positioning as text": (0x0213, ASCII, 2, b"1\0"),
        "white below 0": (0x013E, SIGNED_RATIONAL, 2, pack("iiii", -1, 3, -2, 5)),
        "unknown type": (0x010F, 99, 1, b"\0\0\0\x08"),
        "unknown tag of 64 bits": (0xBEEF, 16, 1, pack("Q", 2**63)),
        "unknown tag below 0": (0xBEEF, SIGNED_LONG, 2, pack("ii", -40000, 70000)),
    }


def tiff_directory(byte_order: str, tags: list[Tag], start: int = 8) -> bytes:
    """Return a directory of tags at a byte of the file, followed by the values of more than four bytes."""
    entries, values = b"", b""
    end = start + 2 + 12 * len(tags) + 4
    for tag, type_number, count, value in sorted(tags):
        entries += struct.pack(f"{byte_order}HHI", tag, type_number, count)
        if len(value) <= 4:
            entries += value.ljust(4, b"\0")
        else:
            entries += struct.pack(f"{byte_order}I", end + len(values))
            values += value + b"\0" * (len(value) % 2)
    return struct.pack(f"{byte_order}H", len(tags)) + entries + bytes(4) + values


def tiff_header(byte_order: str, start: int = 8) -> bytes:
    return (b"II*\0" if byte_order == "<" else b"MM\0*") + struct.pack(f"{byte_order}I", start)


def exif_data(byte_order: str, tags: list[Tag]) -> bytes:
    return tiff_header(byte_order) + tiff_directory(byte_order, tags)


def picture() -> Image.Image:
    """Return a picture that tells all orientations apart."""
    y, x = np.mgrid[:24, :48]
    return Image.fromarray(np.stack([5 * x, 10 * y, 0 * x], axis=2).astype(np.uint8))


def image_file(file_format: str, exif: bytes, image: Image.Image | None = None) -> bytes:
    """Return an image file with EXIF data: JPEG, PNG, WEBP, or "PNG text" for those of ImageMagick."""
    image = image or picture()
    file = io.BytesIO()
    if file_format == "PNG text":
        text = (b"Exif\0\0" + exif).hex()
        info = PngInfo()
        info.add_text("Raw profile type exif", f"\nexif\n{len(text) // 2:8}\n{text}\n", zip=True)
        image.save(file, "PNG", pnginfo=info)
    elif file_format == "JPEG":  # Pillow would write a header with a resolution
        image.save(file, "JPEG", quality=95)
        segment = b"Exif\0\0" + exif
        marker = b"\xff\xe1" + struct.pack(">H", len(segment) + 2)
        return file.getvalue()[:2] + marker + segment + file.getvalue()[2:]
    else:
        image.save(file, file_format, exif=exif, **({"lossless": True} if file_format == "WEBP" else {}))
    return file.getvalue()


def tiff_file(byte_order: str, tags: list[Tag], *, compressed: bool = False) -> bytes:
    """Return a TIFF file of the picture with more tags."""
    pixels = picture().tobytes()
    if compressed:
        pixels = zlib.compress(pixels)
        pixels += b"\0" * (len(pixels) % 2)

    def number(tag: int, value: int) -> Tag:
        return tag, LONG, 1, struct.pack(f"{byte_order}I", value)

    layout = [
        number(0x0100, picture().width),
        number(0x0101, picture().height),
        (0x0102, SHORT, 3, struct.pack(f"{byte_order}HHH", 8, 8, 8)),
        number(0x0103, 8 if compressed else 1),
        number(0x0106, 2),
        number(0x0111, 8),
        number(0x0115, 3),
        number(0x0116, picture().height),
        number(0x0117, len(pixels)),
    ]
    start = 8 + len(pixels)
    return tiff_header(byte_order, start) + pixels + tiff_directory(byte_order, [*layout, *tags], start)

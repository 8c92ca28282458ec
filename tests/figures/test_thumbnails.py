"""Thumbnails of photographs of all kinds, and reasons for those that cannot be shown."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.figures.photographs import make_thumbnail
from hgld.io.images import UnreadableImageError

RED, BLUE = (200, 40, 30), (30, 40, 200)


def encoded(image: Image.Image, file_format: str = "JPEG", **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, file_format, **options)
    return data.getvalue()


def halves(width: int = 240, height: int = 120) -> Image.Image:
    """The left half red, the right half blue."""
    image = Image.new("RGB", (width, height), RED)
    image.paste(BLUE, (width // 2, 0, width, height))
    return image


def decoded(thumbnail: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(thumbnail))
    assert (image.format, image.mode) == ("JPEG", "RGB")
    return image


def colour(image: Image.Image, x: float, y: float) -> tuple[int, ...]:
    """The colour at a place given as shares of the width and the height."""
    pixel = image.getpixel((int(x * (image.width - 1)), int(y * (image.height - 1))))
    assert isinstance(pixel, tuple)
    return pixel


def assert_similar(actual: tuple[int, ...], expected: tuple[int, ...], tolerance: int = 40) -> None:
    assert max(abs(a - b) for a, b in zip(actual, expected, strict=True)) <= tolerance, f"{actual}, not {expected}"


def test_whole_photographs_keep_their_shape_and_are_never_enlarged() -> None:
    assert decoded(make_thumbnail(encoded(halves()), 100, 100)).size == (100, 50)
    assert decoded(make_thumbnail(encoded(halves(40, 20)), 100, 100)).size == (40, 20)


def test_cropped_photographs_fill_the_area() -> None:
    image = decoded(make_thumbnail(encoded(halves(900, 100)), 80, 60, crop=True))
    assert image.size == (80, 60)
    assert_similar(colour(image, 0.1, 0.5), RED)
    assert_similar(colour(image, 0.9, 0.5), BLUE)
    assert decoded(make_thumbnail(encoded(halves(20, 10)), 80, 60, crop=True)).size == (80, 60)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_formats(file_format: str) -> None:
    image = decoded(make_thumbnail(encoded(halves(), file_format), 100, 100))
    assert_similar(colour(image, 0.1, 0.5), RED)
    assert_similar(colour(image, 0.9, 0.5), BLUE)


@pytest.mark.parametrize(
    ("orientation", "red_at"), [(1, (0.1, 0.5)), (3, (0.9, 0.5)), (6, (0.5, 0.1)), (8, (0.5, 0.9))]
)
def test_photographs_are_rotated_by_their_exif_data(orientation: int, red_at: tuple[float, float]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = decoded(make_thumbnail(encoded(halves(), exif=exif), 100, 100))
    assert image.size == ((100, 50) if orientation in (1, 3) else (50, 100))
    assert_similar(colour(image, *red_at), RED)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_are_ignored() -> None:
    data = encoded(halves(), exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert decoded(make_thumbnail(data, 100, 100)).size == (100, 50)


@pytest.mark.parametrize("mode", ["CMYK", "L", "1"])
def test_modes_of_colour(mode: str) -> None:
    image = decoded(make_thumbnail(encoded(halves().convert(mode), "PNG" if mode == "1" else "JPEG"), 100, 100))
    if mode == "CMYK":
        assert_similar(colour(image, 0.1, 0.5), RED)
    assert image.size == (100, 50)


def test_16_bit_photographs_keep_their_greys() -> None:
    greys = np.tile(np.linspace(0, 65535, 200).astype(np.uint16), (100, 1))
    image = decoded(make_thumbnail(encoded(Image.fromarray(greys), "PNG"), 100, 100))
    for x in (0.1, 0.5, 0.9):
        assert_similar(colour(image, x, 0.5), (int(255 * x),) * 3, 8)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_photographs_are_shown_on_white(mode: str) -> None:
    image = Image.new("RGBA", (100, 50), (*RED, 0))
    image.paste((*BLUE, 255), (50, 0, 100, 50))
    options = {"transparency": 0} if mode == "P" else {}
    if mode == "P":
        palette = Image.new("P", (100, 50), 0)
        palette.putpalette([*RED, *BLUE])
        palette.paste(1, (50, 0, 100, 50))
        data = encoded(palette, "PNG", **options)
    else:
        data = encoded(image.convert(mode), "PNG")
    assert_similar(colour(decoded(make_thumbnail(data, 100, 100)), 0.1, 0.5), (255, 255, 255))


@pytest.mark.parametrize("file_format", ["GIF", "WEBP"])
def test_animations_show_their_first_frame(file_format: str) -> None:
    first, second = Image.new("RGB", (60, 40), RED), Image.new("RGB", (60, 40), BLUE)
    data = encoded(first, file_format, save_all=True, append_images=[second])
    assert_similar(colour(decoded(make_thumbnail(data, 60, 60)), 0.5, 0.5), RED)


def png_header(width: int, height: int) -> bytes:
    """A PNG file that claims any size in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not an image"),
        (b"no picture", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (encoded(halves(), "ICO"), "not an image"),
        (encoded(halves())[:600], "damaged"),
        (png_header(40, 40), "damaged"),
        (png_header(9_000, 9_000), "too large .81 megapixels."),
        (png_header(10_000, 10_000), "too large"),
        (png_header(60_000, 60_000), "too large"),
    ],
    ids=["empty", "text", "PostScript", "ICO", "cut short", "without pixels", "81 MP", "100 MP", "3,600 MP"],
)
def test_reasons_for_photographs_that_cannot_be_shown(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableImageError, match=f"^{reason}"):
        make_thumbnail(data, 100, 100)


_SAMPLES = [encoded(halves(), file_format) for file_format in ("JPEG", "PNG", "WEBP", "GIF")]


@given(st.sampled_from(_SAMPLES), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=20))
def test_damage_anywhere_gives_a_thumbnail_or_a_reason(data: bytes, damage: list[tuple[float, int]]) -> None:
    damaged = bytearray(data)
    for place, value in damage:
        damaged[int(place * (len(damaged) - 1))] = value
    try:
        thumbnail = make_thumbnail(bytes(damaged), 50, 50)
    except UnreadableImageError as error:
        assert str(error)  # noqa: PT017
    else:
        assert max(decoded(thumbnail).size) <= 50

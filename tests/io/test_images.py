"""Size and pixels of photographs with malformed EXIF data, by their orientation alone."""

import functools
import io
import struct

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from hgld.datasets.transforms import ImageSettings, evaluation_transform, open_picture, training_transform
from hgld.io.images import UnreadableImageError, open_image, orientation, upright_rgb, upright_size
from tests.exif import (
    ASCII,
    BYTE,
    FLOAT,
    LONG,
    ORIENTATION,
    RATIONAL,
    SHORT,
    SIGNED_SHORT,
    exif_data,
    image_file,
    malformed_tags,
    orientation_tag,
    picture,
    tiff_directory,
    tiff_file,
    tiff_header,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FORMATS = ("JPEG", "PNG", "PNG text", "WEBP")
BYTE_ORDERS = ("<", ">")

#: Index arithmetic that makes pixels upright, by orientation; see the EXIF standard, section 4.6.5.
UPRIGHT = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}


@functools.cache
def stored_pixels(file_format: str) -> NDArray[np.uint8]:
    """Return the pixels of the picture in a file without EXIF data."""
    return np.asarray(Image.open(io.BytesIO(image_file(file_format, b""))).convert("RGB"))


def assert_upright(data: bytes, expected: NDArray[np.uint8]) -> None:
    """Assert size and pixels wherever they are read."""
    size = expected.shape[1::-1]
    assert upright_size(open_image(data)) == size
    upright = upright_rgb(open_image(data))
    np.testing.assert_array_equal(upright, expected)
    np.testing.assert_array_equal(upright_rgb(upright), expected, err_msg="turned twice")
    opened = open_picture(data)
    assert (opened.width, opened.height) == size
    np.testing.assert_array_equal(opened.decode(), expected)
    assert opened.decode(2).size in (size, tuple(-(-side // 2) for side in size))


@pytest.mark.parametrize("name", malformed_tags("<"))
@pytest.mark.parametrize("value", UPRIGHT)
def test_photographs_are_turned_whatever_their_other_tags_hold(value: int, name: str) -> None:
    for byte_order in BYTE_ORDERS:
        tags = [orientation_tag(byte_order, value), malformed_tags(byte_order)[name]]
        for file_format in FORMATS:
            expected = UPRIGHT[value](stored_pixels(file_format))
            assert_upright(image_file(file_format, exif_data(byte_order, tags)), expected)
        for compressed in (False, True):
            expected = UPRIGHT[value](np.asarray(picture()))
            assert_upright(tiff_file(byte_order, tags, compressed=compressed), expected)


def test_the_orientation_is_read_as_far_as_exif_data_are_complete() -> None:
    for byte_order in BYTE_ORDERS:
        tags = [orientation_tag(byte_order, 6), (0x010F, ASCII, 20, b"a maker of cameras.\0")]
        exif = exif_data(byte_order, tags) + bytes(100)
        end_of_orientation = 8 + 2 + 12 + 12
        for file_format in ("JPEG", "PNG", "WEBP"):
            pixels = stored_pixels(file_format)
            for length in range(len(exif)):
                value = 6 if length >= end_of_orientation - 2 else 1  # two of the four bytes of a value are used
                assert_upright(image_file(file_format, exif[:length]), UPRIGHT[value](pixels))
            outside = exif.replace(struct.pack(f"{byte_order}I", 38), struct.pack(f"{byte_order}I", 10_000))
            assert outside != exif
            assert_upright(image_file(file_format, outside), UPRIGHT[6](pixels))


@pytest.mark.parametrize(
    ("type_number", "count", "value_format", "values", "expected"),
    [
        (SHORT, 1, "H", (0,), 1),
        (SHORT, 1, "H", (9,), 1),
        (SHORT, 1, "H", (65535,), 1),
        (SHORT, 2, "HH", (6, 8), 6),
        (SHORT, 0, "", (), 1),
        (SHORT, 0x7FFFFFFF, "H", (6,), 1),
        (LONG, 1, "I", (6,), 6),
        (BYTE, 1, "B", (6,), 1),
        (SIGNED_SHORT, 1, "h", (6,), 6),
        (SIGNED_SHORT, 1, "h", (-6,), 1),
        (RATIONAL, 1, "II", (6, 1), 6),
        (RATIONAL, 1, "II", (6, 0), 1),
        (FLOAT, 1, "f", (6.5,), 1),
        (ASCII, 2, "2s", (b"6",), 1),
        (99, 1, "I", (6,), 1),
    ],
)
def test_orientations_of_other_types_and_values(
    type_number: int, count: int, value_format: str, values: tuple[float | bytes, ...], expected: int
) -> None:
    for byte_order in BYTE_ORDERS:
        tag = (ORIENTATION, type_number, count, struct.pack(byte_order + value_format, *values))
        for file_format in FORMATS:
            data = image_file(file_format, exif_data(byte_order, [tag]))
            assert orientation(open_image(data)) == expected
            assert_upright(data, UPRIGHT[expected](stored_pixels(file_format)))


def test_pictures_opened_elsewhere_and_xmp_data_state_the_orientation_too() -> None:
    turned = picture()
    turned.getexif()[ORIENTATION] = 6
    expected = UPRIGHT[6](np.asarray(picture()))
    np.testing.assert_array_equal(upright_rgb(turned), expected)
    file = io.BytesIO()
    picture().save(file, "WEBP", lossless=True, xmp=b'<x tiff:Orientation="6"/>')
    assert_upright(file.getvalue(), expected)


@pytest.mark.parametrize("size", [(640, 320), (4000, 1000), (300, 400)])
@pytest.mark.parametrize("fit", ["crop", "squash", "pad", "longest"])
def test_transforms_crop_within_the_turned_photograph(size: tuple[int, int], fit: str) -> None:
    image = picture().resize(size)
    tags = [orientation_tag("<", 6)]
    plain = image_file("JPEG", exif_data("<", tags), image)
    malformed = image_file("JPEG", exif_data("<", [*tags, malformed_tags("<")["resolution as text"]]), image)
    settings = ImageSettings.model_validate({"fit": fit, "reduced_decoding": size[0] > 1000})
    for transform in (evaluation_transform(settings), training_transform(settings)):
        torch.manual_seed(0)
        expected = transform.pixels(open_picture(plain))
        torch.manual_seed(0)
        np.testing.assert_array_equal(transform.pixels(open_picture(malformed)), expected)


@pytest.mark.parametrize("kind", ["<i4", ">i4", "<u4", "<i2", "<f4"])
@pytest.mark.parametrize("top", [252, 32767, 2**24])
def test_tiff_files_of_unknown_range_are_refused(kind: str, top: int) -> None:
    values = np.tile(np.linspace(0, min(top, 32767 if kind == "<i2" else top), 64), (32, 1)).astype(kind)
    width, height = tuple(struct.pack("<I", side) for side in values.shape[::-1])
    layout = [
        (0x0100, LONG, 1, width),
        (0x0101, LONG, 1, height),
        (0x0102, SHORT, 1, struct.pack("<H", 8 * values.itemsize)),
        (0x0103, SHORT, 1, struct.pack("<H", 1)),
        (0x0106, SHORT, 1, struct.pack("<H", 1)),
        (0x0111, LONG, 1, struct.pack("<I", 8)),
        (0x0116, LONG, 1, height),
        (0x0117, LONG, 1, struct.pack("<I", values.nbytes)),
        (0x0153, SHORT, 1, struct.pack("<H", {"u": 1, "i": 2, "f": 3}[values.dtype.kind])),
    ]
    start = 8 + values.nbytes
    data = tiff_header("<", start) + values.astype(values.dtype.newbyteorder("<")).tobytes()
    data += tiff_directory("<", layout, start)
    with pytest.raises(UnreadableImageError, match="(integer|floating-point) pixels"):
        upright_rgb(open_image(data))


def test_integers_of_16_bits_are_scaled_and_larger_ones_refused() -> None:
    ramp = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (4, 1))
    expected = np.arange(256)
    for file_format in ("PNG", "TIFF"):
        file = io.BytesIO()
        Image.fromarray(ramp).save(file, file_format)
        np.testing.assert_allclose(np.asarray(upright_rgb(open_image(file.getvalue())))[0, :, 0], expected, atol=1)
    in_memory = Image.fromarray(ramp.astype(np.int32))
    np.testing.assert_allclose(np.asarray(upright_rgb(in_memory))[0, :, 0], expected, atol=1)
    for values in (ramp.astype(np.int32) - 1, ramp.astype(np.int32) * 2):
        with pytest.raises(UnreadableImageError, match="integer pixels of unknown range"):
            upright_rgb(Image.fromarray(values))

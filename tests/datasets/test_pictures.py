"""Decoding on demand against Pillow's own decoder."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.datasets import transforms
from hgld.datasets.resizing import Pixels
from hgld.datasets.transforms import open_picture
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from tests.datasets.test_resizing import noise
from tests.figures.test_thumbnails import encoded


def by_pillow(data: bytes) -> Pixels:
    return np.asarray(upright_rgb(open_image(data)))


def jpeg(width: int = 37, height: int = 23, mode: str = "RGB", **options: object) -> bytes:
    return encoded(Image.fromarray(noise(width, height)).convert(mode), "JPEG", **options)


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(exif=exif)


FILES = {
    **{f"4:{s}": jpeg(subsampling=f"4:{s}") for s in ("4:4", "2:2", "2:0")},
    "progressive": jpeg(progressive=True),
    "grey": jpeg(mode="L"),
    "four colours": jpeg(mode="CMYK"),
    "low quality": jpeg(quality=5),
    **{f"orientation {value}": turned(value) for value in (1, 2, 3, 4, 5, 6, 7, 8, 9)},
    "png": encoded(Image.fromarray(noise(9, 8)), "PNG"),
    "transparent": encoded(Image.new("RGBA", (5, 4), (0, 0, 0, 0)), "PNG"),
    "one pixel": jpeg(1, 1),
}


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_pillow(name: str) -> None:
    picture, expected = open_picture(FILES[name]), by_pillow(FILES[name])
    np.testing.assert_array_equal(picture.decode(), expected)
    assert (picture.height, picture.width) == expected.shape[:2]


def test_pixels_of_real_photographs_are_those_of_pillow(shared: Path) -> None:
    for tar in ("wa_gldv2/train/images_000.tar", "grocery/images_001.tar"):
        with tarfile.open(shared / tar) as files:
            for member in [member for member in files if member.isfile()][:400:20]:
                stream = files.extractfile(member)
                assert stream is not None
                data = stream.read()
                np.testing.assert_array_equal(open_picture(data).decode(), by_pillow(data))


@given(st.integers(2, 1500), st.lists(st.tuples(st.floats(0.3, 1), st.integers(0, 255)), max_size=3))
def test_damaged_files_are_refused_as_pillow_refuses_them(length: int, changes: list[tuple[float, int]]) -> None:
    data = bytearray(FILES["4:2:0"][:length])
    for position, value in changes:
        data[int(position * (len(data) - 1))] = value
    results: list[Pixels | str] = []
    for decode in (by_pillow, lambda data: open_picture(data).decode()):
        try:
            results.append(decode(bytes(data)))
        except UnreadableImageError as error:
            results.append(f"{error}: {error.detail}")
    expected, result = results
    if isinstance(expected, str):
        assert isinstance(result, str)
    else:
        np.testing.assert_array_equal(result, expected)


def test_without_a_decoder_of_torchvision_pillow_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(data: bytes) -> Pixels:
        raise AttributeError("decode_jpeg")

    monkeypatch.setattr(transforms, "decode_by_torchvision", absent)
    transforms.torchvision_decodes_alike.cache_clear()
    try:
        assert not transforms.torchvision_decodes_alike()
        np.testing.assert_array_equal(open_picture(FILES["4:2:0"]).decode(), by_pillow(FILES["4:2:0"]))
    finally:
        transforms.torchvision_decodes_alike.cache_clear()


@pytest.mark.parametrize(("reduction", "shape"), [(1, (23, 37)), (2, (12, 19)), (4, (6, 10)), (8, (3, 5))])
def test_reduced_jpeg_files_are_of_the_rounded_up_size(reduction: int, shape: tuple[int, int]) -> None:
    for name, expected in {"4:2:0": shape, "orientation 6": shape[::-1], "grey": shape}.items():
        picture = open_picture(FILES[name])
        assert picture.decode(reduction).shape == (*expected, 3)
        assert (picture.height, picture.width) == ((37, 23) if "6" in name else (23, 37)), "those of the whole"


def test_a_reduced_picture_has_the_means_of_the_pixels() -> None:
    ramp = np.broadcast_to(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], (64, 64, 3))
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(ramp)).save(file, "JPEG", quality=100)
    reduced = open_picture(file.getvalue()).decode(4)
    means = ramp.reshape(16, 4, 16, 4, 3).mean((1, 3))
    np.testing.assert_allclose(reduced, means, atol=2)

"""Resizing against Pillow, whose pixels it has to have in every case."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.compute.compiled import is_compiled
from hgld.datasets import resizing
from hgld.datasets.resizing import Interpolation, Pixels, Window, resize

sides = st.integers(1, 70)
interpolations: st.SearchStrategy[Interpolation] = st.sampled_from(["bilinear", "bicubic", "lanczos"])


def noise(width: int, height: int, seed: int = 0) -> Pixels:
    """Return random pixels, half of which are black or white, where values are clipped."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.where(rng.random(pixels.shape) < 0.5, 255 * (pixels > 127), pixels).astype(np.uint8)


@st.composite
def windows(draw: st.DrawFn, width: int, height: int) -> Window:
    left, top = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return left, top, draw(st.integers(1, width - left)), draw(st.integers(1, height - top))


@given(st.data(), sides, sides, sides, sides, interpolations, st.booleans())
def test_pixels_are_those_of_pillow(
    data: st.DataObject, width: int, height: int, w: int, h: int, interpolation: Interpolation, mirrored: bool
) -> None:
    pixels = noise(width, height)
    region, window = data.draw(windows(width, height)), data.draw(windows(w, h))
    left, top, region_width, region_height = region
    cut = Image.fromarray(pixels).crop((left, top, left + region_width, top + region_height))
    expected = cut.resize((w, h), Image.Resampling[interpolation.upper()])
    left, top, window_width, window_height = window
    expected = expected.crop((left, top, left + window_width, top + window_height))
    if mirrored:
        expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    result = resize(pixels, (w, h), interpolation, region=region, window=window, mirrored=mirrored)
    np.testing.assert_array_equal(result, np.asarray(expected))
    assert result.flags.c_contiguous
    assert result.flags.writeable


@pytest.mark.parametrize("size", [(224, 224), (341, 256), (100, 250), (799, 601), (800, 90)])
def test_pixels_of_a_large_picture_are_those_of_pillow(size: tuple[int, int]) -> None:
    pixels = noise(800, 600)
    for name in ("bilinear", "lanczos"):
        expected = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling[name.upper()]))
        np.testing.assert_array_equal(resize(pixels, size, name), expected)


def test_pixels_without_compiled_loops_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = noise(50, 41)
    pixels.flags.writeable = False
    expected = resize(pixels, (33, 20), "bicubic", region=(3, 2, 40, 39), window=(1, 5, 30, 12), mirrored=True)
    monkeypatch.setenv("HGLD_COMPILE", "0")
    result = resize(pixels, (33, 20), "bicubic", region=(3, 2, 40, 39), window=(1, 5, 30, 12), mirrored=True)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.skipif(not is_compiled(), reason="there are no compiled loops")
def test_a_pillow_that_resizes_otherwise_is_used_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    by_pillow = resizing._resize_by_pillow

    def brighter(*arguments: object) -> Pixels:
        return np.minimum(by_pillow(*arguments), 254) + 1  # type: ignore[arg-type]

    monkeypatch.setattr(resizing, "_resize_by_pillow", brighter)
    resizing._order_of_passes.cache_clear()
    try:
        assert resizing._order_of_passes() is None
        black = np.zeros((4, 5, 3), np.uint8)
        assert resize(black, (2, 3), "bilinear").min() == 1
    finally:
        resizing._order_of_passes.cache_clear()

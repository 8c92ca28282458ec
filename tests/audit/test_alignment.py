"""Comparisons of two pictures: altered copies, moved cameras and things, and a slow search beside the fast one."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageEnhance, ImageOps
from scipy.ndimage import zoom

from hgld.audit import ALTERATIONS, Comparison, DuplicatesConfig, compare
from hgld.audit.grey_thumbnails import (
    N_FREQUENCIES,
    SIZE,
    WINDOWS,
    grey_thumbnail,
    inner_box,
    layouts_of_windows,
    turned,
    turned_layouts,
)


def scene(seed: int, width: int = 240, height: int = 200) -> Image.Image:
    """Noise of several sizes, as of photographs: areas, things and surfaces."""
    rng = np.random.default_rng(seed)
    values = np.zeros((height, width, 3))
    for n, weight in ((4, 0.35), (12, 0.3), (40, 0.35)):
        values += weight * zoom(rng.uniform(0, 255, (n, n, 3)), (height / n, width / n, 1), order=1)
    stretched = 128 + 1.8 * (values - 128)
    return Image.fromarray(np.clip(stretched, 10, 240).astype(np.uint8))


def compared(first: Image.Image, second: Image.Image) -> Comparison:
    return compare(grey_thumbnail(first), grey_thumbnail(second))


def relation(first: Image.Image, second: Image.Image) -> str | None:
    return DuplicatesConfig().relation(compared(first, second))


@pytest.mark.parametrize("name", ALTERATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_altered_copies_are_copies(name: str, seed: int) -> None:
    image = scene(seed)
    assert relation(image, ALTERATIONS[name](image)) == "copy"


def brighter(image: Image.Image) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(1.3)


@pytest.mark.parametrize(
    "alter",
    [
        lambda image: brighter(image.crop((15, 8, 230, 190))),
        lambda image: ImageOps.mirror(image.crop((0, 0, 220, 190))),
        lambda image: ImageOps.expand(image.crop((10, 10, 230, 190)), 15, "navy"),
        lambda image: image.crop((0, 0, 200, 200)),
    ],
    ids=["cropped and brighter", "cropped and mirrored", "cropped and bordered", "cropped on one side"],
)
def test_copies_that_are_altered_twice_are_copies(alter: Callable[[Image.Image], Image.Image]) -> None:
    assert relation(scene(5), alter(scene(5))) == "copy"


@pytest.mark.parametrize("side", range(4))
def test_borders_on_one_side_are_removed(side: int) -> None:
    border = [0, 0, 0, 0]
    border[side] = 18
    image = scene(3)
    bordered = ImageOps.expand(image, tuple(border), "white")
    left, top, right, bottom = inner_box(np.asarray(bordered.convert("L")))
    expected = [0, 0, bordered.width, bordered.height]
    expected[side] += 19 if side < 2 else -19
    assert [left, top, right, bottom] == expected
    assert relation(image, bordered) == "copy"


def test_large_areas_of_one_colour_are_no_borders() -> None:
    pixels = np.asarray(scene(1).convert("L")).copy()
    pixels[:80] = 250
    assert inner_box(pixels) == (0, 0, 240, 200)
    assert inner_box(np.full((30, 40), 7, np.uint8)) == (0, 0, 40, 30)


def test_other_scenes_are_not_related() -> None:
    comparisons = [compared(scene(first), scene(second)) for first in range(6) for second in range(first)]
    assert max(comparison.agreement for comparison in comparisons) < 0.2


def with_person(image: Image.Image, left: int) -> Image.Image:
    """Add a picture of something else, as of a person who walks past."""
    changed = image.copy()
    changed.paste(scene(99, 45, 90), (left, 80))
    return changed


def test_frames_in_which_something_moved_are_near_views() -> None:
    image = scene(2)
    assert relation(with_person(image, 20), with_person(image, 120)) == "near view"
    assert relation(with_person(image, 20), with_person(image, 20)) == "copy"


def test_moved_cameras_make_near_views() -> None:
    """Each of two parts of a scene shows what the other one lacks."""
    whole = scene(4, 300, 240)
    first, second = whole.crop((0, 0, 260, 240)), whole.crop((40, 0, 300, 240))
    assert relation(first, second) == "near view"


def test_parts_of_a_scene_that_are_shifted_by_a_pixel_are_near_views() -> None:
    """Near things move farther in the picture than distant ones when a camera moves."""
    image = scene(6)
    near = ImageChops.offset(image, 4, 0)
    moved = image.copy()
    moved.paste(near.crop((0, 100, 240, 200)), (0, 100))
    assert relation(image, moved) == "near view"


def test_the_order_of_two_images_does_not_matter() -> None:
    image = scene(7)
    for other in (image.crop((20, 10, 230, 190)), ImageOps.flip(image), with_person(image, 50), scene(8)):
        assert compared(image, other) == compared(other, image)


def test_images_without_details_are_not_related() -> None:
    blank = Image.new("RGB", (50, 40), "gray")
    assert compared(blank, blank.resize((60, 60))) == Comparison()
    assert compared(blank, scene(1)) == Comparison()


@pytest.mark.parametrize("orientation", range(8))
def test_layouts_turn_with_pictures(orientation: int) -> None:
    thumbnail = grey_thumbnail(scene(1))
    layout = layouts_of_windows(thumbnail)[0, 0]
    assert turned_layouts(layout)[orientation] == pytest.approx(
        layouts_of_windows(turned(thumbnail, orientation))[0, 0], abs=1e-5
    )


def slow_layout(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cosine transform of a picture, one coefficient after another."""
    side = len(pixels)
    places = (np.arange(side) + 0.5) / side
    layout = np.zeros((N_FREQUENCIES, N_FREQUENCIES))
    for row in range(N_FREQUENCIES):
        for column in range(N_FREQUENCIES):
            waves = np.outer(np.cos(np.pi * row * places), np.cos(np.pi * column * places))
            amplitude = np.sqrt(2) ** ((row > 0) + (column > 0)) * np.hypot(row, column) ** 0.5
            layout[row, column] = amplitude * (waves * pixels).sum()
    return np.asarray(layout / np.linalg.norm(layout)).ravel()


def test_layouts_of_windows_are_cosine_transforms() -> None:
    thumbnail = grey_thumbnail(scene(2))
    values = thumbnail - thumbnail.mean()
    windows = layouts_of_windows(thumbnail)
    assert windows[0, 0] == pytest.approx(slow_layout(values), abs=1e-4)
    place = WINDOWS.index((0.0, 0.8))
    side = round(0.8 * SIZE)
    assert windows[place, place] @ slow_layout(values[:side, :side]) > 0.99

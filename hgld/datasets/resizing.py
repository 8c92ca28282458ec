r"""Resize pictures exactly as Pillow does, in a third to two thirds of the time.

Pillow resamples in two passes, along rows and along columns, in integers: with the weights w of a filter, which is
widened by the factor of a reduction (antialiasing),

    out = clip((2^21 + sum_k round(2^22 w_k) in_k) >> 22, 0, 255)

The compiled loops compute just that, also for a part of the output alone, so that nothing is resized only to be cut
off, and mirrored without another pass. They are used where numba works and a few small pictures show that the
installed Pillow still resizes so; otherwise Pillow itself does. The pixels are the same, and a test says so.
"""

from __future__ import annotations

import functools
import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hgld.arrays import Integers
from hgld.compute.compiled import compiled, is_compiled

Interpolation = Literal["bilinear", "bicubic", "lanczos"]

#: uint8, shape (h, w, 3).
Pixels: TypeAlias = NDArray[np.uint8]

#: Left and top edge, width and height of a part of a picture, in pixels.
Window: TypeAlias = tuple[int, int, int, int]

#: Half of the width of a filter, in pixels of the smaller picture.
_SUPPORTS: dict[Interpolation, int] = {"bilinear": 1, "bicubic": 2, "lanczos": 3}


def resize(
    pixels: Pixels,
    size: tuple[int, int],
    interpolation: Interpolation,
    *,
    region: Window | None = None,
    window: Window | None = None,
    mirrored: bool = False,
) -> Pixels:
    """Resize a region of a picture by Pillow's algorithm, and return a part of the result.

    Args:
        pixels: uint8, shape (h, w, 3).
        size: Width and height of the whole result.
        interpolation: Interpolation between pixels.
        region: Part of the picture to resize; pixels outside it have no effect. Default: everything.
        window: Part of the result to return. Default: everything.
        mirrored: Whether to exchange left and right of that part.

    Returns:
        uint8, shape (window height, window width, 3), contiguous and writable.

    Raises:
        ValueError: The region or the window is empty, or not within the picture or the result.

    >>> resize(np.array([[[0] * 3, [255] * 3]], np.uint8), (4, 1), "bilinear")[0, :, 0].tolist()
    [0, 64, 191, 255]
    """
    region = region or (0, 0, pixels.shape[1], pixels.shape[0])
    window = window or (0, 0, *size)
    _require_inside(region, (pixels.shape[1], pixels.shape[0]))
    _require_inside(window, size)
    order = _order_of_passes() if is_compiled() else None
    if order is None:
        return _resize_by_pillow(pixels, size, interpolation, region, window, mirrored)
    fewer_rows, fewer_columns = region[3] - size[1], region[2] - size[0]
    vertical_first = order == "by_size" and fewer_rows > max(2 * fewer_columns, 0)
    return _resize_compiled(pixels, size, interpolation, region, window, mirrored, vertical_first)


def _require_inside(window: Window, size: tuple[int, int]) -> None:
    """Check a window before compiled loops, which read whatever lies at an index."""
    left, top, width, height = window
    if left < 0 or top < 0 or width < 1 or height < 1 or left + width > size[0] or top + height > size[1]:
        raise ValueError(
            f"{width} x {height} pixels from column {left} and row {top} are not within {size[0]} x {size[1]} pixels"
        )


def prepare_resizing() -> None:
    """Load or compile the loops, so that worker processes that are forked from this one need not do so each."""
    if is_compiled():
        _order_of_passes()


def _resize_by_pillow(
    pixels: Pixels,
    size: tuple[int, int],
    interpolation: Interpolation,
    region: Window,
    window: Window,
    mirrored: bool,
) -> Pixels:
    image = Image.fromarray(np.ascontiguousarray(_cut(pixels, region)))
    part = _cut(np.asarray(image.resize(size, Image.Resampling[interpolation.upper()])), window)
    return np.array(part[:, ::-1] if mirrored else part, order="C")


def _cut(pixels: Pixels, window: Window) -> Pixels:
    left, top, width, height = window
    return pixels[top : top + height, left : left + width]


@functools.cache
def _order_of_passes() -> Literal["horizontal_first", "by_size"] | None:
    """Return in which order the installed Pillow resizes; None if it is neither of those known.

    Up to Pillow 12, rows are always resampled first; since Pillow 13, columns are where the height loses more than
    twice as many pixels as the width. Intermediate results are rounded, so the order shows in the pixels.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (40, 24, 3), dtype=np.uint8)
    cases: list[tuple[tuple[int, int], Interpolation]] = [
        ((13, 33), "bilinear"),
        ((33, 13), "bilinear"),
        ((20, 31), "bicubic"),
        ((20, 32), "lanczos"),
        ((47, 64), "bilinear"),
    ]
    expected = [_resize_by_pillow(pixels, size, name, (0, 0, 24, 40), (0, 0, *size), False) for size, name in cases]
    orders: tuple[Literal["horizontal_first", "by_size"], ...] = ("horizontal_first", "by_size")
    for order in orders:
        verticals = [order == "by_size" and 40 - h > max(2 * (24 - w), 0) for (w, h), _ in cases]
        results = [
            _resize_compiled(pixels, size, name, (0, 0, 24, 40), (0, 0, *size), False, vertical)
            for (size, name), vertical in zip(cases, verticals, strict=True)
        ]
        if all(map(np.array_equal, results, expected)):
            return order
    return None


def _resize_compiled(
    pixels: Pixels,
    size: tuple[int, int],
    interpolation: Interpolation,
    region: Window,
    window: Window,
    mirrored: bool,
    vertical_first: bool,
) -> Pixels:
    left, top, width, height = window
    support = _SUPPORTS[interpolation]
    # One row of the arrays below is one of the picture; a single type of argument is compiled once.
    lines = np.require(pixels, np.uint8, ["C", "W"]).reshape(len(pixels), -1)
    x_starts, x_counts, x_weights = _weights(support, region[2], size[0], left, width)
    y_starts, y_counts, y_weights = _weights(support, region[3], size[1], top, height)
    if mirrored:
        x_starts, x_counts = np.ascontiguousarray(x_starts[::-1]), np.ascontiguousarray(x_counts[::-1])
        x_weights = np.ascontiguousarray(x_weights[::-1])
    x_starts += region[0]
    y_starts += region[1]
    if vertical_first:
        first, last = int(x_starts.min()), int((x_starts + x_counts).max())
        lines = _resample_columns(lines, y_starts, y_counts, y_weights, 3 * first, 3 * (last - first))
        lines = _resample_rows(lines, x_starts - first, x_counts, x_weights, 0, height)
    else:
        first, last = int(y_starts.min()), int((y_starts + y_counts).max())
        lines = _resample_rows(lines, x_starts, x_counts, x_weights, first, last - first)
        lines = _resample_columns(lines, y_starts - first, y_counts, y_weights, 0, 3 * width)
    resized: Pixels = lines.reshape(height, width, 3)
    return resized


@compiled()
def _weights(
    support: int, n_in: int, n_out: int, first: int, count: int
) -> tuple[Integers, Integers, NDArray[np.int32]]:
    """Return the weights of input pixels for each of ``count`` output pixels from ``first``.

    Returns:
        First input pixel, int64, shape (count,); number of input pixels, int64, shape (count,); weights, int32, shape
        (count, K), 0 after those.
    """
    scale = n_in / n_out
    widening = max(scale, 1.0)
    reach = support * widening
    n_weights = math.ceil(reach) * 2 + 1
    starts, counts = np.empty(count, np.int64), np.empty(count, np.int64)
    weights = np.zeros((count, n_weights), np.int32)
    values = np.empty(n_weights, np.float64)
    for i in range(count):
        centre = (first + i + 0.5) * scale
        start = max(int(centre - reach + 0.5), 0)
        n = min(int(centre + reach + 0.5), n_in) - start
        total = 0.0
        for k in range(n):
            x = (k + start - centre + 0.5) * (1.0 / widening)
            value = 0.0
            if support == 1:
                if abs(x) < 1.0:
                    value = 1.0 - abs(x)
            elif support == 2:
                x = abs(x)
                if x < 1.0:
                    value = (1.5 * x - 2.5) * x * x + 1.0
                elif x < 2.0:
                    value = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
            elif -3.0 <= x < 3.0:
                value = 1.0
                if x != 0.0:
                    value = math.sin(x * math.pi) / (x * math.pi)
                    x = x / 3.0
                    value *= math.sin(x * math.pi) / (x * math.pi)
            values[k] = value
            total += value
        for k in range(n):
            value = values[k] / total if total != 0.0 else values[k]
            weights[i, k] = int(value * 4194304.0 + (0.5 if value >= 0 else -0.5))
        starts[i], counts[i] = start, n
    return starts, counts, weights


@compiled()
def _resample_rows(
    lines: Pixels, starts: Integers, counts: Integers, weights: NDArray[np.int32], first: int, n_lines: int
) -> Pixels:
    """Resample ``n_lines`` rows from ``first``: uint8, shape (h, 3 w), to (n_lines, 3 n) for n weights.

    Indices are unsigned, as otherwise numba checks each for being negative, which takes twice as long as the rest.
    """
    n = len(starts)
    result = np.empty((n_lines, 3 * n), np.uint8)
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for y in range(n_lines):
        line = lines[first + y]
        for x in range(n):
            position = np.uint64(3 * starts[x])
            red, green, blue = np.int32(1 << 21), np.int32(1 << 21), np.int32(1 << 21)
            for k in range(counts[x]):
                weight = weights[x, np.uint64(k)]
                red = np.int32(red + np.int32(line[position]) * weight)
                green = np.int32(green + np.int32(line[position + one]) * weight)
                blue = np.int32(blue + np.int32(line[position + two]) * weight)
                position += three
            position = np.uint64(3 * x)
            result[y, position] = min(max(red >> 22, 0), 255)
            result[y, position + one] = min(max(green >> 22, 0), 255)
            result[y, position + two] = min(max(blue >> 22, 0), 255)
    return result


@compiled()
def _resample_columns(
    lines: Pixels, starts: Integers, counts: Integers, weights: NDArray[np.int32], first: int, length: int
) -> Pixels:
    """Resample ``length`` columns from ``first``: uint8, shape (h, 3 w), to (n, length) for n weights."""
    n = len(starts)
    result = np.empty((n, length), np.uint8)
    sums = np.empty(length, np.int32)
    for y in range(n):
        sums[:] = np.int32(1 << 21)
        for k in range(counts[y]):
            weight = weights[y, k]
            line = lines[starts[y] + k, first : first + length]
            for x in range(length):
                sums[x] += np.int32(line[x]) * weight
        for x in range(length):
            result[y, x] = min(max(sums[x] >> 22, 0), 255)
    return result

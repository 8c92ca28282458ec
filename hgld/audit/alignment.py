"""Compare two thumbnails as photographs of one exposure or of one scene.

The search for windows, turned and mirrored, by their layouts gives a first alignment, which is refined by least
squares from coarse to fine copies of the thumbnails. Then each block of one thumbnail is correlated with the part of
the other one that lies on it. Nearly all blocks of altered copies agree, whatever happened to their colours. Where a
camera or things in front of it moved, only some blocks do. The result depends on the two thumbnails alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform, gaussian_filter

from hgld.audit.grey_thumbnails import (
    N_ORIENTATIONS,
    SIZE,
    WINDOWS,
    layouts_of_windows,
    turned,
    turned_layouts,
)

#: Correlation of layouts below which two images are not aligned.
_LEAST_LAYOUT = 0.77
#: Sides of the copies that the alignment is refined on, the standard deviation of the blur that is subtracted from
#: them, the number of steps, and the correlation below which refinement ends without a result.
_LEVELS = ((16, 2.0, 4, 0.4), (32, 2.7, 6, 0.4), (64, 5.3, 6, 0.5))
#: Number of steps with the details of blocks, which follow.
_LAST_STEPS = 3
#: Share of the pixels that lie on one another below which images are not aligned.
_LEAST_OVERLAP = 0.4
#: Smallest side of a window, as a share of the side, that is looked at.
_SMALLEST_SIDE = 0.3
#: Contrast in grey levels that is noise.
_NOISE = 2.0
#: Step of the alignment, as a share of the side, after which it has converged, and the largest step.
_LAST_STEP, _LARGEST_STEP = 3e-4, 0.06
#: Standard deviations of the blurs between which the details of blocks lie.
_FINE, _COARSE = 1.0, 5.0
#: Side of blocks in pixels; standard deviation from which a block has details; correlation from which it agrees.
_BLOCK, _LEAST_DETAILS, _LEAST_CORRELATION = 16, 1.5, 0.7
#: Shift in pixels up to which a block is in place.
_LARGEST_SHIFT = 0.5
#: Grey levels outside of which pixels may have been clipped, and are not compared.
_DARKEST, _BRIGHTEST = 6, 248
#: Number of blocks with details below which images cannot be compared.
_LEAST_BLOCKS = 6
#: Share of the smaller view that lies inside the other one, and its sides, from which it may be a crop of the other.
_CROP_INSIDE, _CROP_SIDE = 0.97, 0.75


#: Function that returns the details of a picture, of the shape of the picture.
_Details: TypeAlias = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
class Comparison:
    """Result for two images.

    Args:
        agreement: Share of the details, by their standard deviations, that lie in blocks in which the aligned images
            correlate; 0 if they cannot be aligned, or too few blocks have details.
        agreement_in_place: Share of the details in blocks that correlate and are not shifted either.
        is_crop: Whether one image lies inside the other, as the whole image or a crop of it does.
    """

    agreement: float = 0.0
    agreement_in_place: float = 0.0
    is_crop: bool = False


@dataclass(frozen=True)
class _Window:
    """Part of a thumbnail that another thumbnail lies on, in shares of the sides; it may extend beyond the edges."""

    top: float
    left: float
    height: float
    width: float

    def moved(self, steps: NDArray[np.float64]) -> _Window:
        return _Window(
            self.top + steps[0], self.left + steps[1], self.height + steps[2], self.width + steps[3]
        )

    def is_crop(self) -> bool:
        """Return whether the window lies inside the thumbnail, or around it, and the smaller one is not too small."""
        shared = 1.0
        for start, size in ((self.top, self.height), (self.left, self.width)):
            if min(size, 1 / size) < _CROP_SIDE:
                return False
            shared *= max(min(start + size, 1.0) - max(start, 0.0), 0.0)
        return shared >= _CROP_INSIDE * min(self.height * self.width, 1.0)

    def of(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the window of a square picture, of the size of the picture, with its edges continued."""
        side = len(pixels)
        first = [self.top * side + self.height / 2 - 0.5, self.left * side + self.width / 2 - 0.5]
        return np.asarray(
            affine_transform(pixels, [self.height, self.width], first, order=1, mode="nearest")
        )

    def inside(self, side: int) -> NDArray[np.bool_]:
        """Return which pixels of the window, of shape (side, side), lie inside of the picture."""
        places = (np.arange(side) + 0.5) / side
        rows, columns = self.top + self.height * places, self.left + self.width * places
        inside_rows, inside_columns = (rows >= 0) & (rows <= 1), (columns >= 0) & (columns <= 1)
        return np.asarray(inside_rows[:, None] & inside_columns)


def compare(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> Comparison:
    """Compare two thumbnails, uint8, shape (SIZE, SIZE); the order of the two does not matter."""
    if second.tobytes() < first.tobytes():
        first, second = second, first
    first_layouts, second_layouts = layouts_of_windows(first), layouts_of_windows(second)
    first_match = _best_window(first_layouts, second_layouts)
    second_match = _best_window(second_layouts, first_layouts)
    if max(first_match.correlation, second_match.correlation) < _LEAST_LAYOUT:
        return Comparison()
    if first_match.correlation >= second_match.correlation:
        whole, part, match = first, second, first_match
    else:
        whole, part, match = second, first, second_match
    part = turned(part, match.orientation)
    window = _aligned(whole, part, match.window)
    if window is None:
        return Comparison()
    return Comparison(*_compare_blocks(whole, part, window), window.is_crop())


@dataclass(frozen=True)
class _Match:
    """Window of one thumbnail, the orientation of another one, and the correlation of their layouts."""

    window: _Window
    orientation: int
    correlation: float


def _best_window(windows: NDArray[np.float32], others: NDArray[np.float32]) -> _Match:
    """Return the window of one thumbnail that is most similar to another thumbnail, turned in any way."""
    orientations = np.stack(turned_layouts(others[0, 0]), axis=1)
    correlations = windows @ orientations
    row, column, orientation = np.unravel_index(
        correlations.argmax(), (len(WINDOWS), len(WINDOWS), N_ORIENTATIONS)
    )
    (top, height), (left, width) = WINDOWS[row], WINDOWS[column]
    return _Match(_Window(top, left, height, width), int(orientation), float(correlations.max()))


def _aligned(whole: NDArray[np.uint8], part: NDArray[np.uint8], window: _Window) -> _Window | None:
    """Return the window of one thumbnail that the other one lies on, to a fraction of a pixel; None without any."""
    for side, blur, n_steps, least_correlation in _LEVELS:
        details = partial(_even_details, blur=blur)
        window, correlation = _refined(
            _shrunk(whole, side), _shrunk(part, side), window, details, n_steps
        )
        if correlation < least_correlation or min(window.height, window.width) < _SMALLEST_SIDE:
            return None
    window, _ = _refined(
        whole.astype(np.float32), part.astype(np.float32), window, _block_details, _LAST_STEPS
    )
    return window


def _refined(
    whole: NDArray[np.float32],
    part: NDArray[np.float32],
    window: _Window,
    details: _Details,
    n_steps: int,
) -> tuple[_Window, float]:
    """Return a better window and the correlation of the details in it, -1 if the two hardly overlap.

    Each step solves the linear least-squares problem for the four numbers of the window (Lucas and Kanade, 1981).
    """
    side = len(whole)
    places = (np.arange(side) + 0.5) / side
    all_expected = details(part)
    correlation = -1.0
    for _ in range(n_steps):
        inside = window.inside(side)
        if inside.mean() < _LEAST_OVERLAP:
            return window, -1.0
        all_seen = details(window.of(whole))
        row_gradients, column_gradients = np.asarray(np.gradient(all_seen))
        seen, expected = all_seen[inside], all_expected[inside]
        squares, products = float(seen @ seen), float(seen @ expected)
        correlation = products / math.sqrt(max(squares * float(expected @ expected), 1e-6))
        contrast = max(products / max(squares, 1e-6), 1e-3)
        by_rows = row_gradients[inside] * (side * contrast / window.height)
        by_columns = column_gradients[inside] * (side * contrast / window.width)
        rows, columns = inside.nonzero()
        changes = np.stack(
            [by_rows, by_columns, by_rows * places[rows], by_columns * places[columns]], axis=1
        )
        normal_matrix = changes.T @ changes
        normal_matrix += np.eye(4) * (1e-3 * np.trace(normal_matrix) / 4 + 1e-6)
        steps = np.linalg.solve(normal_matrix, changes.T @ (expected - contrast * seen))
        steps = np.clip(steps, -_LARGEST_STEP, _LARGEST_STEP)
        window = window.moved(steps)
        if np.abs(steps).max() < _LAST_STEP or min(window.height, window.width) < _SMALLEST_SIDE:
            break
    return window, correlation


def _shrunk(thumbnail: NDArray[np.uint8], side: int) -> NDArray[np.float32]:
    factor = SIZE // side
    return np.asarray(
        thumbnail.reshape(side, factor, side, factor).mean(axis=(1, 3), dtype=np.float32)
    )


def _even_details(pixels: NDArray[np.float32], blur: float) -> NDArray[np.float32]:
    """Return a picture minus a blurred version of it, divided by the contrast around each pixel."""
    details = pixels - gaussian_filter(pixels, blur, mode="nearest")
    contrast = np.sqrt(gaussian_filter(details**2, blur, mode="nearest"))
    return np.asarray(details / (contrast + _NOISE), np.float32)


def _block_details(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the details of a picture between two sizes."""
    return np.asarray(gaussian_filter(pixels, _FINE) - gaussian_filter(pixels, _COARSE), np.float32)


def _compare_blocks(
    whole: NDArray[np.uint8], part: NDArray[np.uint8], window: _Window
) -> tuple[float, float]:
    """Return the share of the details of blocks that agree, and of those that agree in place."""
    grey = window.of(whole.astype(np.float32))
    seen, expected = _block_details(grey), _block_details(part.astype(np.float32))
    compared = (grey > _DARKEST) & (grey < _BRIGHTEST) & (part > _DARKEST) & (part < _BRIGHTEST)
    compared &= window.inside(SIZE)
    weights = _blocks(compared.astype(np.float32))
    n_pixels = weights.sum(axis=1, keepdims=True)
    enough = n_pixels[:, 0] >= _BLOCK**2 / 2
    weights, n_pixels = weights[enough], n_pixels[enough]
    gradients = np.asarray(np.gradient(expected))
    row_gradients, column_gradients = (_blocks(values)[enough] * weights for values in gradients)
    seen, expected = _blocks(seen)[enough], _blocks(expected)[enough]
    seen = (seen - (seen * weights).sum(axis=1, keepdims=True) / n_pixels) * weights
    expected = (expected - (expected * weights).sum(axis=1, keepdims=True) / n_pixels) * weights
    squares, expected_squares = (seen**2).sum(axis=1), (expected**2).sum(axis=1)
    contrast = squares.sum() / max(expected_squares.sum(), 1e-6)
    details = np.sqrt(np.maximum(squares, contrast * expected_squares) / n_pixels[:, 0])
    details[details < _LEAST_DETAILS] = 0
    if np.count_nonzero(details) < _LEAST_BLOCKS:
        return 0.0, 0.0
    products = (seen * expected).sum(axis=1)
    agree = products >= _LEAST_CORRELATION * np.sqrt(np.maximum(squares * expected_squares, 1e-6))
    differences = seen * (products / np.maximum(squares, 1e-6))[:, None] - expected
    in_place = _shifts(row_gradients, column_gradients, differences) <= _LARGEST_SHIFT
    return float(details[agree].sum() / details.sum()), float(
        details[agree & in_place].sum() / details.sum()
    )


def _shifts(
    row_gradients: NDArray[np.float32],
    column_gradients: NDArray[np.float32],
    differences: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return by how many pixels each block is shifted, by least squares; all arguments are of shape (n, pixels)."""
    gradients = np.stack([row_gradients, column_gradients], axis=1)
    products = gradients @ gradients.swapaxes(1, 2)
    damping = 0.05 * np.trace(products, axis1=1, axis2=2) + 1e-3
    products += damping[:, None, None] * np.eye(2, dtype=np.float32)
    shifts = np.linalg.solve(products, gradients @ differences[:, :, None])
    return np.asarray(np.hypot(shifts[:, 0, 0], shifts[:, 1, 0]))


def _blocks(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the pixels of each block, shape (n, _BLOCK ** 2)."""
    n = SIZE // _BLOCK
    return np.asarray(pixels.reshape(n, _BLOCK, n, _BLOCK).swapaxes(1, 2).reshape(n * n, _BLOCK**2))

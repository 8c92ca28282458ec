"""Compare two thumbnails as photographs of one exposure or of one scene.

Layouts of windows, turned and mirrored, give a first alignment, which is refined by least squares from
coarse to fine copies of the thumbnails. Then each block of one thumbnail is correlated with the part
of the other thumbnail at its place. In altered copies nearly all blocks agree, even if the colours
changed. If the camera or things in front of it moved, only some blocks agree. The result depends only
on the two thumbnails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from scipy.ndimage import affine_transform, gaussian_filter

from hgld.arrays import Booleans, Floats, Floats32, Pixels
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
#: Steps of the refinement: side of the copies, standard deviation of the blur that is subtracted from
#: them, number of iterations, and correlation below which the refinement ends without a result.
_LEVELS = ((16, 2.0, 4, 0.4), (32, 2.7, 6, 0.4), (64, 5.3, 6, 0.5))
#: Number of iterations with the details of blocks, which follow.
_LAST_STEPS = 3
#: Share of overlapping pixels below which images are not aligned.
_LEAST_OVERLAP = 0.4
#: Smallest side of a window, as a share of the side of the thumbnail.
_SMALLEST_SIDE = 0.3
#: Contrast in grey levels that is noise.
_NOISE = 2.0
#: Change of the alignment, as a share of the side, after which it has converged.
_LAST_STEP = 3e-4
#: Largest change of the alignment in one iteration, as a share of the side.
_LARGEST_STEP = 0.06
#: Standard deviations of the two blurs whose difference gives the details of blocks.
_FINE = 1.0
_COARSE = 5.0
#: Side of blocks in pixels.
_BLOCK = 16
#: Standard deviation from which a block has details.
_LEAST_DETAILS = 1.5
#: Correlation from which a block agrees.
_LEAST_CORRELATION = 0.7
#: Shift in pixels up to which a block is in place.
_LARGEST_SHIFT = 0.5
#: Darker and brighter pixels may have been clipped, and are not compared; in grey levels.
_DARKEST = 6
_BRIGHTEST = 248
#: Number of blocks with details below which images cannot be compared.
_LEAST_BLOCKS = 6
#: Share of the smaller view that lies inside the larger view of a crop, at least.
_CROP_INSIDE = 0.97
#: Smallest side of a crop, as a share of the side of the whole image.
_CROP_SIDE = 0.75


#: Function that returns the details of a picture, of the shape of the picture.
_Details: TypeAlias = Callable[[Floats32], Floats32]


@dataclass(frozen=True)
class Comparison:
    """Result of the comparison of two images.

    Args:
        agreement: Share of the details, by their standard deviations, in blocks in which the aligned
            images correlate; 0 if they cannot be aligned, or too few blocks have details.
        agreement_in_place: Share of the details in blocks that correlate and are not shifted.
        is_crop: Whether one image lies inside the other, like an image and its crop.
    """

    agreement: float = 0.0
    agreement_in_place: float = 0.0
    is_crop: bool = False


@dataclass(frozen=True)
class _Window:
    """Part of a thumbnail at which another thumbnail lies, in shares of the sides.

    It may extend beyond the edges.
    """

    top: float
    left: float
    height: float
    width: float

    def moved(self, steps: Floats) -> _Window:
        """Return the window with top, left, height and width changed by four steps."""
        top, left, height, width = steps
        return _Window(self.top + top, self.left + left, self.height + height, self.width + width)

    def is_crop(self) -> bool:
        """Return whether the window lies inside the thumbnail or around it, and neither is too small."""
        shared = 1.0
        for start, size in ((self.top, self.height), (self.left, self.width)):
            if min(size, 1 / size) < _CROP_SIDE:
                return False
            shared *= max(min(start + size, 1.0) - max(start, 0.0), 0.0)
        return shared >= _CROP_INSIDE * min(self.height * self.width, 1.0)

    def cut_from(self, pixels: Floats32) -> Floats32:
        """Return the window of a square picture, scaled to the size of the picture, with edges continued."""
        side = len(pixels)
        first_row = self.top * side + self.height / 2 - 0.5
        first_column = self.left * side + self.width / 2 - 0.5
        scales = [self.height, self.width]
        offsets = [first_row, first_column]
        return np.asarray(affine_transform(pixels, scales, offsets, order=1, mode="nearest"))

    def inside(self, side: int) -> Booleans:
        """Return a mask of the pixels of the window, shape (side, side), that lie in the picture."""
        places = (np.arange(side) + 0.5) / side
        rows = self.top + self.height * places
        columns = self.left + self.width * places
        row_is_inside = (rows >= 0) & (rows <= 1)
        column_is_inside = (columns >= 0) & (columns <= 1)
        return np.asarray(row_is_inside[:, None] & column_is_inside)


def compare(first: Pixels, second: Pixels) -> Comparison:
    """Compare two thumbnails, uint8, shape (SIZE, SIZE); the order of the two does not matter."""
    if second.tobytes() < first.tobytes():
        first, second = second, first
    first_layouts = layouts_of_windows(first)
    second_layouts = layouts_of_windows(second)
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
    agreement, agreement_in_place = _compare_blocks(whole, part, window)
    return Comparison(agreement, agreement_in_place, window.is_crop())


@dataclass(frozen=True)
class _Match:
    """Window of one thumbnail, orientation of another thumbnail, and correlation of their layouts."""

    window: _Window
    orientation: int
    correlation: float


def _best_window(windows: Floats32, others: Floats32) -> _Match:
    """Return the window of one thumbnail that is most similar to another thumbnail in any orientation.

    Args:
        windows: Layouts of all windows of the thumbnail.
        others: Layouts of all windows of the other thumbnail, whose first window is the whole.
    """
    orientations = np.stack(turned_layouts(others[0, 0]), axis=1)
    correlations = windows @ orientations
    row, column, orientation = np.unravel_index(
        correlations.argmax(), (len(WINDOWS), len(WINDOWS), N_ORIENTATIONS)
    )
    top, height = WINDOWS[row]
    left, width = WINDOWS[column]
    window = _Window(top, left, height, width)
    return _Match(window, int(orientation), float(correlations.max()))


def _aligned(whole: Pixels, part: Pixels, window: _Window) -> _Window | None:
    """Return the window of one thumbnail at which the other lies, to a fraction of a pixel; or None."""
    for side, blur, n_steps, least_correlation in _LEVELS:
        details = partial(_even_details, blur=blur)
        shrunk_whole = _shrunk(whole, side)
        shrunk_part = _shrunk(part, side)
        window, correlation = _refined(shrunk_whole, shrunk_part, window, details, n_steps)
        if correlation < least_correlation or min(window.height, window.width) < _SMALLEST_SIDE:
            return None
    window, _ = _refined(
        whole.astype(np.float32), part.astype(np.float32), window, _block_details, _LAST_STEPS
    )
    return window


def _refined(
    whole: Floats32,
    part: Floats32,
    window: _Window,
    details: _Details,
    n_steps: int,
) -> tuple[_Window, float]:
    """Return a better window and the correlation of the details in it, -1 if the two hardly overlap.

    Each iteration solves the linear least-squares problem for the four numbers of the window (Lucas and
    Kanade, 1981).

    Args:
        whole: Picture in which the window is.
        part: Picture that lies at the window.
        window: First estimate.
        details: Function that returns the details of a picture.
        n_steps: Largest number of iterations.
    """
    side = len(whole)
    places = (np.arange(side) + 0.5) / side
    all_expected = details(part)
    correlation = -1.0
    for _ in range(n_steps):
        inside = window.inside(side)
        if inside.mean() < _LEAST_OVERLAP:
            return window, -1.0
        all_seen = details(window.cut_from(whole))
        row_gradients, column_gradients = np.asarray(np.gradient(all_seen))
        seen = all_seen[inside]
        expected = all_expected[inside]
        squares = float(seen @ seen)
        products = float(seen @ expected)
        norms = math.sqrt(max(squares * float(expected @ expected), 1e-6))
        correlation = products / norms
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


def _shrunk(thumbnail: Pixels, side: int) -> Floats32:
    """Return a smaller thumbnail by averaging pixels."""
    factor = SIZE // side
    blocks = thumbnail.reshape(side, factor, side, factor)
    return np.asarray(blocks.mean(axis=(1, 3), dtype=np.float32))


def _even_details(pixels: Floats32, blur: float) -> Floats32:
    """Return a picture minus its blurred version, divided by the contrast around each pixel."""
    details = pixels - gaussian_filter(pixels, blur, mode="nearest")
    contrast = np.sqrt(gaussian_filter(details**2, blur, mode="nearest"))
    return np.asarray(details / (contrast + _NOISE), np.float32)


def _block_details(pixels: Floats32) -> Floats32:
    """Return the details of a picture at a range of sizes, by a difference of two blurs."""
    details = gaussian_filter(pixels, _FINE) - gaussian_filter(pixels, _COARSE)
    return np.asarray(details, np.float32)


def _compare_blocks(whole: Pixels, part: Pixels, window: _Window) -> tuple[float, float]:
    """Return the share of the details in blocks that agree, and in blocks that agree in place."""
    grey = window.cut_from(whole.astype(np.float32))
    is_compared = (grey > _DARKEST) & (grey < _BRIGHTEST) & (part > _DARKEST) & (part < _BRIGHTEST)
    is_compared &= window.inside(SIZE)
    weights = _blocks(is_compared.astype(np.float32))
    has_enough = weights.sum(axis=1) >= _BLOCK**2 / 2
    weights = weights[has_enough]
    n_pixels = weights.sum(axis=1, keepdims=True)
    expected_picture = _block_details(part.astype(np.float32))
    row_gradients, column_gradients = np.asarray(np.gradient(expected_picture))
    row_gradients = _blocks(row_gradients)[has_enough] * weights
    column_gradients = _blocks(column_gradients)[has_enough] * weights
    seen = _centred(_blocks(_block_details(grey))[has_enough], weights, n_pixels)
    expected = _centred(_blocks(expected_picture)[has_enough], weights, n_pixels)
    squares = (seen**2).sum(axis=1)
    expected_squares = (expected**2).sum(axis=1)
    contrast = squares.sum() / max(expected_squares.sum(), 1e-6)
    details = np.sqrt(np.maximum(squares, contrast * expected_squares) / n_pixels[:, 0])
    details[details < _LEAST_DETAILS] = 0
    if np.count_nonzero(details) < _LEAST_BLOCKS:
        return 0.0, 0.0
    products = (seen * expected).sum(axis=1)
    norms = np.sqrt(np.maximum(squares * expected_squares, 1e-6))
    agrees = products >= _LEAST_CORRELATION * norms
    differences = seen * (products / np.maximum(squares, 1e-6))[:, None] - expected
    is_in_place = _shifts(row_gradients, column_gradients, differences) <= _LARGEST_SHIFT
    total = details.sum()
    return float(details[agrees].sum() / total), float(details[agrees & is_in_place].sum() / total)


def _centred(values: Floats32, weights: Floats32, n_pixels: Floats32) -> Floats32:
    """Return the values of blocks minus their weighted means, times the weights."""
    means = (values * weights).sum(axis=1, keepdims=True) / n_pixels
    centred: Floats32 = (values - means) * weights
    return centred


def _shifts(
    row_gradients: Floats32,
    column_gradients: Floats32,
    differences: Floats32,
) -> Floats32:
    """Return the shift of each block in pixels; arguments have the shape (n, pixels)."""
    gradients = np.stack([row_gradients, column_gradients], axis=1)
    products = gradients @ gradients.swapaxes(1, 2)
    damping = 0.05 * np.trace(products, axis1=1, axis2=2) + 1e-3
    products += damping[:, None, None] * np.eye(2, dtype=np.float32)
    shifts = np.linalg.solve(products, gradients @ differences[:, :, None])
    return np.asarray(np.hypot(shifts[:, 0, 0], shifts[:, 1, 0]))


def _blocks(pixels: Floats32) -> Floats32:
    """Return the pixels of each block, shape (n, _BLOCK**2)."""
    n = SIZE // _BLOCK
    return np.asarray(pixels.reshape(n, _BLOCK, n, _BLOCK).swapaxes(1, 2).reshape(n * n, _BLOCK**2))

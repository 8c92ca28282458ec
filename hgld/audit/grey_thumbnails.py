"""Grey thumbnails of images without borders, and vectors that find similar thumbnails.

The vector of a thumbnail, its layout, holds the coefficients of the cosine transform at low
frequencies. Mirroring, flipping and quarter turns only change the signs and the order of coefficients,
so one search of the layouts also finds turned images.
"""

from __future__ import annotations

import hashlib
from itertools import product

import numpy as np
from PIL import Image

from hgld.arrays import Floats32, Pixels
from hgld.datasets.encoded_images import EncodedImages
from hgld.errors import InputError
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from hgld.progress import NoProgress, Progress

#: Side of thumbnails in pixels.
SIZE = 128
#: Number of frequencies on each axis of a layout.
N_FREQUENCIES = 8
#: Largest share of a side that is removed as a border. A larger area of one colour is sky or background.
_LARGEST_BORDER = 0.2
#: Largest mean difference of the first line of a border from its colour, in grey levels.
_FIRST_LINE = 3
#: Largest mean difference of the next lines, which compression may have changed.
_NEXT_LINES = 8
#: Smallest mean difference of the first line of the picture after a border. Skies end more smoothly.
_EDGE = 20
#: Start and size of windows on one axis, as shares of the side.
WINDOWS = (
    (0.0, 1.0),
    (0.0, 0.9),
    (0.05, 0.9),
    (0.1, 0.9),
    (0.0, 0.8),
    (0.05, 0.8),
    (0.1, 0.8),
    (0.15, 0.8),
    (0.2, 0.8),
)
#: Number of ways to mirror, flip and turn an image by quarters.
N_ORIENTATIONS = 8


def read_thumbnails(
    encoded: EncodedImages, progress: Progress | None = None
) -> tuple[Pixels, list[bytes | None], dict[str, str]]:
    """Read the thumbnails of N images and digests of the images.

    Returns:
        Thumbnails, uint8, shape (N, SIZE, SIZE), black for unreadable images; digests, which are equal
        for equal files, and for equal pixels of images of one colour, None for unreadable images; and
        the reasons why images could not be read, by their ids.

    Raises:
        InputError: No image can be read.
    """
    progress = progress or NoProgress()
    n_images = len(encoded.manifest)
    thumbnails = np.zeros((n_images, SIZE, SIZE), np.uint8)
    unreadable: dict[str, str] = {}
    digests: list[bytes | None] = [None] * n_images
    progress.start(n_images)
    for row in range(n_images):
        try:
            content = encoded.read(row)
            thumbnails[row] = grey_thumbnail(upright_rgb(open_image(content), SIZE))
            digests[row] = _digest(content, thumbnails[row])
        except UnreadableImageError as error:
            unreadable[encoded.manifest.ids[row]] = error.description
        progress.advance()
    if len(unreadable) == n_images:
        image, reason = next(iter(unreadable.items()))
        raise InputError(f"{encoded.root}: no image can be read; {image}: {reason}")
    return thumbnails, digests, unreadable


def _digest(content: bytes, thumbnail: Pixels) -> bytes:
    """Return a digest of a file, or of the pixels of an image of one colour."""
    if thumbnail.min() < thumbnail.max():
        return hashlib.sha256(content).digest()
    image = upright_rgb(open_image(content))
    return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).digest()


def grey_thumbnail(image: Image.Image) -> Pixels:
    """Return a grey copy without single-coloured borders, scaled to SIZE x SIZE pixels."""
    grey = image.convert("L")
    inner = grey.crop(inner_box(np.asarray(grey)))
    return np.asarray(inner.resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def inner_box(pixels: Pixels) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a grey picture without its borders.

    >>> pixels = np.tile(np.arange(40, dtype=np.uint8) * 6, (40, 1))
    >>> inner_box(pixels)
    (0, 0, 40, 40)
    >>> pixels[:3] = 255
    >>> inner_box(pixels)
    (0, 4, 40, 40)
    """
    height, width = pixels.shape
    top = _border_width(pixels)
    bottom = height - _border_width(pixels[::-1])
    columns = pixels[top:bottom].T
    left = _border_width(columns)
    right = width - _border_width(columns[::-1])
    return left, top, right, bottom


def _border_width(lines: Pixels) -> int:
    """Return the number of lines of a border, with one more line, into which the border is blurred."""
    colour = np.median(lines[0])
    most_lines = int(_LARGEST_BORDER * len(lines))
    differences = np.abs(lines[: most_lines + 2].astype(np.float32) - colour).mean(axis=1)
    n_lines = int(np.argmax(differences > _NEXT_LINES))  # 0 if all lines have this colour
    if differences[0] > _FIRST_LINE or not 0 < n_lines <= most_lines:
        return 0
    if differences[n_lines + 1] < _EDGE:
        return 0
    return n_lines + 1


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Return a picture in one of eight orientations; 0 changes nothing.

    From 4 on, the picture is transposed; then it is flipped if the second bit of the orientation is
    set, and mirrored if the first bit is set.
    """
    if orientation & 4:
        pixels = pixels.T
    if orientation & 2:
        pixels = pixels[::-1]
    if orientation & 1:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def turned_layouts(layouts: Floats32) -> list[Floats32]:
    """Return layouts, of the shape (..., d), in all eight orientations."""
    shape = layouts.shape
    coefficients = layouts.reshape(*shape[:-1], N_FREQUENCIES, N_FREQUENCIES)
    orientations = []
    for orientation in range(N_ORIENTATIONS):
        changed = coefficients.swapaxes(-1, -2) if orientation & 4 else coefficients
        if orientation & 2:
            changed = changed * _SIGNS[:, None]
        if orientation & 1:
            changed = changed * _SIGNS
        orientations.append(changed.reshape(shape))
    return orientations


def layouts_of_windows(thumbnail: Pixels) -> Floats32:
    """Return the layouts of all windows of a thumbnail.

    The result is float32, shape (len(WINDOWS), len(WINDOWS), d), rows first.

    The first window is the whole thumbnail. Layouts have length 1, or 0 for a thumbnail without details.
    """
    values = thumbnail - thumbnail.mean(dtype=np.float32)
    coefficients = _TRANSFORM @ values @ _TRANSFORM.T
    n_windows = len(WINDOWS)
    coefficients = coefficients.reshape(n_windows, N_FREQUENCIES, n_windows, N_FREQUENCIES)
    weighted = coefficients.swapaxes(1, 2) * _WEIGHTS
    layouts = weighted.reshape(n_windows, n_windows, N_FREQUENCIES**2)
    lengths = np.linalg.norm(layouts, axis=2, keepdims=True)
    normalised = layouts / np.maximum(lengths, _NO_DETAILS)
    return np.asarray(np.where(lengths > _NO_DETAILS, normalised, np.float32(0)))


def searched_layouts(thumbnails: Pixels) -> Floats32:
    """Return layouts to search for copies of n images, float32, shape (q, n, d).

    They are the layouts of each whole thumbnail in all orientations, the original first, and of its windows.
    """
    windows = np.stack([layouts_of_windows(thumbnail) for thumbnail in thumbnails])
    layouts = turned_layouts(windows[:, 0, 0])
    for row, column in _SEARCHED_WINDOWS:
        layouts.append(windows[:, row, column])
    return np.stack(layouts)


def whole_layouts(thumbnails: Pixels) -> Floats32:
    """Return the layouts of whole thumbnails, float32, shape (n, d)."""
    layouts = np.zeros((len(thumbnails), N_FREQUENCIES**2), np.float32)
    for row, thumbnail in enumerate(thumbnails):
        layouts[row] = layouts_of_windows(thumbnail)[0, 0]
    return layouts


def _cosine_transform(start: float, size: float) -> Floats32:
    """Return the cosine transform of a window of one axis, float32, shape (N_FREQUENCIES, SIZE)."""
    places = ((np.arange(SIZE) + 0.5) / SIZE - start) / size
    inside = (places > 0) & (places < 1)
    frequencies = np.arange(N_FREQUENCIES)[:, None]
    return np.asarray(np.cos(np.pi * frequencies * places) * inside / (size * SIZE), np.float32)


def _frequency_weights() -> Floats32:
    """Return weights that raise high frequencies, which are weak in photographs, and remove the mean."""
    frequencies = np.arange(N_FREQUENCIES)
    weights = np.hypot(frequencies[:, None], frequencies) ** 0.5
    amplitudes = np.where(frequencies > 0, np.sqrt(2), 1)
    return np.asarray(weights * amplitudes[:, None] * amplitudes, np.float32)


#: Places in WINDOWS, for rows and columns, of the square windows that are searched for beside the whole.
_SEARCHED_WINDOWS = [*product((1, 2, 3), repeat=2), *product((4, 6, 8), repeat=2)]
_TRANSFORM = np.concatenate([_cosine_transform(start, size) for start, size in WINDOWS])
_WEIGHTS = _frequency_weights()
_SIGNS = np.asarray((-1.0) ** np.arange(N_FREQUENCIES), np.float32)
#: Length of coefficients up to which they are rounding errors.
_NO_DETAILS = 1e-3

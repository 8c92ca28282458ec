"""Write the arrays of pixels of CIFAR-10, CIFAR-100 and SVHN as image files.

All other commands read image files. The pixels become PNG files, which keep them exactly, in a tar
file, with their splits and labels in a CSV file beside it, for ``hgld manifest table``:

- ``images.tar``: ``train/00000.png``, ``test/00000.png``, ... in the published order, from 0 in each
  split;
- ``images.csv``: columns ``path``, ``split``, and the levels, finest first: ``class``, and for
  CIFAR-100 ``superclass``.
"""

from __future__ import annotations

import csv
import io
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hgld.arrays import Pixels
from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.io.restricted_pickle import read_pickle

#: Largest size of a batch that is read; CIFAR-100's training images have 155 million bytes.
_MAX_BYTES = 400_000_000
#: Height and width of an image, in pixels.
_SIDE = 32


@dataclass(frozen=True)
class _CifarLayout:
    """Files of a version of CIFAR.

    Args:
        batches: Names of the files of images, by split.
        names_file: Name of the file with the names of the classes.
        levels: By level, the key of the labels in a batch, and the key of their names.
    """

    batches: Mapping[str, Sequence[str]]
    names_file: str
    levels: Mapping[str, tuple[str, str]]


_CIFAR_10 = _CifarLayout(
    {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]},
    "batches.meta",
    {"class": ("labels", "label_names")},
)
_CIFAR_100 = _CifarLayout(
    {"train": ["train"], "test": ["test"]},
    "meta",
    {
        "class": ("fine_labels", "fine_label_names"),
        "superclass": ("coarse_labels", "coarse_label_names"),
    },
)


@dataclass(frozen=True)
class _PixelArrays:
    """Images of a split, uint8, shape (N, 32, 32, 3), and their class names by level, finest first."""

    split: str
    pixels: Pixels
    levels: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ExtractSummary:
    """Counts of extracted images.

    Args:
        images: Number of images, by split.
        levels: Names of the levels, finest first.
    """

    images: Mapping[str, int]
    levels: tuple[str, ...]


def extract_images(folder: Path, out: Path) -> ExtractSummary:
    """Write arrays of pixels as PNG files in a tar file, with a table of their labels.

    ``hgld extract-images`` describes the parameters.
    """
    images: Counter[str] = Counter()
    levels: tuple[str, ...] = ()
    with (
        atomic_write(out / "images.csv") as table,
        atomic_write(out / "images.tar") as tar,
        table.open("w", encoding="utf-8", newline="") as lines,
        tarfile.open(tar, "w") as archive,
    ):
        writer = csv.writer(lines, lineterminator="\n")
        for arrays in _read_pixel_arrays(folder):
            split = arrays.split
            if not levels:
                levels = tuple(arrays.levels)
                writer.writerow(["path", "split", *levels])
            rows = zip(*arrays.levels.values(), strict=True)
            for pixels, labels in zip(arrays.pixels, rows, strict=True):
                path = f"{split}/{images[split]:05d}.png"
                _add_png(archive, path, pixels)
                writer.writerow([path, split, *labels])
                images[split] += 1
    return ExtractSummary(dict(images), levels)


def _read_pixel_arrays(folder: Path) -> Iterator[_PixelArrays]:
    """Read a folder of CIFAR-10, CIFAR-100 or SVHN, one file after the other."""
    digits = sorted(folder.glob("*_32x32.mat"))
    if (folder / _CIFAR_10.names_file).is_file():
        yield from _read_cifar(folder, _CIFAR_10)
    elif (folder / _CIFAR_100.names_file).is_file():
        yield from _read_cifar(folder, _CIFAR_100)
    elif digits:
        for path in digits:
            yield _read_svhn(path)
    else:
        found = "nothing of them" if folder.is_dir() else "no such folder"
        raise InputError(
            f"{folder}: {found}; expected batches.meta (CIFAR-10, python version), meta (CIFAR-100), or "
            "train_32x32.mat or test_32x32.mat (SVHN)"
        )


def _read_cifar(folder: Path, layout: _CifarLayout) -> Iterator[_PixelArrays]:
    """Read the batches of CIFAR."""
    label_keys = [key for key, _ in layout.levels.values()]
    name_keys = [key for _, key in layout.levels.values()]
    class_names = _read_dictionary(folder / layout.names_file, name_keys)
    for split, batches in layout.batches.items():
        for batch in batches:
            path = folder / batch
            content = _read_dictionary(path, ["data", *label_keys])
            try:
                pixels = _checked_pixels(content["data"])
                labels = {}
                for level, (label_key, name_key) in layout.levels.items():
                    labels[level] = _names_of_labels(
                        content[label_key], class_names[name_key], len(pixels)
                    )
            except (ValueError, LookupError, TypeError) as error:
                raise InputError(
                    f"{path}: not a batch of CIFAR ({error}); download it again"
                ) from error
            yield _PixelArrays(split, pixels, labels)


def _checked_pixels(rows: Any) -> Pixels:
    """Return the rows of a batch as images: uint8, shape (N, 32, 32, 3)."""
    is_array = isinstance(rows, np.ndarray) and rows.dtype == np.uint8
    if not is_array or rows.shape[1:] != (3 * _SIDE**2,):
        raise ValueError("data is no uint8 array of 3,072 columns")
    # A row holds the red channel of all pixels, then the green channel, then the blue channel.
    images: Pixels = rows.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return images


def _read_dictionary(path: Path, keys: Sequence[str]) -> Mapping[str, Any]:
    """Read a pickled dictionary that has some keys."""
    content = read_pickle(path, max_bytes=_MAX_BYTES)
    if not isinstance(content, dict) or not set(keys) <= set(content):
        raise InputError(
            f"{path}: expected a dictionary with {', '.join(keys)}; is this the python version of CIFAR?"
        )
    return content


def _names_of_labels(numbers: Sequence[int], names: Sequence[str], n_images: int) -> list[str]:
    """Return the name of the class of each image, after a check of the numbers."""
    if len(numbers) != n_images:
        raise ValueError(f"{n_images:,} images and {len(numbers):,} labels")
    if n_images and not 0 <= min(numbers) <= max(numbers) < len(names):
        raise ValueError(f"labels {min(numbers)} to {max(numbers)} of {len(names)} names")
    return [str(names[number]) for number in numbers]


def _read_svhn(path: Path) -> _PixelArrays:
    """Read a file of SVHN's cropped digits."""
    from scipy.io import loadmat

    try:
        content = loadmat(path)
        pixels = content["X"]
        digits = content["y"].ravel()
        if pixels.dtype != np.uint8 or pixels.shape != (_SIDE, _SIDE, 3, len(digits)):
            raise ValueError(
                f"X is {pixels.dtype} of shape {pixels.shape} for {len(digits):,} labels"
            )
    except Exception as error:  # scipy raises errors of many kinds for damaged files
        raise InputError(
            f"{path}: not a file of SVHN's cropped digits ({error}); download it again"
        ) from error
    classes = [str(digit % 10) for digit in digits.astype(int).tolist()]  # label 10 is the digit 0
    split = path.name.partition("_")[0]
    return _PixelArrays(split, pixels.transpose(3, 0, 1, 2), {"class": classes})


def _add_png(archive: tarfile.TarFile, path: str, pixels: Pixels) -> None:
    """Add an image to a tar file, without time and owner, so that equal images give an equal file."""
    png = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(png, "PNG")
    member = tarfile.TarInfo(path)
    member.size = png.tell()
    png.seek(0)
    archive.addfile(member, png)

"""Images of CIFAR-10, CIFAR-100 and SVHN, which are published as arrays of pixels, as image files.

Everything else reads image files. The pixels become PNG files, which keep them exactly, in a tar file, with their
splits and labels in a CSV file beside it, for ``hgld manifest table``:

- ``images.tar``: ``train/00000.png``, ``test/00000.png``, ... in the published order, from 0 in each split;
- ``images.csv``: columns ``path``, ``split``, and the levels, finest first: ``class``, and for CIFAR-100
  ``superclass``.
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
from numpy.typing import NDArray
from PIL import Image

from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.io.restricted_pickle import read_pickle

#: The largest batch, that of CIFAR-100's training images, has 155 million bytes.
_MAX_BYTES = 400_000_000
#: Height and width of an image, in pixels.
_SIDE = 32
#: Files of the images by split, and the file of the names of the classes.
_CIFAR_10 = (
    {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]},
    "batches.meta",
)
_CIFAR_100 = ({"train": ["train"], "test": ["test"]}, "meta")
#: By level, the key of the labels in a batch, and that of their names.
_LEVELS_10 = {"class": ("labels", "label_names")}
_LEVELS_100 = {
    "class": ("fine_labels", "fine_label_names"),
    "superclass": ("coarse_labels", "coarse_label_names"),
}


@dataclass(frozen=True)
class _PixelArrays:
    """Images of a split: uint8, shape (N, 32, 32, 3), and the names of their classes by level, finest first."""

    split: str
    pixels: NDArray[np.uint8]
    levels: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ExtractSummary:
    """Counts of what was written."""

    images: Mapping[str, int]
    levels: tuple[str, ...]


def extract_images(folder: Path, out: Path) -> ExtractSummary:
    """Write images that are published as arrays of pixels as PNG files in a tar file, with a table of their labels.

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
            if not levels:
                levels = tuple(arrays.levels)
                writer.writerow(["path", "split", *levels])
            for picture, *labels in zip(arrays.pixels, *arrays.levels.values(), strict=True):
                path = f"{arrays.split}/{images[arrays.split]:05d}.png"
                _add_png(archive, path, picture)
                writer.writerow([path, arrays.split, *labels])
                images[arrays.split] += 1
    return ExtractSummary(dict(images), levels)


def _read_pixel_arrays(folder: Path) -> Iterator[_PixelArrays]:
    """Read a folder of CIFAR-10, CIFAR-100 or SVHN, one file after the other."""
    digits = sorted(folder.glob("*_32x32.mat"))
    if (folder / _CIFAR_10[1]).is_file():
        yield from _read_cifar(folder, *_CIFAR_10, _LEVELS_10)
    elif (folder / _CIFAR_100[1]).is_file():
        yield from _read_cifar(folder, *_CIFAR_100, _LEVELS_100)
    elif digits:
        yield from map(_read_svhn, digits)
    else:
        found = "nothing of them" if folder.is_dir() else "no such folder"
        raise InputError(
            f"{folder}: {found}; expected batches.meta (CIFAR-10, python version), meta (CIFAR-100), or "
            "train_32x32.mat or test_32x32.mat (SVHN)"
        )


def _read_cifar(
    folder: Path,
    files: Mapping[str, Sequence[str]],
    meta: str,
    levels: Mapping[str, tuple[str, str]],
) -> Iterator[_PixelArrays]:
    names = _dictionary(folder / meta, [key for _, key in levels.values()])
    for split, batches in files.items():
        for batch in batches:
            path = folder / batch
            content = _dictionary(path, ["data", *(key for key, _ in levels.values())])
            try:
                pixels = content["data"]
                if (
                    not isinstance(pixels, np.ndarray)
                    or pixels.dtype != np.uint8
                    or pixels.shape[1:] != (3 * _SIDE**2,)
                ):
                    raise ValueError("data is no uint8 array of 3,072 columns")
                labels = {
                    level: _names(content[key], names[name_key], len(pixels))
                    for level, (key, name_key) in levels.items()
                }
            except (ValueError, LookupError, TypeError) as error:
                raise InputError(
                    f"{path}: not a batch of CIFAR ({error}); download it again"
                ) from error
            # Rows hold the red channel of all pixels, then the green one, then the blue one.
            yield _PixelArrays(
                split, pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1), labels
            )


def _dictionary(path: Path, keys: Sequence[str]) -> Mapping[str, Any]:
    content = read_pickle(path, max_bytes=_MAX_BYTES)
    if not isinstance(content, dict) or not set(keys) <= set(content):
        raise InputError(
            f"{path}: expected a dictionary with {', '.join(keys)}; is this the python version of CIFAR?"
        )
    return content


def _names(numbers: Sequence[int], names: Sequence[str], n_images: int) -> list[str]:
    if len(numbers) != n_images:
        raise ValueError(f"{n_images:,} images and {len(numbers):,} labels")
    if n_images and not 0 <= min(numbers) <= max(numbers) < len(names):
        raise ValueError(f"labels {min(numbers)} to {max(numbers)} of {len(names)} names")
    return [str(names[number]) for number in numbers]


def _read_svhn(path: Path) -> _PixelArrays:
    from scipy.io import loadmat

    try:
        content = loadmat(path)
        pixels, digits = content["X"], content["y"].ravel()
        if pixels.dtype != np.uint8 or pixels.shape != (_SIDE, _SIDE, 3, len(digits)):
            raise ValueError(
                f"X is {pixels.dtype} of shape {pixels.shape} for {len(digits):,} labels"
            )
    except Exception as error:  # of damaged files, scipy raises errors of many kinds
        raise InputError(
            f"{path}: not a file of SVHN's cropped digits ({error}); download it again"
        ) from error
    # The digit 0 has the label 10.
    classes = [str(digit % 10) for digit in digits.astype(int).tolist()]
    return _PixelArrays(
        path.name.partition("_")[0], pixels.transpose(3, 0, 1, 2), {"class": classes}
    )


def _add_png(archive: tarfile.TarFile, path: str, pixels: NDArray[np.uint8]) -> None:
    """Add a picture to a tar file, with no time or owner, so that the same images give the same file."""
    png = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(png, "PNG")
    member = tarfile.TarInfo(path)
    member.size = png.tell()
    png.seek(0)
    archive.addfile(member, png)

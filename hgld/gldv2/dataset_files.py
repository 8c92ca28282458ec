"""Names of GLDv2's files at the dataset's host and in a local folder, and lists of subsets.

The names follow the README and ``download-dataset.sh`` of
https://github.com/cvdfoundation/google-landmark, version 2.1 of the dataset: 500, 100 and 20 tar
files of photographs (``train/images_000.tar``), an MD5 for each
(``md5sum/train/md5.images_000.txt``), CSV files about photographs and landmarks below
``metadata/``, and two solutions below ``ground_truth/``. In a local folder the CSV files are at the
root, where other commands expect them; other files have the same paths as at the host. A server of
such a folder can replace the host.

Lists of subsets of the dataset come with hgld, so that results on them can be reproduced.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import ConfigurationError
from hgld.gldv2.settings import N_SHARDS
from hgld.io.files import atomic_write
from hgld.resources import subset_file

#: Names of the subsets of photographs that come with hgld.
SUBSETS = ("washington",)
_SUBSET_FILES = ("train.csv", "train_label_to_category.csv", "train_label_to_hierarchical.csv")

#: Number of photographs by split, and approximate size of a tar file in bytes, according to the
#: README.
N_IMAGES = {"train": 4_132_914, "index": 761_757, "test": 117_577}
SHARD_BYTES = {"train": 1_000_000_000, "index": 850_000_000, "test": 500_000_000}

_METADATA = {
    "train": (
        "train.csv",
        "train_clean.csv",
        "train_attribution.csv",
        "train_label_to_category.csv",
        "train_label_to_hierarchical.csv",
    ),
    "index": (
        "index.csv",
        "index_image_to_landmark.csv",
        "index_label_to_category.csv",
        "index_label_to_hierarchical.csv",
    ),
    "test": ("test.csv",),
}
_GROUND_TRUTH = {"test": ("recognition_solution_v2.1.csv", "retrieval_solution_v2.1.csv")}


@dataclass(frozen=True)
class DatasetFile:
    """A file of the dataset.

    Args:
        path: Path in a local folder.
        remote_paths: Possible paths relative to the host's URL; the first existing path is used.
        md5_path: Path of the file with its MD5, at the host and in a folder; None for a file
            without MD5.
    """

    path: str
    remote_paths: tuple[str, ...]
    md5_path: str | None = None


def metadata_files(split: str) -> list[DatasetFile]:
    """Return the CSV files of a split, including the solutions of the test split."""
    files = []
    for name in _METADATA[split]:
        files.append(DatasetFile(name, (f"metadata/{name}", name)))
    for name in _GROUND_TRUTH.get(split, ()):
        files.append(DatasetFile(name, (f"ground_truth/{name}", name)))
    return files


def shard_files(split: str, shards: Collection[int] | None = None) -> list[DatasetFile]:
    """Return the tar files of a split's photographs, by default all.

    >>> shard_files("train", [3])[0].path
    'train/images_003.tar'
    """
    if shards is None:
        shards = range(N_SHARDS[split])
    files = []
    for number in sorted(set(shards)):
        if not 0 <= number < N_SHARDS[split]:
            raise ConfigurationError(
                f"{split} has no shard {number}; its shards are 0 to {N_SHARDS[split] - 1}"
            )
        path = f"{split}/images_{number:03}.tar"
        files.append(DatasetFile(path, (path,), f"md5sum/{split}/md5.images_{number:03}.txt"))
    return files


def parse_shards(text: str) -> Sequence[int]:
    """Parse shard numbers and ranges, separated by commas; both ends of a range are included.

    >>> parse_shards("0:4,7")
    [0, 1, 2, 3, 4, 7]
    """
    numbers: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?::([0-9]{1,6}))?\s*", item)
        selected = range(0)
        if match is not None:
            selected = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not selected:
            raise ConfigurationError(
                f'`shards` is "{text}"; expected numbers and first:last, such as 0:4 or 0,3'
            )
        numbers += selected
    return numbers


def subset_list(name: str) -> Path:
    """Return the list of photographs of a subset, with the columns of GLDv2's train.csv."""
    return subset_file(f"{name}/{_SUBSET_FILES[0]}")


def copy_subset(name: str, out: Path) -> None:
    """Write the lists of a subset to a folder, and replace lists of the same names."""
    for file in _SUBSET_FILES:
        with atomic_write(out / file) as draft:
            shutil.copyfile(subset_file(f"{name}/{file}"), draft)

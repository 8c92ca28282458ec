"""Names of GLDv2's files at the dataset's host and in a local folder.

They follow the README and ``download-dataset.sh`` of https://github.com/cvdfoundation/google-landmark, version 2.1
of the dataset: 500, 100 and 20 tar files of photographs (``train/images_000.tar``), an MD5 for each
(``md5sum/train/md5.images_000.txt``), CSV files about photographs and landmarks below ``metadata/``, and two
solutions below ``ground_truth/``. In a local folder the CSV files are at the root, where the other commands expect
them, and the rest is laid out as at the host. A server of such a folder can replace the host.

Lists of some parts of the dataset come with hgld, so that results on them can be repeated.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import ConfigurationError, SourceError
from hgld.io.files import atomic_write
from hgld.resources import subset_file

#: Names of the parts whose lists come with hgld, and their files.
SUBSETS = ("washington",)
_SUBSET_FILES = ("train.csv", "train_label_to_category.csv", "train_label_to_hierarchical.csv")

HOST_URL = "https://s3.amazonaws.com/google-landmark"
#: Number of tar files of photographs by split.
N_SHARDS = {"train": 500, "index": 100, "test": 20}
#: Number of photographs by split, and approximate size of a tar file in bytes, according to the README.
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
        remote_paths: Possible paths relative to the host's URL; the first that exists is used.
        md5_path: Path of the file with its MD5, at the host and in a folder; None for a file without one.
    """

    path: str
    remote_paths: tuple[str, ...]
    md5_path: str | None = None


def metadata_files(split: str) -> list[DatasetFile]:
    """Return the CSV files of a split, including the solutions of the test split."""
    names_by_folder = {"metadata": _METADATA[split], "ground_truth": _GROUND_TRUTH.get(split, ())}
    return [
        DatasetFile(name, (f"{folder}/{name}", name)) for folder, names in names_by_folder.items() for name in names
    ]


def shard_files(split: str, shards: Collection[int] | None = None) -> list[DatasetFile]:
    """Return the tar files of a split's photographs.

    >>> shard_files("train", [3])[0].path
    'train/images_003.tar'
    """
    available = range(N_SHARDS[split])
    unknown = sorted(set(shards or ()) - set(available))
    if unknown:
        raise ConfigurationError(f"{split} has no shard {unknown[0]}; its shards are 0 to {available[-1]}")
    names = [f"images_{number:03}" for number in (available if shards is None else sorted(set(shards)))]
    return [
        DatasetFile(f"{split}/{name}.tar", (f"{split}/{name}.tar",), f"md5sum/{split}/md5.{name}.txt")
        for name in names
    ]


def parse_shards(text: str) -> Sequence[int]:
    """Parse shard numbers and ranges, separated by commas; both ends of a range are included.

    >>> parse_shards("0:4,7")
    [0, 1, 2, 3, 4, 7]
    """
    numbers: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?::([0-9]{1,6}))?\s*", item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ConfigurationError(f'`shards` is "{text}"; expected numbers and first:last, such as 0:4 or 0,3')
        numbers += range(first, last + 1)
    return numbers


def read_md5(path: Path) -> str:
    """Return the MD5, in lower-case hex, from a file in the format of ``md5sum``."""
    text = path.read_text(encoding="utf-8", errors="replace")
    match = re.match(r"[0-9a-fA-F]{32}(?=\s|$)", text)
    if match is None:
        raise SourceError(f"{path}: expected an MD5 of 32 hex digits, but the server sent {text[:50]!r}")
    return match[0].lower()


def subset_list(name: str) -> Path:
    """Return the list of photographs of a part, with the columns of GLDv2's train.csv."""
    return subset_file(f"{name}/{_SUBSET_FILES[0]}")


def copy_subset(name: str, out: Path) -> None:
    """Write the lists of a part to a folder, where the dataset has lists of the same names, which are replaced."""
    for file in _SUBSET_FILES:
        with atomic_write(out / file) as draft:
            shutil.copyfile(subset_file(f"{name}/{file}"), draft)

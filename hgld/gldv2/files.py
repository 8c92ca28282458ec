"""What GLDv2's files are called, at the dataset's host and in a folder.

From the README and ``download-dataset.sh`` of https://github.com/cvdfoundation/google-landmark, version 2.1 of the
dataset: 500, 100 and 20 tar files of photographs (``train/images_000.tar``), an MD5 for each
(``md5sum/train/md5.images_000.txt``), and CSV files, those about photographs and landmarks below ``metadata/``, the
two solutions below ``ground_truth/``. In a folder the CSV files are at its root, where the other commands expect
them, and the rest is as at the host. A server of such a folder can stand in for the host.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import ConfigurationError, SourceError

HOST = "https://s3.amazonaws.com/google-landmark"
#: How many tar files of photographs each split has.
N_SHARDS = {"train": 500, "index": 100, "test": 20}
#: How many photographs these hold, and about how many bytes each of them has, as the README says.
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
        path: where it is in a folder, relative to it.
        places: where it may be below the host's URL; the first that is there counts.
        md5_path: where the file with its MD5 is, in both; None for a file that has none.
    """

    path: str
    places: tuple[str, ...]
    md5_path: str | None = None


def metadata_files(split: str) -> list[DatasetFile]:
    """The CSV files about a split, the solutions of the test split among them."""
    found = {"metadata": _METADATA[split], "ground_truth": _GROUND_TRUTH.get(split, ())}
    return [DatasetFile(name, (f"{folder}/{name}", name)) for folder, names in found.items() for name in names]


def shard_files(split: str, shards: Collection[int] | None = None) -> list[DatasetFile]:
    """The tar files of a split's photographs, all of them or those of these numbers.

    Raises:
        ConfigurationError: the split has no shard of such a number.

    >>> shard_files("train", [3])[0].path
    'train/images_003.tar'
    """
    numbers = range(N_SHARDS[split])
    beyond = sorted(set(shards or ()) - set(numbers))
    if beyond:
        raise ConfigurationError(f"{split} has no shard {beyond[0]}; its shards are 0 to {numbers[-1]}")
    names = [f"images_{number:03}" for number in (numbers if shards is None else sorted(set(shards)))]
    return [
        DatasetFile(f"{split}/{name}.tar", (f"{split}/{name}.tar",), f"md5sum/{split}/md5.{name}.txt")
        for name in names
    ]


def parse_shards(text: str) -> Sequence[int]:
    """Numbers of shards, and ranges of them with both ends included, with commas between.

    Raises:
        ConfigurationError: it is something else.

    >>> parse_shards("0:4,7")
    [0, 1, 2, 3, 4, 7]
    """
    numbers: list[int] = []
    for item in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,6})(?::([0-9]{1,6}))?\s*", item)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ConfigurationError(f'the shards are "{text}"; expected numbers and first:last, such as 0:4 or 0,3')
        numbers += range(first, last + 1)
    return numbers


def read_md5(path: Path) -> str:
    """The MD5 in a file as ``md5sum`` writes it.

    Raises:
        SourceError: it begins with something else.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    found = re.match(r"[0-9a-fA-F]{32}(?=\s|$)", text)
    if found is None:
        raise SourceError(f"{path}: expected an MD5 of 32 hex digits, but the server sent {text[:50]!r}")
    return found[0].lower()

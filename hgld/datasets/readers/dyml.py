"""DyML-Vehicle, -Animal and -Product: reader of the images and of the ground truth."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hgld.arrays import Integers
from hgld.datasets.readers.base import ReaderResult, build_manifest
from hgld.datasets.readers.settings import DymlSettings
from hgld.errors import InputError
from hgld.io.table_rows import parse_whole_number, read_rows

#: Names of the levels, finest first as in a label matrix.
LEVELS = ("fine", "middle", "coarse")
#: Folder of DyML-Product's test set.
PRODUCT = "mini-bmk_all_in_one"
_LABEL = "label"
#: Last name of the header, joined with the first image.
_JOINED = re.compile(r"\s*([A-Za-z_]+)([0-9].*)")


@dataclass(frozen=True)
class Dyml(DymlSettings):
    """Reader of a part of DyML (Sun et al., Dynamic Metric Learning, CVPR 2021).

    ``train`` is ``train/label.csv``, whose images are in ``train/imgs``, with the levels fine, middle
    and coarse. ``fine``, ``middle`` and ``coarse`` are test sets of Vehicle and Animal, with the
    splits query and gallery and only this level; ``test`` is the test set of Product, with all three
    levels. Training and test sets number their classes independently.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        if self.part in LEVELS:
            folder = root / f"bmk_{self.part}"
            return {"query": folder / "query.csv", "gallery": folder / "gallery.csv"}
        folder = root / ("train" if self.part == "train" else PRODUCT)
        return {"labels": folder / "label.csv"}

    def read(self, root: Path) -> ReaderResult:
        if self.part in LEVELS:
            return self._read_level(root)
        path = self.files(root)["labels"]
        images, labels = read_label_csv(path, [f"{level}_id" for level in LEVELS])
        columns = {
            "path": [f"{path.parent.name}/imgs/{image}" for image in images],
            "split": [self.part] * len(images),
        }
        levels = dict(zip(LEVELS, labels.T.astype(str), strict=True))
        return ReaderResult(build_manifest(root, columns, levels))

    def _read_level(self, root: Path) -> ReaderResult:
        """Read the test set of a level of Vehicle or Animal."""
        if not (root / f"bmk_{self.part}").is_dir():
            raise InputError(
                f'{root}: no folder bmk_{self.part}; for the test set of DyML-Product, set `part` to "test"'
            )
        test_set = read_test_set(root)[self.part]
        n_queries = len(test_set.query_ids)
        n_gallery = len(test_set.gallery_ids)
        columns = {
            "path": test_set.query_ids + test_set.gallery_ids,
            "split": ["query"] * n_queries + ["gallery"] * n_gallery,
        }
        labels = np.concatenate([test_set.query_labels, test_set.gallery_labels])
        return ReaderResult(build_manifest(root, columns, {self.part: labels.astype(str)}))


@dataclass(frozen=True)
class DymlLevel:
    """Test set of a level.

    The gallery images with the query's label are relevant, except the query itself.

    Args:
        query_ids: Paths of the queries, relative to the folder of the dataset.
        query_labels: int64, shape (n_query,).
        gallery_ids: Paths of the gallery images, relative to the folder of the dataset.
        gallery_labels: int64, shape (n_gallery,).
        self_positions: int64, shape (n_query,): position of each query in the gallery; -1 for queries
            that are not in the gallery.
    """

    query_ids: tuple[str, ...]
    query_labels: Integers
    gallery_ids: tuple[str, ...]
    gallery_labels: Integers
    self_positions: Integers


def read_test_set(folder: Path) -> dict[str, DymlLevel]:
    """Read and validate the test set in a folder of DyML-Vehicle, -Animal or -Product.

    Vehicle and Animal have a folder per level, such as ``bmk_fine``, with ``query.csv`` and
    ``gallery.csv`` (image, label) and the image folders ``query`` and ``gallery``; the gallery
    includes the queries. Product has one folder, ``mini-bmk_all_in_one``, with ``label.csv`` (image
    and its label at each level) and ``imgs``; each image is a query against all others.

    Returns:
        The levels by name, see ``LEVELS``; in DyML-Product they share their images.

    Raises:
        InputError: There is no test set in the folder, a file is malformed, or a query has another
            label than the gallery image of the same name, so that names do not identify the query.
    """
    if (folder / PRODUCT).is_dir():
        return _read_product(folder)
    if not (folder / f"bmk_{LEVELS[0]}").is_dir():
        raise InputError(
            f"{folder}: neither bmk_{LEVELS[0]} (DyML-Vehicle and -Animal) nor {PRODUCT} (DyML-Product) in this "
            "folder; unpack the dataset here, or name the folder that holds these"
        )
    return {level: _read_level(folder, f"bmk_{level}") for level in LEVELS}


def label_files(folder: Path) -> list[Path]:
    """Return the files with the labels of a test set."""
    if (folder / PRODUCT).is_dir():
        return [folder / PRODUCT / "label.csv"]
    paths = []
    for level in LEVELS:
        paths.append(folder / f"bmk_{level}" / "query.csv")
        paths.append(folder / f"bmk_{level}" / "gallery.csv")
    return paths


def _read_product(folder: Path) -> dict[str, DymlLevel]:
    """Read the test set of DyML-Product, whose levels share their images."""
    columns = [f"{level}_id" for level in LEVELS]
    images, labels = read_label_csv(folder / PRODUCT / "label.csv", columns)
    ids = _ids(f"{PRODUCT}/imgs", images)
    test_sets = {}
    for column, level in enumerate(LEVELS):
        level_labels = labels[:, column].copy()
        test_sets[level] = DymlLevel(ids, level_labels, ids, level_labels, np.arange(len(ids)))
    return test_sets


def _read_level(folder: Path, name: str) -> DymlLevel:
    """Read the test set of a level of DyML-Vehicle or -Animal."""
    queries, query_labels = read_label_csv(folder / name / "query.csv", [_LABEL])
    gallery, gallery_labels = read_label_csv(folder / name / "gallery.csv", [_LABEL])
    gallery_positions = {image: position for position, image in enumerate(gallery)}
    self_positions = np.array([gallery_positions.get(image, -1) for image in queries])
    differs = (self_positions >= 0) & (query_labels != gallery_labels[self_positions]).any(axis=1)
    if differs.any():
        first = int(differs.argmax())
        raise InputError(
            f"{folder / name}: {differs.sum():,} queries have another label than the gallery image of the same name, "
            f"first {queries[first]} ({query_labels[first, 0]} and {gallery_labels[self_positions[first], 0]}); the "
            "name must identify the query in the gallery: rename the images, also in the CSV files"
        )
    return DymlLevel(
        _ids(f"{name}/query", queries),
        query_labels[:, 0],
        _ids(f"{name}/gallery", gallery),
        gallery_labels[:, 0],
        self_positions,
    )


def _ids(folder: str, images: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of images in a folder."""
    return tuple(f"{folder}/{image}" for image in images)


def read_label_csv(path: Path, columns: Sequence[str]) -> tuple[list[str], Integers]:
    """Read a file such as ``label.csv``.

    In the published files, as the authors' own reader shows, there is no line break after the header:
    the first image is on the same line, as in ``fname, labels0.jpg, 17``. Readers that discard this
    line as the header lose the image; this function reads it as a row.

    Returns:
        The images, and their labels: int64, shape (n_images, n_columns).
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> list[int]:
        image = row["fname"].strip()
        if not image:
            raise ValueError("the fname is empty")
        if image in lines:
            raise ValueError(
                f"{image} is already in line {lines[image]}; expected one row per image"
            )
        lines[image] = line
        return [parse_whole_number(column, row[column].strip()) for column in columns]

    parse_header = partial(_split_first_line, columns)
    labels = read_rows(path, ["fname", *columns], parse, parse_header=parse_header)
    return list(lines), np.array(labels, np.int64)


def _split_first_line(columns: Sequence[str], values: list[str]) -> list[list[str]]:
    """Split the first line into the header and, if it is on the same line, the first row.

    >>> _split_first_line(["label"], ["fname", " labels0.jpg", " 17"])
    [['fname', 'label'], ['0.jpg', ' 17']]
    """
    n_columns = 1 + len(columns)
    header = values[:n_columns]
    labels = values[n_columns:]
    images = []
    for position, name in enumerate(header):
        joined = _JOINED.fullmatch(name)
        if joined is not None:
            header[position] = joined[1]
            images.append(joined[2])
    if len(header) == n_columns == 2:
        header = ["fname", _LABEL]  # a single column of labels has various names
    if not labels:
        return [header]
    return [header, images + labels]

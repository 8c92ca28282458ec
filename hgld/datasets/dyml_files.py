"""The files of DyML-Vehicle, -Animal and -Product (Sun et al., Dynamic Metric Learning, CVPR 2021).

Vehicle and Animal have a folder per level, such as ``bmk_fine``, with ``query.csv`` and ``gallery.csv`` (image,
label) and the image folders ``query`` and ``gallery``; the gallery includes the queries. Product has one folder,
``mini-bmk_all_in_one``, with ``label.csv`` (image and its label at each level) and ``imgs``; each image is a query
against all others.

In the published files, as the authors' own reader shows, there is no line break after the header: the first image is
on the same line, as in ``fname, labels0.jpg, 17``. Readers that discard this line as the header lose the image; this
one reads it as a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hgld.errors import InputError
from hgld.io.columns import parse_whole_number, read_rows
from hgld.ragged import Integers

#: Names of the levels, finest first as in a label matrix.
LEVELS = ("fine", "middle", "coarse")
#: Folder of DyML-Product's test set.
PRODUCT = "mini-bmk_all_in_one"
_LABEL = "label"
#: The last name of the header, joined with the first image.
_JOINED = re.compile(r"\s*([A-Za-z_]+)([0-9].*)")


@dataclass(frozen=True)
class DymlLevel:
    """The test set of a level; relevant are the gallery images with the query's label, except the query itself.

    Args:
        gallery_ids: Paths of the gallery images, relative to the folder of the dataset.
        self_positions: int64, shape (n_query,): position of each query in the gallery; -1 if it is not there.
    """

    query_ids: tuple[str, ...]
    query_labels: Integers
    gallery_ids: tuple[str, ...]
    gallery_labels: Integers
    self_positions: Integers


def read_test_set(folder: Path) -> dict[str, DymlLevel]:
    """Read and validate the test set in a folder of DyML-Vehicle, -Animal or -Product.

    Returns:
        The levels by name, those of ``LEVELS``; in DyML-Product they share their images.

    Raises:
        InputError: There is no test set in the folder; a file is malformed, see
            :func:`hgld.io.columns.read_rows`, repeats an image or has a label that is no integer; or a query has
            another label than the gallery image of the same name, so that names do not identify the query.
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
    return [folder / f"bmk_{level}" / f"{part}.csv" for level in LEVELS for part in ("query", "gallery")]


def _read_product(folder: Path) -> dict[str, DymlLevel]:
    columns = [f"{level}_id" for level in LEVELS]
    images, labels = read_label_csv(folder / PRODUCT / "label.csv", columns)
    ids = _ids(f"{PRODUCT}/imgs", images)
    return {
        level: DymlLevel(ids, column, ids, column, np.arange(len(ids)))
        for level, column in zip(LEVELS, labels.T.copy(), strict=True)
    }


def _read_level(folder: Path, name: str) -> DymlLevel:
    queries, query_labels = read_label_csv(folder / name / "query.csv", [_LABEL])
    gallery, gallery_labels = read_label_csv(folder / name / "gallery.csv", [_LABEL])
    position_of = {image: n for n, image in enumerate(gallery)}
    self_positions = np.array([position_of.get(image, -1) for image in queries])
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
    return tuple(f"{folder}/{image}" for image in images)


def read_label_csv(path: Path, columns: Sequence[str]) -> tuple[list[str], Integers]:
    """Read a file such as ``label.csv``.

    Returns:
        The images, and their labels: int64, shape (n_images, n_columns).
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> list[int]:
        image = row["fname"].strip()
        if not image:
            raise ValueError("the fname is empty")
        if image in lines:
            raise ValueError(f"{image} is already in line {lines[image]}; expected one row per image")
        lines[image] = line
        return [parse_whole_number(column, row[column].strip()) for column in columns]

    labels = read_rows(path, ["fname", *columns], parse, parse_header=partial(_split_first_line, columns))
    return list(lines), np.array(labels, np.int64)


def _split_first_line(columns: Sequence[str], values: list[str]) -> list[list[str]]:
    """Split the first line into the header and, if it is on the same line, the first row.

    >>> _split_first_line(["label"], ["fname", " labels0.jpg", " 17"])
    [['fname', 'label'], ['0.jpg', ' 17']]
    """
    width = 1 + len(columns)
    names, rest = values[:width], values[width:]
    images = []
    for n, name in enumerate(names):
        if joined := _JOINED.fullmatch(name):
            names[n] = joined[1]
            images.append(joined[2])
    # With a single label, its column has various names.
    header = ["fname", _LABEL] if len(names) == width == 2 else names
    return [header, [*images, *rest]] if rest else [header]

"""The files of DyML-Vehicle, -Animal and -Product (Sun et al., Dynamic Metric Learning, CVPR 2021).

Vehicle and Animal have a folder per level, such as ``bmk_fine``, with ``query.csv``, ``gallery.csv`` (image, label)
and the folders ``query`` and ``gallery`` of images; the gallery holds the queries, too. Product has one folder,
``mini-bmk_all_in_one``, with ``label.csv`` (image and its label at each level) and ``imgs``; each image is a query
among all others.

In the published files, as the authors' own reader of them shows, no line ends after the header: the first image
stands in the same line, as in ``fname, labels0.jpg, 17``. Readers that take this line for the header lose the image;
here it is a row like any other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hgld.errors import InputError
from hgld.io.csv_files import parse_whole_number, read_rows
from hgld.ragged import Integers

log = logging.getLogger(__name__)

#: Finest first, as in a label matrix.
LEVELS = ("fine", "middle", "coarse")
#: The folder of DyML-Product's test set.
PRODUCT = "mini-bmk_all_in_one"
_LABEL = "label"
#: The last name of the header, and the first image after it.
_GLUED = re.compile(r"\s*([A-Za-z_]+)([0-9].*)")


@dataclass(frozen=True)
class DymlLevel:
    """What is to be found at a level: the gallery images with the query's label, but for the query itself.

    Args:
        query_ids: paths of the queries' images, relative to the folder.
        query_labels: int64, shape (n_query,).
        gallery_ids: paths of the gallery's images, relative to the folder.
        gallery_labels: int64, shape (n_gallery,).
        self_positions: int64, shape (n_query,): where each query is in the gallery; -1 where it is not.
    """

    query_ids: tuple[str, ...]
    query_labels: Integers
    gallery_ids: tuple[str, ...]
    gallery_labels: Integers
    self_positions: Integers


def read_test_set(folder: Path) -> dict[str, DymlLevel]:
    """Read and check the test set in a folder of DyML-Vehicle, -Animal or -Product.

    Returns:
        The levels by name, those of ``LEVELS``; in DyML-Product they share their images.

    Raises:
        InputError: there is no such test set; see :func:`hgld.io.csv_files.read_rows`, where a row is bad whose image
            stands in an earlier row or whose label is no whole number; a query has another label than the gallery
            image of the same name, so that names do not tell which one is the query itself.
    """
    if (folder / PRODUCT).is_dir():
        return _read_product(folder)
    if not (folder / f"bmk_{LEVELS[0]}").is_dir():
        raise InputError(
            f"{folder}: neither bmk_{LEVELS[0]} (DyML-Vehicle and -Animal) nor {PRODUCT} (DyML-Product) in this "
            "folder; unpack the data set here, or name the folder that holds these"
        )
    return {level: _read_level(folder, f"bmk_{level}") for level in LEVELS}


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
    position = {image: n for n, image in enumerate(gallery)}
    selves = np.array([position.get(image, -1) for image in queries])
    differs = (selves >= 0) & (query_labels != gallery_labels[selves]).any(axis=1)
    if differs.any():
        first = int(differs.argmax())
        raise InputError(
            f"{folder / name}: {differs.sum():,} queries have another label than the gallery image of the same name, "
            f"first {queries[first]} ({query_labels[first, 0]} and {gallery_labels[selves[first], 0]}); names must "
            "tell which gallery image is the query itself: rename the images so that they do, in the CSV files, too"
        )
    return DymlLevel(
        _ids(f"{name}/query", queries),
        query_labels[:, 0],
        _ids(f"{name}/gallery", gallery),
        gallery_labels[:, 0],
        selves,
    )


def _ids(folder: str, images: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{folder}/{image}" for image in images)


def read_label_csv(path: Path, columns: Sequence[str]) -> tuple[list[str], Integers]:
    """The images of a file such as ``label.csv``, and their labels: int64, shape (n_images, n_columns).

    Args:
        path: the file.
        columns: those of the labels.

    Raises:
        InputError: see :func:`read_test_set`.
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> list[int]:
        image = row["fname"].strip()
        if not image:
            raise ValueError("the fname is empty")
        if image in lines:
            raise ValueError(f"{image} stands in line {lines[image]} already; expected one row per image")
        lines[image] = line
        return [parse_whole_number(column, row[column].strip()) for column in columns]

    labels = read_rows(path, ["fname", *columns], parse, parse_header=partial(_split_first_line, columns))
    return list(lines), np.array(labels, np.int64)


def _split_first_line(columns: Sequence[str], values: list[str]) -> list[list[str]]:
    """The header, and the first row if it stands in the same line.

    >>> _split_first_line(["label"], ["fname", " labels0.jpg", " 17"])
    [['fname', 'label'], ['0.jpg', ' 17']]
    """
    width = 1 + len(columns)
    names, rest = values[:width], values[width:]
    images = []
    for n, name in enumerate(names):
        if glued := _GLUED.fullmatch(name):
            names[n] = glued[1]
            images.append(glued[2])
    # A single label is the second column, whatever it is called.
    header = ["fname", _LABEL] if len(names) == width == 2 else names
    return [header, [*images, *rest]] if rest else [header]

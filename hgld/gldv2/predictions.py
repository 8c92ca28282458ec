"""Predictions in the form of the public landmark retrieval challenges: the index images found for each test image.

A CSV file with the columns ``id``, a test image, and ``images``, the ids of index images separated by single spaces,
best first. The challenges score the first 100. A test image without a row, or with an empty cell, has no predictions.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hgld.errors import InputError, indented_list
from hgld.io.csv_files import read_rows
from hgld.io.files import atomic_write

#: Predicted index images by test image, best first. An empty text takes a rank, but is no image.
RetrievalPredictions = Mapping[str, tuple[str, ...]]
_COLUMNS = ("id", "images")


def read_retrieval_predictions(path: Path, query_ids: Iterable[str]) -> RetrievalPredictions:
    """Read predictions of test images.

    As in the published scorer, two blanks in a row enclose an empty id, which takes a rank. Unlike it, a repeated or
    unknown test image is an error even where it has no predictions.

    Args:
        path: CSV file.
        query_ids: Ids of all test images, those that are not scored included.

    Raises:
        InputError: See :func:`hgld.io.csv_files.read_rows`. A row is invalid if its id is empty or repeated. Also
            raised if an id is not that of a test image.
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        query, images = row["id"].strip(), row["images"]
        if not query:
            raise ValueError("the id is empty")
        if lines.setdefault(query, line) != line:
            raise ValueError(f"the id {query} is in line {lines[query]} already; expected one row per test image")
        return query, tuple(images.split(" ")) if images else ()

    predictions = dict(read_rows(path, _COLUMNS, parse))
    known = set(query_ids)
    if unknown := [query for query in predictions if query not in known]:
        raise InputError(
            f"{path}: {len(unknown):,} of {len(predictions):,} ids are not those of test images in the solution:\n"
            f"{indented_list(unknown, limit=5)}"
        )
    return predictions


def write_retrieval_predictions(path: Path, query_ids: Sequence[str], rankings: Iterable[Sequence[str]]) -> None:
    """Write predictions of test images, atomically.

    Args:
        path: CSV file to write or replace.
        query_ids: Ids of the test images.
        rankings: Ids of the index images of each, best first.

    Raises:
        InputError: An id is empty or has whitespace in it, which separates ids.
    """
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for query, images in zip(query_ids, rankings, strict=True):
            for image in (query, *images):
                if image.split() != [image]:
                    raise InputError(f'the id "{image}" is empty or has whitespace; predictions separate ids by it')
            writer.writerow([query, " ".join(images)])

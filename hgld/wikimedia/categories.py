"""GLDv2's lists of landmarks, which are the input of a scrape.

``train_label_to_category.csv`` and ``index_label_to_category.csv`` name each landmark by the URL of a category of
Wikimedia Commons (columns ``landmark_id`` and ``category``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.io.csv_files import parse_whole_number, read_rows
from hgld.wikimedia.titles import title_of_url

log = logging.getLogger(__name__)

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LandmarkCategory:
    """One row of ``*_label_to_category.csv``.

    Args:
        landmark_id: Id of the landmark.
        category: URL of the category as in the file.
        title: Normalised title of the category.
    """

    landmark_id: int
    category: str
    title: str


def read_categories(path: Path) -> list[LandmarkCategory]:
    """Read and validate ``*_label_to_category.csv``.

    Additional columns are ignored. A row that repeats an earlier one exactly counts once, and a UTF-8 byte order mark
    is skipped; both are logged as warnings.

    Returns:
        The landmarks in the order of the file, with unique ids.

    Raises:
        InputError: See :func:`hgld.io.csv_files.read_rows`. A row is invalid if its id is not a whole number, its URL
            not that of a Commons category, or its id in an earlier row with another URL.
    """
    first_rows: dict[int, tuple[int, str]] = {}

    def parse(line: int, row: Mapping[str, str]) -> LandmarkCategory:
        number, url = parse_whole_number("landmark_id", row["landmark_id"]), row["category"]
        landmark = LandmarkCategory(number, url, title_of_url(url))
        earlier_line, earlier_url = first_rows.setdefault(number, (line, url))
        if earlier_url != url:
            raise ValueError(
                f"landmark {number} has the category {url}, but line {earlier_line} says {earlier_url}; expected one "
                "category per landmark"
            )
        return landmark

    rows = read_rows(path, ("landmark_id", "category"), parse)
    with path.open("rb") as stream:
        if stream.read(len(_BOM)) == _BOM:
            log.warning("%s: line 1 begins with a byte order mark, which GLDv2's files do not have; skipped", path)
    if len(first_rows) < len(rows):
        log.warning("%s: %d rows repeat an earlier row and count once", path, len(rows) - len(first_rows))
        return list(dict.fromkeys(rows))
    return rows

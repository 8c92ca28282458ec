"""Google Landmarks Dataset v2's own files.

``train_label_to_category.csv`` and ``index_label_to_category.csv`` name every landmark by the URL of a
category of Wikimedia Commons (columns ``landmark_id``, ``category``).
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
class Landmark:
    """One row of ``*_label_to_category.csv``: the id, the URL as it stands there, the title in it."""

    landmark_id: int
    category: str
    title: str


def read_categories(path: Path) -> list[Landmark]:
    """Read and check ``*_label_to_category.csv``.

    Further columns are ignored. A row that repeats an earlier one word for word counts once; a UTF-8 byte
    order mark is skipped; both with a warning.

    Returns:
        The landmarks in the file's order, each id once.

    Raises:
        InputError: the file is missing, empty, not UTF-8 or without the columns, or rows have an id that is
            not an integer, a URL that is not a Commons category, or an id that stands with two URLs. All bad
            rows are reported together, by their line in the file.
    """
    first: dict[int, tuple[int, str]] = {}

    def parse(line: int, row: Mapping[str, str]) -> Landmark:
        number, url = parse_whole_number("landmark_id", row["landmark_id"]), row["category"]
        landmark = Landmark(number, url, title_of_url(url))
        earlier_line, earlier_url = first.setdefault(number, (line, url))
        if earlier_url != url:
            raise ValueError(
                f"landmark {number} has the category {url}, but line {earlier_line} says {earlier_url}; expected one "
                "category per landmark"
            )
        return landmark

    rows = read_rows(path, ("landmark_id", "category"), parse)
    with path.open("rb") as stream:
        if stream.read(len(_BOM)) == _BOM:
            log.warning("%s: line 1 begins with a byte order mark, which GLDv2's files have not; skipped", path)
    if len(first) < len(rows):
        log.warning("%s: %d rows repeat an earlier row word for word and count once", path, len(rows) - len(first))
        return list(dict.fromkeys(rows))
    return rows

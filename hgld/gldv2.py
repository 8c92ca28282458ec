"""Google Landmarks Dataset v2's own files.

``train_label_to_category.csv`` and ``index_label_to_category.csv`` name every landmark by the URL of a
category of Wikimedia Commons (columns ``landmark_id``, ``category``).
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import InputError, listing
from hgld.wikimedia.titles import title_of_url

log = logging.getLogger(__name__)

SPLITS = ("train", "index")
_COLUMNS = ("landmark_id", "category")
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
    landmarks: dict[int, Landmark] = {}
    first_lines: dict[int, int] = {}
    problems, repeated = [], 0
    for line, landmark_id, url in _rows(path):
        try:
            number = _landmark_id(landmark_id)
            landmark = Landmark(number, url, title_of_url(url))
        except ValueError as error:
            problems.append(f"line {line}: {error}")
            continue
        earlier = landmarks.setdefault(number, landmark)
        if earlier is landmark:
            first_lines[number] = line
        elif earlier.category == url:
            repeated += 1
        else:
            problems.append(
                f"line {line}: landmark {number} has the category {url}, but line {first_lines[number]} says "
                f"{earlier.category}; expected one category per landmark"
            )
    if problems:
        raise InputError(f"{path}: {len(problems):,} bad rows, nothing was done:\n{listing(problems)}")
    if not landmarks:
        raise InputError(f"{path}: no landmarks below the header")
    if repeated:
        log.warning("%s: %d rows repeat an earlier row word for word and count once", path, repeated)
    return list(landmarks.values())


def _landmark_id(text: str) -> int:
    # int() alone takes "1_000", "+7" and digits of any script.
    if not (text.isascii() and text.strip().isdecimal()):
        raise ValueError(f'the landmark_id is "{text}"; expected a whole number such as 6347')
    return int(text)


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, landmark_id and category of each row, both as they stand in the file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected GLDv2's train_label_to_category.csv or its like")
    with path.open("rb") as stream:
        start = stream.read(3)
    if not start:
        raise InputError(f"{path}: the file is empty; expected the header landmark_id,category and rows below it")
    if start == _BOM:
        log.warning("%s: line 1 begins with a byte order mark, which GLDv2's files have not; it is skipped", path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            header = next(rows, [])
            missing = [name for name in _COLUMNS if name not in header]
            if missing:
                raise InputError(
                    f"{path}: line 1: no column {' and no column '.join(missing)}; found {','.join(header)}, "
                    f"expected {','.join(_COLUMNS)}"
                )
            id_column, url_column = (header.index(name) for name in _COLUMNS)
            for row in rows:
                if not row:  # a blank line
                    continue
                if len(row) != len(header):
                    raise InputError(
                        f"{path}: line {rows.line_num}: {len(row)} values, expected {len(header)} "
                        f"({','.join(header)}); is a value with a comma not in quotes?"
                    )
                yield rows.line_num, row[id_column], row[url_column]
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: line {_line_of_byte(path, error)}: not UTF-8 (byte 0x{error.object[error.start]:02x}); "
            "save the file as UTF-8"
        ) from error
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file that can be read: {error}") from error


def _line_of_byte(path: Path, error: UnicodeDecodeError) -> int:
    """The line of the first byte that is not UTF-8; the decoder only knows its place within a buffer."""
    for line, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            raw.decode()
        except UnicodeDecodeError:
            return line
    return 1

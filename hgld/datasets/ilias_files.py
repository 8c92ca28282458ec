"""The files of ILIAS (Kordopatis-Zilos et al., Instance-Level Image retrieval At Scale, CVPR 2025, arXiv 2502.11748).

As in the code of its authors (``download`` and ``evaluation`` of github.com/ilias-vrg/ilias, commit e81029e):
``image_ids/image_query_ids.txt``, ``text_query_ids.txt`` and ``positive_ids.txt`` have an id per line, perhaps with
further values after a comma. An id is a path below ``ilias_core``: ``bold_bimp_000/query/Q000_00.jpg`` is an image of
the object ``bold_bimp_000``, ``bold_bimp_000/query/T000.txt`` its description, ``bold_bimp_000/pos/P000_00.jpg`` a
positive of both. ``misc/taxonomy.json`` nests the objects in categories of three levels, coarsest first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import InputError, bad_rows

_LISTS = {"image_query_ids.txt": "query", "text_query_ids.txt": "query", "positive_ids.txt": "pos"}
#: Names of the levels above objects, finest first.
LEVELS = ("fine", "middle", "coarse")


@dataclass(frozen=True)
class IliasIds:
    """Ids of the image queries, of the text queries and of the positives."""

    image_queries: tuple[str, ...]
    text_queries: tuple[str, ...]
    positives: tuple[str, ...]


def list_files(root: Path) -> list[Path]:
    """Return the lists of ids in the folder of the dataset, or in its folder ``image_ids`` itself."""
    folder = root / "image_ids"
    return [(folder if folder.is_dir() else root) / name for name in _LISTS]


def read_ids(root: Path) -> IliasIds:
    """Read the lists of ids.

    Raises:
        InputError: A list is missing, empty or not UTF-8, or a line does not begin with an id.
    """
    return IliasIds(*(_read_ids(path, _LISTS[path.name]) for path in list_files(root)))


def _read_ids(path: Path, folder: str) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); expected ids of ILIAS, as its download has them"
        ) from error
    ids = {number: line.split(",")[0].strip() for number, line in enumerate(lines, 1) if line.strip()}
    problems = [
        f"line {number}: {image}; expected an id such as bold_bimp_000/{folder}/..."
        for number, image in ids.items()
        if not re.fullmatch(rf"[^/]+/{folder}/[^/]+", image)
    ]
    if problems or not ids:
        raise InputError(f"{path}: {bad_rows(problems) if problems else 'no ids'}")
    return tuple(ids.values())


def object_of(image: str) -> str:
    """Return the object of an id."""
    return image.split("/")[0]


def read_taxonomy(path: Path, objects: Sequence[str]) -> dict[str, list[str]]:
    """Read the categories of objects, by level, finest first.

    Raises:
        InputError: The file is missing or malformed, or lacks an object.
    """
    try:
        nested = json.loads(path.read_text(encoding="utf-8"))
        categories_of = {
            name: (fine, middle, coarse)
            for coarse, children in nested.items()
            for middle, grandchildren in children.items()
            for fine, names in grandchildren.items()
            for name in names
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: not the taxonomy.json of ILIAS, objects in three levels of categories") from error
    if missing := [name for name in dict.fromkeys(objects) if name not in categories_of]:
        raise InputError(f"{path}: lacks {len(missing):,} of the objects, such as {missing[0]}")
    columns = zip(*(categories_of[name] for name in objects), strict=True)
    return dict(zip(LEVELS, map(list, columns), strict=True))

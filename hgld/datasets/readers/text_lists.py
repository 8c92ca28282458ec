"""What readers have in common: lists in text files, and labels that become unique."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from hgld.datasets.manifest import Manifest
from hgld.errors import InputError, indented_list
from hgld.tables import MANIFEST


@dataclass(frozen=True)
class Reading:
    """What a reader has read.

    Args:
        manifest: the images.
        left_out: how many images are not in it, by the reason.
    """

    manifest: Manifest
    left_out: Mapping[str, int] = field(default_factory=dict)


class Reader(Protocol):
    """Reads a data set. Its fields are the settings that can change the result."""

    def files(self, root: Path) -> Mapping[str, Path]:
        """The files that say which images there are and what their labels are, by the part that they play."""

    def read(self, root: Path) -> Reading:
        """The images below a folder; that their files are there is not looked at.

        Raises:
            InputError: a file is missing, or is not what it should be.
        """


def read_list(path: Path, columns: Sequence[str], *, header_lines: int = 0) -> list[list[str]]:
    """The columns of a text file with a row per line, and blanks between values.

    Args:
        path: the file.
        columns: what the values of a row are, for messages.
        header_lines: lines before the first row.

    Returns:
        For each column, the values.

    Raises:
        InputError: the file is missing, not UTF-8 or without rows, or rows have other numbers of values.
    """
    expected = " ".join(columns)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected lines with {expected}; is this the folder of the data set?")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[header_lines:]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start:,}); expected a text file") from error
    rows = [(number, line.split()) for number, line in enumerate(lines, header_lines + 1) if line.strip()]
    problems = [
        f"line {number}: {len(values)} values, expected {len(columns)} ({expected})"
        for number, values in rows
        if len(values) != len(columns)
    ]
    if problems:
        raise InputError(f"{path}: {len(problems):,} bad rows:\n{indented_list(problems)}")
    if not rows:
        raise InputError(f"{path}: no rows; expected lines with {expected}")
    return [list(column) for column in zip(*(values for _, values in rows), strict=True)]


def pictures(
    root: Path, paths: Sequence[str], splits: Sequence[str], levels: Mapping[str, Sequence[str]]
) -> Manifest:
    """A manifest of pictures in files, whose paths are their ids.

    Args:
        root: the folder of the data set, for messages.
        paths: relative to it.
        splits: of each picture.
        levels: of each picture the label at every level, finest first.

    Raises:
        InputError: see :meth:`Manifest.from_arrow`.
    """
    texts = {"id": paths, "path": paths, "split": splits, **levels}
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    nowhere = pa.nulls(len(paths), pa.int64())
    table = pa.table(columns | {"offset": nowhere, "size": nowhere}).select([*MANIFEST.schema.names, *levels])
    try:
        return Manifest.from_arrow(table, describe_row=lambda row: f"picture {row + 1}")
    except InputError as error:
        raise InputError(f"{root}: {error}") from error


def nested(levels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The same labels, where a name that stands under several others is told apart by the one above it.

    Genera of animals and of plants may have the same name, as may clothes for women and for men.

    >>> nested({"genus": ["Oenanthe", "Oenanthe", "Pinus"], "kingdom": ["Animalia", "Plantae", "Plantae"]})
    {'genus': ['Oenanthe (Animalia)', 'Oenanthe (Plantae)', 'Pinus'], 'kingdom': ['Animalia', 'Plantae', 'Plantae']}
    """
    told: dict[str, list[str]] = {}
    above: list[str] | None = None
    for level, names in reversed(list(levels.items())):
        if above is not None:
            several = Counter(name for name, _ in set(zip(names, above, strict=True)))
            names = [
                f"{name} ({parent})" if several[name] > 1 else name for name, parent in zip(names, above, strict=True)
            ]
        told[level] = above = list(names)
    return dict(reversed(list(told.items())))


def numbers(text: str) -> list[int]:
    """Numbers, and ranges of them with both ends included, with blanks between.

    >>> numbers("1 4-6")
    [1, 4, 5, 6]
    """
    ends = [[int(end) for end in item.split("-")] for item in text.split()]
    return [number for first, *last in ends for number in range(first, (last or [first])[0] + 1)]

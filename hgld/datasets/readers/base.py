"""Interface of readers, lists in text files, and manifests from columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hgld.datasets.manifest import Manifest, prefix_input_errors
from hgld.errors import InputError, bad_rows
from hgld.io.columns import is_list
from hgld.tables import MANIFEST

#: Labels of images at a level: texts, or an Arrow column of texts or of lists of texts.
LabelColumn: TypeAlias = Sequence[str] | pa.Array | pa.ChunkedArray


@dataclass(frozen=True)
class ReaderResult:
    """The images of a dataset.

    manifest: Images and labels.
    excluded: Number of images that are not in the manifest, by reason; may be 0.
    other_files: Number of files among the images that are not images, by suffix.
    broken_links: Number of links to missing images.
    """

    manifest: Manifest
    excluded: Mapping[str, int] = field(default_factory=dict)
    other_files: Mapping[str, int] = field(default_factory=dict)
    broken_links: int = 0


class Reader(Protocol):
    """Interface of readers of a dataset in its published layout.

    A reader is a frozen dataclass. The settings that affect its result are the fields of a dataclass
    in :mod:`hgld.datasets.readers.settings`, its base class. Each field is an option of the reader's
    command, whose help text is in the ``Args:`` section of the settings.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """Return the files that define the images and their labels, by their role in the layout.

        A folder or a tar file stands for the images in it.
        """

    def read(self, root: Path) -> ReaderResult:
        """Read the images of a dataset.

        Readers of published layouts do not check whether the image files exist.
        """


def read_text_lists(
    files: Mapping[str, Path], columns: Sequence[str], header_lines: int = 0
) -> dict[str, list[str]]:
    """Read the columns of text files with an image per line, whose values are separated by blanks.

    Args:
        files: File of each split.
        columns: Names of the values of a line.
        header_lines: Number of lines before the first row of a file.

    Returns:
        The columns of all files, and the column ``split``.
    """
    rows: dict[str, list[str]] = {"split": []}
    for split, path in files.items():
        for name, values in read_text_list(path, columns, header_lines).items():
            rows.setdefault(name, []).extend(values)
        n_new = len(rows[columns[0]]) - len(rows["split"])
        rows["split"] += [split] * n_new
    return rows


def read_text_list(
    path: Path, columns: Sequence[str], header_lines: int = 0
) -> dict[str, list[str]]:
    """Read the columns of a text file, see :func:`read_text_lists`."""
    expected = " ".join(columns)
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; expected lines with {expected}; is this the folder of the dataset?"
        )
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 (byte {error.start:,}); expected a text file"
        ) from error
    rows = []
    problems = []
    for number, line in enumerate(lines[header_lines:], header_lines + 1):
        values = line.split()
        if len(values) == len(columns):
            rows.append(values)
        elif values:
            problems.append(
                f"line {number}: {len(values)} values, expected {len(columns)} ({expected})"
            )
    if problems:
        raise InputError(f"{path}: {bad_rows(problems)}")
    if not rows:
        raise InputError(f"{path}: no rows; expected lines with {expected}")
    return {name: [values[number] for values in rows] for number, name in enumerate(columns)}


def match_texts(
    source: Path, texts: Sequence[str], pattern: str, example: str
) -> list[re.Match[str]]:
    """Match each text of a column, such as paths whose folders are labels.

    Args:
        source: File or folder of the texts, for messages.
        texts: The texts.
        pattern: Regular expression of a whole text.
        example: Text that matches the pattern, for messages.
    """
    matches = []
    problems = []
    for text in texts:
        match = re.fullmatch(pattern, text)
        if match is None:
            problems.append(f"{text}; expected one such as {example}")
        else:
            matches.append(match)
    if problems:
        raise InputError(f"{source}: {bad_rows(problems)}")
    return matches


def build_manifest(
    source: Path,
    columns: Mapping[str, Any],
    levels: Mapping[str, LabelColumn],
    describe_row: Callable[[int], str] = lambda row: f"image {row + 1}",
) -> Manifest:
    """Create a manifest from columns, sequences or Arrow arrays.

    Args:
        source: File or folder of the labels, for messages.
        columns: Columns ``path`` and ``split``; ``id``, by default the path; ``offset`` and ``size``
            of images in tar files.
        levels: Labels of the images by level, finest first.
        describe_row: Function from a row number to the words for that row in error messages.
    """
    nulls = pa.nulls(len(columns["path"]), pa.int64())
    columns = {"id": columns["path"], "offset": nulls, "size": nulls, **columns}
    table = {}
    for column in MANIFEST.schema:
        values = _as_arrow(columns[column.name], column.type)
        if column.name != "path":  # paths stay as in the file system
            values = _in_nfc(values)
        table[column.name] = values
    for name, labels in levels.items():
        table[name] = _in_nfc(_as_arrow(labels, pa.string()))
    with prefix_input_errors(source):
        return Manifest.from_arrow(pa.table(table), describe_row=describe_row)


def _as_arrow(values: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return values as an Arrow column, of the type ``kind`` unless they are one already."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    return pa.array(values, kind)


def _in_nfc(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column with its texts, or the texts of its lists, in NFC."""
    if column.type == pa.string():
        return pc.utf8_normalize(column, form="NFC")
    if is_list(column.type):
        texts = pc.list_flatten(column)
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
        return pa.ListArray.from_arrays(offsets, pc.utf8_normalize(texts, form="NFC"))
    return column


def disambiguate(levels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Append the parent to every name that has several parents, so that levels are nested.

    Genera of animals and of plants may have the same name, as may categories of clothes for women and for men.

    >>> disambiguate({"genus": ["Oenanthe", "Oenanthe", "Pinus"], "kingdom": ["Animalia", "Plantae", "Plantae"]})
    {'genus': ['Oenanthe (Animalia)', 'Oenanthe (Plantae)', 'Pinus'], 'kingdom': ['Animalia', 'Plantae', 'Plantae']}
    """
    unique: dict[str, list[str]] = {}
    parents: list[str] | None = None
    for level, names in reversed(list(levels.items())):
        if parents is not None:
            pairs = list(zip(names, parents, strict=True))
            n_parents = Counter(name for name, _ in set(pairs))
            names = []
            for name, parent in pairs:
                if n_parents[name] > 1:
                    name = f"{name} ({parent})"
                names.append(name)
        parents = list(names)
        unique[level] = parents
    return {level: unique[level] for level in levels}

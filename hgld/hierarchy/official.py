"""The files in which H-GLDv2 is released: ``train_label_to_hierarchical.csv``, ``index_label_to_hierarchical.csv``.

What is known of them: the columns and their order, the two file names, and from the released index landmarks
that lines end in CR LF, that rows are sorted by landmark_id, that nothing is in quotes that needs none, and that
one group is spelled ``ocean area `` with a space at its end. What is taken from that for the columns that were
not at hand (category, supercategory): that the files come from a CSV writer which puts a value in quotes where it
holds a comma, a quote or a line end, as GLDv2's own ``*_label_to_category.csv`` do.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld.io.csv_files import parse_whole_number, read_rows
from hgld.io.files import atomic_write
from hgld.tables import SPLITS

COLUMNS = ("landmark_id", "category", "supercategory", "hierarchical_label", "natural_or_human_made")
#: The released file of each split.
FILES: Mapping[str, str] = {split: f"{split}_label_to_hierarchical.csv" for split in SPLITS}

_REQUIRED = ("landmark_id", "hierarchical_label", "natural_or_human_made")
#: Groups as the released files spell them, where that is not how hgld does.
_RELEASED = {"ocean area": "ocean area "}


def split_of(path: Path) -> str | None:
    """The split that a file's name tells of.

    >>> split_of(Path("data/index_label_to_hierarchical.csv")), split_of(Path("labels.csv"))
    ('index', None)
    """
    return next((split for split in SPLITS if path.name.startswith(f"{split}_")), None)


def read_official(path: Path, split: str) -> tuple[pa.Table, list[int]]:
    """Read a released file, or one like it; category and supercategory may be missing.

    Returns:
        The table (split, landmark_id, category and supercategory where they are there, hierarchical_label,
        natural_or_human_made; texts stripped) in the file's order, and the line of each row.

    Raises:
        InputError: see :func:`hgld.io.csv_files.read_rows`; a row is bad whose landmark_id is no number or which
            has no group or root.
    """
    columns: list[str] = []

    def parse(line: int, row: Mapping[str, str]) -> list[str | int]:
        if not columns:
            columns.extend(name for name in COLUMNS if name in row)
        texts = [row[name].strip() for name in columns]
        for name in _REQUIRED:
            if not row[name].strip():
                raise ValueError(f"the {name} is empty")
        return [line, parse_whole_number("landmark_id", texts[0]), *texts[1:]]

    lines, numbers, *texts = zip(*read_rows(path, _REQUIRED, parse), strict=True)
    table = pa.table(
        {
            "split": pa.array([split] * len(lines)),
            "landmark_id": pa.array(numbers, pa.int64()),
            **{name: pa.array(values) for name, values in zip(columns[1:], texts, strict=True)},
        }
    )
    return table, list(lines)


def write_official(folder: Path, hierarchy: pa.Table) -> list[Path]:
    """Write the official files of the splits that occur, each atomically.

    Args:
        folder: where to.
        hierarchy: a table with the column split and ``COLUMNS``; category and supercategory may be missing.

    Returns:
        The files, in the order of splits.
    """
    columns = [name for name in COLUMNS if name in hierarchy.column_names]
    written = []
    for split, name in FILES.items():
        rows = hierarchy.filter(pc.equal(hierarchy["split"], split)).sort_by("landmark_id")
        if not len(rows):
            continue
        groups = [_RELEASED.get(group, group) for group in rows["hierarchical_label"].to_pylist()]
        at = rows.column_names.index("hierarchical_label")
        values = rows.set_column(at, "hierarchical_label", pa.array(groups)).select(columns)
        path = folder / name
        with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)  # CR LF, quotes where needed
            writer.writerow(columns)
            writer.writerows(zip(*(column.to_pylist() for column in values.columns), strict=True))
        written.append(path)
    return written

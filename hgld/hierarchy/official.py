"""The released CSV format of H-GLDv2: ``train_label_to_hierarchical.csv`` and ``index_label_to_hierarchical.csv``.

Known facts are the columns and their order, the file names, and from the released index landmarks: lines end in CR
LF, rows are sorted by landmark_id, values are quoted only where necessary, and one group is spelled ``ocean area ``
with a trailing space. The columns category and supercategory were not available; it is assumed that they were written
by the same CSV writer, which quotes values with commas, quotes or line ends as in GLDv2's own
``*_label_to_category.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld.io.columns import parse_whole_number, read_rows
from hgld.io.files import atomic_write
from hgld.tables import SPLITS, without_completed

OFFICIAL_COLUMNS = ("landmark_id", "category", "supercategory", "hierarchical_label", "natural_or_human_made")
#: Name of the released file of each split.
OFFICIAL_FILES: Mapping[str, str] = {split: f"{split}_label_to_hierarchical.csv" for split in SPLITS}

_REQUIRED = ("landmark_id", "hierarchical_label", "natural_or_human_made")
#: Groups whose spelling in the released files differs.
_RELEASED_SPELLING = {"ocean area": "ocean area "}


def split_from_name(path: Path) -> str | None:
    """Return the split that a file name begins with, or None.

    >>> split_from_name(Path("data/index_label_to_hierarchical.csv")), split_from_name(Path("labels.csv"))
    ('index', None)
    """
    return next((split for split in SPLITS if path.name.startswith(f"{split}_")), None)


def read_official(path: Path, split: str) -> tuple[pa.Table, list[int]]:
    """Read a CSV file in the released format; category and supercategory may be missing.

    Returns:
        A table in the order of the file (split, landmark_id, category and supercategory if present,
        hierarchical_label, natural_or_human_made; without whitespace around texts), and the line of each row.
    """
    columns: list[str] = []

    def parse(line: int, row: Mapping[str, str]) -> list[str | int]:
        if not columns:
            columns.extend(name for name in OFFICIAL_COLUMNS if name in row)
        texts = [row[name].strip() for name in columns]
        for name in _REQUIRED:
            if not row[name].strip():
                raise ValueError(f"the {name} is empty")
        return [line, parse_whole_number("landmark_id", texts[0]), *texts[1:]]

    lines, landmark_ids, *texts = zip(*read_rows(path, _REQUIRED, parse), strict=True)
    table = pa.table(
        {
            "split": pa.array([split] * len(lines)),
            "landmark_id": pa.array(landmark_ids, pa.int64()),
            **{name: pa.array(values) for name, values in zip(columns[1:], texts, strict=True)},
        }
    )
    return table, list(lines)


def write_official(folder: Path, hierarchy: pa.Table) -> list[Path]:
    """Write the released CSV files of the splits that occur, each atomically.

    Landmarks whose group comes from photographs are left out, as no column of these files would tell them apart.
    """
    hierarchy = without_completed(hierarchy)
    columns = [name for name in OFFICIAL_COLUMNS if name in hierarchy.column_names]
    paths = []
    for split, name in OFFICIAL_FILES.items():
        rows = hierarchy.filter(pc.equal(hierarchy["split"], split)).sort_by("landmark_id")
        if not len(rows):
            continue
        groups = [_RELEASED_SPELLING.get(group, group) for group in rows["hierarchical_label"].to_pylist()]
        position = rows.column_names.index("hierarchical_label")
        values = rows.set_column(position, "hierarchical_label", pa.array(groups)).select(columns)
        path = folder / name
        with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)  # CR LF, quotes where necessary
            writer.writerow(columns)
            writer.writerows(zip(*(column.to_pylist() for column in values.columns), strict=True))
        paths.append(path)
    return paths

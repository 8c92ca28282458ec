"""Load hierarchies from files, and read and write the released CSV format of H-GLDv2.

The format of ``train_label_to_hierarchical.csv`` and ``index_label_to_hierarchical.csv`` is partly
known: the file names, the columns and their order. The released index landmarks also show that
lines end in CR LF, rows are sorted by landmark_id, values are quoted only where necessary, and one
group is spelled ``ocean area `` with a trailing space. The columns category and supercategory were
not available; the writer quotes their values if they contain commas, quotes or line ends, as in
GLDv2's own ``*_label_to_category.csv``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.gldv2.settings import HOST_URL, DownloadConfig
from hgld.hierarchy.tree import Hierarchy
from hgld.io.files import cache_folder, write_csv
from hgld.io.table_rows import parse_whole_number, read_rows
from hgld.tables import SPLITS, without_completed

OFFICIAL_COLUMNS = (
    "landmark_id",
    "category",
    "supercategory",
    "hierarchical_label",
    "natural_or_human_made",
)
#: Name of the released file of each split.
OFFICIAL_FILES: Mapping[str, str] = {
    split: f"{split}_label_to_hierarchical.csv" for split in SPLITS
}

_REQUIRED = ("landmark_id", "hierarchical_label", "natural_or_human_made")
#: Groups whose spelling in the released files differs.
_RELEASED_SPELLING = {"ocean area": "ocean area "}

#: Name of the released labels for :func:`load_hierarchy`.
H_GLDV2 = "h-gldv2"


def read_official(path: Path, split: str) -> tuple[pa.Table, list[int]]:
    """Read a CSV file in the released format; category and supercategory may be missing.

    Returns:
        A table in the order of the file (split, landmark_id, category and supercategory if present,
        hierarchical_label, natural_or_human_made; without whitespace around texts), and the line of
        each row.
    """

    def parse(line: int, row: Mapping[str, str]) -> dict[str, str | int]:
        for name in _REQUIRED:
            if not row[name].strip():
                raise ValueError(f"the {name} is empty")
        values: dict[str, str | int] = {"line": line, "split": split}
        for name in OFFICIAL_COLUMNS:
            if name in row:
                values[name] = row[name].strip()
        values["landmark_id"] = parse_whole_number("landmark_id", row["landmark_id"].strip())
        return values

    table = pa.Table.from_pylist(read_rows(path, _REQUIRED, parse))
    return table.drop_columns("line"), table["line"].to_pylist()


def write_official(folder: Path, hierarchy: pa.Table) -> list[Path]:
    """Write the released CSV files of the splits that occur, each atomically.

    Landmarks whose group comes from photographs are excluded, because these files have no column
    for the source.
    """
    hierarchy = without_completed(hierarchy)
    columns = [name for name in OFFICIAL_COLUMNS if name in hierarchy.column_names]
    paths = []
    for split, name in OFFICIAL_FILES.items():
        rows = hierarchy.filter(pc.equal(hierarchy["split"], split)).sort_by("landmark_id")
        if not len(rows):
            continue
        values = []
        for row in rows.select(columns).to_pylist():
            group = row["hierarchical_label"]
            row["hierarchical_label"] = _RELEASED_SPELLING.get(group, group)
            values.append(row.values())
        path = folder / name
        write_csv(path, columns, values, lineterminator="\r\n")
        paths.append(path)
    return paths


def load_hierarchy(path_or_name: str | Path, *, split: str | None = None) -> Hierarchy:
    """Load a hierarchy.

    Args:
        path_or_name: A Parquet file from ``hgld build``; a CSV file in the released format, whose
            columns category and supercategory may be missing; a folder with ``hierarchy.parquet``,
            from ``hgld release``, or with one or both released files; or ``"h-gldv2"`` for the
            released files, which are downloaded once (:func:`released_files`).
        split: Split of a CSV file whose name does not begin with ``train_`` or ``index_``.

    Raises:
        InputError: The file is missing, or contains no valid hierarchy, see
            :meth:`Hierarchy.from_arrow`.
    """
    if path_or_name == H_GLDV2:
        return _load_official(released_files(), None)
    path = Path(path_or_name)
    if path.is_dir():
        return _load_folder(path, split)
    if path.suffix == ".csv":
        return _load_official([path], split)
    return _load_parquet([path])


def _load_folder(folder: Path, split: str | None) -> Hierarchy:
    table = folder / "hierarchy.parquet"
    if table.is_file():
        return _load_parquet([table])
    release_tables = sorted(folder.glob("data/*.parquet"))
    if release_tables:
        return _load_parquet(release_tables)
    names = OFFICIAL_FILES.values()
    official_files = [folder / name for name in names if (folder / name).is_file()]
    if official_files:
        return _load_official(official_files, split)
    raise InputError(
        f"{folder}: no hierarchy.parquet and no {' and no '.join(names)} in this folder"
    )


def _load_parquet(paths: Sequence[Path]) -> Hierarchy:
    parts = [tables.read_table(path, tables.HIERARCHY).replace_schema_metadata() for path in paths]
    try:
        return Hierarchy.from_arrow(pa.concat_tables(parts))
    except InputError as error:
        raise InputError(f"{', '.join(map(str, paths))}: {error}") from error


def _load_official(paths: Sequence[Path], split: str | None) -> Hierarchy:
    parts: list[pa.Table] = []
    row_names: list[str] = []
    for path in paths:
        file_split = split
        for name in SPLITS:
            if path.name.startswith(f"{name}_"):
                file_split = name
        if file_split not in SPLITS:
            raise ConfigurationError(
                f"{path}: the file name does not begin with a split and `split` is {file_split}; expected "
                f"{' or '.join(SPLITS)}"
            )
        table, lines = read_official(path, file_split)
        parts.append(table)
        row_names += [f"{path.name} line {line}" for line in lines]
    # Only columns that all files have: values of other columns would be missing.
    common = parts[0].column_names
    for part in parts[1:]:
        common = [name for name in common if name in part.column_names]
    try:
        table = pa.concat_tables([part.select(common) for part in parts])
        return Hierarchy.from_arrow(table, row_name=row_names.__getitem__)
    except InputError as error:
        raise InputError(f"{', '.join(map(str, paths))}: {error}") from error


def released_files() -> list[Path]:
    """Return the released CSV files of both splits, and download missing files to the cache.

    Addresses come from the README of github.com/cvdfoundation/google-landmark. The host publishes
    checksums of the tar files of photographs, but not of these files; their size is compared with
    the size that the server reports.

    Raises:
        SourceError: The files cannot be downloaded.
    """
    from hgld.gldv2.download import Downloader  # imports requests

    folder = cache_folder(H_GLDV2)
    host = os.environ.get("HGLD_GLDV2_URL", HOST_URL).rstrip("/")
    # Few retries: this runs interactively.
    downloader = Downloader(DownloadConfig(max_retries=2))
    paths = []
    for name in OFFICIAL_FILES.values():
        try:
            downloader.download(f"{host}/metadata/{name}", folder / name)
        except (ConfigurationError, SourceError) as error:
            raise SourceError(
                f"the released labels of H-GLDv2 could not be downloaded: {error}\nwithout a network, obtain "
                f"{' and '.join(OFFICIAL_FILES.values())} elsewhere and load their folder"
            ) from error
        paths.append(folder / name)
    return paths

"""Manifests that hgld did not write: CSV or Parquet files with the columns of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld.datasets.image_folders import find_in_tars, match_paths
from hgld.errors import InputError
from hgld.io.columns import preview, read_text_columns, text_column_names
from hgld.tables import MANIFEST
from hgld.tables.provenance import TABLE_KEY, read_metadata

#: First bytes of a Parquet file.
_PARQUET = b"PAR1"
#: Columns of a manifest that are no levels.
_NO_LEVELS = [*MANIFEST.schema.names, *MANIFEST.optional.names]


def is_plain_table(path: Path) -> bool:
    """Return whether a file is not a table that hgld wrote, but a CSV file or another Parquet file.

    Raises:
        InputError: The file does not exist.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {found}; expected a manifest: hgld manifest table or folder writes one")
    with path.open("rb") as stream:
        is_parquet = stream.read(len(_PARQUET)) == _PARQUET
    return not is_parquet or TABLE_KEY not in read_metadata(path)


def is_manifest(columns: Sequence[str]) -> bool:
    """Return whether a table with these columns is a manifest rather than, for instance, a table of labels alone."""
    return "path" in columns and "split" in columns


def level_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns of a manifest that are levels.

    >>> level_columns(["path", "split", "product", "kind"])
    ['product', 'kind']
    """
    return [name for name in columns if name not in _NO_LEVELS]


def read_plain_manifest(path: Path, root: Path | None = None) -> pa.Table:
    """Read a CSV or Parquet file with the columns of a manifest, in any order.

    Those are path, split, and a column of texts or numbers for each level, finest first, or of lists of them where
    images have several labels. Optional are id, by default the path, and offset and size.

    Args:
        path: Parquet file by its suffix, else a CSV file with a header.
        root: Folder of the images. If the first path is no file there, images are looked for in tar files, see
            :func:`~hgld.datasets.image_folders.match_paths`. Default: paths are those of files.

    Returns:
        The table ``manifest``.

    Raises:
        InputError: The file cannot be read or has no such columns, or values are missing.
    """
    present = text_column_names(path)
    levels = level_columns(present)
    if not is_manifest(present) or not levels:
        raise InputError(
            f"{path}: not a manifest: its columns are {preview(present)}; expected path, split and a column for each "
            "level, finest first, or write one from this table with hgld manifest table"
        )
    if boxes := [name for name in MANIFEST.optional.names if name in present]:
        raise InputError(
            f"{path}: has the column {boxes[0]}, which is read only from manifests that hgld manifest wrote; rename "
            "it if it is a level"
        )
    positions = ("offset", "size")
    texts = read_text_columns(path, present, may_be_missing=positions, may_be_lists=levels)
    if "id" not in present:
        texts = texts.append_column("id", texts["path"])
    columns = {}
    for field in MANIFEST.schema:
        column = texts[field.name] if field.name in texts.column_names else pa.nulls(len(texts), field.type)
        try:
            columns[field.name] = column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: {field.name}: {error}; expected whole numbers of bytes") from error
    table = pa.table(columns | {name: texts[name] for name in levels})
    are_files = root is None or table["offset"].null_count < len(table) or (root / str(table["path"][0])).is_file()
    return table if root is None or are_files or not root.is_dir() else _find_in_tars(table, root)


def _find_in_tars(table: pa.Table, root: Path) -> pa.Table:
    """Return the table of a manifest with the places of those images that are in tar files below a folder."""
    found = find_in_tars(root)
    rows = pa.array(match_paths(table["path"].to_pylist(), found.names), pa.int64())
    places = {"path": found.files, "offset": found.offsets, "size": found.sizes}
    for name, values in places.items():
        column = table.column_names.index(name)
        field = MANIFEST.schema.field(name)
        taken = pa.array(values, field.type).take(rows)
        table = table.set_column(column, field, pc.coalesce(taken, table[name].combine_chunks()))
    return table

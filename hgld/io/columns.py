"""Read columns of CSV and Parquet tables that hgld did not write, up to millions of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hgld.errors import InputError, indented_list
from hgld.io.csv_files import locate_invalid_byte

#: With one thread Arrow names the line that it cannot read, and is as fast.
_ONE_THREAD = pa_csv.ReadOptions(use_threads=False)


def column_names(path: Path) -> list[str]:
    """Return the column names of a Parquet file, or of a CSV file with a header.

    Raises:
        InputError: The file does not exist or cannot be read.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a CSV or Parquet file")
    try:
        if path.suffix == ".parquet":
            return list(pq.read_schema(path).names)
        with pa_csv.open_csv(path, read_options=_ONE_THREAD) as stream:
            return list(stream.schema.names)
    except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from error


def read_columns(path: Path, wanted: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """Read those of the wanted columns that a CSV or Parquet file has; no other column is loaded.

    Args:
        path: Parquet file by its suffix, else a CSV file with a header.
        wanted: Names of the columns to read.
        types: Required types by column name. Other columns keep the type that they have in the file or, in CSV, that
            Arrow infers from their values.

    Returns:
        Table with the columns in the order of ``wanted``.

    Raises:
        InputError: The file does not exist, cannot be read, or has values that do not fit their type.
    """
    types = types or {}
    present = [name for name in wanted if name in column_names(path)]
    if not present:  # Arrow's CSV reader takes an empty list for all columns.
        return pa.table({})
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=present)
            return table.cast(pa.schema([(name, types.get(name, table.field(name).type)) for name in present]))
        table = pa_csv.read_csv(
            path,
            read_options=_ONE_THREAD,
            convert_options=pa_csv.ConvertOptions(include_columns=present, column_types=types),
        )
        if pa.binary() in table.schema.types:  # what Arrow infers from texts that are not UTF-8
            raise pa.ArrowInvalid("texts are not UTF-8")
        return table
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise _unreadable(path, error) from error


def require_non_null(table: pa.Table, path: Path) -> None:
    """Check that no value is null or an empty string.

    Args:
        table: Table to check.
        path: File that the table was read from, for the message.

    Raises:
        InputError: Values are missing; the message names the columns and the first rows without a value.
    """
    problems = []
    for name in table.column_names:
        missing = pc.is_null(table[name])
        if pa.types.is_string(table[name].type):
            missing = pc.or_kleene(missing, pc.equal(table[name], ""))
        if len(rows := pc.indices_nonzero(missing)):
            problems.append(
                f"{name} is missing in {len(rows):,} of {len(table):,} rows: {preview_rows(rows.to_numpy())}"
            )
    if problems:
        raise InputError(f"{path}: values are missing; fill them in, or remove the rows:\n{indented_list(problems)}")


def preview_rows(rows: NDArray[np.int64]) -> str:
    """Format the first row numbers for a message.

    >>> preview_rows(np.array([3, 7]))
    'rows 3, 7 (the first is row 0)'
    """
    return f"rows {preview(rows.tolist())} (the first is row 0)"


def preview(values: Sequence[object], limit: int = 10) -> str:
    """Format the first values for a message.

    >>> preview(["b", "a", "c"], limit=2)
    'b, a, …'
    """
    return ", ".join(map(str, values[:limit])) + (", …" if len(values) > limit else "")


def _unreadable(path: Path, error: Exception) -> InputError:
    if path.suffix != ".parquet" and not isinstance(error, OSError) and (place := locate_invalid_byte(path)):
        return InputError(f"{path}: {place}; save the file as UTF-8")
    return InputError(f"{path}: cannot be read as a table: {error}")

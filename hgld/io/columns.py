"""Columns of tables that hgld did not write, CSV or Parquet, of millions of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hgld.errors import InputError, listing

_MOST = 10
#: One thread knows the line of what it cannot read, and is as fast.
_ONE_THREAD = pa_csv.ReadOptions(use_threads=False)


def column_names(path: Path) -> list[str]:
    """The columns of a Parquet file, or of a CSV file with a header.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a CSV or Parquet file")
    try:
        if path.suffix == ".parquet":
            return list(pq.read_schema(path).names)
        with pa_csv.open_csv(path, read_options=_ONE_THREAD) as stream:
            return list(stream.schema.names)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from error


def read_columns(path: Path, wanted: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """Those of the wanted columns that a CSV or Parquet file has; the others of 5 million rows are not kept.

    Args:
        path: the file; Parquet by its suffix, else CSV with a header.
        wanted: names of columns.
        types: what columns must be; the others are as the file has them, in CSV as their values look.

    Raises:
        InputError: there is no such file, it cannot be read, or values are not of their type.
    """
    types = types or {}
    present = [name for name in wanted if name in column_names(path)]
    if not present:  # which Arrow's CSV reader takes for all of them
        return pa.table({})
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=present)
            return table.cast(pa.schema([(name, types.get(name, table.field(name).type)) for name in present]))
        return pa_csv.read_csv(
            path,
            read_options=_ONE_THREAD,
            convert_options=pa_csv.ConvertOptions(include_columns=present, column_types=types),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise _unreadable(path, error) from error


def require_non_null(table: pa.Table, path: Path) -> None:
    """Raise where a value is null or an empty text.

    Raises:
        InputError: names the columns, and their first rows that have none.
    """
    problems = []
    for name in table.column_names:
        missing = pc.is_null(table[name])
        if pa.types.is_string(table[name].type):
            missing = pc.or_kleene(missing, pc.equal(table[name], ""))
        if len(rows := pc.indices_nonzero(missing)):
            problems.append(
                f"{name} is missing in {len(rows):,} of {len(table):,} rows: {rows_text(rows.to_numpy())}"
            )
    if problems:
        raise InputError(f"{path}: values are missing; give them, or leave the rows out:\n{listing(problems)}")


def rows_text(rows: NDArray[np.int64]) -> str:
    """The first of some rows, for messages.

    >>> rows_text(np.array([3, 7]))
    'rows 3, 7 (the first is row 0)'
    """
    return f"rows {some(rows.tolist())} (the first is row 0)"


def some(values: Sequence[object], most: int = _MOST) -> str:
    """The first of some values, for messages.

    >>> some(["b", "a", "c"], most=2)
    'b, a, …'
    """
    return ", ".join(map(str, values[:most])) + (", …" if len(values) > most else "")


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: not a table that can be read: {error}")

"""Read and write tables: validated against their schema, and written atomically."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgld.errors import InputError, indented_list
from hgld.io.files import atomic_write
from hgld.tables.provenance import TABLE_KEY, Provenance, read_metadata, with_provenance
from hgld.tables.schemas import TableSpec, required


def write_table(
    path: Path, spec: TableSpec, rows: pa.Table | Iterable[pa.RecordBatch], provenance: Provenance
) -> None:
    """Write a table of the kind ``spec``, atomically.

    Args:
        path: the file to write or replace.
        spec: the kind of table.
        rows: the rows; batches, each a row group of the file, need not be in memory together, but have only the
            columns of every such table.
        provenance: what made them.

    Raises:
        InputError: the columns, their types, a null or a repeated key do not fit ``spec``; nothing is written.
    """
    schema = spec.schema
    if isinstance(rows, pa.Table):
        _check_columns(rows, spec, path)
        # Types are the table's (embeddings have a length there), nullability is the kind's.
        schema = pa.schema(
            [field.with_type(rows.schema.field(field.name).type) for field in _layout(rows.schema.names, spec)]
        )
    schema = with_provenance(schema, spec.tag, provenance)
    keys = [schema.empty_table().select(spec.key)]
    with atomic_write(path) as draft:
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for part in [rows] if isinstance(rows, pa.Table) else map(_table_of, rows):
                _check_columns(part, spec, path)
                checked = pa.Table.from_arrays(part.columns, schema=schema)
                keys.append(checked.select(spec.key))
                writer.write_table(checked)
        _check_key(pa.concat_tables(keys), spec, path)


def read_table(path: Path, spec: TableSpec) -> pa.Table:
    """Read a table of the kind ``spec``.

    Raises:
        InputError: there is no such file, it is not Parquet, it is another table, or its columns do not fit.
    """
    tag = read_metadata(path).get(TABLE_KEY, b"").decode()
    if tag != spec.tag:
        found = f'it is a table "{tag}"' if tag else "it says nothing of a table of hgld's"
        raise InputError(f'{path}: expected a table "{spec.tag}", but {found}')
    table = pq.read_table(path)
    _check_columns(table, spec, path)
    _check_key(table, spec, path)
    return table


def repeated_keys(table: pa.Table, spec: TableSpec) -> pa.Table:
    """The keys that stand in more than one row, in the order of the first, with their number as ``count_all``."""
    keys = list(spec.key)
    groups = table.select(keys).group_by(keys, use_threads=False).aggregate([([], "count_all")])
    return groups.filter(pc.greater(groups["count_all"], 1))


def _table_of(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _layout(names: Sequence[str], spec: TableSpec) -> pa.Schema:
    """The columns that a table of this kind must have, given which optional ones it has and which are its own."""
    layout = [*spec.schema, *(column for column in spec.optional if column.name in names)]
    if spec.named_by_table is not None:
        known = {*spec.schema.names, *spec.optional.names}
        layout += [required(name, spec.named_by_table) for name in names if name not in known]
    return pa.schema(layout)


def _check_columns(rows: pa.Table, spec: TableSpec, path: Path) -> None:
    """Raise unless the columns, their types and their nulls are those of ``spec``."""
    problems = []
    layout = _layout(rows.schema.names, spec)
    if rows.schema.names != layout.names:
        problems.append(f"columns are {rows.schema.names}, expected {layout.names}")
    else:
        for wanted in layout:
            found = rows.schema.field(wanted.name).type
            nulls = rows.column(wanted.name).null_count
            if not _same_type(found, wanted.type):
                problems.append(f'"{wanted.name}" is {found}, expected {wanted.type}')
            elif nulls and not wanted.nullable:
                problems.append(f'"{wanted.name}" is null in {nulls:,} of {rows.num_rows:,} rows')
    if problems:
        raise InputError(f'{path}: not a valid "{spec.name}" table:\n{indented_list(problems)}')


def _check_key(table: pa.Table, spec: TableSpec, path: Path) -> None:
    """Raise if two rows have the same key."""
    repeated = repeated_keys(table, spec)
    if len(repeated):
        first = ", ".join(f"{name} {repeated[name][0]}" for name in spec.key)
        raise InputError(
            f'{path}: not a valid "{spec.name}" table: {len(repeated):,} keys stand more than once, first {first}'
        )


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(wanted) and pa.types.is_fixed_size_list(found):
        return bool(found.value_type == wanted.value_type)
    return bool(found == wanted)

"""Read, write and find tables: validated against their schema, and written atomically."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgld.errors import InputError, indented_list
from hgld.io.files import atomic_write, require_suffix
from hgld.tables.provenance import TABLE_KEY, Provenance, read_metadata, with_provenance
from hgld.tables.schemas import TableSpec, unlisted_values, values_of


def write_table(
    path: Path, spec: TableSpec, rows: pa.Table | Iterable[pa.RecordBatch], provenance: Provenance
) -> None:
    """Write a table atomically, after validation against its schema.

    Args:
        path: File to write or replace.
        spec: Schema of the table.
        rows: Rows as a table; or as batches, each a row group of the file, which need not fit into memory together
            and have the required columns only.
        provenance: Command, parameters and inputs of the stage.

    Raises:
        ConfigurationError: The suffix of the file is not ``.parquet``.
        InputError: The columns, their types, a null, a value or a repeated key do not fit ``spec``; nothing is
            written.
    """
    require_suffix(path, ".parquet")
    schema, parts = spec.schema, rows
    if isinstance(rows, pa.Table):
        _check_columns(rows, spec, path)
        # Types come from the rows, where embeddings have a length; nullability comes from the spec.
        schema = pa.schema([field.with_type(rows.field(field.name).type) for field in _layout(rows.schema, spec)])
        parts = [rows]
    schema = with_provenance(schema, spec.schema_id, provenance)
    keys = [schema.empty_table().select(spec.key)]
    with atomic_write(path) as draft:
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for part in parts:
                table = part if isinstance(part, pa.Table) else pa.Table.from_batches([part])
                _check_columns(table, spec, path)
                checked = pa.Table.from_arrays(table.columns, schema=schema)
                keys.append(checked.select(spec.key))
                writer.write_table(checked)
        _check_key(pa.concat_tables(keys), spec, path)


def read_table(path: Path, spec: TableSpec) -> pa.Table:
    """Read a table and validate it against its schema.

    Raises:
        InputError: There is no such file, it is not Parquet, it is another table, or its columns do not fit ``spec``.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; {spec.command} writes it")
    schema_id = read_metadata(path).get(TABLE_KEY, b"").decode()
    if schema_id != spec.schema_id:
        actual = f'it is a table "{schema_id}"' if schema_id else "its metadata name no table of hgld"
        raise InputError(f'{path}: expected a table "{spec.schema_id}", but {actual}')
    table = pq.read_table(path)
    _check_columns(table, spec, path)
    _check_key(table, spec, path)
    return table


def repeated_keys(table: pa.Table, spec: TableSpec) -> pa.Table:
    """Return the keys of more than one row, in order of first occurrence, with their number as ``count_all``."""
    keys = list(spec.key)
    groups = table.select(keys).group_by(keys, use_threads=False).aggregate([([], "count_all")])
    return groups.filter(pc.greater(groups["count_all"], 1))


def _layout(schema: pa.Schema, spec: TableSpec) -> pa.Schema:
    """Return the columns that a table must have, given its optional and free ones."""
    names = schema.names
    layout = [*spec.schema, *(column for column in spec.optional if column.name in names)]
    if spec.free_columns:
        free = [name for name in names if name not in {*spec.schema.names, *spec.optional.names}]
        types = {name: schema.field(name).type for name in free}
        layout += [
            pa.field(name, types[name] if types[name] in spec.free_columns else spec.free_columns[0], nullable=False)
            for name in free
        ]
    return pa.schema(layout)


def _check_columns(rows: pa.Table, spec: TableSpec, path: Path) -> None:
    """Raise unless the columns, their types, nulls and values are those of ``spec``."""
    problems = []
    layout = _layout(rows.schema, spec)
    if rows.schema.names != layout.names:
        problems.append(f"columns are {rows.schema.names}, expected {layout.names}")
    else:
        for expected in layout:
            actual = rows.schema.field(expected.name).type
            nulls = rows.column(expected.name).null_count
            if not _same_type(actual, expected.type):
                problems.append(f'"{expected.name}" is {actual}, expected {expected.type}')
            elif nulls and not expected.nullable:
                problems.append(f'"{expected.name}" is null in {nulls:,} of {rows.num_rows:,} rows')
            elif unlisted := unlisted_values(rows.column(expected.name), expected):
                listed = ", ".join(values_of(expected))
                problems.append(f'"{expected.name}" has the values {", ".join(unlisted)}; expected some of {listed}')
    if problems:
        raise InputError(f'{path}: not a valid "{spec.name}" table:\n{indented_list(problems)}')


def _check_key(table: pa.Table, spec: TableSpec, path: Path) -> None:
    """Raise if two rows have the same key."""
    repeated = repeated_keys(table, spec)
    if len(repeated):
        first = ", ".join(f"{name} {repeated[name][0]}" for name in spec.key)
        raise InputError(
            f'{path}: not a valid "{spec.name}" table: {len(repeated):,} keys are repeated, first {first}'
        )


def _same_type(actual: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(expected) and pa.types.is_fixed_size_list(actual):
        return bool(actual.value_type == expected.value_type)
    return bool(actual == expected)


def classes_path(scraped: Path) -> Path:
    """Return where the table ``classes`` of a scrape is: ``x.classes.parquet`` beside ``x.parquet``."""
    return scraped.with_suffix(".classes.parquet")


def find_scraped_tables(path: Path) -> list[Path]:
    """Return the scraped tables in the folder of ``path`` with usual names, such as ``scraped_train.parquet``."""
    candidates = sorted(path.parent.glob("scraped*.parquet"))
    return [table for table in candidates if table.suffixes[-2:] != [".classes", ".parquet"]]

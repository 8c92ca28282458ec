"""Read, write and find tables, which are validated against their schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.files import atomic_write, require_own_csv
from hgld.io.text_array import TextArray, in_one_chunk
from hgld.io.writable import require_suffix
from hgld.tables.provenance import (
    PROVENANCE_KEY,
    TABLE_KEY,
    Provenance,
    read_metadata,
    table_name,
    with_provenance,
)
from hgld.tables.schemas import NEUTRAL_COLUMNS, TABLES, TableSpec, unlisted_values, values_of


def write_results(path: Path, table: pa.Table, schema_id: str, provenance: Provenance) -> None:
    """Write a table for readers outside of hgld, atomically.

    Args:
        path: File to write: ``.csv``, or ``.parquet`` with provenance.
        table: The table.
        schema_id: Schema id for the metadata, such as ``comparison/2``.
        provenance: How the table was made.

    Raises:
        ConfigurationError: The file has another suffix, or it exists and hgld did not write it.
    """
    require_suffix(path, ".csv", ".parquet")
    if path.suffix == ".csv":
        require_own_csv(path, table.column_names)
    else:
        require_own_table(path)
    with atomic_write(path) as draft:
        if path.suffix == ".csv":
            pa_csv.write_csv(table, draft)
        else:
            metadata = with_provenance(table.schema, schema_id, provenance).metadata
            pq.write_table(table.replace_schema_metadata(metadata), draft, compression="zstd")


def require_own_table(path: Path) -> None:
    """Check that a Parquet file may be replaced: it does not exist, or hgld wrote it.

    Raises:
        ConfigurationError: Another program wrote the file.
    """
    if not path.exists():
        return
    try:
        metadata = read_metadata(path)
    except InputError:
        metadata = {}
    if TABLE_KEY not in metadata and PROVENANCE_KEY not in metadata:
        raise ConfigurationError(
            f"{path}: exists, and hgld did not write it; remove it, or name another file"
        )


#: Rows of a table, or batches of them.
Rows: TypeAlias = pa.Table | Iterable[pa.RecordBatch]
#: Number of rows in a chunk of a column that contains only nulls.
_CHUNK = 2**16


def write_table(
    path: Path,
    spec: TableSpec,
    rows: Rows,
    provenance: Provenance,
    *,
    neutral: bool = False,
) -> None:
    """Validate a table against its schema, and write it atomically.

    Args:
        path: Parquet file to write.
        spec: Schema of the table.
        rows: The table, or batches with the required columns. Each batch becomes a row group of the
            file; the batches need not fit into memory together.
        provenance: How the table was made.
        neutral: Use the column names for entities of any list; see :mod:`hgld.tables.schemas`.

    Raises:
        ConfigurationError: The suffix of the file is not ``.parquet``, or it exists and hgld did
            not write it.
        InputError: The columns, their types, a null, a value or a repeated key do not fit ``spec``;
            nothing is written.
    """
    require_suffix(path, ".parquet")
    require_own_table(path)
    parts = _iterate_parts(rows, spec, neutral=neutral)
    first = next(parts, spec.schema.empty_table())
    layout = spec.of_columns(first.column_names)
    _check_columns(first, layout, path)
    # Types come from the rows, where embeddings have a length; nullability comes from the spec.
    fields = []
    for field in _expected_schema(first.schema, layout):
        fields.append(field.with_type(first.field(field.name).type))
    schema = with_provenance(pa.schema(fields), spec.schema_id, provenance)
    keys = []
    with atomic_write(path) as draft:
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:

            def write(part: pa.Table) -> None:
                _check_columns(part, layout, path)
                checked = pa.Table.from_arrays(part.columns, schema=schema)
                keys.append(checked.select(layout.key))
                writer.write_table(checked)

            write(first)
            # No part stays in memory while the next part is made.
            del first
            for part in parts:
                write(part)
                del part
        _check_key(pa.concat_tables(keys), layout, path)


def _iterate_parts(rows: Rows, spec: TableSpec, *, neutral: bool) -> Iterator[pa.Table]:
    """Iterate over the rows as tables with the column names of the file."""
    if isinstance(rows, pa.Table):
        yield with_neutral_names(rows, spec) if neutral else rows
        return
    for batch in rows:
        part = pa.Table.from_batches([batch])
        del batch
        yield with_neutral_names(part, spec) if neutral else part
        del part


def read_table(
    path: Path, spec: TableSpec, *, encoded: Callable[[str], bool] = lambda _: False
) -> pa.Table:
    """Read a table and validate it against its schema.

    Args:
        path: The Parquet file.
        spec: Schema of the table.
        encoded: Returns whether a column of texts, given its name, becomes a dictionary, which
            saves memory if few texts are repeated.

    Raises:
        InputError: The file does not exist or is not Parquet, it is another table, or its columns
            do not fit ``spec``.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; {spec.command} writes it")
    try:
        schema_id = read_metadata(path).get(TABLE_KEY, b"").decode()
    except InputError as error:
        raise InputError(
            f'{error}; expected a table "{spec.schema_id}"; {spec.command} writes one'
        ) from error
    if schema_id != spec.schema_id:
        actual = "its metadata name no table of hgld"
        if schema_id:
            actual = f'it is a table "{schema_id}"'
        raise InputError(
            f'{path}: expected a table "{spec.schema_id}", but {actual}; {spec.command} writes one'
        )
    table = _read_columns(path, encoded)
    layout = spec.of_columns(table.column_names)
    _check_columns(table, layout, path)
    _check_key(table, layout, path)
    if layout is not spec:
        table = without_neutral_names(table, spec)
    return table


def _read_columns(path: Path, encoded: Callable[[str], bool]) -> pa.Table:
    """Read columns one after another, since decoding takes memory beside the result."""
    schema = pq.read_schema(path)
    columns = {}
    texts = [field.name for field in schema if field.type == pa.string() and encoded(field.name)]
    with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
        for name in schema.names:
            column = file.read([name])[name]
            if column.null_count == len(column) > _CHUNK:
                column = _nulls(len(column), column.type)
            if pa.types.is_string(column.type):
                column = in_one_chunk(column)
            columns[name] = column
            pa.default_memory_pool().release_unused()
    fields = [schema.field(name).with_type(column.type) for name, column in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields, schema.metadata))


def _nulls(n: int, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of n nulls whose chunks share their memory."""
    chunk = pa.nulls(_CHUNK, kind)
    chunks = [chunk] * (n // _CHUNK)
    chunks.append(chunk[: n % _CHUNK])
    return pa.chunked_array(chunks)


def is_neutral(path: Path) -> bool:
    """Return whether a file is a table whose columns have the names for entities of any list."""
    if path.suffix != ".parquet":
        return False
    spec = TABLES.get(table_name(path))
    return spec is not None and spec.of_columns(pq.read_schema(path).names) is not spec


def without_completed(hierarchy: pa.Table) -> pa.Table:
    """Return the landmarks whose group does not come from photographs.

    These are all landmarks if the table has no column label_source.
    """
    if "label_source" not in hierarchy.column_names:
        return hierarchy
    return hierarchy.filter(pc.not_equal(hierarchy["label_source"], "photographs"))


def nouns(*, neutral: bool) -> tuple[str, str]:
    """Return the singular and plural words for the things that have labels."""
    if neutral:
        return "entity", "entities"
    return "landmark", "landmarks"


def with_neutral_names(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return a table with the column names for entities of any list; see :mod:`hgld.tables.schemas`."""
    if spec.neutral is spec:
        return rows
    columns = {}
    for name in rows.column_names:
        column = rows[name]
        if name == "landmarks_train" and "landmarks_index" in rows.column_names:
            column = pc.add(column, rows["landmarks_index"])
        if name not in NEUTRAL_COLUMNS:
            columns[name] = column
            continue
        neutral_field = NEUTRAL_COLUMNS[name]
        if neutral_field is not None:
            columns[neutral_field.name] = column
    return pa.table(columns, metadata=rows.schema.metadata)


def without_neutral_names(table: pa.Table, spec: TableSpec) -> pa.Table:
    """Return a table with the column names for landmarks, which stages use."""
    landmark_names = {}
    for name in spec.schema.names + spec.optional.names:
        field = NEUTRAL_COLUMNS.get(name)
        if field is not None:
            landmark_names[field.name] = name
    table = table.rename_columns([landmark_names.get(name, name) for name in table.column_names])
    if "landmarks_train" in table.column_names:
        position = table.column_names.index("landmarks_train") + 1
        zeros = pa.array(np.zeros(len(table), np.int64))
        table = table.add_column(position, "landmarks_index", zeros)
    return table


def repeated_keys(table: pa.Table, spec: TableSpec) -> pa.Table:
    """Return the keys that several rows share, in order of first occurrence.

    The column ``count_all`` is the number of rows with the key.
    """
    keys = list(spec.key)
    groups = table.select(keys).group_by(keys, use_threads=False).aggregate([([], "count_all")])
    return groups.filter(pc.greater(groups["count_all"], 1))


def _expected_schema(schema: pa.Schema, spec: TableSpec) -> pa.Schema:
    """Return the schema that a table must have, given the optional and free columns that it has."""
    fields = list(spec.schema)
    for field in spec.optional:
        if field.name in schema.names:
            fields.append(field)
    if spec.free_columns:
        known_names = spec.schema.names + spec.optional.names
        for field in schema:
            if field.name not in known_names:
                kind = field.type if field.type in spec.free_columns else spec.free_columns[0]
                fields.append(pa.field(field.name, kind, nullable=False))
    return pa.schema(fields)


def _check_columns(rows: pa.Table, spec: TableSpec, path: Path) -> None:
    """Raise an InputError if the columns, their types, nulls or values do not fit ``spec``."""
    problems = []
    schema = _expected_schema(rows.schema, spec)
    if rows.schema.names != schema.names:
        problems.append(f"columns are {rows.schema.names}, expected {schema.names}")
    else:
        for expected in schema:
            problem = _describe_problem(rows[expected.name], expected, spec)
            if problem:
                problems.append(f'"{expected.name}" {problem}')
    if problems:
        raise InputError(f'{path}: not a valid "{spec.name}" table:\n{indented_list(problems)}')


def _describe_problem(column: pa.ChunkedArray, expected: pa.Field, spec: TableSpec) -> str:
    """Return why a column does not fit its field in the schema; "" if it fits."""
    # The id of an entity may be text or a whole number.
    is_integer_id = (
        expected.name == "id" and spec.key == ("split", "id") and column.type == pa.int64()
    )
    if not is_integer_id and not _same_type(column.type, expected.type):
        return f"is {column.type}, expected {expected.type}"
    if column.null_count and not expected.nullable:
        return f"is null in {column.null_count:,} of {len(column):,} rows"
    unlisted = unlisted_values(column, expected)
    if unlisted:
        listed = ", ".join(values_of(expected))
        return f"has the values {', '.join(unlisted)}; expected some of {listed}"
    return ""


def _check_key(table: pa.Table, spec: TableSpec, path: Path) -> None:
    """Raise an InputError if two rows have the same key."""
    # A single column of texts is checked with less memory.
    is_text_id = spec.key == ("id",) and pa.types.is_string(table["id"].type)
    if is_text_id and TextArray(table["id"]).is_unique():
        return
    repeated = repeated_keys(table, spec)
    if len(repeated):
        first = ", ".join(f"{name} {repeated[name][0]}" for name in spec.key)
        raise InputError(
            f'{path}: not a valid "{spec.name}" table: {len(repeated):,} keys are repeated, first {first}'
        )


def _same_type(actual: pa.DataType, expected: pa.DataType) -> bool:
    """Compare types; dictionaries equal their values, and fixed-size lists may have any length."""
    if pa.types.is_dictionary(actual):
        actual = actual.value_type
    if pa.types.is_fixed_size_list(expected) and pa.types.is_fixed_size_list(actual):
        return bool(actual.value_type == expected.value_type)
    return bool(actual == expected)


def classes_path(scraped: Path) -> Path:
    """Return the path of the classes of a scrape: ``x.classes.parquet`` beside ``x.parquet``."""
    return scraped.with_suffix(".classes.parquet")


def find_classes_tables(path: Path) -> list[Path]:
    """Return the tables ``classes`` in the folder of ``path``: ``*.classes.parquet``."""
    return sorted(path.parent.glob("*.classes.parquet"))


def find_scraped_tables(path: Path) -> list[Path]:
    """Return the scraped tables in the folder of ``path``, such as ``scraped_train.parquet``."""
    candidates = sorted(path.parent.glob("scraped*.parquet"))
    return [table for table in candidates if table.suffixes[-2:] != [".classes", ".parquet"]]

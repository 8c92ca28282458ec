"""Read, write and find tables, validated against their schema, with the provenance of what they were made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.columns import PARQUET, starts_with
from hgld.io.files import atomic_write, require_own_csv, sha256_of
from hgld.io.text_array import TextArray, in_one_chunk
from hgld.io.writable import require_suffix
from hgld.tables.schemas import NEUTRAL_COLUMNS, TABLES, TableSpec, unlisted_values, values_of
from hgld.version import __version__

TABLE_KEY = b"hgld.table"
_PROVENANCE_KEY = b"hgld.provenance"


@dataclass(frozen=True)
class Provenance:
    """Record of how a table was made.

    Args:
        command: Stage, such as ``clean``.
        parameters: Settings that can change the result; JSON values only.
        inputs: SHA-256 in hexadecimal of every input file, by its role.
        before: Provenance of the table to which this stage only added columns.
    """

    command: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__
    before: Provenance | None = None

    def to_json(self) -> str:
        """Return JSON with sorted keys: equal provenances give equal texts."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(fields, sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Parse the output of :meth:`to_json`."""
        fields = json.loads(text)
        before = fields.pop("before", None)
        return cls(**fields, before=cls(**before) if before else None)

    def same_work(self, other: Provenance) -> bool:
        """Return whether both have the same command, parameters and inputs; the version of hgld may differ."""
        return (self.command, self.parameters, self.inputs) == (
            other.command,
            other.parameters,
            other.inputs,
        )

    def changes(self, other: Provenance) -> list[str]:
        """Describe the parameters and inputs that differ in a later provenance of the same command; a line each."""
        before, now = (
            {**provenance.parameters, **provenance.inputs} for provenance in (self, other)
        )
        return [
            f"{key}: {before.get(key)} then, {now.get(key)} now"
            for key in now
            if before.get(key) != now[key]
        ]


def input_digests(**inputs: Path | Sequence[Path] | None) -> dict[str, str]:
    """Return the SHA-256 of input files by role, for :attr:`Provenance.inputs`.

    Args:
        **inputs: A file; a folder, of which the tables are digested under ``role/name``, as are the parts of
            ``embeddings``; several files, which are numbered ``role.0`` and so on; or None, which is omitted.
    """
    files: dict[str, Path] = {}
    for role, paths in inputs.items():
        if not isinstance(paths, Path):
            files |= {f"{role}.{n}": path for n, path in enumerate(paths or ())}
        elif paths.is_dir():
            patterns: tuple[str, ...] = (
                "*.csv",
                "*.parquet",
                "data/*.parquet",
            )  # the last one is that of a release
            patterns += ("*.npy", "*.safetensors") if role.endswith("embeddings") else ()
            tables = sorted(path for pattern in patterns for path in paths.glob(pattern))
            files |= {"/".join((role, *path.relative_to(paths).parts)): path for path in tables}
        else:
            files[role] = paths
    return {role: sha256_of(path) for role, path in files.items()}


def with_provenance(schema: pa.Schema, schema_id: str, provenance: Provenance) -> pa.Schema:
    """Return the schema with the metadata of a file: its schema id, such as ``clean/1``, and its provenance."""
    return schema.with_metadata({TABLE_KEY: schema_id, _PROVENANCE_KEY: provenance.to_json()})


def write_results(path: Path, table: pa.Table, schema_id: str, provenance: Provenance) -> None:
    """Write a table for readers outside of hgld, atomically: ``.csv``, or ``.parquet`` with its provenance.

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
    """Raise unless a Parquet file may be replaced: it does not exist, or hgld wrote it, by its metadata.

    Raises:
        ConfigurationError: Another program wrote the file.
    """
    if not path.exists():
        return
    try:
        metadata = read_metadata(path)
    except InputError:
        metadata = {}
    if TABLE_KEY not in metadata and _PROVENANCE_KEY not in metadata:
        raise ConfigurationError(
            f"{path}: exists, and hgld did not write it; remove it, or name another file"
        )


def read_provenance(path: Path) -> Provenance:
    """Read the provenance of a table, or raise an :class:`InputError` if there is none that hgld wrote."""
    text = read_metadata(path).get(_PROVENANCE_KEY)
    if text is None:
        raise InputError(
            f"{path}: not written by hgld (its metadata has no {_PROVENANCE_KEY.decode()})"
        )
    return Provenance.from_json(text.decode())


def is_up_to_date(path: Path, provenance: Provenance) -> bool:
    """Return whether ``path`` holds a table that the same command made from the same inputs and parameters.

    Another stage may have added columns to the table since.
    """
    try:
        actual = read_provenance(path)
    except InputError:
        return False
    return actual.same_work(provenance) or (
        actual.before is not None and actual.before.same_work(provenance)
    )


def read_metadata(path: Path) -> dict[bytes, bytes]:
    """Read the key-value metadata of a Parquet file, or raise an :class:`InputError` if there is none."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        return pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        reason = f" ({error})" if starts_with(path, PARQUET) else ""
        raise InputError(f"{path}: not a Parquet file{reason}") from error


#: Rows of a table, or batches of them.
Rows: TypeAlias = pa.Table | Iterable[pa.RecordBatch]
#: Length of the chunks of columns of one value.
_CHUNK = 2**16


def write_table(
    path: Path,
    spec: TableSpec,
    rows: Rows,
    provenance: Provenance,
    *,
    neutral: bool = False,
) -> None:
    """Write a table atomically, after validation against its schema.

    Rows may be batches, each a row group of the file, which need not fit into memory together and have the required
    columns only. With ``neutral``, columns have the names for entities of any list, see :mod:`hgld.tables.schemas`.

    Raises:
        ConfigurationError: The suffix of the file is not ``.parquet``, or it exists and hgld did not write it.
        InputError: The columns, their types, a null, a value or a repeated key do not fit ``spec``; nothing is
            written.
    """
    require_suffix(path, ".parquet")
    require_own_table(path)
    parts = iter([rows]) if isinstance(rows, pa.Table) else map(_as_table, rows)
    if neutral:
        parts = (with_neutral_names(part, spec) for part in parts)
    first = next(parts, spec.schema.empty_table())
    layout = spec.of_columns(first.column_names)
    _check_columns(first, layout, path)
    # Types come from the rows, where embeddings have a length; nullability comes from the spec.
    schema = pa.schema(
        [field.with_type(first.field(field.name).type) for field in _layout(first.schema, layout)]
    )
    schema = with_provenance(schema, spec.schema_id, provenance)
    keys = []
    with atomic_write(path) as draft:
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:

            def write(part: pa.Table) -> None:
                _check_columns(part, layout, path)
                checked = pa.Table.from_arrays(part.columns, schema=schema)
                keys.append(checked.select(layout.key))
                writer.write_table(checked)

            write(first)
            del first  # no part stays in memory while the next one is made
            for part in parts:
                write(part)
                del part
        _check_key(pa.concat_tables(keys), layout, path)


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def read_table(
    path: Path, spec: TableSpec, *, encoded: Callable[[str], bool] = lambda _: False
) -> pa.Table:
    """Read a table and validate it against its schema.

    Args:
        encoded: Returns whether a column of texts, given its name, has few distinct ones and becomes a dictionary.

    Raises:
        InputError: There is no such file, it is not Parquet, it is another table, or its columns do not fit ``spec``.
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
        actual = (
            f'it is a table "{schema_id}"' if schema_id else "its metadata name no table of hgld"
        )
        raise InputError(
            f'{path}: expected a table "{spec.schema_id}", but {actual}; {spec.command} writes one'
        )
    table = _read_columns(path, encoded)
    layout = spec.of_columns(table.column_names)
    _check_columns(table, layout, path)
    _check_key(table, layout, path)
    return table if layout is spec else without_neutral_names(table, spec)


def _read_columns(path: Path, encoded: Callable[[str], bool]) -> pa.Table:
    """Read columns one after another, as decoding takes memory beside the result."""
    schema, columns = pq.read_schema(path), {}
    texts = [field.name for field in schema if field.type == pa.string() and encoded(field.name)]
    with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
        for name in schema.names:
            column = file.read([name])[name]
            if column.null_count == len(column) > _CHUNK:
                column = _repeated(pa.nulls(_CHUNK, column.type), len(column))
            columns[name] = in_one_chunk(column) if pa.types.is_string(column.type) else column
            pa.default_memory_pool().release_unused()
    fields = [schema.field(name).with_type(column.type) for name, column in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields, schema.metadata))


def _repeated(chunk: pa.Array, n: int) -> pa.ChunkedArray:
    """Return a column of n values, which is one chunk again and again."""
    return pa.chunked_array([*[chunk] * (n // len(chunk)), chunk[: n % len(chunk)]])


def table_name(path: Path) -> str:
    """Return which table a Parquet file holds, such as clean; empty if it is no table of hgld."""
    return read_metadata(path).get(TABLE_KEY, b"").decode().partition("/")[0]


def is_neutral(path: Path) -> bool:
    """Return whether a file is a table whose columns have the names for entities of any list."""
    if path.suffix != ".parquet":
        return False
    spec = TABLES.get(table_name(path))
    return spec is not None and spec.of_columns(pq.read_schema(path).names) is not spec


def without_completed(hierarchy: pa.Table) -> pa.Table:
    """Return the landmarks whose group does not come from photographs: all, without the column label_source."""
    if "label_source" not in hierarchy.column_names:
        return hierarchy
    return hierarchy.filter(pc.not_equal(hierarchy["label_source"], "photographs"))


def nouns(*, neutral: bool) -> tuple[str, str]:
    """Return the words for one and for several of what has labels: landmarks, or entities of any other list."""
    return ("entity", "entities") if neutral else ("landmark", "landmarks")


def with_neutral_names(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return a table with the column names for entities of any list, see :mod:`hgld.tables.schemas`."""
    if spec.neutral is spec:
        return rows
    if "landmarks_index" in rows.column_names:
        counts = pc.add(rows["landmarks_train"], rows["landmarks_index"])
        rows = rows.set_column(
            rows.column_names.index("landmarks_train"), "landmarks_train", counts
        )
    kept = [name for name in rows.column_names if NEUTRAL_COLUMNS.get(name, spec) is not None]
    return rows.select(kept).rename_columns(
        [getattr(NEUTRAL_COLUMNS.get(name), "name", name) for name in kept]
    )


def without_neutral_names(table: pa.Table, spec: TableSpec) -> pa.Table:
    """Return a table with the column names for landmarks, which stages use."""
    own = {*spec.schema.names, *spec.optional.names}
    names = {
        field.name: name
        for name, field in NEUTRAL_COLUMNS.items()
        if field is not None and name in own
    }
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    if "landmarks_train" in table.column_names:
        position = table.column_names.index("landmarks_train") + 1
        table = table.add_column(
            position, "landmarks_index", pa.array(np.zeros(len(table), np.int64))
        )
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
            pa.field(
                name,
                types[name] if types[name] in spec.free_columns else spec.free_columns[0],
                nullable=False,
            )
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
            is_integer_id = (
                expected.name == "id" and spec.key == ("split", "id") and actual == pa.int64()
            )
            if not (_same_type(actual, expected.type) or is_integer_id):
                problems.append(f'"{expected.name}" is {actual}, expected {expected.type}')
            elif nulls and not expected.nullable:
                problems.append(f'"{expected.name}" is null in {nulls:,} of {rows.num_rows:,} rows')
            elif unlisted := unlisted_values(rows.column(expected.name), expected):
                listed = ", ".join(values_of(expected))
                problems.append(
                    f'"{expected.name}" has the values {", ".join(unlisted)}; expected some of {listed}'
                )
    if problems:
        raise InputError(f'{path}: not a valid "{spec.name}" table:\n{indented_list(problems)}')


def _check_key(table: pa.Table, spec: TableSpec, path: Path) -> None:
    """Raise if two rows have the same key."""
    if (
        spec.key == ("id",)
        and pa.types.is_string(table["id"].type)
        and TextArray(table["id"]).is_unique()
    ):
        return
    repeated = repeated_keys(table, spec)
    if len(repeated):
        first = ", ".join(f"{name} {repeated[name][0]}" for name in spec.key)
        raise InputError(
            f'{path}: not a valid "{spec.name}" table: {len(repeated):,} keys are repeated, first {first}'
        )


def _same_type(actual: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_dictionary(actual):
        actual = actual.value_type
    if pa.types.is_fixed_size_list(expected) and pa.types.is_fixed_size_list(actual):
        return bool(actual.value_type == expected.value_type)
    return bool(actual == expected)


def classes_path(scraped: Path) -> Path:
    """Return where the table ``classes`` of a scrape is: ``x.classes.parquet`` beside ``x.parquet``."""
    return scraped.with_suffix(".classes.parquet")


def find_classes_tables(path: Path) -> list[Path]:
    """Return the tables ``classes`` in the folder of ``path``: ``*.classes.parquet``."""
    return sorted(path.parent.glob("*.classes.parquet"))


def find_scraped_tables(path: Path) -> list[Path]:
    """Return the scraped tables in the folder of ``path`` with usual names, such as ``scraped_train.parquet``."""
    candidates = sorted(path.parent.glob("scraped*.parquet"))
    return [table for table in candidates if table.suffixes[-2:] != [".classes", ".parquet"]]

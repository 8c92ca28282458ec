"""The tables that pass between stages: their schemas, and reading and writing them.

A table on disk is complete and valid or it is not there: it is written beside its name and then renamed, and
what does not fit its schema is refused on the way out as on the way in. Its Arrow metadata says what it is
(``hgld.table``, e.g. ``clean/1``) and what made it (``hgld.provenance``: the command, hgld's version, the
parameters and the SHA-256 of every input), so that a stage can tell that it has nothing to do.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgld import __version__
from hgld.errors import InputError, listing

_TABLE_KEY = b"hgld.table"
_PROVENANCE_KEY = b"hgld.provenance"

#: One "instance of" value: the class's item, its label and the label's language. ``item`` is null where the
#: source does not show it, ``language`` where it does not say it or where the label is the bare item id.
INSTANCE_OF = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("item", pa.string()),
                pa.field("label", pa.string(), nullable=False),
                pa.field("language", pa.string()),
            ]
        ),
        nullable=False,
    )
)
_TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))
#: The groups that a label may belong to, best first: the group, the probability that an annotator chooses it
#: (calibrated, 0 to 1) and in words what speaks for it.
SUGGESTIONS = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("group", pa.string(), nullable=False),
                pa.field("score", pa.float32(), nullable=False),
                pa.field("reason", pa.string(), nullable=False),
            ]
        ),
        nullable=False,
    )
)
#: A fixed-size list of any length: the length is the encoder's business.
_EMBEDDING = pa.list_(pa.field("element", pa.float32(), nullable=False), 0)


@dataclass(frozen=True)
class TableSpec:
    """A kind of table.

    Args:
        name: what it is called.
        version: of its layout.
        schema: the columns that it always has.
        key: the columns that no two rows agree in.
        optional: columns that may follow, in this order.
        named_by_table: the type of any further columns, whose names and number are a table's own; None for none.
    """

    name: str
    version: int
    schema: pa.Schema
    key: tuple[str, ...]
    optional: pa.Schema = field(default_factory=lambda: pa.schema([]))
    named_by_table: pa.DataType | None = None

    @property
    def tag(self) -> str:
        """What ``hgld.table`` says in a file's metadata."""
        return f"{self.name}/{self.version}"


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


SCRAPED = TableSpec(
    "scraped",
    1,
    pa.schema(
        [
            _required("split", pa.string()),
            _required("landmark_id", pa.int64()),
            _required("category", pa.string()),
            _required("title", pa.string()),
            pa.field("resolved_title", pa.string()),
            pa.field("item", pa.string()),
            pa.field("route", pa.string()),
            pa.field("revision", pa.int64()),
            _required("instance_of", INSTANCE_OF),
            _required("status", pa.string()),
            _required("source", pa.string()),
            # Parquet knows no coarser unit.
            _required("fetched_at", pa.timestamp("ms", tz="UTC")),
        ]
    ),
    key=("split", "landmark_id"),
)

CLASSES = TableSpec(
    "classes",
    1,
    pa.schema(
        [
            _required("item", pa.string()),
            _required("label", pa.string()),
            pa.field("language", pa.string()),
            _required("subclass_of", _TEXTS),
        ]
    ),
    key=("item",),
)

CLEAN = TableSpec(
    "clean",
    1,
    pa.schema(
        [
            _required("split", pa.string()),
            _required("landmark_id", pa.int64()),
            _required("category", pa.string()),
            _required("supercategory", pa.string()),
            pa.field("class_item", pa.string()),
        ]
    ),
    key=("split", "landmark_id"),
)

REMOVED = TableSpec(
    "removed",
    1,
    pa.schema(
        [
            _required("split", pa.string()),
            _required("landmark_id", pa.int64()),
            _required("category", pa.string()),
            _required("reason", pa.string()),
            _required("instance_of", INSTANCE_OF),
        ]
    ),
    key=("split", "landmark_id"),
)

LABEL_EMBEDDINGS = TableSpec(
    "label_embeddings",
    1,
    pa.schema(
        [
            _required("label_id", pa.string()),
            _required("label", pa.string()),
            _required("landmarks_train", pa.int64()),
            _required("landmarks_index", pa.int64()),
            _required("embedding", _EMBEDDING),
        ]
    ),
    key=("label_id",),
)

CLUSTERS = TableSpec(
    "clusters",
    2,
    pa.schema(
        [
            _required("label_id", pa.string()),
            _required("label", pa.string()),
            _required("landmarks_train", pa.int64()),
            _required("landmarks_index", pa.int64()),
            _required("cluster", pa.int32()),
            _required("cluster_name", pa.string()),
            _required("subcluster", pa.int32()),
            _required("distance", pa.float32()),
            pa.field("suggested_group", pa.string()),
            pa.field("suggestion_score", pa.float32()),
            # The two columns before are the first of these, for readers of flat tables.
            _required("suggestions", SUGGESTIONS),
        ]
    ),
    key=("label_id",),
)

HIERARCHY = TableSpec(
    "hierarchy",
    1,
    pa.schema(
        [
            _required("split", pa.string()),
            _required("landmark_id", pa.int64()),
            _required("category", pa.string()),
            _required("supercategory", pa.string()),
            _required("hierarchical_label", pa.string()),
            _required("natural_or_human_made", pa.string()),
        ]
    ),
    key=("split", "landmark_id"),
    optional=pa.schema(
        [
            # Levels between hierarchical_label and natural_or_human_made, finest first; as many in every row.
            _required("extra_levels", _TEXTS),
            # All super-categories of the landmark, of which hierarchical_label is the first.
            _required("hierarchical_labels", _TEXTS),
        ]
    ),
)

IMAGES = TableSpec(
    "images",
    1,
    pa.schema(
        [
            _required("id", pa.string()),
            # The tar file, relative to the folder that was indexed, and where in it the photograph's bytes are.
            _required("shard", pa.string()),
            _required("offset", pa.int64()),
            _required("size", pa.int64()),
        ]
    ),
    key=("id",),
)

MANIFEST = TableSpec(
    "manifest",
    1,
    pa.schema(
        [
            _required("id", pa.string()),
            # A picture, or a tar file and where in it the picture's bytes are; relative to a folder named on use.
            _required("path", pa.string()),
            pa.field("offset", pa.int64()),
            pa.field("size", pa.int64()),
            _required("split", pa.string()),
        ]
    ),
    key=("id",),
    # A column per level, finest first.
    named_by_table=pa.string(),
)

#: What a run found and took, for the tables of a comparison.
_OF_RUN = [
    _required("seed", pa.int64()),
    _required("metric", pa.string()),
    # From 0 to 1; NaN where no query has the metric.
    _required("value", pa.float64()),
    _required("steps", pa.int64()),
    _required("train_seconds", pa.float64()),
    _required("device", pa.string()),
    _required("machine", pa.string()),
]

COMPARISON = TableSpec(
    "comparison",
    1,
    pa.schema(
        [
            _required("method", pa.string()),
            _required("title", pa.string()),
            _required("baseline", pa.bool_()),
            *_OF_RUN,
        ]
    ),
    key=("method", "seed", "metric"),
)

STUDY = TableSpec(
    "study",
    1,
    pa.schema(
        [
            _required("curve", pa.string()),
            # The value of what is studied, as text.
            _required("setting", pa.string()),
            _required("method", pa.string()),
            *_OF_RUN,
        ]
    ),
    key=("curve", "setting", "seed", "metric"),
)

TABLES: Mapping[str, TableSpec] = {
    spec.name: spec
    for spec in (
        SCRAPED,
        CLASSES,
        CLEAN,
        REMOVED,
        LABEL_EMBEDDINGS,
        CLUSTERS,
        HIERARCHY,
        IMAGES,
        MANIFEST,
        COMPARISON,
        STUDY,
    )
}


@dataclass(frozen=True)
class Provenance:
    """What made a table.

    Args:
        command: the stage, e.g. ``clean``.
        parameters: the settings that can change the result, JSON values only.
        inputs: SHA-256 (hex) of every input file, by the part it plays.
        version: hgld's version.
        before: what made the table that this stage has only added to.
    """

    command: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__
    before: Provenance | None = None

    def to_json(self) -> str:
        """Stable text: the same provenance is the same bytes."""
        said = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(said, sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """The inverse of :meth:`to_json`."""
        said = json.loads(text)
        before = said.pop("before", None)
        return cls(**said, before=cls(**before) if before else None)

    def same_work(self, other: Provenance) -> bool:
        """Whether both name the same command, parameters and inputs; hgld's version may differ."""
        return (self.command, self.parameters, self.inputs) == (other.command, other.parameters, other.inputs)


def classes_beside(scraped: Path) -> Path:
    """Where a scrape's table ``classes`` is: ``scraped_train.classes.parquet`` beside ``scraped_train.parquet``."""
    return scraped.with_suffix(".classes.parquet")


def scraped_beside(path: Path) -> list[Path]:
    """The scraped tables in the folder of ``path`` under their usual names, such as ``scraped_train.parquet``."""
    found = sorted(path.parent.glob("scraped*.parquet"))
    return [scraped for scraped in found if scraped.suffixes[-2:] != [".classes", ".parquet"]]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    return digest_of(path, "sha256")


def digest_of(path: Path, algorithm: str) -> str:
    """The digest of a file, in hex, by an algorithm of hashlib's such as ``md5``."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def digests(**inputs: Path | Sequence[Path] | None) -> dict[str, str]:
    """SHA-256 by role, for :class:`Provenance`; files of one role are numbered, absent ones left out."""
    found = {}
    for role, paths in inputs.items():
        if isinstance(paths, Path):
            found[role] = sha256_of(paths)
        else:
            found |= {f"{role}.{n}": sha256_of(path) for n, path in enumerate(paths or ())}
    return found


def digests_of_files(paths: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 by role, for :class:`Provenance`; of folders, that of each table in them."""
    return {
        "/".join((name, *file.relative_to(path).parts)): sha256_of(file)
        for name, path in paths.items()
        for file in (_tables_in(path) if path.is_dir() else [path])
    }


def _tables_in(folder: Path) -> list[Path]:
    """The tables in a folder, and in that of a release."""
    return sorted(file for tables in ("*.csv", "*.parquet", "data/*.parquet") for file in folder.glob(tables))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``path`` when the block ends well and vanishes when it does not.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(target) as draft:
    ...     _ = draft.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: writers such as matplotlib choose the format by it.
    draft = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def stamped(schema: pa.Schema, tag: str, provenance: Provenance) -> pa.Schema:
    """The schema with the metadata of a file: what kind of table it is, such as ``clean/1``, and what made it."""
    return schema.with_metadata({_TABLE_KEY: tag, _PROVENANCE_KEY: provenance.to_json()})


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
    schema = stamped(schema, spec.tag, provenance)
    keys = [schema.empty_table().select(spec.key)]
    with replacing(path) as draft:
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
    tag = _metadata(path).get(_TABLE_KEY, b"").decode()
    if tag != spec.tag:
        found = f'it is a table "{tag}"' if tag else "it says nothing of a table of hgld's"
        raise InputError(f'{path}: expected a table "{spec.tag}", but {found}')
    table = pq.read_table(path)
    _check_columns(table, spec, path)
    _check_key(table, spec, path)
    return table


def read_provenance(path: Path) -> Provenance:
    """What made the table at ``path``.

    Raises:
        InputError: the file is missing, not Parquet, or not written by hgld.
    """
    text = _metadata(path).get(_PROVENANCE_KEY)
    if text is None:
        raise InputError(f"{path}: not written by hgld (its metadata has no {_PROVENANCE_KEY.decode()})")
    return Provenance.from_json(text.decode())


def is_up_to_date(path: Path, provenance: Provenance) -> bool:
    """Whether ``path`` holds a table that the same command made from the same inputs and parameters.

    Another stage may have added to the table since.
    """
    try:
        made = read_provenance(path)
    except InputError:
        return False
    return made.same_work(provenance) or (made.before is not None and made.before.same_work(provenance))


def _metadata(path: Path) -> dict[bytes, bytes]:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        return pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({error})") from error


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
        layout += [_required(name, spec.named_by_table) for name in names if name not in known]
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
        raise InputError(f'{path}: not a valid "{spec.name}" table:\n{listing(problems)}')


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

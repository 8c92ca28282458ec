"""Provenance: the command, version, parameters and inputs that a table was made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from hgld.errors import InputError
from hgld.io.files import atomic_write, require_suffix, sha256_of
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
        version: Version of hgld.
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
        return (self.command, self.parameters, self.inputs) == (other.command, other.parameters, other.inputs)

    def changes(self, other: Provenance) -> list[str]:
        """Describe the parameters and inputs that differ in a later provenance of the same command; a line each."""
        before, now = ({**provenance.parameters, **provenance.inputs} for provenance in (self, other))
        return [f"{key}: {before.get(key)} then, {now.get(key)} now" for key in now if before.get(key) != now[key]]


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
            patterns: tuple[str, ...] = ("*.csv", "*.parquet", "data/*.parquet")  # the last one is that of a release
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
        ConfigurationError: The file has another suffix.
    """
    require_suffix(path, ".csv", ".parquet")
    with atomic_write(path) as draft:
        if path.suffix == ".csv":
            pa_csv.write_csv(table, draft)
        else:
            metadata = with_provenance(table.schema, schema_id, provenance).metadata
            pq.write_table(table.replace_schema_metadata(metadata), draft, compression="zstd")


def read_provenance(path: Path) -> Provenance:
    """Read the provenance of a table.

    Raises:
        InputError: The file is missing, not Parquet, or not written by hgld.
    """
    text = read_metadata(path).get(_PROVENANCE_KEY)
    if text is None:
        raise InputError(f"{path}: not written by hgld (its metadata has no {_PROVENANCE_KEY.decode()})")
    return Provenance.from_json(text.decode())


def is_up_to_date(path: Path, provenance: Provenance) -> bool:
    """Return whether ``path`` holds a table that the same command made from the same inputs and parameters.

    Another stage may have added columns to the table since.
    """
    try:
        actual = read_provenance(path)
    except InputError:
        return False
    return actual.same_work(provenance) or (actual.before is not None and actual.before.same_work(provenance))


def read_metadata(path: Path) -> dict[bytes, bytes]:
    """Read the key-value metadata of a Parquet file.

    Raises:
        InputError: The file is missing or not Parquet.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        return pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({error})") from error

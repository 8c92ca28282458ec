"""Record in a table how it was made: command, parameters, and digests of the inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgld.errors import InputError
from hgld.io.columns import PARQUET, starts_with
from hgld.io.files import sha256_of
from hgld.version import __version__

#: Key of the schema id, such as ``clean/1``, in the metadata of a Parquet file.
TABLE_KEY = b"hgld.table"
#: Key of the provenance in the metadata of a Parquet file.
PROVENANCE_KEY = b"hgld.provenance"


@dataclass(frozen=True)
class Provenance:
    """Record of how a table was made.

    Args:
        command: Name of the stage, such as ``clean``.
        parameters: Settings that can change the result; JSON values only.
        inputs: SHA-256 in hexadecimal of every input file, by its role.
        version: Version of hgld.
        before: Provenance of the input table if this stage only added columns to it.
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
        if before:
            fields["before"] = cls(**before)
        return cls(**fields)

    def same_work(self, other: Provenance) -> bool:
        """Return whether both have the same command, parameters and inputs; versions may differ."""
        return (
            self.command == other.command
            and self.parameters == other.parameters
            and self.inputs == other.inputs
        )

    def changes(self, other: Provenance) -> list[str]:
        """Describe the parameters and inputs that differ in a later provenance of the same command."""
        earlier = {**self.parameters, **self.inputs}
        descriptions = []
        for key, value in {**other.parameters, **other.inputs}.items():
            if earlier.get(key) != value:
                descriptions.append(f"{key}: {earlier.get(key)} then, {value} now")
        return descriptions


def input_digests(**inputs: Path | Sequence[Path] | None) -> dict[str, str]:
    """Return the SHA-256 of input files by role, for :attr:`Provenance.inputs`.

    Args:
        **inputs: For each role a file, several files, a folder, or None. Several files have the
            roles ``role.0``, ``role.1`` and so on; tables of a folder, and parts of embeddings if
            the role ends in ``embeddings``, have the roles ``role/name``; None is omitted.
    """
    digests: dict[str, str] = {}
    for role, paths in inputs.items():
        if paths is None:
            continue
        if not isinstance(paths, Path):
            for number, path in enumerate(paths):
                digests[f"{role}.{number}"] = sha256_of(path)
        elif paths.is_dir():
            # A release has its tables in the folder data.
            patterns = ["*.csv", "*.parquet", "data/*.parquet"]
            if role.endswith("embeddings"):
                patterns += ["*.npy", "*.safetensors"]
            files = sorted(path for pattern in patterns for path in paths.glob(pattern))
            for path in files:
                digests[f"{role}/{path.relative_to(paths).as_posix()}"] = sha256_of(path)
        else:
            digests[role] = sha256_of(paths)
    return digests


def with_provenance(schema: pa.Schema, schema_id: str, provenance: Provenance) -> pa.Schema:
    """Return the schema with its id, such as ``clean/1``, and a provenance in the metadata."""
    return schema.with_metadata({TABLE_KEY: schema_id, PROVENANCE_KEY: provenance.to_json()})


def read_provenance(path: Path) -> Provenance:
    """Read the provenance of a table; raise an :class:`InputError` if hgld did not write the file."""
    text = read_metadata(path).get(PROVENANCE_KEY)
    if text is None:
        raise InputError(
            f"{path}: not written by hgld (its metadata has no {PROVENANCE_KEY.decode()})"
        )
    return Provenance.from_json(text.decode())


def is_up_to_date(path: Path, provenance: Provenance) -> bool:
    """Return whether a file is a table of the same command, inputs and parameters.

    Another stage may have added columns to the table since.
    """
    try:
        actual = read_provenance(path)
    except InputError:
        return False
    if actual.same_work(provenance):
        return True
    return actual.before is not None and actual.before.same_work(provenance)


def read_metadata(path: Path) -> dict[bytes, bytes]:
    """Read the metadata of a Parquet file; raise an :class:`InputError` if the file is not Parquet."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        return pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        reason = f" ({error})" if starts_with(path, PARQUET) else ""
        raise InputError(f"{path}: not a Parquet file{reason}") from error


def table_name(path: Path) -> str:
    """Return the name of the table in a Parquet file, such as clean; "" if hgld did not write it."""
    return read_metadata(path).get(TABLE_KEY, b"").decode().partition("/")[0]

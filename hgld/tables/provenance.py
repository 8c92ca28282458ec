"""Provenance: the command, version, parameters and inputs that a table was made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.version import __version__

TABLE_KEY = b"hgld.table"
_PROVENANCE_KEY = b"hgld.provenance"


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


def with_provenance(schema: pa.Schema, tag: str, provenance: Provenance) -> pa.Schema:
    """The schema with the metadata of a file: what kind of table it is, such as ``clean/1``, and what made it."""
    return schema.with_metadata({TABLE_KEY: tag, _PROVENANCE_KEY: provenance.to_json()})


def read_provenance(path: Path) -> Provenance:
    """What made the table at ``path``.

    Raises:
        InputError: the file is missing, not Parquet, or not written by hgld.
    """
    text = read_metadata(path).get(_PROVENANCE_KEY)
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


def read_metadata(path: Path) -> dict[bytes, bytes]:
    """Return the key-value metadata of a Parquet file.

    Raises:
        InputError: the file is missing or not Parquet.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        return pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({error})") from error

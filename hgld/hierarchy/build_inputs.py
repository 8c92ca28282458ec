"""The tables that a hierarchy was made from, found by the digests in provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.resources import annotation_file
from hgld.tables.parquet import TABLE_KEY, read_metadata
from hgld.taxonomy.decisions import (
    Decision,
    DecisionIndex,
    corrected_decisions,
    read_corrections,
    read_named_decisions,
)
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.project import Role, project_file_of

#: Split and landmark id.
Key = tuple[str, int]


@dataclass(frozen=True)
class BuildInputs:
    """Contents of the tables that a hierarchy was made from, and decisions on labels; None if not found.

    Args:
        digests: SHA-256 of the inputs of ``build`` by role; empty if the hierarchy is not from ``hgld build``.
        missing: Sentences that name the tables that were not found.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    clean: pa.Table | None = None
    removed: pa.Table | None = None
    scraped: pa.Table | None = None
    decisions: DecisionIndex | None = None
    missing: tuple[str, ...] = ()


def find_build_inputs(hierarchy: str | Path, folder: Path | None = None) -> BuildInputs:
    """Read the tables that a hierarchy was made from, as far as they are found (:func:`find_input_tables`)."""
    path = Path(hierarchy)
    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    path = path / "hierarchy.parquet" if path.is_dir() else path
    try:
        built = tables.read_provenance(path)
    except InputError:
        return BuildInputs(missing=(f"{hierarchy} does not say what it was built from",))
    folder = folder or path.parent
    found = find_input_tables(path, folder)
    clean, removed = (
        table and tables.read_table(table, spec)
        for table, spec in ((found.clean, tables.CLEAN), (found.removed, tables.REMOVED))
    )
    parts = [tables.read_table(table, tables.SCRAPED) for table in found.scraped]
    scraped = (
        pa.concat_tables([part.replace_schema_metadata() for part in parts]) if parts else None
    )
    annotations = find_annotations(path, folder)
    decisions = (
        read_annotations(annotations)[0]
        if annotations.keys() >= {"decisions", "taxonomy"}
        else None
    )
    missing = tuple(
        f"{folder} has no {name} table that {hierarchy} was made from" for name in found.missing
    )
    return BuildInputs(built.inputs, clean, removed, scraped, decisions, missing)


@dataclass(frozen=True)
class InputTables:
    """Paths of the tables that a hierarchy was made from; None or empty if not found.

    Args:
        missing: Kinds of the tables that were not found.
    """

    clean: Path | None = None
    removed: Path | None = None
    scraped: Sequence[Path] = ()
    missing: tuple[str, ...] = ()


def find_input_tables(hierarchy: Path, folder: Path | None = None) -> InputTables:
    """Find the tables that a hierarchy was made from.

    A file counts if its SHA-256 is the one in the provenance of what was made from it, whatever its name.
    """
    folder = folder or hierarchy.parent

    def find(spec: tables.TableSpec, made_from: tables.Provenance) -> list[Path]:
        digests = _digests(made_from, spec.name)
        found = {sha256_of(path): path for path in _tables(folder, spec)} if digests else {}
        return [found[digest] for digest in digests] if found.keys() >= set(digests) else []

    clean = next(iter(find(tables.CLEAN, tables.read_provenance(hierarchy))), None)
    if clean is None:
        return InputTables(missing=(tables.CLEAN.name,))
    cleaned = tables.read_provenance(clean)
    same_run = (
        path
        for path in _tables(folder, tables.REMOVED)
        if tables.read_provenance(path).same_work(cleaned)
    )
    scraped = find(tables.SCRAPED, cleaned)
    return InputTables(
        clean, next(same_run, None), scraped, () if scraped else (tables.SCRAPED.name,)
    )


def _digests(provenance: tables.Provenance, role: str) -> list[str]:
    """Return the digests of the inputs with a role; roles of several files are numbered, such as ``scraped.0``."""
    return [digest for name, digest in provenance.inputs.items() if name.partition(".")[0] == role]


def _tables(folder: Path, spec: tables.TableSpec) -> Iterator[Path]:
    """Yield the tables of one kind in a folder."""
    for path in sorted(folder.glob("*.parquet")):
        try:
            if read_metadata(path).get(TABLE_KEY) == spec.schema_id.encode():
                yield path
        except InputError:
            continue


def find_annotations(hierarchy: Path, folder: Path | None = None) -> dict[str, Path]:
    """Return the files of decisions and of groups that a hierarchy was built with, as far as they are found.

    Files are compared by the SHA-256 that the hierarchy records: those that come with hgld, those of the project
    (:mod:`hgld.taxonomy.project`), and the CSV files of a folder and of the folder ``decisions`` in it.

    Returns:
        Paths by role: ``decisions``, ``taxonomy``, ``corrections``.
    """
    try:
        built = tables.read_provenance(hierarchy)
    except InputError:
        return {}
    folder = folder or hierarchy.parent
    candidates = [*sorted(folder.glob("*.csv")), *sorted(folder.glob("decisions/*.csv"))]
    known = [annotation_file(name) for name in ("decisions/final.csv", "taxonomy.csv")]
    roles: tuple[Role, ...] = ("taxonomy", "decisions")
    for role in roles:
        path = project_file_of(role, hierarchy)
        if path is not None:
            known.append(path)
    found = {sha256_of(path): path for path in (*known, *candidates)}
    digests = {
        role: built.inputs.get(role, "") for role in ("decisions", "taxonomy", "corrections")
    }
    return {role: found[digest] for role, digest in digests.items() if digest in found}


def read_annotations(
    files: Mapping[str, Path],
) -> tuple[DecisionIndex, dict[str, Decision], list[Group]]:
    """Read the files of :func:`find_annotations`.

    Returns:
        Decisions with the corrections applied; the corrections by their key; and the groups. All are empty without
        files.
    """
    if not files:
        return DecisionIndex([]), {}, []
    groups = read_taxonomy(files["taxonomy"])
    corrections = read_corrections(files["corrections"], groups) if "corrections" in files else {}
    named = read_named_decisions(files["decisions"], groups)
    return DecisionIndex(corrected_decisions(named, corrections)), corrections, groups


def rows_of(table: pa.Table | None, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
    """Return the rows of some landmarks by key; none without a table."""
    if table is None:
        return {}
    ids = table["landmark_id"]
    some = table.filter(pc.is_in(ids, pa.array([number for _, number in keys], ids.type)))
    wanted = set(keys)
    return {
        key: row
        for row in some.to_pylist()
        if (key := (row["split"], row["landmark_id"])) in wanted
    }

"""Find the tables that a hierarchy was made from, by the SHA-256 digests in its provenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.resources import annotation_file
from hgld.tables.provenance import TABLE_KEY, read_metadata
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
    """Tables that a hierarchy was made from, and decisions on labels; None if not found.

    Args:
        digests: SHA-256 of the inputs of ``build`` by role; empty if the hierarchy is not from
            ``hgld build``.
        missing: Sentences that name the tables that were not found.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    clean: pa.Table | None = None
    removed: pa.Table | None = None
    scraped: pa.Table | None = None
    decisions: DecisionIndex | None = None
    missing: tuple[str, ...] = ()


def find_build_inputs(hierarchy: str | Path, folder: Path | None = None) -> BuildInputs:
    """Read the tables that a hierarchy was made from; see :func:`find_input_tables`."""
    path = Path(hierarchy)
    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if path.is_dir():
        path = path / "hierarchy.parquet"
    try:
        provenance = tables.read_provenance(path)
    except InputError:
        return BuildInputs(missing=(f"{hierarchy} does not record the files it was built from",))
    folder = folder or path.parent
    files = find_input_tables(path, folder)
    annotations = find_annotations(path, folder)
    decisions = None
    if "decisions" in annotations and "taxonomy" in annotations:
        decisions, _, _ = read_annotations(annotations)
    missing = [
        f"{folder} has no {name} table that {hierarchy} was made from" for name in files.missing
    ]
    return BuildInputs(
        digests=provenance.inputs,
        clean=tables.read_table(files.clean, tables.CLEAN) if files.clean else None,
        removed=tables.read_table(files.removed, tables.REMOVED) if files.removed else None,
        scraped=_read_scraped(files.scraped),
        decisions=decisions,
        missing=tuple(missing),
    )


def _read_scraped(paths: Sequence[Path]) -> pa.Table | None:
    """Return the rows of scraped tables in one table; None without tables."""
    if not paths:
        return None
    parts = []
    for path in paths:
        parts.append(tables.read_table(path, tables.SCRAPED).replace_schema_metadata())
    return pa.concat_tables(parts)


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

    Tables are matched by the SHA-256 in provenance, not by name.

    Args:
        hierarchy: Table from hgld build.
        folder: Folder of the tables. Default: the folder of the hierarchy.
    """
    folder = folder or hierarchy.parent
    clean_tables = _find_inputs(tables.read_provenance(hierarchy), tables.CLEAN, folder)
    if not clean_tables:
        return InputTables(missing=(tables.CLEAN.name,))
    clean = clean_tables[0]
    provenance = tables.read_provenance(clean)
    removed = None
    for path in _tables(folder, tables.REMOVED):
        if tables.read_provenance(path).same_work(provenance):
            removed = path
            break
    scraped = _find_inputs(provenance, tables.SCRAPED, folder)
    missing = () if scraped else (tables.SCRAPED.name,)
    return InputTables(clean, removed, scraped, missing)


def _find_inputs(provenance: tables.Provenance, spec: tables.TableSpec, folder: Path) -> list[Path]:
    """Return the inputs of one kind in a folder; empty if any of these files is missing."""
    digests = []
    for role, digest in provenance.inputs.items():
        if role.partition(".")[0] == spec.name:  # roles of several files are numbered: scraped.0
            digests.append(digest)
    if not digests:
        return []
    files = _by_digest(_tables(folder, spec))
    if not files.keys() >= set(digests):
        return []
    return [files[digest] for digest in digests]


def _by_digest(paths: Iterable[Path]) -> dict[str, Path]:
    """Return paths by the SHA-256 of the files."""
    return {sha256_of(path): path for path in paths}


def _tables(folder: Path, spec: tables.TableSpec) -> Iterator[Path]:
    """Yield the tables of one kind in a folder."""
    for path in sorted(folder.glob("*.parquet")):
        try:
            if read_metadata(path).get(TABLE_KEY) == spec.schema_id.encode():
                yield path
        except InputError:
            continue


def find_annotations(hierarchy: Path, folder: Path | None = None) -> dict[str, Path]:
    """Find the files of decisions and groups that a hierarchy was built with.

    Files are compared by the SHA-256 that the hierarchy records. Candidates are the files of hgld,
    the files of the project (:mod:`hgld.taxonomy.project`), and the CSV files of a folder and of
    its subfolder ``decisions``.

    Args:
        hierarchy: Table from hgld build.
        folder: Folder of CSV files. Default: the folder of the hierarchy.

    Returns:
        Paths by role: ``decisions``, ``taxonomy``, ``corrections``.
    """
    try:
        provenance = tables.read_provenance(hierarchy)
    except InputError:
        return {}
    candidates = [annotation_file("decisions/final.csv"), annotation_file("taxonomy.csv")]
    project_roles: tuple[Role, ...] = ("taxonomy", "decisions")
    for project_role in project_roles:
        path = project_file_of(project_role, hierarchy)
        if path is not None:
            candidates.append(path)
    folder = folder or hierarchy.parent
    candidates += sorted(folder.glob("*.csv"))
    candidates += sorted(folder.glob("decisions/*.csv"))
    files = _by_digest(candidates)
    annotations = {}
    for role in ("decisions", "taxonomy", "corrections"):
        digest = provenance.inputs.get(role)
        if digest in files:
            annotations[role] = files[digest]
    return annotations


def read_annotations(
    files: Mapping[str, Path],
) -> tuple[DecisionIndex, dict[str, Decision], list[Group]]:
    """Read the files of :func:`find_annotations`.

    Returns:
        Decisions with the corrections applied; the corrections by their key; and the groups. All
        are empty without files.
    """
    if not files:
        return DecisionIndex([]), {}, []
    groups = read_taxonomy(files["taxonomy"])
    corrections = {}
    if "corrections" in files:
        corrections = read_corrections(files["corrections"], groups)
    decisions = read_named_decisions(files["decisions"], groups)
    return DecisionIndex(corrected_decisions(decisions, corrections)), corrections, groups


def rows_of(table: pa.Table | None, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
    """Return the rows of landmarks by key; empty without a table."""
    if table is None:
        return {}
    ids = table["landmark_id"]
    wanted_ids = pa.array([landmark_id for _, landmark_id in keys], ids.type)
    wanted_keys = set(keys)
    rows = {}
    for row in table.filter(pc.is_in(ids, wanted_ids)).to_pylist():
        key = row["split"], row["landmark_id"]
        if key in wanted_keys:
            rows[key] = row
    return rows

"""Hierarchies from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.official import FILES, read_official, split_of
from hgld.hierarchy.released import NAME, released_files
from hgld.hierarchy.tree import Hierarchy
from hgld.tables import SPLITS


def load_hierarchy(path_or_name: str | Path, *, split: str | None = None) -> Hierarchy:
    """Load a hierarchy.

    Args:
        path_or_name: a Parquet file from ``hgld build``; a CSV file like the released ones, of which the
            columns category and supercategory may be missing; a folder with ``hierarchy.parquet``, one from
            ``hgld release``, or one with one or both of the released files; or ``"h-gldv2"``, the released files
            themselves, which are downloaded once (:mod:`hgld.hierarchy.released` says what of them could be
            verified).
        split: what split a CSV file is of, where its name does not begin with ``train_`` or ``index_``.

    Raises:
        InputError: there is no such file, or it does not hold a hierarchy (see :meth:`Hierarchy.from_arrow`).
        ConfigurationError: the split is not known.
        SourceError: the released files cannot be had.
    """
    if path_or_name == NAME:
        return _load_official(released_files(), None)
    path = Path(path_or_name)
    if path.is_dir():
        built = [path / "hierarchy.parquet"]
        if not built[0].is_file():
            built = [path / "data" / f"{name}.parquet" for name in SPLITS]
        if there := [part for part in built if part.is_file()]:
            return _load_built(there)
        official = [path / name for name in FILES.values() if (path / name).is_file()]
        if not official:
            raise InputError(f"{path}: no hierarchy.parquet and no {' and no '.join(FILES.values())} in this folder")
        return _load_official(official, split)
    if path.suffix == ".csv":
        return _load_official([path], split)
    return _load_built([path])


def _load_built(paths: Sequence[Path]) -> Hierarchy:
    table = pa.concat_tables([tables.read_table(path, tables.HIERARCHY).replace_schema_metadata() for path in paths])
    try:
        return Hierarchy.from_arrow(table)
    except InputError as error:
        raise InputError(f"{', '.join(map(str, paths))}: {error}") from error


def _load_official(paths: Sequence[Path], split: str | None) -> Hierarchy:
    parts, lines, sources = [], [], []
    for path in paths:
        of = split_of(path) or split
        if of not in SPLITS:
            raise ConfigurationError(
                f"{path}: the name does not tell the split and split is {of}; expected {' or '.join(SPLITS)}"
            )
        table, found = read_official(path, of)
        parts.append(table)
        lines += found
        sources += [path.name] * len(found)
    # A column that one file lacks is left out: a text that is there for some landmarks is of no use.
    common = [name for name in parts[0].column_names if all(name in part.column_names for part in parts)]
    try:
        return Hierarchy.from_arrow(
            pa.concat_tables([part.select(common) for part in parts]),
            where=lambda row: f"{sources[row]} line {lines[row]}",
        )
    except InputError as error:
        raise InputError(f"{', '.join(map(str, paths))}: {error}") from error

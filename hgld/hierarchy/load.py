"""Load hierarchies from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from hgld import tables
from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.gldv2.download import ChecksumError, DownloadConfig, Downloader
from hgld.gldv2.files import HOST_URL
from hgld.hierarchy.official import OFFICIAL_FILES, read_official, split_from_name
from hgld.hierarchy.tree import Hierarchy
from hgld.io.files import atomic_write, cache_folder, sha256_of
from hgld.progress import Progress
from hgld.tables import SPLITS

#: Name of the released labels for :func:`load_hierarchy`.
H_GLDV2 = "h-gldv2"


def load_hierarchy(path_or_name: str | Path, *, split: str | None = None) -> Hierarchy:
    """Load a hierarchy.

    Args:
        path_or_name: A Parquet file from ``hgld build``; a CSV file in the format of the released ones, whose columns
            category and supercategory may be missing; a folder with ``hierarchy.parquet``, one from ``hgld release``,
            or one with one or both released files; or ``"h-gldv2"``, the released files, which are downloaded once
            (:func:`released_files`).
        split: Split of a CSV file whose name does not begin with ``train_`` or ``index_``.

    Raises:
        InputError: There is no such file, or it contains no valid hierarchy, see :meth:`Hierarchy.from_arrow`.
    """
    if path_or_name == H_GLDV2:
        return _load_official(released_files(), None)
    path = Path(path_or_name)
    if path.is_dir():
        return _load_folder(path, split)
    return _load_official([path], split) if path.suffix == ".csv" else _load_parquet([path])


def _load_folder(folder: Path, split: str | None) -> Hierarchy:
    built = folder / "hierarchy.parquet"
    if built.is_file():
        return _load_parquet([built])
    if released := sorted(folder.glob("data/*.parquet")):
        return _load_parquet(released)
    names = OFFICIAL_FILES.values()
    if existing := [folder / name for name in names if (folder / name).is_file()]:
        return _load_official(existing, split)
    raise InputError(f"{folder}: no hierarchy.parquet and no {' and no '.join(names)} in this folder")


def _load_parquet(paths: Sequence[Path]) -> Hierarchy:
    parts = [tables.read_table(path, tables.HIERARCHY).replace_schema_metadata() for path in paths]
    try:
        return Hierarchy.from_arrow(pa.concat_tables(parts))
    except InputError as error:
        raise InputError(f"{', '.join(map(str, paths))}: {error}") from error


def _load_official(paths: Sequence[Path], split: str | None) -> Hierarchy:
    parts: list[pa.Table] = []
    row_names: list[str] = []
    for path in paths:
        file_split = split_from_name(path) or split
        if file_split not in SPLITS:
            raise ConfigurationError(
                f"{path}: the file name does not begin with a split and `split` is {file_split}; expected "
                f"{' or '.join(SPLITS)}"
            )
        table, lines = read_official(path, file_split)
        parts.append(table)
        row_names += [f"{path.name} line {line}" for line in lines]
    # A text that is known for some landmarks only is of no use: keep the columns of all files.
    common = [name for name in parts[0].column_names if all(name in part.column_names for part in parts)]
    try:
        table = pa.concat_tables([part.select(common) for part in parts])
        return Hierarchy.from_arrow(table, row_name=row_names.__getitem__)
    except InputError as error:
        raise InputError(f"{', '.join(map(str, paths))}: {error}") from error


def released_files(folder: Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """Return the released CSV files of both splits, downloading those that are not in the cache from GLDv2's host.

    The addresses are those in the README of github.com/cvdfoundation/google-landmark. The host publishes checksums of
    the tar files of photographs, but not of these files: the first download can only be compared with the size that
    the server reports. Its SHA-256 is stored, and the cached file is verified against it on every use.

    Raises:
        SourceError: The files cannot be downloaded, or the files of the host changed since they were cached.
    """
    folder = folder or cache_folder(H_GLDV2)
    host = os.environ.get("HGLD_GLDV2_URL", HOST_URL).rstrip("/")
    # Few retries: this runs interactively.
    downloader = Downloader(DownloadConfig(max_retries=2))
    paths = []
    for name in OFFICIAL_FILES.values():
        path, digest_file = folder / name, folder / f"{name}.sha256"
        digest = digest_file.read_text(encoding="ascii").split()[0] if digest_file.is_file() else None
        try:
            downloader.download(f"{host}/metadata/{name}", path, sha256=digest, progress=progress)
        except ChecksumError as error:
            raise SourceError(
                f"{path} is damaged, and the file of the host has changed: {error}\nto use the current files of the "
                f"host, delete {folder}"
            ) from error
        except (ConfigurationError, SourceError) as error:
            raise SourceError(
                f"the released labels of H-GLDv2 could not be downloaded: {error}\nwithout a network, obtain "
                f"{' and '.join(OFFICIAL_FILES.values())} elsewhere and load their folder"
            ) from error
        if digest is None:
            with atomic_write(digest_file) as draft:
                draft.write_text(f"{sha256_of(path)}  {name}\n", encoding="ascii")
        paths.append(path)
    return paths

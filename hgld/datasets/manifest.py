"""The images of a data set: where each one is, which split it belongs to, and its label at every level.

The table ``manifest`` has a row per image: ``id``; ``path``, relative to a folder that is named when the images are
read, of a picture, or of a tar file, where the picture's bytes are at ``offset`` and ``size`` in number; ``split``;
then a column of texts per level, finest first, under the names that the data set gives its levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, InputError, listing
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.checks import check_tree, encode
from hgld.tables import IMAGES, MANIFEST, Provenance, read_table, write_table

#: Texts as Python objects: fixed width would take four bytes for every character of the longest path.
Texts = NDArray[np.object_]


@dataclass(frozen=True, eq=False, repr=False)
class Manifest:
    """Images and their labels; immutable.

    Make one with :func:`read_manifest` or :meth:`from_arrow`, which check it.

    Args:
        ids: str objects, shape (N,); unique.
        paths: str objects, shape (N,): pictures or tar files, relative to a folder.
        offsets: int64, shape (N,): where in the tar file the picture's bytes begin; -1 where the path is a picture's.
        sizes: int64, shape (N,): how many bytes these are; -1 likewise.
        splits: str objects, shape (N,): such as ``train``, ``test``, ``query`` or ``gallery``.
        labels: int64, shape (N, L), finest first and nested; each column holds indices into its class names, every
            one of which occurs.
        level_names: of the L levels, finest first.
        class_names: the names at each level, finest first, each sorted.
    """

    ids: Texts
    paths: Texts
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    splits: Texts
    labels: LabelMatrix
    level_names: tuple[str, ...]
    class_names: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for values in vars(self).values():
            if isinstance(values, np.ndarray):
                values.flags.writeable = False

    @classmethod
    def from_arrow(cls, table: pa.Table, *, where: Callable[[int], str] | None = None) -> Manifest:
        """Check a table and make a manifest of it.

        Args:
            table: the columns of the table ``manifest``, whose nulls and types are right.
            where: names a row, given its number, in messages.

        Raises:
            InputError: there are no rows or no levels, an id or the name of a column stands twice, a path is
                absolute, an offset comes without a size, a label is empty or has two labels above it.
        """
        ids = table["id"]

        def place(row: int) -> str:
            return f"{where(row) if where else f'row {row}'} ({ids[int(row)]})"

        _check_rows(table, place)
        level_names = tuple(table.column_names[len(MANIFEST.schema) :])
        if not level_names or len(set(table.column_names)) < len(table.column_names):
            raise InputError(
                f"the columns are {', '.join(table.column_names)}; expected a column for each level after "
                f"{MANIFEST.schema.names[-1]}, finest first, each name once"
            )
        coded = [encode(table[name], name, place) for name in level_names]
        check_tree(level_names, coded, place)
        return cls(
            ids=_objects(ids),
            paths=_objects(table["path"]),
            offsets=_or_minus_one(table["offset"]),
            sizes=_or_minus_one(table["size"]),
            splits=_objects(table["split"]),
            labels=np.stack([codes for codes, _ in coded], axis=1),
            level_names=level_names,
            class_names=tuple(names for _, names in coded),
        )

    def to_arrow(self) -> pa.Table:
        """The table ``manifest``, the inverse of :meth:`from_arrow`."""
        plain = self.offsets < 0
        columns = {
            "id": pa.array(self.ids, pa.string()),
            "path": pa.array(self.paths, pa.string()),
            "offset": pa.array(self.offsets, pa.int64(), mask=plain),
            "size": pa.array(self.sizes, pa.int64(), mask=plain),
            "split": pa.array(self.splits, pa.string()),
        }
        for column, (name, classes) in enumerate(zip(self.level_names, self.class_names, strict=True)):
            columns[name] = pa.array(classes, pa.string()).take(pa.array(self.labels[:, column]))
        return pa.table(columns)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        levels = ", ".join(f"{n:,} {name}" for n, name in zip(self.n_classes, self.level_names, strict=True))
        return f"Manifest({len(self):,} images, {levels})"

    @property
    def n_classes(self) -> tuple[int, ...]:
        """How many labels each level has, finest first."""
        return tuple(len(names) for names in self.class_names)

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that there are, sorted."""
        return tuple(sorted(set(self.splits.tolist())))

    def part(self, split: str) -> Manifest:
        """The images of a split, in the same order; see :meth:`rows` for their labels.

        Raises:
            ConfigurationError: there is no such split.
        """
        if split not in self.split_names:
            raise ConfigurationError(
                f'there is no split "{split}" among the images; expected {" or ".join(self.split_names)}'
            )
        return self.rows(np.flatnonzero(self.splits == split))

    def rows(self, rows: NDArray[np.int64]) -> Manifest:
        """Some images, in the order given; their labels are numbered anew, from 0 in each column."""
        kept = [np.unique(column, return_inverse=True) for column in self.labels[rows].T]
        return Manifest(
            ids=self.ids[rows],
            paths=self.paths[rows],
            offsets=self.offsets[rows],
            sizes=self.sizes[rows],
            splits=self.splits[rows],
            labels=np.stack([codes for _, codes in kept], axis=1) if kept else self.labels[rows],
            level_names=self.level_names,
            class_names=tuple(
                tuple(names[code] for code in codes.tolist())
                for names, (codes, _) in zip(self.class_names, kept, strict=True)
            ),
        )


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest.

    Raises:
        InputError: there is no such file, it is another table, or see :meth:`Manifest.from_arrow`.
    """
    table = read_table(path, MANIFEST)
    try:
        return Manifest.from_arrow(table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_unlabelled(path: Path) -> Manifest:
    """The photographs that ``hgld index-images`` found, as a manifest without levels, of one split, ``all``.

    Raises:
        InputError: there is no such file, or it is another table.
    """
    table = read_table(path, IMAGES)
    return Manifest(
        ids=_objects(table["id"]),
        paths=_objects(table["shard"]),
        offsets=_or_minus_one(table["offset"]),
        sizes=_or_minus_one(table["size"]),
        splits=np.full(len(table), "all", object),
        labels=np.empty((len(table), 0), np.int64),
        level_names=(),
        class_names=(),
    )


def write_manifest(path: Path, manifest: Manifest, provenance: Provenance) -> None:
    """Write a manifest, atomically."""
    write_table(path, MANIFEST, manifest.to_arrow(), provenance)


def _check_rows(table: pa.Table, place: Callable[[int], str]) -> None:
    """Raise unless there are rows, ids are unique, and pictures are where one can be."""
    if not len(table):
        raise InputError("no images; expected a row for each")
    first = pc.index_in(table["id"], value_set=pc.unique(table["id"]))
    ids = first.to_numpy()
    _, rows = np.unique(ids, return_index=True)
    again = np.setdiff1d(np.arange(len(ids)), rows)
    problems = [f"{place(row)}: the id stands in {place(rows[ids[row]])} already" for row in again.tolist()]
    for row in pc.indices_nonzero(pc.starts_with(table["path"], "/")).to_pylist():
        problems.append(f"{place(row)}: the path is {table['path'][row]}; expected one relative to a folder")
    offsets, sizes = (_or_minus_one(table[name]) for name in ("offset", "size"))
    for row in np.flatnonzero((offsets < 0) != (sizes < 0)).tolist():
        problems.append(
            f"{place(row)}: offset {table['offset'][row]}, size {table['size'][row]}; expected both or none"
        )
    if problems:
        raise InputError(f"{len(problems):,} bad rows:\n{listing(problems)}")


def _or_minus_one(column: pa.ChunkedArray) -> NDArray[np.int64]:
    filled: NDArray[np.int64] = pc.fill_null(column, -1).to_numpy()
    return filled


def _objects(column: pa.ChunkedArray) -> Texts:
    """The texts of a column; equal ones, such as the paths of tar files, are one object where most are equal."""
    coded = column.combine_chunks().dictionary_encode()
    values = np.array([*coded.dictionary.to_pylist(), None], object)[:-1]
    texts: Texts = values[coded.indices.to_numpy()]
    return texts

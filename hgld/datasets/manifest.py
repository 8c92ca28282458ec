"""The manifest: the images of a dataset, their files, splits, and labels at every level.

The table ``manifest`` has one row per image:

- ``id``;
- ``path``, relative to a folder that is named when the images are read: an image file, or a tar file
  that holds the image's bytes at ``offset``, ``size`` of them;
- ``split``;
- optionally ``box``, the part of the image that counts;
- one column of strings per level, finest first, under the dataset's names of its levels. If images
  have several labels, these columns are lists of strings, whose k-th entries make up a label
  (:mod:`hgld.datasets.label_columns`).

Plain CSV and Parquet files with these columns, except ``box``, are read, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgld.arrays import Floats, Integers
from hgld.compute.machine import return_memory
from hgld.datasets.image_folders import find_in_tars, match_paths
from hgld.datasets.label_columns import encode_labels, label_columns
from hgld.errors import ConfigurationError, InputError, bad_rows, indented_list
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.label_sets import Labelling, LabelSets, single_labels, take_images
from hgld.io.columns import preview, read_text_columns, text_column_names
from hgld.io.images import Box
from hgld.io.text_array import TextArray
from hgld.tables import MANIFEST, Provenance, read_table, write_table
from hgld.tables.provenance import TABLE_KEY, read_metadata

_BOX = MANIFEST.optional.field("box")

#: Rows of a row group of the Parquet file.
_BATCH = 2**20

#: Name of the level whose class names are GLDv2's landmark ids.
LANDMARK_LEVEL = "landmark"


@dataclass(frozen=True, eq=False, repr=False)
class Manifest:
    """Images and their labels; immutable.

    Create one with :func:`read_manifest` or :meth:`from_arrow`, which validate it.

    Args:
        ids: N texts; unique.
        paths: N texts: image files or tar files, relative to a folder.
        offsets: int64, shape (N,): position of the image's bytes in the tar file; -1 for image files.
        sizes: int64, shape (N,): number of these bytes; -1 for image files.
        splits: N texts, such as ``train``, ``test``, ``query`` or ``gallery``.
        labelling: Labels as indices into the class names of each column, all of which occur: int32 or
            int64, shape (N, L), finest first and nested; or label sets, if images may have several
            labels. See :attr:`labels`.
        level_names: Names of the L levels, finest first.
        class_names: Names of the classes at each level, finest level first, sorted.
        boxes: float64, shape (N, 4): the part of each image that counts, such as a query's, in
            pixels: left, top, right, bottom; NaN for whole images. None if all images are whole.
    """

    ids: TextArray
    paths: TextArray
    offsets: Integers
    sizes: Integers
    splits: TextArray
    labelling: Labelling
    level_names: tuple[str, ...]
    class_names: tuple[tuple[str, ...], ...]
    boxes: Floats | None = None

    def __post_init__(self) -> None:
        for values in vars(self).values():
            if isinstance(values, np.ndarray):
                values.flags.writeable = False

    @classmethod
    def from_arrow(
        cls, table: pa.Table, *, describe_row: Callable[[int], str] | None = None
    ) -> Manifest:
        """Validate a table and convert it to a manifest.

        Args:
            table: Table with the columns of ``manifest``, whose nulls and types are already checked.
            describe_row: Function from a row number to the words for that row in error messages.

        Raises:
            InputError: There are no rows or no levels, an id or a column name is repeated, a path is
                absolute, an offset comes without a size, a label is empty or has two parents.
        """
        ids = table["id"]

        def describe(row: int) -> str:
            words = describe_row(row) if describe_row else f"row {row}"
            return f"{words} ({ids[int(row)]})"

        _check_rows(table, describe)
        return_memory()
        boxes = _boxes(table, describe)
        n_other_columns = len(MANIFEST.schema)
        if boxes is not None:
            n_other_columns += 1
        level_names = tuple(table.column_names[n_other_columns:])
        if not level_names or len(set(table.column_names)) < len(table.column_names):
            raise InputError(
                f"the columns are {', '.join(table.column_names)}; expected a column for each level after "
                f"{MANIFEST.schema.names[-1]}, finest first, each name once"
            )
        levels = {name: table[name] for name in level_names}
        labelling, class_names = encode_labels(levels, describe)
        for level, names in zip(level_names, class_names, strict=True):
            if "-1" in names:
                raise InputError(
                    f"{level} has the label -1, which stands for unlabelled images; leave these out"
                )
        paths = TextArray(table["path"])
        if _in_tars(table):
            paths = TextArray.repeated(table["path"])
        return cls(
            ids=TextArray(ids),
            paths=paths,
            offsets=_with_minus_one(table["offset"]),
            sizes=_with_minus_one(table["size"]),
            splits=TextArray.repeated(table["split"]),
            labelling=labelling,
            level_names=level_names,
            class_names=class_names,
            boxes=boxes,
        )

    @classmethod
    def without_levels(
        cls,
        ids: TextArray,
        paths: TextArray,
        offsets: Integers | None = None,
        sizes: Integers | None = None,
    ) -> Manifest:
        """Create a manifest of unlabelled images in a single split, ``all``; by default of image files."""
        no_places = np.broadcast_to(np.int64(-1), len(ids))
        return cls(
            ids=ids,
            paths=paths,
            offsets=no_places if offsets is None else offsets,
            sizes=no_places if sizes is None else sizes,
            splits=TextArray(["all"], np.zeros(len(ids))),
            labelling=np.empty((len(ids), 0), np.int64),
            level_names=(),
            class_names=(),
        )

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of the table ``manifest``; the whole table takes as much memory as the manifest."""
        for start in range(0, len(self), _BATCH):
            rows = np.arange(start, min(start + _BATCH, len(self)))
            yield from self.take(rows).to_arrow().combine_chunks().to_batches()

    def to_arrow(self) -> pa.Table:
        """Convert to the table ``manifest``; the inverse of :meth:`from_arrow`."""
        is_file = self.offsets < 0
        columns = {
            "id": self.ids.to_arrow(),
            "path": self.paths.to_arrow(),
            "offset": pa.array(self.offsets, pa.int64(), mask=is_file),
            "size": pa.array(self.sizes, pa.int64(), mask=is_file),
            "split": self.splits.to_arrow(),
        }
        if self.boxes is not None:
            boxes = [None if np.isnan(box[0]) else box.tolist() for box in self.boxes]
            columns[_BOX.name] = pa.array(boxes, _BOX.type)
        return pa.table(columns | label_columns(self.labelling, self.level_names, self.class_names))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        counts = [f"{len(self):,} images"]
        for n_classes, name in zip(self.n_classes, self.level_names, strict=True):
            counts.append(f"{n_classes:,} {name}")
        if self.label_sets is not None:
            counts.append(f"{self.label_sets.counts().mean():.2f} labels per image")
        return f"Manifest({', '.join(counts)})"

    @property
    def label_sets(self) -> LabelSets | None:
        """Labels of images that may have several labels; None if every image has one."""
        if isinstance(self.labelling, LabelSets):
            return self.labelling
        return None

    @property
    def labels(self) -> LabelMatrix:
        """Labels of images with one label each: int32 or int64, shape (N, L), finest first and nested.

        Raises:
            InputError: Images have several labels, which :attr:`label_sets` holds.
        """
        return single_labels(self.labelling)

    def label_column(self, level: str) -> Integers | None:
        """Return the class of each image at a level, int64, shape (N,); None if images have several."""
        column = self.level_names.index(level)
        if isinstance(self.labelling, LabelSets):
            return self.labelling.single_column(column)
        return np.asarray(self.labelling[:, column], np.int64)

    def labels_of(self, row: int) -> Integers:
        """Return the labels of an image, to be stacked in batches.

        Returns:
            int64, shape (L,), if every image has one label. Otherwise (K, L), where K is the largest
            number of labels of an image of the manifest; rows after the image's labels are -1.
        """
        if isinstance(self.labelling, LabelSets):
            padded: Integers = self.labelling.padded(np.array([row]))[0]
            return padded
        return np.array(self.labelling[row], np.int64)

    def box(self, row: int) -> Box | None:
        """Return the part of an image that counts: left, top, right, bottom in pixels; None for all of it."""
        if self.boxes is None or np.isnan(self.boxes[row, 0]):
            return None
        left, top, right, bottom = self.boxes[row].tolist()
        return left, top, right, bottom

    @property
    def n_classes(self) -> tuple[int, ...]:
        """Number of classes at each level, finest first."""
        return tuple(len(names) for names in self.class_names)

    @property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits, sorted."""
        return tuple(self.splits.distinct())

    def landmark_ids(self) -> Integers | None:
        """Return the landmark id of each image, int64, shape (N,); None without numeric landmark ids."""
        if LANDMARK_LEVEL not in self.level_names:
            return None
        names = self.class_names[self.level_names.index(LANDMARK_LEVEL)]
        landmarks = self.label_column(LANDMARK_LEVEL)
        if landmarks is None or not all(name.isdecimal() for name in names):
            return None
        return np.array([int(name) for name in names])[landmarks]

    def select_split(self, split: str) -> Manifest:
        """Return the images of a split in the same order; labels are renumbered as by :meth:`take`.

        Raises:
            ConfigurationError: The split does not exist.
        """
        return self.take(self.rows_of(split))

    def rows_of(self, split: str | None, path: Path | None = None) -> Integers:
        """Return the rows of a split, or all rows for None.

        Args:
            split: Name of the split.
            path: File of the manifest, which the error message names.

        Raises:
            ConfigurationError: The split does not exist.
        """
        if split is None:
            return np.arange(len(self))
        if split not in self.split_names:
            advice = ""
            if len(self.split_names) == 1:
                advice = "; divide the images: hgld manifest --test-share or --open-set"
            beginning = "" if path is None else f"{path}: "
            raise ConfigurationError(
                f'{beginning}there is no split "{split}" among the images; expected {" or ".join(self.split_names)}'
                f"{advice}"
            )
        return np.flatnonzero(self.splits == split)

    def take(self, rows: Integers) -> Manifest:
        """Return the images of some rows, in the given order; labels are renumbered in each column."""
        labelling = take_images(self.labelling, rows)  # a copy, which is renumbered in place
        matrix = labelling.labels if isinstance(labelling, LabelSets) else labelling
        class_names = []
        matrix.flags.writeable = True
        for column, names in enumerate(self.class_names):
            is_kept = np.zeros(len(names), np.bool_)
            is_kept[matrix[:, column]] = True
            new_codes = np.cumsum(is_kept, dtype=np.int32) - 1
            matrix[:, column] = new_codes[matrix[:, column]]
            class_names.append(tuple(compress(names, is_kept)))
        matrix.flags.writeable = False
        return replace(
            self,
            ids=self.ids[rows],
            paths=self.paths[rows],
            offsets=_taken(self.offsets, rows),
            sizes=_taken(self.sizes, rows),
            splits=self.splits[rows],
            labelling=labelling,
            class_names=tuple(class_names),
            boxes=None if self.boxes is None else self.boxes[rows],
        )


def read_manifest(path: Path, root: Path | None = None) -> Manifest:
    """Read and validate a manifest: from ``hgld manifest``, or a CSV or Parquet file with its columns.

    Args:
        path: The file.
        root: Folder of the images, to which paths are relative. It is searched for tar files with the
            images of a CSV or Parquet file. Default: no search.

    Raises:
        InputError: The file does not exist or is another table; or see :meth:`Manifest.from_arrow`.
    """
    if is_plain_table(path):
        table = _read_plain_manifest(path, root)
    else:
        table = read_table(path, MANIFEST, encoded=lambda name: name not in ("id", "path"))
        if _in_tars(table):
            paths = table["path"].dictionary_encode()
            table = table.set_column(table.column_names.index("path"), "path", paths)
    with prefix_input_errors(path):
        manifest = Manifest.from_arrow(table, describe_row=lambda row: f"row {row + 1}")
    del table
    return_memory()
    return manifest


def write_manifest(path: Path, manifest: Manifest, provenance: Provenance) -> None:
    """Write a manifest atomically."""
    write_table(path, MANIFEST, manifest.to_batches(), provenance)


@contextmanager
def prefix_input_errors(path: Path) -> Iterator[None]:
    """Put the name of a file before the messages of input errors that concern its content."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def is_manifest(columns: Sequence[str]) -> bool:
    """Return whether these are the columns of a manifest, and not, for instance, of a table of labels."""
    return "path" in columns and "split" in columns


def level_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns of a manifest that are levels.

    >>> level_columns(["path", "split", "product", "kind"])
    ['product', 'kind']
    """
    other_columns = {*MANIFEST.schema.names, *MANIFEST.optional.names}
    return [name for name in columns if name not in other_columns]


def is_plain_table(path: Path) -> bool:
    """Return whether a file is a CSV file, or a Parquet file that hgld did not write."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise InputError(
            f"{path}: {found}; expected a manifest: hgld manifest table or folder writes one"
        )
    with path.open("rb") as stream:
        is_parquet = stream.read(4) == b"PAR1"
    return not is_parquet or TABLE_KEY not in read_metadata(path)


def _read_plain_manifest(path: Path, root: Path | None) -> pa.Table:
    """Read a CSV or Parquet file with the columns of a manifest as the table ``manifest``.

    Required columns are path, split, and a column per level, finest first, of texts or numbers, or of
    lists if images have several labels. Optional are id, by default the path, and offset and size. If
    the first path is not a file below ``root``, images are searched in the tar files there.
    """
    present = text_column_names(path)
    levels = level_columns(present)
    if not is_manifest(present) or not levels:
        raise InputError(
            f"{path}: not a manifest: its columns are {preview(present)}; expected path, split and a column for each "
            "level, finest first, or write one from this table with hgld manifest table"
        )
    boxes = [name for name in MANIFEST.optional.names if name in present]
    if boxes:
        raise InputError(
            f"{path}: has the column {boxes[0]}, which is read only from manifests that hgld manifest wrote; rename "
            "it if it is a level"
        )
    texts = read_text_columns(
        path, present, may_be_missing=("offset", "size"), may_be_lists=levels, as_is=("path",)
    )
    if "id" not in present:
        texts = texts.append_column("id", pc.utf8_normalize(texts["path"], form="NFC"))
    columns = {}
    for field in MANIFEST.schema:
        if field.name in texts.column_names:
            column = texts[field.name]
        else:
            column = pa.nulls(len(texts), field.type)
        try:
            columns[field.name] = column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"{path}: {field.name}: {error}; expected whole numbers of bytes"
            ) from error
    has_places = columns["offset"].null_count < len(texts)
    if root is not None and root.is_dir() and not has_places:
        first_path = root / str(texts["path"][0])
        if not first_path.is_file():
            images = find_in_tars(root)
            rows = match_paths(texts["path"].to_pylist(), images.names)
            for name, values in images.places(rows).items():
                columns[name] = pc.coalesce(pa.chunked_array([values]), columns[name])
    return pa.table(columns | {name: texts[name] for name in levels})


def _check_rows(table: pa.Table, describe: Callable[[int], str]) -> None:
    """Raise unless there are rows, ids are unique, paths are relative, and offsets have sizes."""
    if not len(table):
        raise InputError("no images; expected a row for each")
    problems = _repeated_ids(table["id"], describe)
    is_absolute = pc.starts_with(table["path"].cast(pa.string()), "/")
    for row in pc.indices_nonzero(is_absolute).to_pylist():
        problems.append(
            f"{describe(row)}: the path is {table['path'][row]}; expected one relative to a folder"
        )
    offsets = _with_minus_one(table["offset"])
    sizes = _with_minus_one(table["size"])
    for row in np.flatnonzero((offsets < 0) != (sizes < 0)).tolist():
        problems.append(
            f"{describe(row)}: offset {table['offset'][row]}, size {table['size'][row]}; expected both or none"
        )
    if problems:
        raise InputError(bad_rows(problems))


def _in_tars(table: pa.Table) -> bool:
    """Return whether images are in tar files, so that many images have the same path."""
    return bool(table["offset"].null_count < len(table))


def _repeated_ids(ids: pa.ChunkedArray, describe: Callable[[int], str]) -> list[str]:
    """Describe the rows whose id occurs in an earlier row."""
    if TextArray(ids).is_unique():
        return []
    codes = pc.index_in(ids, value_set=pc.unique(ids)).to_numpy()
    _, first_rows = np.unique(codes, return_index=True)
    repeated = np.setdiff1d(np.arange(len(codes)), first_rows)
    return [
        f"{describe(row)}: the id is already used by {describe(first_rows[codes[row]])}"
        for row in repeated.tolist()
    ]


def _boxes(table: pa.Table, describe: Callable[[int], str]) -> Floats | None:
    """Return the boxes of a table, NaN for whole images; None if it has no column of boxes."""
    if _BOX.name not in table.column_names:
        return None
    column = table[_BOX.name]
    if not pa.types.is_fixed_size_list(column.type):
        return None
    boxes = np.array([box or [np.nan] * 4 for box in column.to_pylist()], np.float64)
    has_area = (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
    is_empty = ~has_area & column.is_valid().to_numpy()
    if is_empty.any():
        problems = []
        for row in np.flatnonzero(is_empty).tolist():
            problems.append(f"{describe(row)}: {boxes[row].tolist()}")
        raise InputError(
            f"{len(problems):,} boxes are empty; expected left, top, right, bottom:\n{indented_list(problems)}"
        )
    return boxes


def _taken(values: Integers, rows: Integers) -> Integers:
    """Return the values of some rows; a broadcast value stays broadcast, and takes no memory."""
    if any(values.strides):
        return values[rows]
    return np.broadcast_to(values[:1], len(rows)) if len(rows) else values[:0]


def _with_minus_one(column: pa.ChunkedArray) -> Integers:
    """Convert to int64, nulls to -1."""
    if column.null_count == len(column):
        return np.broadcast_to(np.int64(-1), len(column))  # takes no memory
    if column.null_count:
        column = pc.fill_null(column, -1)
    values: Integers = column.to_numpy()
    return values

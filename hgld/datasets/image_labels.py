"""Labels of embedded images, read from the file formats in which datasets publish them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from hgld.arrays import Booleans, Integers
from hgld.compute.machine import return_memory
from hgld.datasets.label_columns import encode_labels, split_labels
from hgld.datasets.manifest import (
    LANDMARK_LEVEL,
    is_manifest,
    is_plain_table,
    level_columns,
    prefix_input_errors,
    read_manifest,
)
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, LabelMatrix
from hgld.hierarchy.label_sets import Labelling, LabelSets, labelled_images, single_labels
from hgld.hierarchy.level_encoding import check_tree
from hgld.io.columns import column_names, preview, read_text_columns
from hgld.io.text_array import TextArray
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, load_array
from hgld.tables.image_landmarks import read_image_landmarks

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, eq=False)
class ImageLabels:
    """Labels of images, in the order of their embeddings.

    Args:
        labelling: int64, shape (N, L), finest first and nested, -1 in the rows of unlabelled images;
            or label sets, if images may have several labels, which are empty for unlabelled images.
        level_names: Names of the L levels, finest first.
        labelled: bool, shape (N,): whether each image has labels; at least one image has.
        names: Names of the labels at each level, if the file has names; otherwise empty.
    """

    labelling: Labelling
    level_names: tuple[str, ...]
    labelled: Booleans
    names: tuple[Mapping[int, str], ...] = ()

    @property
    def labels(self) -> LabelMatrix:
        """Label matrix of images with one label each: int64, shape (N, L), -1 for unlabelled images."""
        return single_labels(self.labelling)

    @property
    def classes(self) -> LabelMatrix:
        """Labels numbered from 0 within each level, as losses with proxies take them: int64, shape (N, L).

        -1 in the rows of unlabelled images. Labels of images with one label each.
        """
        classes = np.full(self.labels.shape, -1)
        for level, labels in enumerate(self.labels[self.labelled].T):
            _, numbers = np.unique(labels, return_inverse=True)
            classes[self.labelled, level] = numbers
        return classes

    @property
    def n_classes(self) -> tuple[int, ...]:
        """Number of classes at each level, finest first."""
        return tuple(int(numbers.max()) + 1 for numbers in self.classes.T)


def read_labels(
    path: Path,
    embeddings: Embeddings,
    hierarchy: Hierarchy | None = None,
    *,
    split: str | None = None,
    separator: str | None = None,
) -> ImageLabels:
    """Read the labels of embedded images.

    The file has one of these formats:

    - ``.csv`` or ``.parquet`` with the landmark of each image, see
      :func:`~hgld.tables.image_landmarks.read_image_landmarks`. The landmark is the finest level, and
      the hierarchy defines the levels above. Other columns are ignored. See
      :func:`labels_from_landmarks`.
    - ``.csv`` or ``.parquet`` with ``id`` and one column per level, finest first; or a manifest.
      Integers are kept. Other strings become integers, the same integer for the same string in any
      file. Several labels of an image are lists, or texts between separators, see
      :mod:`hgld.datasets.label_columns`.
    - ``.npy`` with integers, shape (N, L) or (N,), one row per embedding, finest first. Integers of
      shape (N,) are landmark ids if there is a hierarchy. A row of -1 is an unlabelled image.

    Files with ids may list other images, and may list an image several times with the same labels.
    Embedded images that a file does not list are unlabelled.

    Args:
        path: File of labels.
        embeddings: The images; they must have ids unless the file is ``.npy``.
        hierarchy: Levels above landmarks. Default: landmarks are the only level.
        split: Split of the landmark ids; may be omitted if the hierarchy has a single split. Or a
            split of the manifest; images of other splits are unlabelled.
        separator: Separator between the labels of an image in the columns of levels, such as ``;``.
            Default: a text is one label.

    Raises:
        InputError: The file does not exist or has another format; images have no ids, or the file
            lists none of them; a value is missing; an image has two different labels, or a label two
            parents; no image has labels.
        ConfigurationError: There is a hierarchy although the file has its own levels, or the
            hierarchy has several splits and ``split`` is None; or there is a separator, but no levels,
            or a split, but neither a hierarchy nor a manifest with this split.
    """
    return read_labels_of([embeddings], path, hierarchy, split=split, separator=separator)[0]


def read_labels_of(
    images: Sequence[Embeddings],
    path: Path,
    hierarchy: Hierarchy | None = None,
    *,
    split: str | None = None,
    separator: str | None = None,
) -> list[ImageLabels]:
    """Read the labels of several sets of images from one file, once; see :func:`read_labels`."""
    if path.suffix not in (".npy", ".csv", ".parquet"):
        raise InputError(
            f'{path}: the suffix is "{path.suffix}"; labels are in .npy, .csv or .parquet files'
        )
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the labels of images")
    columns = [] if path.suffix == ".npy" else column_names(path)
    has_levels = path.suffix != ".npy" and "landmark_id" not in columns
    if not is_manifest(columns):
        _require_hierarchy_of_split(split, hierarchy)
    if separator is not None and not has_levels:
        raise ConfigurationError(
            f"{path}: `label_separator` is for the levels of a table, which this file does not have"
        )
    if path.suffix == ".npy":
        return [_read_array(path, embeddings, hierarchy, split) for embeddings in images]
    if not has_levels:
        return _read_landmarks(path, images, hierarchy, split)
    _require_no_hierarchy(path, hierarchy)
    return _read_label_columns(path, columns, images, separator, split)


def _require_hierarchy_of_split(split: str | None, hierarchy: Hierarchy | None) -> None:
    """Raise a ConfigurationError for a split that would have no effect."""
    if split is not None and hierarchy is None:
        raise ConfigurationError(
            f'`split` is "{split}", which selects landmarks of a hierarchy or images of a manifest, and there is '
            "neither; leave it out"
        )


def labels_from_landmarks(
    landmark_ids: Integers,
    hierarchy: Hierarchy | None = None,
    split: str | None = None,
) -> ImageLabels:
    """Return the labels of images by their landmarks.

    Landmarks outside the hierarchy have no labels.

    With a hierarchy from ``hgld build --multi``, a landmark has a label for each of its groups.

    Args:
        landmark_ids: int64, shape (N,); -1 for images without a landmark.
        hierarchy: Levels above landmarks. Default: landmark ids are the only level.
        split: Split of the landmark ids; may be omitted if the hierarchy has a single split.

    >>> labels_from_landmarks(np.array([7, -1])).labelled
    array([ True, False])
    """
    _require_hierarchy_of_split(split, hierarchy)
    if hierarchy is None:
        return _image_labels(landmark_ids[:, None], (LANDMARK_LEVEL,))
    is_known = hierarchy.contains(landmark_ids, split)
    if not is_known.any():
        raise InputError(
            f"none of the {len(np.unique(landmark_ids)):,} landmarks of the images, such as {landmark_ids[0]}, is in "
            "the hierarchy; is it that of another split or dataset?"
        )
    if hierarchy.hierarchical_labels is not None:
        label_sets = hierarchy.label_sets_of(landmark_ids, split)
        return ImageLabels(label_sets, hierarchy.level_names, is_known)
    labels = np.full((len(landmark_ids), hierarchy.n_levels), -1)
    labels[is_known] = hierarchy.labels_of(landmark_ids[is_known], split)
    return _image_labels(labels, hierarchy.level_names)


def _read_array(
    path: Path, embeddings: Embeddings, hierarchy: Hierarchy | None, split: str | None
) -> ImageLabels:
    """Read an array of labels, a row per embedding."""
    array = load_array(path)
    if not np.issubdtype(array.dtype, np.integer) or array.ndim not in (1, 2) or not array.size:
        raise InputError(
            f"{path}: {array.dtype} of shape {array.shape}; expected labels as integers of shape (N, L) or (N,)"
        )
    if len(array) != len(embeddings):
        raise InputError(
            f"{path}: {len(array):,} rows of labels, but {embeddings.path} has {len(embeddings):,} embeddings; "
            "expected a row for each, in the same order"
        )
    labels = array.astype(np.int64)
    if labels.ndim == 1:
        with prefix_input_errors(path):
            return labels_from_landmarks(labels, hierarchy, split)
    _require_no_hierarchy(path, hierarchy)
    names = tuple(f"level {level}" for level in range(labels.shape[1], 0, -1))
    with prefix_input_errors(path):
        image_labels = _image_labels(labels, names)
        _check_nested(labels, names)
    return image_labels


def _read_landmarks(
    path: Path, images: Sequence[Embeddings], hierarchy: Hierarchy | None, split: str | None
) -> list[ImageLabels]:
    """Read the labels of sets of images from a table of landmark ids."""
    ids, landmark_ids = read_image_landmarks(path)
    rows_by_set = _rows_of_embeddings(path, images, TextArray(ids), landmark_ids[:, None])
    landmark_ids = np.append(landmark_ids, -1)  # for row -1: images that are not listed
    with prefix_input_errors(path):
        return [labels_from_landmarks(landmark_ids[rows], hierarchy, split) for rows in rows_by_set]


def _read_label_columns(
    path: Path,
    columns: Sequence[str],
    images: Sequence[Embeddings],
    separator: str | None,
    split: str | None,
) -> list[ImageLabels]:
    """Read the labels of sets of images from a table with a column per level."""
    ids, codes, level_names, class_names = _read_levels(path, columns, separator, split)
    rows_by_set = _rows_of_embeddings(path, images, ids, codes)
    del ids
    return_memory()
    integers = [_integer_labels(names) for names in class_names]
    names_by_label = []
    for labels, names in zip(integers, class_names, strict=True):
        names_by_label.append(dict(zip(labels.tolist(), names, strict=True)))
    results = []
    with prefix_input_errors(path):
        for rows in rows_by_set:
            labelling = _with_integers(_take_or_unlabelled(codes, rows), integers)
            results.append(_image_labels(labelling, level_names, tuple(names_by_label)))
    return results


def _read_levels(
    path: Path, columns: Sequence[str], separator: str | None, split: str | None
) -> tuple[TextArray, Labelling, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Read a table with a column per level.

    Returns:
        Ids of the images; their labels as indices into the class names; names of the levels; and
        class names of each level.
    """
    if "path" in columns:  # a manifest, perhaps without splits, has columns that are not levels
        levels = tuple(level_columns(columns))
    else:
        levels = tuple(name for name in columns if name != "id")
    key = "path" if "path" in columns and "id" not in columns else "id"
    if key not in columns or not levels or len(set(columns)) < len(columns):
        raise InputError(
            f"{path}: the columns are {', '.join(columns)}; expected id and landmark_id, or id and a column for each "
            "level, finest first, each name once"
        )
    if separator is None and is_manifest(columns) and not is_plain_table(path):
        manifest = read_manifest(path)
        if split is not None:
            _require_split(path, split, manifest.split_names)
            manifest = manifest.select_split(split)
        return manifest.ids, manifest.labelling, levels, manifest.class_names

    columns_to_read = [key, *levels]
    if split:
        columns_to_read.append("split")
    table = read_text_columns(path, columns_to_read, may_be_lists=levels)
    if split:
        _require_split(path, split, sorted(set(table["split"].to_pylist())))
        table = table.filter(pc.equal(table["split"], split))
    ids = table[key].combine_chunks()

    def describe(row: int) -> str:
        return f"image {ids[int(row)]}"

    with prefix_input_errors(path):
        texts = {name: table[name] for name in levels}
        if separator is not None:
            texts = {name: split_labels(column, separator) for name, column in texts.items()}
        codes, class_names = encode_labels(texts, describe)
    return TextArray(ids), codes, levels, class_names


def _require_split(path: Path, split: str, splits: Sequence[str]) -> None:
    """Raise a ConfigurationError unless a manifest has a split."""
    if split not in splits:
        raise ConfigurationError(
            f'{path}: `split` is "{split}", but the manifest has {", ".join(splits)}'
        )


def _with_integers(codes: Labelling, integers: Sequence[Integers]) -> Labelling:
    """Replace class indices by integers that are the same in every file; -1 stays -1."""
    matrix = codes.labels if isinstance(codes, LabelSets) else codes
    labels = np.empty(matrix.shape, np.int64)
    for column, values in enumerate(integers):
        labels[:, column] = np.append(values, -1)[matrix[:, column]]
    if isinstance(codes, LabelSets):
        return LabelSets(labels, codes.members)
    return labels


def _integer_labels(names: Sequence[str]) -> Integers:
    """Return an integer for each class: its name if all names are integers, or a hash of its name."""
    if all(_INTEGER.fullmatch(name) for name in names):
        return np.array([int(name) for name in names], np.int64)
    # A hash is the same in every file, so queries and gallery may be in separate files.
    hashes = np.empty(len(names), np.int64)
    for row, name in enumerate(names):
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "big") >> 1
    # 10 million names collide with a probability of 1 in 200,000.
    assert len(np.unique(hashes)) == len(names)
    return hashes


def _check_nested(labels: LabelMatrix, level_names: Sequence[str]) -> None:
    """Raise an InputError if a label has two parents."""
    encoded = []
    for column in labels.T:
        values, codes = np.unique(column, return_inverse=True)
        encoded.append((codes, [str(value) for value in values.tolist()]))
    check_tree(level_names, encoded, lambda row: f"row {row}")


def _rows_of_embeddings(
    path: Path, images: Sequence[Embeddings], ids: TextArray, labels: Labelling
) -> list[Integers]:
    """Return the row of each embedded image in a file, for each set of images.

    Rows of images that are not in the file are -1.

    Raises:
        InputError: Rows with the same id have different labels, embeddings have no ids, or no image
            of a set is in the file.
    """
    if not ids.is_unique():
        _require_equal_labels(path, ids, labels)
    rows_by_set = []
    for embeddings in images:
        if embeddings.ids is None:
            raise InputError(
                f"{path}: labels are by id, but {embeddings.path} comes without ids; write them, one a line, to "
                f"{embeddings.path.with_suffix('.ids.txt').name} beside it, or name a file of them"
            )
        rows = ids.find(embeddings.ids)
        if (rows < 0).all():
            raise InputError(
                f"{path}: lists none of the {len(embeddings):,} images in {embeddings.path}: "
                f"{preview([*embeddings.ids[:11]])} (its ids look like {preview(ids[:3].tolist())}); name a "
                "file of these images"
            )
        rows_by_set.append(rows)
    return rows_by_set


def _require_equal_labels(path: Path, ids: TextArray, labels: Labelling) -> None:
    """Raise an InputError if rows with the same id have different labels."""
    first_rows = ids.find(ids)
    repeated = np.flatnonzero(first_rows != np.arange(len(ids)))
    if isinstance(labels, LabelSets):
        members = labels.members
        differs = np.zeros(len(repeated), bool)
        for number, row in enumerate(repeated.tolist()):
            first_members = set(members.row(int(first_rows[row])).tolist())
            differs[number] = set(members.row(row).tolist()) != first_members
    else:
        differs = (labels[repeated] != labels[first_rows[repeated]]).any(axis=1)
    if differs.any():
        images = list(dict.fromkeys(ids[repeated[differs]].tolist()))
        raise InputError(
            f"{path}: {len(images):,} images have two different labels: {preview(images)}; give each image one"
        )


def _take_or_unlabelled(labels: Labelling, rows: Integers) -> Labelling:
    """Return the labels of some rows; row -1 gives an unlabelled image."""
    if isinstance(labels, LabelSets):
        offsets = labels.members.offsets
        with_empty_row = RaggedIndices(np.append(offsets, offsets[-1]), labels.members.columns)
        rows = np.where(rows < 0, len(labels), rows)
        return LabelSets(labels.labels, with_empty_row).take(rows)
    taken = labels[rows]
    taken[rows < 0] = -1
    return taken


def _image_labels(
    labels: Labelling,
    level_names: tuple[str, ...],
    names: tuple[Mapping[int, str], ...] = (),
) -> ImageLabels:
    """Return labels with a mask of the labelled images; raise an InputError without labelled images."""
    labelled = labelled_images(labels)
    if not labelled.any():
        raise InputError("no image has a label: all are -1, or none is listed")
    return ImageLabels(labels, level_names, labelled, names)


def _require_no_hierarchy(path: Path, hierarchy: Hierarchy | None) -> None:
    """Raise a ConfigurationError for a hierarchy beside a file with its own levels."""
    if hierarchy is not None:
        raise ConfigurationError(
            f"{path}: has its own levels, so it takes no `hierarchy`; omit it, or name a file with landmark_id"
        )

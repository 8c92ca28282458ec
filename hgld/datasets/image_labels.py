"""The labels of embedded images, from the file formats in which datasets state them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

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
from hgld.hierarchy.label_matrix import Labelling, LabelSets, labelled_images, single_labels
from hgld.hierarchy.tree import check_tree
from hgld.io.columns import column_names, preview, read_text_columns
from hgld.io.text_array import TextArray
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, load_array
from hgld.tables.image_landmarks import read_image_landmarks

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, eq=False)
class ImageLabels:
    """The labels of images, in the order of their embeddings.

    Args:
        labelling: int64, shape (N, L), finest first and nested, -1 in the rows of unlabelled images; or label sets,
            where images may have several labels, which are empty for unlabelled images.
        labelled: bool, shape (N,): whether each image has labels; at least one has.
        names: Names of the labels at each level, where a file states them as texts; otherwise empty.
    """

    labelling: Labelling
    level_names: tuple[str, ...]
    labelled: npt.NDArray[np.bool_]
    names: tuple[Mapping[int, str], ...] = ()

    @property
    def labels(self) -> LabelMatrix:
        """Labels of images with one label each: int64, shape (N, L), -1 in the rows of unlabelled images."""
        return single_labels(self.labelling)


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
      :func:`~hgld.tables.image_landmarks.read_image_landmarks`. The landmark is the finest level, and the hierarchy
      defines the levels above. Other columns are ignored. See :func:`labels_from_landmarks`.
    - ``.csv`` or ``.parquet`` with ``id`` and one column per level, finest first; or a manifest. Integers are kept.
      Other strings become integers, the same integer for the same string in any file. Several labels of an image are
      lists, or texts between separators, see :mod:`hgld.datasets.label_columns`.
    - ``.npy`` with integers, shape (N, L) or (N,), one row per embedding, finest first; of shape (N,) they are
      landmark ids if there is a hierarchy. A row of -1 is an unlabelled image.

    Files with ids may list other images, and an image repeatedly with the same labels. Images that they do not list
    are unlabelled.

    Args:
        embeddings: The images; they must have ids unless the file is ``.npy``.
        hierarchy: Levels above landmarks. Default: landmarks are the only level.
        split: Split of the landmark ids; may be omitted if the hierarchy has a single split. Or the split of a
            manifest whose images have labels here; all others are unlabelled.
        separator: Separator between the labels of an image in the columns of levels, such as ``;``. Default: a text
            is one label.

    Raises:
        InputError: The file does not exist or has none of the formats; images have no ids, or none is in the file; a
            value is missing; an image has two different labels, or a label two parents; no image has labels.
        ConfigurationError: There is a hierarchy although the file has its own levels, or the hierarchy has several
            splits and ``split`` is None; or there is a separator, but no levels, or a split, but neither a hierarchy
            nor a manifest with this split.
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
    present = [] if path.suffix == ".npy" else column_names(path)
    if not is_manifest(present):
        _require_hierarchy_of_split(split, hierarchy)
    if separator is not None and (path.suffix == ".npy" or "landmark_id" in present):
        raise ConfigurationError(
            f"{path}: `label_separator` is for the levels of a table, which this file does not have"
        )
    if path.suffix == ".npy":
        return [_read_array(path, each, hierarchy, split) for each in images]
    if "landmark_id" in present:
        ids, landmark_ids = read_image_landmarks(path)
        rows_of_each = _rows_of_embeddings(path, images, TextArray(ids), landmark_ids[:, None])
        with prefix_input_errors(path):
            landmark_ids = np.append(landmark_ids, -1)
            return [
                labels_from_landmarks(landmark_ids[rows], hierarchy, split) for rows in rows_of_each
            ]
    _require_no_hierarchy(path, hierarchy)
    ids, codes, level_names, texts = _read_levels(path, present, separator, split)
    rows_of_each = _rows_of_embeddings(path, images, ids, codes)
    del ids
    return_memory()
    integers = [_integer_labels(each) for each in texts]
    names = tuple(
        dict(zip(values.tolist(), each, strict=True))
        for values, each in zip(integers, texts, strict=True)
    )
    with prefix_input_errors(path):
        return [
            replace(
                _image_labels(_with_integers(_taken(codes, rows), integers), level_names),
                names=names,
            )
            for rows in rows_of_each
        ]


def _require_hierarchy_of_split(split: str | None, hierarchy: Hierarchy | None) -> None:
    """Refuse a split that would do nothing."""
    if split is not None and hierarchy is None:
        raise ConfigurationError(
            f'`split` is "{split}", which selects landmarks of a hierarchy or images of a manifest, and there is '
            "neither; leave it out"
        )


def labels_from_landmarks(
    landmark_ids: npt.NDArray[np.int64],
    hierarchy: Hierarchy | None = None,
    split: str | None = None,
) -> ImageLabels:
    """Return the labels of images whose landmarks are known; landmarks missing from the hierarchy are unlabelled.

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
    known = hierarchy.contains(landmark_ids, split)
    if not known.any():
        raise InputError(
            f"none of the {len(np.unique(landmark_ids)):,} landmarks of the images, such as {landmark_ids[0]}, is in "
            "the hierarchy; is it that of another split or dataset?"
        )
    if hierarchy.hierarchical_labels is not None:
        return ImageLabels(
            hierarchy.label_sets_of(landmark_ids, split), hierarchy.level_names, known
        )
    labels = np.full((len(landmark_ids), hierarchy.n_levels), -1)
    labels[known] = hierarchy.labels_of(landmark_ids[known], split)
    return _image_labels(labels, hierarchy.level_names)


def _read_array(
    path: Path, embeddings: Embeddings, hierarchy: Hierarchy | None, split: str | None
) -> ImageLabels:
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


def _read_levels(
    path: Path, present: Sequence[str], separator: str | None, split: str | None
) -> tuple[TextArray, Labelling, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Read image ids, codes of labels, and the names of levels and labels, from a file with a column per level."""
    # A manifest, perhaps without splits, has columns that are no levels.
    names = tuple(
        level_columns(present) if "path" in present else [name for name in present if name != "id"]
    )
    key = "path" if "path" in present and "id" not in present else "id"
    if key not in present or not names or len(set(present)) < len(present):
        raise InputError(
            f"{path}: the columns are {', '.join(present)}; expected id and landmark_id, or id and a column for each "
            "level, finest first, each name once"
        )
    if separator is None and is_manifest(present) and not is_plain_table(path):
        manifest = read_manifest(path)
        _require_split(path, split, manifest.split_names)
        manifest = manifest if split is None else manifest.select_split(split)
        return manifest.ids, manifest.labelling, names, manifest.class_names
    table = read_text_columns(
        path, [key, *names, *(["split"] if split else [])], may_be_lists=names
    )
    if split:
        _require_split(path, split, sorted(set(table["split"].to_pylist())))
        table = table.filter(pc.equal(table["split"], split))
    ids = table[key].combine_chunks()

    def describe(row: int) -> str:
        return f"image {ids[int(row)]}"

    with prefix_input_errors(path):
        columns = {name: table[name] for name in names}
        if separator is not None:
            columns = {name: split_labels(column, separator) for name, column in columns.items()}
        codes, texts = encode_labels(columns, describe)
    return TextArray(ids), codes, names, texts


def _require_split(path: Path, split: str | None, splits: Sequence[str]) -> None:
    if split is not None and split not in splits:
        raise ConfigurationError(
            f'{path}: `split` is "{split}", but the manifest has {", ".join(splits)}'
        )


def _with_integers(codes: Labelling, integers: Sequence[npt.NDArray[np.int64]]) -> Labelling:
    """Return labels that are the same integers in every file."""
    matrix = codes.labels if isinstance(codes, LabelSets) else codes
    labels = np.empty(matrix.shape, np.int64)
    for column, values in enumerate(integers):
        labels[:, column] = np.append(values, -1)[matrix[:, column]]
    return LabelSets(labels, codes.members) if isinstance(codes, LabelSets) else labels


def _integer_labels(names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return an integer for each name: the name itself if all names are integers, else a hash of it."""
    if all(_INTEGER.fullmatch(name) for name in names):
        return np.array([int(name) for name in names], np.int64)
    # A hash is the same in every file, so queries and gallery may be in separate files.
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    hashes = np.array([int.from_bytes(digest, "big") >> 1 for digest in digests], np.int64)
    assert len(np.unique(hashes)) == len(
        names
    )  # 10 million names collide with a probability of 1 in 200,000
    return hashes


def _check_nested(labels: LabelMatrix, level_names: Sequence[str]) -> None:
    encoded = []
    for column in labels.T:
        values, codes = np.unique(column, return_inverse=True)
        encoded.append((codes, [str(value) for value in values.tolist()]))
    check_tree(level_names, encoded, lambda row: f"row {row}")


def _rows_of_embeddings(
    path: Path, images: Sequence[Embeddings], ids: TextArray, labels: Labelling
) -> list[npt.NDArray[np.int64]]:
    """Return the row of each embedded image among ``ids``, or -1; repeated ids must have the same labels."""
    if not ids.is_unique() and len(conflicts := np.flatnonzero(_differ(labels, ids.find(ids)))):
        repeated = list(dict.fromkeys(ids[conflicts].tolist()))
        raise InputError(
            f"{path}: {len(repeated):,} images have two different labels: {preview(repeated)}; give each image one"
        )
    rows_of_each = []
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
        rows_of_each.append(rows)
    return rows_of_each


def _taken(labels: Labelling, rows: npt.NDArray[np.int64]) -> Labelling:
    """Return the labels of some images; those of row -1 are unlabelled."""
    if isinstance(labels, LabelSets):
        members = RaggedIndices(
            np.append(labels.members.offsets, labels.members.offsets[-1]), labels.members.columns
        )
        return LabelSets(labels.labels, members).take(np.where(rows < 0, len(labels), rows))
    taken = labels[rows]
    taken[rows < 0] = -1
    return taken


def _differ(labels: Labelling, first: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return whether the labels of each row differ from those of the first row with its id."""
    repeated = np.flatnonzero(first != np.arange(len(first)))
    differ = np.zeros(len(first), np.bool_)
    if isinstance(labels, LabelSets):
        sets = [frozenset(labels.members.row(row).tolist()) for row in range(len(labels))]
        differ[repeated] = [sets[row] != sets[first[row]] for row in repeated]
    else:
        differ[repeated] = (labels[repeated] != labels[first[repeated]]).any(axis=1)
    return differ


def _image_labels(labels: Labelling, level_names: tuple[str, ...]) -> ImageLabels:
    labelled = labelled_images(labels)
    if not labelled.any():
        raise InputError("no image has a label: all are -1, or none is listed")
    return ImageLabels(labels, level_names, labelled)


def _require_no_hierarchy(path: Path, hierarchy: Hierarchy | None) -> None:
    if hierarchy is not None:
        raise ConfigurationError(
            f"{path}: has its own levels, so it takes no `hierarchy`; omit it, or name a file with landmark_id"
        )

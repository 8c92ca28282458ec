"""The labels of embedded images, from the files in which data sets say them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, LabelMatrix
from hgld.hierarchy.checks import check_tree, encode
from hgld.io.columns import column_names, read_columns, require_non_null, rows_text, some
from hgld.tables.embeddings import Embeddings, load_array

_LANDMARK = ("landmark",)
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, eq=False)
class ImageLabels:
    """The labels of images, in the order of their embeddings.

    Args:
        labels: int64, shape (N, L), finest first and nested; -1 in the rows of images that have none.
        level_names: of the L levels, finest first.
        labelled: bool, shape (N,): whether an image has labels; some have.
    """

    labels: LabelMatrix
    level_names: tuple[str, ...]
    labelled: npt.NDArray[np.bool_]


def read_labels(
    path: Path, embeddings: Embeddings, hierarchy: Hierarchy | None = None, *, split: str | None = None
) -> ImageLabels:
    """Read the labels of images from one of these.

    - ``.csv`` or ``.parquet`` with ``id`` and ``landmark_id``, such as GLDv2's ``train.csv`` and
      ``index_image_to_landmark.csv``, or with ``landmark_id`` and ``images``, ids with spaces between, such as
      ``train_clean.csv``: the landmark is the finest level, and the hierarchy says those above it. Further columns
      are ignored. See :func:`labels_from_landmarks`.
    - ``.csv`` or ``.parquet`` with ``id`` and else one column per level, finest first. Whole numbers are kept.
      Texts become numbers, the same for the same text in any file.
    - ``.npy`` with whole numbers, shape (N, L) or (N,), a row per embedding and the finest first; of shape (N,) they
      are landmark ids where there is a hierarchy. A row of -1 is an image without labels.

    Files by id may list other images, too, and an image twice if it has the same labels both times.

    Args:
        path: the file.
        embeddings: the images; they must have ids unless the file is ``.npy``.
        hierarchy: the levels above landmarks; by default, these are the only level.
        split: the split that landmark ids are of; may be left out where the hierarchy has only one.

    Raises:
        InputError: there is no such file, or it is not one of the above; images have no ids or are not in the file,
            values are missing, an image has two different labels, a label has two above it, or no image has labels.
        ConfigurationError: there is a hierarchy although the file has levels of its own, or it has several splits
            and none is named.
    """
    if path.suffix not in (".npy", ".csv", ".parquet"):
        raise InputError(f'{path}: the suffix is "{path.suffix}"; labels are in .npy, .csv or .parquet files')
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the labels of images")
    if path.suffix == ".npy":
        return _from_array(path, embeddings, hierarchy, split)
    present = column_names(path)
    if "landmark_id" in present:
        ids, landmark_ids = read_image_landmarks(path)
        rows = _rows_of_images(path, embeddings, ids, landmark_ids[:, None])
        with _naming(path):
            return labels_from_landmarks(landmark_ids[rows], hierarchy, split)
    _refuse_hierarchy(path, hierarchy)
    ids, labels, names = _levels(path, present)
    rows = _rows_of_images(path, embeddings, ids, labels)
    with _naming(path):
        return _image_labels(labels[rows], names)


def labels_from_landmarks(
    landmark_ids: npt.NDArray[np.int64], hierarchy: Hierarchy | None = None, split: str | None = None
) -> ImageLabels:
    """The labels of images whose landmarks are known; those of landmarks that the hierarchy lacks have none.

    Args:
        landmark_ids: int64, shape (N,); -1 where an image has no landmark.
        hierarchy: the levels above; without one, the landmark ids are the labels.
        split: the split that the ids are of; may be left out where the hierarchy has only one.

    Raises:
        InputError: no image has labels, or a label would be below -1.
        ConfigurationError: the hierarchy has several splits and none is named, or has no such split.
    """
    if hierarchy is None:
        return _image_labels(landmark_ids[:, None], _LANDMARK)
    known = hierarchy.contains(landmark_ids, split)
    if not known.any():
        raise InputError(
            f"none of the {len(np.unique(landmark_ids)):,} landmarks of the images, such as {landmark_ids[0]}, is in "
            "the hierarchy; is it that of another split or data set?"
        )
    labels = np.full((len(landmark_ids), hierarchy.n_levels), -1)
    labels[known] = hierarchy.labels_of(landmark_ids[known], split)
    return _image_labels(labels, hierarchy.level_names)


def _from_array(path: Path, embeddings: Embeddings, hierarchy: Hierarchy | None, split: str | None) -> ImageLabels:
    array = load_array(path)
    if not np.issubdtype(array.dtype, np.integer) or array.ndim not in (1, 2) or not array.size:
        raise InputError(
            f"{path}: {array.dtype} of shape {array.shape}; expected labels as whole numbers of shape (N, L) or (N,)"
        )
    if len(array) != len(embeddings):
        raise InputError(
            f"{path}: {len(array):,} rows of labels, but {embeddings.path} has {len(embeddings):,} embeddings; "
            "expected a row for each, in the same order"
        )
    labels = array.astype(np.int64)
    if labels.ndim == 1:
        with _naming(path):
            return labels_from_landmarks(labels, hierarchy, split)
    _refuse_hierarchy(path, hierarchy)
    names = tuple(f"level {level}" for level in range(labels.shape[1], 0, -1))
    with _naming(path):
        found = _image_labels(labels, names)
        _check_nested(labels, names)
    return found


def read_image_landmarks(path: Path) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Ids of images and their landmarks, from a file with a row per image or per landmark.

    Args:
        path: ``.csv`` or ``.parquet`` with ``landmark_id``, and ``id`` or ``images``; see :func:`read_labels`.

    Raises:
        InputError: there is no such file, it is not one of these, or values are missing.
    """
    present = column_names(path)
    key = next((name for name in ("id", "images") if name in present), None)
    if key is None or "landmark_id" not in present:
        raise InputError(
            f"{path}: expected the columns landmark_id and id, or landmark_id and images; found {', '.join(present)}"
        )
    table = read_columns(path, (key, "landmark_id"), {key: pa.string(), "landmark_id": pa.int64()})
    require_non_null(table, path)
    ids, landmark_ids = table[key].combine_chunks(), table["landmark_id"].to_numpy()
    if key == "images":
        lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(ids))
        ids, landmark_ids = lists.flatten(), landmark_ids[pc.list_parent_indices(lists).to_numpy()]
    return ids, landmark_ids


def _levels(path: Path, present: Sequence[str]) -> tuple[pa.Array, LabelMatrix, tuple[str, ...]]:
    """Ids of images, their labels and the names of the levels, from a file with a column per level."""
    names = tuple(name for name in present if name != "id")
    if "id" not in present or not names or len(set(present)) < len(present):
        raise InputError(
            f"{path}: the columns are {', '.join(present)}; expected id and landmark_id, or id and a column for each "
            "level, finest first, each name once"
        )
    table = read_columns(path, present, dict.fromkeys(present, pa.string()))
    require_non_null(table, path)
    ids = table["id"].combine_chunks()
    with _naming(path):
        coded = [encode(table[name], name, _image_of(ids)) for name in names]
        check_tree(names, coded, _image_of(ids))
    return ids, np.stack([_numbered(*codes_and_names) for codes_and_names in coded], axis=1), names


def _numbered(codes: npt.NDArray[np.int64], names: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number per row: that of its name, if all names are whole numbers; else one that the text alone decides."""
    if all(_WHOLE.fullmatch(name) for name in names):
        return np.array([int(name) for name in names], np.int64)[codes]
    # The same in every file, so that queries and gallery can have files of their own.
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    numbers = np.array([int.from_bytes(digest, "big") >> 1 for digest in digests], np.int64)
    assert len(np.unique(numbers)) == len(names)  # of 10 million texts, two are alike once in 200,000 times
    return numbers[codes]


def _check_nested(labels: LabelMatrix, level_names: Sequence[str]) -> None:
    coded = []
    for column in labels.T:
        values, codes = np.unique(column, return_inverse=True)
        coded.append((codes, [str(value) for value in values.tolist()]))
    check_tree(level_names, coded, lambda row: f"row {row}")


def _rows_of_images(path: Path, embeddings: Embeddings, ids: pa.Array, labels: LabelMatrix) -> npt.NDArray[np.int64]:
    """The row of each embedded image among ``ids``, whose labels are told once or alike."""
    if embeddings.ids is None:
        raise InputError(
            f"{path}: says labels by id, but {embeddings.path} comes without ids; write them, one a line, to "
            f"{embeddings.path.with_suffix('.ids.txt').name} beside it, or name a file of them"
        )
    first = pc.index_in(ids, value_set=ids).to_numpy()
    if len(odd := np.flatnonzero((labels != labels[first]).any(axis=1))):
        images = list(dict.fromkeys(ids.take(pa.array(odd)).to_pylist()))
        raise InputError(
            f"{path}: {len(images):,} images have two different labels: {some(images)}; give each image one"
        )
    rows = pc.index_in(pa.array(embeddings.ids, pa.string()), value_set=ids)
    if rows.null_count:
        absent = embeddings.ids[rows.is_null().to_numpy(zero_copy_only=False)]
        raise InputError(
            f"{path}: {len(absent):,} of the {len(embeddings):,} images in {embeddings.path} are not in it: "
            f"{some(absent.tolist())} (it has such as {some(ids.slice(0, 3).to_pylist())}); name a file that lists "
            "all images, or leave those out of the embeddings"
        )
    found: npt.NDArray[np.int64] = rows.to_numpy().astype(np.int64)
    return found


def _image_labels(labels: LabelMatrix, level_names: tuple[str, ...]) -> ImageLabels:
    labelled = (labels != -1).any(axis=1)
    if len(odd := np.flatnonzero((labels < 0).any(axis=1) & labelled)):
        raise InputError(
            f"labels below 0 in {rows_text(odd)} of the embeddings, the first {labels[odd[0]].tolist()}; expected 0 "
            "and more, or -1 at every level where an image has no labels"
        )
    if not labelled.any():
        raise InputError("all labels are -1, so no image has any")
    return ImageLabels(labels, level_names, labelled)


def _refuse_hierarchy(path: Path, hierarchy: Hierarchy | None) -> None:
    if hierarchy is not None:
        raise ConfigurationError(
            f"{path}: says the levels itself, so a hierarchy is of no use; leave it out, or name a file with "
            "landmark_id"
        )


def _image_of(ids: pa.Array) -> Callable[[int], str]:
    return lambda row: f"image {ids[int(row)]}"


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name before what is wrong with its labels."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error

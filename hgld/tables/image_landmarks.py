"""The landmark of each image, from GLDv2's CSV files or files like them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.arrays import Integers
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import column_names, read_columns, require_non_null
from hgld.tables.column_values import SPLITS


def read_image_landmarks(path: Path) -> tuple[pa.Array, NDArray[Any]]:
    """Read the ids of images and their landmarks, from a file with one row per image or per landmark.

    Args:
        path: ``.csv`` or ``.parquet`` with the columns ``landmark_id`` and ``id``, such as GLDv2's ``train.csv``; or
            ``landmark_id`` and ``images``, ids separated by spaces, such as ``train_clean.csv``. For other lists,
            ``entity`` with the id of the entity stands for ``landmark_id``.

    Returns:
        The image ids, strings, and their landmark ids, int64, or text in the column ``entity``; both of length N.

    Raises:
        InputError: The file does not exist, lacks these columns, or has missing values.
    """
    present = column_names(path)
    key = next((name for name in ("id", "images") if name in present), None)
    landmark = "entity" if "entity" in present else "landmark_id"
    if key is None or landmark not in present:
        raise InputError(
            f"{path}: expected the columns landmark_id and id, or landmark_id and images; found {', '.join(present)}"
        )
    kind = pa.string() if landmark == "entity" else pa.int64()
    table = read_columns(path, (key, landmark), {key: pa.string(), landmark: kind})
    require_non_null(table, path)
    ids, landmark_ids = table[key].combine_chunks(), table[landmark].to_numpy()
    if key == "images":
        lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(ids))
        ids, landmark_ids = lists.flatten(), landmark_ids[pc.list_parent_indices(lists).to_numpy()]
    return ids, landmark_ids


def images_of_landmarks(
    lists: Iterable[tuple[str, Path]], landmarks: pa.Table
) -> tuple[pa.Array, Integers]:
    """Return the ids of the images of some landmarks, and the number of the landmark of each, int64, shape (n,).

    Args:
        lists: Files of :func:`read_image_landmarks`, at least one, each with its split.
        landmarks: Columns split and landmark_id; the number of a landmark is its row.
    """
    ids, numbers = [], []
    for split, path in lists:
        image_ids, landmark_ids = read_image_landmarks(path)
        number = landmark_numbers(landmarks, split, landmark_ids)
        ids.append(image_ids.filter(pa.array(number >= 0)))
        numbers.append(number[number >= 0])
    return pa.concat_arrays(ids), np.concatenate(numbers)


def landmark_numbers(landmarks: pa.Table, split: str, landmark_ids: NDArray[Any]) -> Integers:
    """Return the numbers of landmarks by id, int64, shape (n,); -1 for unknown ones."""
    of_split = np.flatnonzero(pc.equal(landmarks["split"], split).to_numpy(zero_copy_only=False))
    known, ids = (
        landmarks["landmark_id"].take(pa.array(of_split)).combine_chunks(),
        pa.array(landmark_ids),
    )
    if ids.type != known.type:
        ids, known = ids.cast(pa.string()), known.cast(pa.string())
    position = pc.fill_null(pc.index_in(ids, value_set=known), -1).to_numpy()
    return np.where(position >= 0, of_split[position], -1)


def split_and_path(
    images: Path | tuple[str, Path], existing: Sequence[str], *, parameter: str = "images"
) -> tuple[str, Path]:
    """Return the split of a file of images and its path.

    The split is given unless the name begins with one or only one exists; ``parameter`` is the caller's, for
    messages.

    Raises:
        ConfigurationError: The split is unknown, or there are no landmarks of it.
    """
    split: str | None
    if isinstance(images, tuple):
        split, path = images
    else:
        path = images
        split = next((split for split in (*SPLITS, *existing) if path.name.startswith(split)), None)
        if split is None and len(existing) > 1:
            raise ConfigurationError(
                f"{path}: the split of these images is unknown; give it with the file in `{parameter}`"
            )
        split = split or existing[0]
    if split not in existing:
        raise ConfigurationError(
            f"{path}: images of the split {split}, but there are landmarks of {' and '.join(existing)} only; "
            f"if the images are of these, give that split with the file in `{parameter}`"
        )
    return split, path

"""Read which landmark each image shows, from GLDv2's CSV files or files with the same columns."""

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
        path: CSV or Parquet file with the columns ``landmark_id`` and ``id``, such as GLDv2's
            ``train.csv``; or ``landmark_id`` and ``images``, ids separated by spaces, such as
            ``train_clean.csv``. Other lists have ``entity``, the id of the entity, for
            ``landmark_id``.

    Returns:
        The image ids, N strings, and their landmark ids: int64, shape (N,), or N texts from the
        column ``entity``.

    Raises:
        InputError: The file does not exist, lacks these columns, or has missing values.
    """
    present = column_names(path)
    image = "id" if "id" in present else "images"
    landmark = "entity" if "entity" in present else "landmark_id"
    if image not in present or landmark not in present:
        raise InputError(
            f"{path}: expected the columns landmark_id and id, or landmark_id and images; found {', '.join(present)}"
        )
    kind = pa.string() if landmark == "entity" else pa.int64()
    table = read_columns(path, (image, landmark), {image: pa.string(), landmark: kind})
    require_non_null(table, path)
    ids = table[image].combine_chunks()
    landmark_ids = table[landmark].to_numpy()
    if image == "id":
        return ids, landmark_ids
    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(ids))
    return lists.flatten(), landmark_ids[pc.list_parent_indices(lists).to_numpy()]


def images_of_landmarks(
    lists: Iterable[tuple[str, Path]], landmarks: pa.Table
) -> tuple[pa.Array, Integers]:
    """Return the images of landmarks.

    Args:
        lists: Files of :func:`read_image_landmarks`, at least one, each with its split.
        landmarks: Columns split and landmark_id; the number of a landmark is its row.

    Returns:
        The ids of n images, and the number of each image's landmark: int64, shape (n,).
    """
    ids = []
    numbers = []
    for split, path in lists:
        image_ids, landmark_ids = read_image_landmarks(path)
        numbers_in_list = landmark_numbers(landmarks, split, landmark_ids)
        is_known = numbers_in_list >= 0
        ids.append(image_ids.filter(pa.array(is_known)))
        numbers.append(numbers_in_list[is_known])
    return pa.concat_arrays(ids), np.concatenate(numbers)


def landmark_numbers(landmarks: pa.Table, split: str, landmark_ids: NDArray[Any]) -> Integers:
    """Return the number of the landmark with each id: int64, shape (n,); -1 for unknown ids.

    Args:
        landmarks: Columns split and landmark_id; the number of a landmark is its row.
        split: Split of the landmarks.
        landmark_ids: n ids of landmarks.
    """
    in_split = pc.equal(landmarks["split"], split).to_numpy(zero_copy_only=False)
    numbers = np.flatnonzero(in_split)
    ids = pa.array(landmark_ids)
    split_ids = landmarks["landmark_id"].take(pa.array(numbers)).combine_chunks()
    if ids.type != split_ids.type:
        ids = ids.cast(pa.string())
        split_ids = split_ids.cast(pa.string())
    position = pc.fill_null(pc.index_in(ids, value_set=split_ids), -1).to_numpy()
    return np.where(position >= 0, numbers[position], -1)


def split_and_path(
    images: Path | tuple[str, Path], existing: Sequence[str], *, parameter: str = "images"
) -> tuple[str, Path]:
    """Return the split of a file of images and its path.

    Args:
        images: A file with its split; or a file alone, if its name begins with the split or only
            one split exists.
        existing: Splits that have landmarks.
        parameter: Name of the caller's parameter, for error messages.

    Raises:
        ConfigurationError: The split is unknown or has no landmarks.
    """
    if isinstance(images, tuple):
        split, path = images
    else:
        path = images
        named_splits = [split for split in (*SPLITS, *existing) if path.name.startswith(split)]
        if not named_splits and len(existing) > 1:
            raise ConfigurationError(
                f"{path}: the split of these images is unknown; give it with the file in `{parameter}`"
            )
        split = named_splits[0] if named_splits else existing[0]
    if split not in existing:
        raise ConfigurationError(
            f"{path}: images of the split {split}, but there are landmarks of {' and '.join(existing)} only; "
            f"if the images are of these, give that split with the file in `{parameter}`"
        )
    return split, path

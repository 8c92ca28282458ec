"""Columns of labels, a column per level: one label in each cell, or several as a list.

The k-th entries of the cells of a row make up a label with its ancestors. A cell with a single entry stands for all
labels of its image, such as the landmark of an image whose landmark is in several groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import InputError, indented_list
from hgld.hierarchy.label_matrix import Labelling, LabelSets, deviating_parents
from hgld.hierarchy.tree import DescribeRow, check_tree, encode_names, order_advice
from hgld.io.columns import is_list
from hgld.tables.schemas import TEXTS

#: Labels of images as indices into the class names of each level, and these names, finest level first.
EncodedLabels = tuple[Labelling, tuple[tuple[str, ...], ...]]


def encode_labels(
    levels: Mapping[str, pa.ChunkedArray], describe_row: DescribeRow
) -> EncodedLabels:
    """Return the labels of images as indices into sorted class names.

    Args:
        levels: Column of each level, finest first, without nulls: texts, or lists of texts in any of them for images
            with several labels.

    Returns:
        A label matrix, int32, if all columns are texts, else label sets; and the class names of each level.

    Raises:
        InputError: A label is empty; a class has several parents, or with several labels other parents in one image
            than in another; or lists of a row differ in length.
    """
    if any(is_list(column.type) for column in levels.values()):
        return _encode_lists(levels, describe_row)
    labels, class_names = np.empty((len(next(iter(levels.values()))), len(levels)), np.int32), []
    for number, (name, column) in enumerate(levels.items()):
        labels[:, number], names = encode_names(column, name, describe_row)
        class_names.append(names)
    check_tree(list(levels), [*zip(labels.T, class_names, strict=True)], describe_row)
    return labels, tuple(class_names)


def _encode_lists(
    levels: Mapping[str, pa.ChunkedArray], describe_row: DescribeRow
) -> EncodedLabels:
    lengths = {name: _lengths(column) for name, column in levels.items()}
    counts = np.max(list(lengths.values()), axis=0)
    problems = [
        f"{describe_row(int(row))}: "
        + ", ".join(f"{lengths[name][row]} of {name}" for name in levels)
        for row in np.flatnonzero(
            np.any([(each != counts) & (each != 1) for each in lengths.values()], axis=0)
            | (counts == 0)
        )
    ]
    if problems:
        raise InputError(
            f"{len(problems):,} images have different numbers of labels at their levels, or none; expected as many "
            f"at each level, or one that stands for all:\n{indented_list(problems)}"
        )
    images = np.repeat(np.arange(len(counts)), counts)
    encoded = []
    for name, column in levels.items():
        values, owners = _flattened(column), np.repeat(np.arange(len(counts)), lengths[name])
        if values.null_count:
            entry = pc.indices_nonzero(values.is_null())[0].as_py()
            raise InputError(
                f"{name} has a list with a missing value in {describe_row(int(owners[entry]))}"
            )
        codes, names = encode_names(values, name, partial(_describe_entry, owners, describe_row))
        starts = np.cumsum(lengths[name]) - lengths[name]
        within = np.arange(len(images)) - np.repeat(np.cumsum(counts) - counts, counts)
        encoded.append(
            (codes[starts[images] + np.where(lengths[name][images] == 1, 0, within)], names)
        )
    sets = LabelSets.from_rows(
        np.stack([codes for codes, _ in encoded], axis=1, dtype=np.int64), counts
    )
    class_names = tuple(names for _, names in encoded)
    _check_parents(sets, list(levels), class_names, describe_row)
    return sets, class_names


def _describe_entry(owners: npt.NDArray[np.int64], describe_row: DescribeRow, entry: int) -> str:
    return describe_row(int(owners[entry]))


def _check_parents(
    sets: LabelSets,
    level_names: Sequence[str],
    class_names: Sequence[Sequence[str]],
    describe_row: DescribeRow,
) -> None:
    if (deviating := deviating_parents(sets)) is None:
        return
    column, code, image = deviating
    name, level, parent_level = (
        class_names[column][code],
        level_names[column],
        level_names[column + 1],
    )
    others = sets.labels[sets.labels[:, column] == code, column + 1]
    own = sets.of(image)
    parents = [
        class_names[column + 1][parent]
        for parent in np.unique(own[own[:, column] == code, column + 1])
    ]
    everywhere = [class_names[column + 1][parent] for parent in np.unique(others)]
    raise InputError(
        f'{level} "{name}" has the {parent_level} {", ".join(parents)} in {describe_row(image)}, but '
        f"{', '.join(everywhere)} in others; expected the same in every image that has it"
        f"{order_advice(level_names, class_names)}"
    )


def _lengths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the number of entries of each cell."""
    if not is_list(column.type):
        return np.ones(len(column), np.int64)
    lengths: npt.NDArray[np.int64] = pc.list_value_length(column).to_numpy().astype(np.int64)
    return lengths


def _flattened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column) if is_list(column.type) else column


def label_columns(
    labels: Labelling, level_names: Sequence[str], class_names: Sequence[Sequence[str]]
) -> dict[str, pa.Array]:
    """Return a column per level, of texts or for label sets lists of texts; the inverse of :func:`encode_labels`.

    Unlabelled images have nulls, or empty lists.
    """
    columns: dict[str, pa.Array] = {}
    for column, (name, classes) in enumerate(zip(level_names, class_names, strict=True)):
        texts = pa.array(classes, pa.string())
        if isinstance(labels, LabelSets):
            values = texts.take(pa.array(labels.labels[labels.members.columns, column]))
            offsets = pa.array(labels.members.offsets.astype(np.int32))
            columns[name] = pa.ListArray.from_arrays(offsets, values, type=TEXTS)
        else:
            columns[name] = texts.take(
                pa.array(labels[:, column], pa.int64(), mask=labels[:, column] < 0)
            )
    return columns


def split_labels(column: pa.ChunkedArray, separator: str) -> pa.ChunkedArray:
    """Return lists of the texts between separators, without white space around them and without empty ones.

    A column that already has lists is returned as it is.

    >>> split_labels(pa.chunked_array([["05.03.13; 26.01", "29.01;"]]), ";").to_pylist()
    [['05.03.13', '26.01'], ['29.01']]
    """
    if is_list(column.type):
        return column
    parts = pc.split_pattern(column.combine_chunks(), separator)
    counts = pc.list_value_length(parts).to_numpy()
    texts = pc.utf8_trim_whitespace(pc.list_flatten(parts))
    kept = pc.not_equal(texts, "").to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(len(counts)), counts)[kept]
    offsets = np.searchsorted(owners, np.arange(len(counts) + 1)).astype(np.int32)
    return pa.chunked_array(
        [pa.ListArray.from_arrays(pa.array(offsets), texts.filter(pa.array(kept)), type=TEXTS)]
    )


def split_codes(
    codes: pa.ChunkedArray, separator: str, levels: Sequence[str], describe_row: DescribeRow
) -> dict[str, pa.ChunkedArray]:
    """Return the levels of hierarchical codes: the whole code, and what is left without its last parts.

    Args:
        codes: Texts, or lists of texts, such as 05.03.13, with a part per level.
        separator: Separator of the parts, such as a dot.

    >>> codes = pa.chunked_array([["05.03.13", "26.01.01"]])
    >>> {name: column.to_pylist() for name, column in split_codes(codes, ".", ["a", "b", "c"], str).items()}
    {'a': ['05.03.13', '26.01.01'], 'b': ['05.03', '26.01'], 'c': ['05', '26']}
    """
    array = codes.combine_chunks()
    texts = _flattened(array)
    values = [text or "" for text in texts.to_pylist()]  # null in a list
    parts = [[part.strip() for part in text.split(separator)] for text in values]
    for entry, each in enumerate(parts):
        if len(each) != len(levels) or not all(each):
            row = int(np.repeat(np.arange(len(array)), _lengths(codes))[entry])
            raise InputError(
                f'{describe_row(row)}: the code "{values[entry]}" has {sum(map(bool, each))} parts; '
                f'expected {len(levels)} separated by "{separator}", one for each of {", ".join(levels)}'
            )
    columns: dict[str, pa.ChunkedArray] = {}
    for dropped, name in enumerate(levels):
        level = pa.array(
            [separator.join(each[: len(each) - dropped]) for each in parts], pa.string()
        )
        if is_list(codes.type):
            level = pa.ListArray.from_arrays(array.offsets, level, type=TEXTS)
        columns[name] = pa.chunked_array([level])
    return columns

"""Columns of labels, a column per level: one label in each cell, or several labels as a list.

The k-th entries of the cells of a row make up a label with its ancestors. A cell with a single entry
stands for all labels of its image, such as the landmark of an image whose landmark is in several
groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgld.arrays import Integers
from hgld.errors import InputError, indented_list
from hgld.hierarchy.label_sets import Labelling, LabelSets, deviating_parents
from hgld.hierarchy.level_encoding import DescribeRow, check_tree, encode_names, order_advice
from hgld.io.columns import is_list
from hgld.tables.schemas import TEXTS

#: Labels of images as indices into the class names of each level, and these names, finest level first.
EncodedLabels = tuple[Labelling, tuple[tuple[str, ...], ...]]


def encode_labels(
    levels: Mapping[str, pa.ChunkedArray], describe_row: DescribeRow
) -> EncodedLabels:
    """Return the labels of images as indices into sorted class names.

    Args:
        levels: Column of each level, finest first, without nulls: texts, or, for images with several
            labels, lists of texts.
        describe_row: Function from a row number to the words for that row in error messages.

    Returns:
        A label matrix, int32, if all columns are texts, or label sets; and the class names of each
        level.

    Raises:
        InputError: A label is empty; a class has several parents, or, with several labels, other
            parents in one image than in another; or lists of a row differ in length.
    """
    if any(is_list(column.type) for column in levels.values()):
        return _encode_lists(levels, describe_row)
    n_images = len(next(iter(levels.values())))
    labels = np.empty((n_images, len(levels)), np.int32)
    class_names = []
    for number, (name, column) in enumerate(levels.items()):
        labels[:, number], names = encode_names(column, name, describe_row)
        class_names.append(names)
    check_tree(list(levels), list(zip(labels.T, class_names, strict=True)), describe_row)
    return labels, tuple(class_names)


def _encode_lists(
    levels: Mapping[str, pa.ChunkedArray], describe_row: DescribeRow
) -> EncodedLabels:
    """Encode columns that may hold lists; see :func:`encode_labels`."""
    lengths = {name: _lengths(column) for name, column in levels.items()}
    counts = np.max(list(lengths.values()), axis=0)
    _check_lengths(lengths, counts, describe_row)
    n_images = len(counts)
    images = np.repeat(np.arange(n_images), counts)  # of each label
    label_numbers = np.arange(len(images)) - np.repeat(np.cumsum(counts) - counts, counts)
    codes = np.empty((len(images), len(levels)), np.int64)
    class_names = []
    for number, (name, column) in enumerate(levels.items()):
        values = _flattened(column)
        owners = np.repeat(np.arange(n_images), lengths[name])  # image of each value
        if values.null_count:
            entry = pc.indices_nonzero(values.is_null())[0].as_py()
            raise InputError(
                f"{name} has a list with a missing value in {describe_row(int(owners[entry]))}"
            )
        value_codes, names = encode_names(
            values, name, partial(_describe_entry, owners, describe_row)
        )
        starts = np.cumsum(lengths[name]) - lengths[name]
        # The only value of a cell stands for all labels of its image.
        positions = np.where(lengths[name][images] == 1, 0, label_numbers)
        codes[:, number] = value_codes[starts[images] + positions]
        class_names.append(names)
    sets = LabelSets.from_rows(codes, counts)
    _check_parents(sets, list(levels), class_names, describe_row)
    return sets, tuple(class_names)


def _check_lengths(
    lengths: Mapping[str, Integers],
    counts: Integers,
    describe_row: DescribeRow,
) -> None:
    """Raise an InputError unless each cell has one entry, or as many as its image has labels."""
    is_wrong = counts == 0
    for level_lengths in lengths.values():
        is_wrong |= (level_lengths != counts) & (level_lengths != 1)
    problems = []
    for row in np.flatnonzero(is_wrong).tolist():
        shown = ", ".join(f"{lengths[name][row]} of {name}" for name in lengths)
        problems.append(f"{describe_row(row)}: {shown}")
    if problems:
        raise InputError(
            f"{len(problems):,} images have different numbers of labels at their levels, or none; expected as many "
            f"at each level, or one that stands for all:\n{indented_list(problems)}"
        )


def _describe_entry(owners: Integers, describe_row: DescribeRow, entry: int) -> str:
    """Return the words for the row of an entry of a flattened column."""
    return describe_row(int(owners[entry]))


def _check_parents(
    sets: LabelSets,
    level_names: Sequence[str],
    class_names: Sequence[Sequence[str]],
    describe_row: DescribeRow,
) -> None:
    """Raise an InputError if a class has other parents in one image than in another."""
    deviating = deviating_parents(sets)
    if deviating is None:
        return
    column, code, image = deviating
    name = class_names[column][code]
    level = level_names[column]
    parent_level = level_names[column + 1]
    parent_names = class_names[column + 1]
    labels_of_image = sets.of(image)
    codes_of_parents = labels_of_image[labels_of_image[:, column] == code, column + 1]
    parents = [parent_names[parent] for parent in np.unique(codes_of_parents)]
    codes_of_all_parents = sets.labels[sets.labels[:, column] == code, column + 1]
    all_parents = [parent_names[parent] for parent in np.unique(codes_of_all_parents)]
    raise InputError(
        f'{level} "{name}" has the {parent_level} {", ".join(parents)} in {describe_row(image)}, but '
        f"{', '.join(all_parents)} in others; expected the same in every image that has it"
        f"{order_advice(level_names, class_names)}"
    )


def _lengths(column: pa.ChunkedArray) -> Integers:
    """Return the number of entries of each cell."""
    if not is_list(column.type):
        return np.ones(len(column), np.int64)
    lengths: Integers = pc.list_value_length(column).to_numpy().astype(np.int64)
    return lengths


def _flattened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the entries of all cells, one after another."""
    if is_list(column.type):
        return pc.list_flatten(column)
    return column


def label_columns(
    labels: Labelling, level_names: Sequence[str], class_names: Sequence[Sequence[str]]
) -> dict[str, pa.Array]:
    """Return a column of texts per level, or of lists of texts for label sets.

    The inverse of :func:`encode_labels`. Unlabelled images have nulls, or empty lists.
    """
    columns: dict[str, pa.Array] = {}
    for number, (name, classes) in enumerate(zip(level_names, class_names, strict=True)):
        texts = pa.array(classes, pa.string())
        if isinstance(labels, LabelSets):
            values = texts.take(pa.array(labels.labels[labels.members.columns, number]))
            offsets = pa.array(labels.members.offsets.astype(np.int32))
            columns[name] = pa.ListArray.from_arrays(offsets, values, type=TEXTS)
        else:
            codes = labels[:, number]
            columns[name] = texts.take(pa.array(codes, pa.int64(), mask=codes < 0))
    return columns


def split_labels(column: pa.ChunkedArray, separator: str) -> pa.ChunkedArray:
    """Split texts into lists at separators, and drop white space and empty entries.

    A column of lists is returned as it is.

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
    entries = texts.filter(pa.array(kept))
    return pa.chunked_array([pa.ListArray.from_arrays(pa.array(offsets), entries, type=TEXTS)])


def split_codes(
    codes: pa.ChunkedArray, separator: str, levels: Sequence[str], describe_row: DescribeRow
) -> dict[str, pa.ChunkedArray]:
    """Return the levels of hierarchical codes: the whole code, then the code without its last parts.

    Args:
        codes: Texts, or lists of texts, such as 05.03.13, with a part per level.
        separator: Separator of the parts, such as a dot.
        levels: Names of the levels, finest first.
        describe_row: Function from a row number to the words for that row in error messages.

    >>> codes = pa.chunked_array([["05.03.13", "26.01.01"]])
    >>> {name: column.to_pylist() for name, column in split_codes(codes, ".", ["a", "b", "c"], str).items()}
    {'a': ['05.03.13', '26.01.01'], 'b': ['05.03', '26.01'], 'c': ['05', '26']}
    """
    array = codes.combine_chunks()
    texts = _flattened(array)
    values = [text or "" for text in texts.to_pylist()]  # a list may hold nulls
    parts_by_entry = []
    for entry, value in enumerate(values):
        parts = [part.strip() for part in value.split(separator)]
        filled = [part for part in parts if part]
        if len(parts) != len(levels) or len(filled) < len(parts):
            row = int(np.repeat(np.arange(len(array)), _lengths(codes))[entry])
            raise InputError(
                f'{describe_row(row)}: the code "{value}" has {len(filled)} parts; '
                f'expected {len(levels)} separated by "{separator}", one for each of {", ".join(levels)}'
            )
        parts_by_entry.append(parts)
    columns: dict[str, pa.ChunkedArray] = {}
    for n_dropped, name in enumerate(levels):
        n_parts = len(levels) - n_dropped
        level = pa.array([separator.join(parts[:n_parts]) for parts in parts_by_entry], pa.string())
        if is_list(codes.type):
            level = pa.ListArray.from_arrays(array.offsets, level, type=TEXTS)
        columns[name] = pa.chunked_array([level])
    return columns

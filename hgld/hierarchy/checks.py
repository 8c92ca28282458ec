"""Validation of the columns of a hierarchy, and their conversion to label codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError, indented_list
from hgld.io.text_array import TextArray

GROUP, ROOT = "hierarchical_label", "natural_or_human_made"
_TYPES = {field.name: field.type for field in (*tables.HIERARCHY.schema, *tables.HIERARCHY.optional)}

#: Returns the name of a row for error messages, given its number.
DescribeRow = Callable[[int], str]

#: Number of different parents of a name that an error message lists.
_MAX_PARENTS = 5


def check_columns(table: pa.Table) -> pa.Table:
    """Return the table cast to the types of the table ``hierarchy``."""
    names = table.column_names
    levels = tables.level_columns(names)
    problems = [f"no column {name}" for name in ("split", "landmark_id", *levels) if name not in names]
    if not levels:
        problems.append(f"no column {GROUP}, and no other level")
    problems += [f"unknown column {name}" for name in names if name not in _TYPES and name not in levels]
    problems += [
        f"{name} is missing in {table[name].null_count:,} of {len(table):,} rows"
        for name in names
        if table[name].null_count and not (name == "category" and GROUP not in names)
    ]
    if "label_source" in names and (
        unknown := set(table["label_source"].to_pylist()) - {*tables.LABEL_SOURCES, None}
    ):
        problems.append(f"unknown label_source {', '.join(map(str, sorted(unknown, key=str)))}")
    if problems or not len(table):
        raise InputError(f"not a hierarchy:\n{indented_list(problems or ['no rows'])}")
    types = {**_TYPES, **dict.fromkeys(levels, pa.string())}
    if GROUP not in names and not pa.types.is_integer(table.schema.field("landmark_id").type):
        types["landmark_id"] = pa.string()
    try:
        return table.cast(pa.schema([(name, types[name]) for name in names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"not a hierarchy: {error}") from error


def check_unique_landmarks(
    splits: npt.NDArray[np.str_],
    landmark_ids: npt.NDArray[Any],
    rows: npt.NDArray[np.int64],
    describe_row: DescribeRow,
) -> None:
    """Check that no landmark occurs twice."""
    repeated = np.flatnonzero((splits[1:] == splits[:-1]) & (landmark_ids[1:] == landmark_ids[:-1]))
    if len(repeated):
        problems = [f"{describe_row(rows[i])} occurs again in {describe_row(rows[i + 1])}" for i in repeated]
        raise InputError(f"{len(repeated):,} landmarks occur twice:\n{indented_list(problems)}")


def encode_names(
    column: pa.Array | pa.ChunkedArray, name: str, describe_row: DescribeRow
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return a column as indices into its sorted names, and these names, without whitespace around them."""
    encoded = TextArray.repeated(column).without_unused()
    texts = pc.utf8_trim_whitespace(encoded.texts)
    empty = np.flatnonzero(pc.equal(texts, "").to_numpy(zero_copy_only=False)[encoded.positions]).tolist()
    if empty:
        raise InputError(
            f"{name} is empty in {len(empty):,} rows:\n{indented_list([describe_row(row) for row in empty])}"
        )
    names = pc.unique(texts).sort()
    codes = pc.index_in(texts, value_set=names).to_numpy().astype(np.int64)
    return codes[encoded.positions], tuple(names.to_pylist())


def check_tree(
    level_names: Sequence[str],
    encoded: Sequence[tuple[npt.NDArray[np.int64], Sequence[str]]],
    describe_row: DescribeRow,
) -> None:
    """Check that every name has one parent."""
    problems = []
    levels = list(zip(level_names, encoded, strict=True))
    for (level_name, (codes, names)), (parent_level, (parent_codes, parent_names)) in pairwise(levels):
        parent_of = np.zeros(len(names), np.int64)
        parent_of[codes] = parent_codes
        if np.array_equal(parent_of[codes], parent_codes):  # most often so, and without sorting millions of rows
            continue
        pairs, first_rows = np.unique(codes * len(parent_names) + parent_codes, return_index=True)
        children = pairs // len(parent_names)
        for code in np.flatnonzero(np.bincount(children) > 1).tolist():
            rows = first_rows[slice(*np.searchsorted(children, (code, code + 1)))]
            shown = [f'"{parent_names[parent_codes[row]]}" in {describe_row(row)}' for row in rows[:_MAX_PARENTS]]
            parents = ", ".join([*shown, "…"] if len(rows) > len(shown) else shown)
            problems.append(f'{level_name} "{names[code]}" has several {parent_level}: {parents}')
    if problems:
        advice = order_advice(level_names, [names for _, names in encoded])
        raise InputError(f"every name must have one parent{advice}:\n{indented_list(problems)}")


def order_advice(level_names: Sequence[str], names: Sequence[Sequence[str]]) -> str:
    """Return the order of levels in which each has at least as many names as the next, if it is another one.

    >>> order_advice(["kind", "product"], [["fruit"], ["apple", "pear"]])
    '; levels are given finest first, which by their numbers of names is product, kind'
    """
    counts = dict(zip(level_names, map(len, names), strict=True))
    order = sorted(level_names, key=lambda level: -counts[level])
    if order == list(level_names):
        return ""
    return f"; levels are given finest first, which by their numbers of names is {', '.join(order)}"


def flatten_lists(table: pa.Table, name: str, describe_row: DescribeRow) -> tuple[pa.Array | pa.ChunkedArray, int]:
    """Return the concatenated values of a list column and the length of its lists; empty and 0 without the column."""
    if name not in table.column_names:
        return pa.array([], pa.string()), 0
    lengths = pc.list_value_length(table[name]).to_numpy()
    if len(deviating := np.flatnonzero(lengths != lengths[0])):
        raise InputError(
            f"{name} has {lengths[0]} values in {describe_row(0)}, but {lengths[deviating[0]]} in "
            f"{describe_row(deviating[0])}; {len(deviating):,} rows in all differ from the first"
        )
    return pc.list_flatten(table[name]).combine_chunks(), int(lengths[0])


def group_lists(
    table: pa.Table, rows: npt.NDArray[np.int64], describe_row: DescribeRow
) -> npt.NDArray[np.object_] | None:
    """Return the column hierarchical_labels as tuples, in the order of ``rows``; None without this column."""
    if "hierarchical_labels" not in table.column_names:
        return None
    lists = np.empty(len(rows), object)
    lists[:] = [tuple(name.strip() for name in names) for names in table["hierarchical_labels"].to_pylist()]
    group = tables.level_columns(table.column_names)[0]
    groups = pc.utf8_trim_whitespace(table[group]).to_pylist()
    problems = [
        f'{describe_row(row)}: {names} for "{group}"'
        for row, (names, group) in enumerate(zip(lists, groups, strict=True))
        if names[:1] != (group,) or len(set(names)) < len(names)
    ]
    if problems:
        raise InputError(
            f"hierarchical_labels must begin with the {group} and contain no name twice:\n" + indented_list(problems)
        )
    return lists[rows]

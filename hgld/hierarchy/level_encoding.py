"""Encode the names of levels as numbers, and check that the levels form a tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgld.arrays import AnyIntegers
from hgld.errors import InputError, indented_list
from hgld.hierarchy.label_matrix import Codes
from hgld.io.text_array import TextArray

#: Returns the name of a row for error messages, given its number.
DescribeRow = Callable[[int], str]
#: Number of different parents of a name that an error message lists.
_MAX_PARENTS = 5


def encode_names(
    column: pa.Array | pa.ChunkedArray, name: str, describe_row: DescribeRow
) -> tuple[Codes, tuple[str, ...]]:
    """Return a column as indices into its sorted names, and the names without outer whitespace."""
    encoded = TextArray.repeated(column).without_unused()
    texts = pc.utf8_trim_whitespace(encoded.texts)
    is_empty = pc.equal(texts, "").to_numpy(zero_copy_only=False)
    empty_rows = np.flatnonzero(is_empty[encoded.positions]).tolist()
    if empty_rows:
        described = [describe_row(row) for row in empty_rows]
        raise InputError(
            f"{name} is empty in {len(empty_rows):,} rows:\n{indented_list(described)}"
        )
    names = pc.unique(texts).sort()
    codes: Codes = pc.index_in(texts, value_set=names).to_numpy()
    return codes[encoded.positions], tuple(names.to_pylist())


def check_tree(
    level_names: Sequence[str],
    encoded: Sequence[tuple[AnyIntegers, Sequence[str]]],
    describe_row: DescribeRow,
) -> None:
    """Check that every name has one parent.

    Args:
        level_names: Names of the levels, finest first.
        encoded: For each level, the code of each row, and the names by code.
        describe_row: Returns the name of a row for messages.

    Raises:
        InputError: A name has several parents.
    """
    problems = []
    for level in range(len(level_names) - 1):
        codes, names = encoded[level]
        parent_codes, parent_names = encoded[level + 1]
        parent_of = np.zeros(len(names), parent_codes.dtype)
        parent_of[codes] = parent_codes
        if np.array_equal(parent_of[codes], parent_codes):  # without sorting millions of rows
            continue
        import pandas as pd  # not for the help of commands that read hierarchies

        pairs = pd.DataFrame({"code": codes, "parent": parent_codes}).drop_duplicates()
        deviating = pairs[pairs.duplicated("code", keep=False)].sort_values(["code", "parent"])
        for code, parents in deviating.groupby("code")["parent"]:
            listed = []
            for row, parent in parents.head(_MAX_PARENTS).items():
                listed.append(f'"{parent_names[parent]}" in {describe_row(row)}')
            if len(parents) > _MAX_PARENTS:
                listed.append("…")
            problems.append(
                f'{level_names[level]} "{names[code]}" has several {level_names[level + 1]}: '
                f"{', '.join(listed)}"
            )
    if problems:
        advice = order_advice(level_names, [names for _, names in encoded])
        raise InputError(f"every name must have one parent{advice}:\n{indented_list(problems)}")


def order_advice(level_names: Sequence[str], names: Sequence[Sequence[str]]) -> str:
    """Return advice to order levels by decreasing numbers of names; empty for levels in this order.

    >>> order_advice(["kind", "product"], [["fruit"], ["apple", "pear"]])
    '; levels are given finest first, which by their numbers of names is product, kind'
    """
    counts = dict(zip(level_names, map(len, names), strict=True))
    order = sorted(level_names, key=lambda level: -counts[level])
    if order == list(level_names):
        return ""
    return f"; levels are given finest first, which by their numbers of names is {', '.join(order)}"

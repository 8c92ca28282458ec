"""From the columns of a table to labels: what is not a tree of landmarks is refused, with the rows that are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError, indented_list

GROUP, ROOT = "hierarchical_label", "natural_or_human_made"
_REQUIRED = ("split", "landmark_id", GROUP, ROOT)
_TYPES = {field.name: field.type for field in (*tables.HIERARCHY.schema, *tables.HIERARCHY.optional)}

#: A message names so many of the names above one.
_MOST_PARENTS = 5


def checked(table: pa.Table) -> pa.Table:
    """The table with the types that it must have.

    Raises:
        InputError: there are no rows, a column is missing or unknown, has gaps, or holds something else.
    """
    names = table.column_names
    problems = [f"no column {name}" for name in _REQUIRED if name not in names]
    problems += [f"unknown column {name}" for name in names if name not in _TYPES]
    problems += [
        f"{name} is missing in {table[name].null_count:,} of {len(table):,} rows"
        for name in names
        if table[name].null_count
    ]
    if problems or not len(table):
        raise InputError(f"not a hierarchy:\n{indented_list(problems or ['no rows'])}")
    try:
        return table.cast(pa.schema([(name, _TYPES[name]) for name in names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"not a hierarchy: {error}") from error


def check_keys(
    splits: npt.NDArray[np.str_],
    numbers: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    place: Callable[[int], str],
) -> None:
    """Raise if a landmark stands twice; keys are sorted, and ``rows`` says where they were."""
    repeated = np.flatnonzero((splits[1:] == splits[:-1]) & (numbers[1:] == numbers[:-1]))
    if len(repeated):
        problems = [f"{place(rows[at])} stands again in {place(rows[at + 1])}" for at in repeated]
        raise InputError(f"{len(repeated):,} landmarks stand twice:\n{indented_list(problems)}")


def encode(
    column: pa.Array | pa.ChunkedArray, name: str, place: Callable[[int], str]
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The column as indices into its sorted, stripped names."""
    texts = pc.utf8_trim_whitespace(column)
    empty = pc.indices_nonzero(pc.equal(texts, "")).to_pylist()
    if empty:
        raise InputError(f"{name} is empty in {len(empty):,} rows:\n{indented_list([place(row) for row in empty])}")
    names = pc.unique(texts).sort()
    codes = pc.index_in(texts, value_set=names).to_numpy().astype(np.int64)
    return codes, tuple(names.to_pylist())


def check_tree(
    level_names: Sequence[str],
    coded: Sequence[tuple[npt.NDArray[np.int64], Sequence[str]]],
    place: Callable[[int], str],
) -> None:
    """Raise unless every name has one name above it.

    Args:
        level_names: of the levels, finest first.
        coded: for each level, what :func:`encode` returns.
        place: names a row, given its number, in messages.
    """
    problems = []
    levels = list(zip(level_names, coded, strict=True))
    for (name, (codes, names)), (above_name, (above, above_names)) in pairwise(levels):
        pairs, first = np.unique(codes * len(above_names) + above, return_index=True)
        of = pairs // len(above_names)
        for code in np.flatnonzero(np.bincount(of) > 1).tolist():
            rows = first[slice(*np.searchsorted(of, (code, code + 1)))]
            shown = [f'"{above_names[above[row]]}" in {place(row)}' for row in rows[:_MOST_PARENTS]]
            parents = ", ".join([*shown, "…"] if len(rows) > len(shown) else shown)
            problems.append(f'{name} "{names[code]}" has several {above_name}: {parents}')
    if problems:
        raise InputError(f"every name must have one name above it:\n{indented_list(problems)}")


def flatten(table: pa.Table, name: str, place: Callable[[int], str]) -> tuple[pa.Array | pa.ChunkedArray, int]:
    """The values of a list column end to end, and how many each row has; none where there is no such column."""
    if name not in table.column_names:
        return pa.array([], pa.string()), 0
    lengths = pc.list_value_length(table[name]).to_numpy()
    if len(odd := np.flatnonzero(lengths != lengths[0])):
        raise InputError(
            f"{name} has {lengths[0]} values in {place(0)}, but {lengths[odd[0]]} in {place(odd[0])}; in all, "
            f"{len(odd):,} rows are not like the first"
        )
    return pc.list_flatten(table[name]).combine_chunks(), int(lengths[0])


def group_lists(
    table: pa.Table, rows: npt.NDArray[np.int64], place: Callable[[int], str]
) -> npt.NDArray[np.object_] | None:
    """All groups of each landmark, taken in the order of ``rows``; None where there is no such column."""
    if "hierarchical_labels" not in table.column_names:
        return None
    lists = np.empty(len(rows), object)
    lists[:] = [tuple(name.strip() for name in names) for names in table["hierarchical_labels"].to_pylist()]
    groups = pc.utf8_trim_whitespace(table[GROUP]).to_pylist()
    problems = [
        f'{place(row)}: {names} for "{group}"'
        for row, (names, group) in enumerate(zip(lists, groups, strict=True))
        if names[:1] != (group,) or len(set(names)) < len(names)
    ]
    if problems:
        raise InputError(
            "hierarchical_labels must begin with the hierarchical_label and hold no name twice:\n"
            + indented_list(problems)
        )
    return lists[rows]

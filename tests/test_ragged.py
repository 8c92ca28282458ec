import numpy as np
import pytest

from hgld.errors import InputError
from hgld.ragged import RaggedIndices


def test_union_merges_rows() -> None:
    union = RaggedIndices.from_lists([[], [4, 2], []]) | RaggedIndices.from_lists([[9], [3, 4], []])
    assert [union.row(query).tolist() for query in range(3)] == [[9], [2, 3, 4], []]
    assert union.rows().tolist() == [0, 1, 1, 1]


def test_block_rows_start_at_zero() -> None:
    rows, columns = RaggedIndices.from_lists([[5], [4, 2], [], [7]]).block(slice(1, 4))
    assert rows.tolist() == [0, 0, 2]
    assert columns.tolist() == [4, 2, 7]


def test_empty_pairs() -> None:
    none = RaggedIndices.from_pairs(np.empty(0, np.int64), np.empty(0, np.int64), 2)
    assert len(none) == 2
    assert (none | none).columns.dtype == np.int64
    none.check(2, 0, "nothing")


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1], [0, 9]], "junk names the gallery position 9 for query 1; expected 0 to 4"),
        ([[], [-1]], "junk names the gallery position -1 for query 1"),
        ([[0]], "junk has lists for 1 queries, but there are 2 queries"),
    ],
)
def test_invalid_indices_are_refused(lists: list[list[int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RaggedIndices.from_lists(lists).check(2, 5, "junk")


@pytest.mark.parametrize("row", [-1, 2, 5])
def test_pairs_of_other_queries_are_refused(row: int) -> None:
    with pytest.raises(InputError, match=f"the pair 1 is of query {row}; expected 0 to 1"):
        RaggedIndices.from_pairs(np.array([0, row]), np.array([3, 4]), 2)


def test_rows_are_padded_to_the_width() -> None:
    lists = RaggedIndices.from_lists([[3, 1], []])
    assert lists.padded().tolist() == [[3, 1], [-1, -1]]
    assert lists.padded(3).tolist() == [[3, 1, -1], [-1, -1, -1]]
    assert RaggedIndices.empty(2).padded().tolist() == [[-1], [-1]]
    assert RaggedIndices.empty(2).padded(0).shape == (2, 0)
    for width in (0, 1):
        with pytest.raises(InputError, match=f"the width is {width}; expected at least 2"):
            lists.padded(width)

"""Arrays of texts, such as the ids of millions of images, that take little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.arrays import Booleans, Integers

#: Number of texts that iteration converts to str objects at once.
_BLOCK = 2**16


class TextArray:
    """Immutable array of texts that is indexed and compared like a NumPy array of str objects.

    The texts are stored in an Arrow array, with optional positions in it: row i is
    ``texts[positions[i]]``. A text takes its bytes and at most 4 bytes more, whereas a str object
    takes 60 bytes more. Selections share the Arrow array.

    Args:
        texts: The stored texts, or another TextArray, whose memory is shared.
        positions: Integers, shape (N,); position of each row in ``texts``. Default: one row for
            each text, in order.

    >>> splits = TextArray(["train", "test"], np.array([0, 1, 0]))
    >>> splits[1], (splits == "train").tolist(), splits[np.array([2, 1])].tolist()
    ('test', [True, False, True], ['train', 'test'])
    """

    texts: pa.Array | pa.ChunkedArray
    positions: NDArray[np.unsignedinteger[Any]] | None

    def __init__(
        self, texts: Texts | pa.Array | pa.ChunkedArray, positions: NDArray[Any] | None = None
    ):
        own_positions = None
        if isinstance(texts, TextArray):
            own_positions = texts.positions
            arrow = texts.texts
        elif isinstance(texts, pa.Array | pa.ChunkedArray):
            arrow = texts
        else:
            arrow = pa.array(texts, pa.string())
        if pa.types.is_dictionary(arrow.type):
            arrow, own_positions = _decode_dictionary(pa.chunked_array(arrow))
        if positions is None:
            positions = own_positions
        elif own_positions is not None:
            positions = own_positions[positions.astype(np.int64)]
        if isinstance(arrow, pa.ChunkedArray):
            arrow = in_one_chunk(arrow)
            if arrow.num_chunks == 1:
                arrow = arrow.chunk(0)
        if positions is not None:
            positions = positions.astype(np.min_scalar_type(len(arrow)), copy=False)
        self.texts = arrow
        self.positions = positions

    @classmethod
    def repeated(cls, texts: Sequence[str] | pa.Array | pa.ChunkedArray) -> TextArray:
        """Create an array in which few distinct texts are repeated; each is stored once."""
        array = cls(texts)
        if array.positions is None:
            return cls(array.texts.dictionary_encode())
        return array

    def __len__(self) -> int:
        if self.positions is None:
            return len(self.texts)
        return len(self.positions)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> str: ...
    @overload
    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> TextArray: ...
    def __getitem__(self, rows: Any) -> str | TextArray:
        """Return the text of one row, or the texts of a slice, of several rows, or of a mask."""
        if isinstance(rows, int | np.integer):
            position = rows if self.positions is None else self.positions[rows]
            return str(self.texts[int(position)])
        if not isinstance(rows, slice):
            rows = self._row_numbers(rows)
        if self.positions is not None:
            selected = TextArray(self.texts, self.positions[rows])
        elif isinstance(rows, slice):
            return TextArray(self.texts[rows])
        else:
            selected = TextArray(self.texts, rows)
        if 4 * len(selected) < len(self.texts):
            # Copy a small selection, so that it does not keep many texts in memory.
            return TextArray(selected.to_arrow())
        return selected

    def _row_numbers(self, rows: Sequence[int] | NDArray[Any]) -> NDArray[Any]:
        """Return the numbers, 0 or more, of the rows of a mask, or of rows that may count from the end."""
        if len(rows) == 0:
            return np.empty(0, np.int64)
        index = np.asarray(rows)
        if index.dtype == np.bool_:
            return np.flatnonzero(index)
        if (index < 0).any():
            return np.where(index < 0, index + len(self), index)
        return index

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self[start : start + _BLOCK].tolist()

    def __eq__(self, text: object) -> Booleans:  # type: ignore[override]
        """Compare each row with a text, or with the same row of another array: bool, shape (N,)."""
        if not isinstance(text, str):
            return np.array(np.asarray(self) == np.asarray(text), np.bool_)
        equal: Booleans = pc.equal(self.texts, text).to_numpy(zero_copy_only=False)
        if self.positions is not None:
            equal = equal[self.positions]
        return equal

    def __ne__(self, text: object) -> Booleans:  # type: ignore[override]
        return ~(self == text)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array of texts cannot be converted without a copy")
        return np.array(self.tolist(), dtype or object)

    def tolist(self) -> list[str]:
        """Return the texts as str objects."""
        return self.to_arrow().to_pylist()  # type: ignore[no-any-return]

    def to_arrow(self) -> pa.ChunkedArray:
        """Return the texts as an Arrow column."""
        texts = self.texts
        if self.positions is not None:
            texts = texts.take(pa.array(self.positions))
        if isinstance(texts, pa.ChunkedArray):
            return texts
        return pa.chunked_array([texts])

    def find(self, texts: TextArray) -> Integers:
        """Return the first row of this array with each of n texts: int64, shape (n,); -1 if missing."""
        indices = pc.index_in(texts.to_arrow(), value_set=self.to_arrow())
        rows: Integers = pc.fill_null(indices, -1).to_numpy().astype(np.int64)
        return rows

    def is_unique(self) -> bool:
        """Return whether all texts differ; False as well if two different texts have the same hash."""
        # Sorted hashes take a tenth of the memory of a hash table.
        hashes = np.fromiter(map(hash, self), np.int64, len(self))
        hashes.sort()
        return not (hashes[1:] == hashes[:-1]).any()

    def without_unused(self) -> TextArray:
        """Return an equal array that stores only the texts of its rows."""
        if self.positions is None:
            return self
        used = np.zeros(len(self.texts), np.bool_)
        used[self.positions] = True
        if used.all():
            return self
        new_positions = np.cumsum(used, dtype=np.int32) - 1
        return TextArray(self.texts.filter(pa.array(used)), new_positions[self.positions])

    def distinct(self) -> list[str]:
        """Return the distinct texts, sorted."""
        return sorted(set(self.without_unused().texts.to_pylist()))


def in_one_chunk(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Combine the chunks of a column, so that taking rows does not copy the whole column.

    A column of 2 GiB or more is returned as it is, since an array of Arrow strings cannot hold it.
    """
    if texts.num_chunks == 1 or texts.nbytes >= 2**31:
        return texts
    return pa.chunked_array([texts.combine_chunks()])


def _decode_dictionary(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[Any]]:
    """Return the texts of a dictionary-encoded column, and the position of each row in them."""
    column = column.unify_dictionaries()
    if column.num_chunks == 0:
        return pa.array([], pa.string()), np.empty(0, np.uint8)
    texts = column.chunk(0).dictionary
    indices = [chunk.indices for chunk in column.chunks]
    dtype = np.min_scalar_type(len(texts))
    return texts, np.concatenate(indices, dtype=dtype, casting="unsafe")


#: Texts as an array of either kind, or as a sequence of str objects.
Texts: TypeAlias = TextArray | Sequence[str] | NDArray[np.str_]
#: Ids of images: texts or integers, shape (N,).
Ids: TypeAlias = NDArray[Any] | TextArray

"""Texts of millions of images in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.arrays import Booleans, Integers

_BLOCK = 2**16


class TextArray:
    """Texts that are indexed and compared like a NumPy array of them, but take a fifth of its memory; immutable.

    They are an Arrow array, and unless each of its texts is there once and in order, positions in it. So a text takes
    its bytes and at most 4 more, where a str object takes 60 more, and selections share the texts.

    Args:
        texts: The distinct texts, or all of them; or another array, which is shared.
        positions: Integers, shape (N,); position of each text in ``texts``. Default: all of these in order.

    >>> splits = TextArray(["train", "test"], np.array([0, 1, 0]))
    >>> splits[1], (splits == "train").tolist(), splits[np.array([2, 1])].tolist()
    ('test', [True, False, True], ['train', 'test'])
    """

    texts: pa.Array | pa.ChunkedArray
    positions: NDArray[np.unsignedinteger[Any]] | None

    def __init__(
        self, texts: Texts | pa.Array | pa.ChunkedArray, positions: NDArray[Any] | None = None
    ):
        if isinstance(texts, TextArray):
            texts, positions = texts.texts, texts.positions
        arrow = (
            texts if isinstance(texts, pa.Array | pa.ChunkedArray) else pa.array(texts, pa.string())
        )
        if pa.types.is_dictionary(arrow.type):
            encoded = pa.chunked_array(arrow).unify_dictionaries()
            arrow = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], pa.string())
            indices = [np.empty(0, np.int32), *(chunk.indices for chunk in encoded.chunks)]
            positions = np.concatenate(
                indices, dtype=np.min_scalar_type(len(arrow)), casting="unsafe"
            )
        if isinstance(arrow, pa.ChunkedArray):
            arrow = in_one_chunk(arrow)
            arrow = arrow.chunk(0) if arrow.num_chunks == 1 else arrow
        self.texts = arrow
        self.positions = (
            None
            if positions is None
            else positions.astype(np.min_scalar_type(len(arrow)), copy=False)
        )

    @classmethod
    def repeated(cls, texts: Sequence[str] | pa.Array | pa.ChunkedArray) -> TextArray:
        """Create an array of few distinct texts."""
        whole = cls(texts)
        return whole if whole.positions is not None else cls(whole.texts.dictionary_encode())

    def __len__(self) -> int:
        return len(self.texts if self.positions is None else self.positions)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> str: ...
    @overload
    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> TextArray: ...
    def __getitem__(self, rows: Any) -> str | TextArray:
        """Return the text in a row, or those in some: a slice, integers, or a mask."""
        if isinstance(rows, int | np.integer):
            return str(self.texts[int(rows if self.positions is None else self.positions[rows])])
        if isinstance(rows, slice) and self.positions is None:
            return TextArray(self.texts[rows])
        if not isinstance(rows, slice):
            rows = np.asarray(rows, None if len(rows) else np.int64)
            rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
            rows = np.where(rows < 0, rows + len(self), rows) if (rows < 0).any() else rows
        selected = TextArray(self.texts, rows if self.positions is None else self.positions[rows])
        # A small selection does not keep many texts in memory.
        return TextArray(selected.to_arrow()) if 4 * len(selected) < len(self.texts) else selected

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self[start : start + _BLOCK].tolist()

    def __eq__(self, text: object) -> Booleans:  # type: ignore[override]
        """Return which texts are this one, or that in the same row of another array: bool, shape (N,)."""
        if not isinstance(text, str):
            return np.array(np.asarray(self) == np.asarray(text), np.bool_)
        equal: Booleans = pc.equal(self.texts, text).to_numpy(zero_copy_only=False)
        return equal if self.positions is None else equal[self.positions]

    def __ne__(self, text: object) -> Booleans:  # type: ignore[override]
        return ~(self == text)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.tolist(), dtype or object)

    def tolist(self) -> list[str]:
        """Return the texts as str objects."""
        return self.to_arrow().to_pylist()  # type: ignore[no-any-return]

    def to_arrow(self) -> pa.ChunkedArray:
        """Return the texts as an Arrow column."""
        taken = self.texts if self.positions is None else self.texts.take(pa.array(self.positions))
        return taken if isinstance(taken, pa.ChunkedArray) else pa.chunked_array([taken])

    def find(self, texts: TextArray) -> Integers:
        """Return the first row of each of some texts, int64, shape (n,); -1 for a text that is not here."""
        found = pc.index_in(texts.to_arrow(), value_set=self.to_arrow())
        rows: Integers = pc.fill_null(found, -1).to_numpy().astype(np.int64)
        return rows

    def is_unique(self) -> bool:
        """Return whether no text is there twice; in very rare cases False although none is."""
        hashes = np.fromiter(
            map(hash, self), np.int64, len(self)
        )  # takes a tenth of the memory of a hash table
        hashes.sort()
        return not (hashes[1:] == hashes[:-1]).any()

    def without_unused(self) -> TextArray:
        """Return the same texts, without those that no position names."""
        if self.positions is None:
            return self
        used = np.zeros(len(self.texts), np.bool_)
        used[self.positions] = True
        if used.all():
            return self
        return TextArray(
            self.texts.filter(pa.array(used)), (np.cumsum(used, dtype=np.int32) - 1)[self.positions]
        )

    def distinct(self) -> list[str]:
        """Return each text once, sorted."""
        return sorted(set(self.without_unused().texts.to_pylist()))


def in_one_chunk(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of one chunk, from which rows are taken without a copy of all; several if it is above 2 GiB."""
    if texts.num_chunks == 1 or texts.nbytes >= 2**31:
        return texts
    return pa.chunked_array([texts.combine_chunks()])


#: Texts in any form.
Texts: TypeAlias = TextArray | Sequence[str] | NDArray[np.str_]
#: Ids of images: texts or integers, shape (N,).
Ids: TypeAlias = NDArray[Any] | TextArray

"""Rows of several tensors as one tensor without a copy, for embeddings stored in several files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from hgld.arrays import Integers


class PartedTensor(Tensor):
    """The rows of several tensors, one after another; the tensors may be memory-mapped files.

    Indexing reads the chosen values only: rows by ``tensor[start:stop]`` or ``tensor[rows]``, columns by
    ``tensor[:, columns]`` or ``tensor[start:stop, columns]``. Any other operation, ``tensor[rows, columns]``
    too, first copies the rows of all parts into one tensor.

    Args:
        parts: Tensors of the shape (n, d), on a CPU. Values that are read have the widest of their types.

    >>> tensor = PartedTensor([torch.zeros(2, 3), torch.ones(2, 3)])
    >>> tensor.shape, tensor[1:3, 0], tensor[torch.tensor([3, 0])][:, 0], tensor.sum()
    (torch.Size([4, 3]), tensor([0., 1.]), tensor([1., 0.]), tensor(6.))
    """

    _parts: list[Tensor]
    _starts: Integers

    @staticmethod
    def __new__(cls, parts: Sequence[Tensor]) -> PartedTensor:
        """Return the tensor of the parts; a part that is parted itself counts as several parts."""
        plain_parts = []
        for part in parts:
            if isinstance(part, PartedTensor):
                plain_parts += part._parts
            else:
                plain_parts.append(part)
        dtype = plain_parts[0].dtype
        starts = [0]
        for part in plain_parts:
            dtype = torch.promote_types(dtype, part.dtype)
            starts.append(starts[-1] + len(part))
        shape = (starts[-1], *plain_parts[0].shape[1:])
        tensor: PartedTensor = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)
        tensor._parts = plain_parts
        tensor._starts = np.array(starts)
        return tensor

    # The class has the methods below; operations of other methods come to __torch_dispatch__.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        def whole_tensor(value: Any) -> Any:
            if isinstance(value, cls):
                return value.whole()
            return value

        return func(*tree_map(whole_tensor, args), **tree_map(whole_tensor, kwargs or {}))

    def whole(self) -> Tensor:
        """Return a plain tensor of all rows, which shares memory if there is only one part."""
        return self[:]

    def __getitem__(self, index: Any) -> Tensor:
        if not isinstance(index, tuple):
            index = (index,)
        row_index, *column_index = index
        if isinstance(row_index, slice) and row_index.step in (None, 1):
            # Consecutive rows are slices of the parts; those of a single part are a view.
            start, stop, _ = row_index.indices(len(self))
            columns = (slice(None), *column_index)
            pieces = [piece[columns] for piece in self._pieces(start, stop)]
            rows = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            return rows.to(self.dtype)
        if column_index:
            # Other rows together with columns, such as tensor[rows, columns]: read all rows.
            return self.whole()[index]
        # Rows by numbers, a mask or a slice with a step: copy the rows of each part to their places.
        positions = torch.arange(len(self))[row_index].numpy()
        flat_positions = positions.reshape(-1)
        taken = self.new_empty(positions.size, *self.shape[1:])
        part_numbers = np.searchsorted(self._starts, flat_positions, side="right") - 1
        for number in np.unique(part_numbers):
            places = np.flatnonzero(part_numbers == number)
            part_rows = torch.from_numpy(flat_positions[places] - self._starts[number])
            taken[torch.from_numpy(places)] = self._parts[number][part_rows].to(self.dtype)
        return taken.reshape(*positions.shape, *self.shape[1:])

    def _pieces(self, start: int, stop: int) -> list[Tensor]:
        """Return the slices of the parts that make up some rows; an empty slice for no rows."""
        bounds = [start, max(start, stop - 1)]
        first, last = np.searchsorted(self._starts[1:-1], bounds, side="right").tolist()
        pieces = []
        for number in range(first, last + 1):
            part_start = int(self._starts[number])
            pieces.append(
                self._parts[number][max(start - part_start, 0) : max(stop - part_start, 0)]
            )
        return pieces

    def new_empty(self, *size: Any, **options: Any) -> Tensor:
        """Return a plain tensor, see :meth:`torch.Tensor.new_empty`."""
        options.setdefault("dtype", self.dtype)
        return torch.empty(*size, **options)

    def detach(self) -> PartedTensor:
        """Return the tensor itself, which has no gradient."""
        return self

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
        """Return a plain tensor of all rows, which shares memory if there is only one part."""
        return self.whole()

    def numpy(self, *, force: bool = False) -> NDArray[Any]:
        """Return an array of all rows, which shares memory if there is only one part."""
        array: NDArray[Any] = self.whole().numpy(force=force)
        return array

"""Rows of several tensors as one tensor, without a copy of them: embeddings that stay in files of parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from hgld.arrays import Integers


class PartedTensor(Tensor):
    """The rows of several tensors, one after another, which stay where they are, such as in memory-mapped files.

    Only what is taken is read: rows by ``tensor[start:stop]`` or ``tensor[rows]``, columns by ``tensor[:, columns]``.
    Any other operation copies all rows into memory.

    Args:
        parts: Tensors of the shape (n, d), on a CPU; those of several types are converted to the widest when taken.

    >>> tensor = PartedTensor([torch.zeros(2, 3), torch.ones(2, 3)])
    >>> tensor.shape, tensor[1:3, 0], tensor[torch.tensor([3, 0])][:, 0], tensor.sum()
    (torch.Size([4, 3]), tensor([0., 1.]), tensor([1., 0.]), tensor(6.))
    """

    _parts: list[Tensor]
    _starts: Integers

    @staticmethod
    def __new__(cls, parts: Sequence[Tensor]) -> PartedTensor:
        """Return the tensor of the parts; parted ones are taken apart."""
        single = [
            piece
            for part in parts
            for piece in (part._parts if isinstance(part, PartedTensor) else [part])
        ]
        starts = np.cumsum([0, *map(len, single)])
        dtype = reduce(torch.promote_types, (part.dtype for part in single))
        shape = (int(starts[-1]), *single[0].shape[1:])
        tensor: PartedTensor = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)
        tensor._parts, tensor._starts = single, starts
        return tensor

    # Methods of tensors are those below; what any other one does comes to __torch_dispatch__.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        arguments = args, kwargs or {}
        args, kwargs = tree_map(
            lambda value: value.whole() if isinstance(value, cls) else value, arguments
        )
        return func(*args, **kwargs)

    def whole(self) -> Tensor:
        """Return a plain tensor, a copy of all rows."""
        return self[:]

    def __getitem__(self, index: Any) -> Tensor:
        chosen, *columns = index if isinstance(index, tuple) else (index,)
        if isinstance(chosen, slice) and chosen.step in (None, 1):
            taken_columns = (slice(None), *columns)
            pieces = [
                piece[taken_columns] for piece in self._pieces(*chosen.indices(len(self))[:2])
            ]
            return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).to(self.dtype)
        if columns:
            return self.whole()[index]
        positions = torch.arange(len(self))[chosen].numpy()
        taken = self.new_empty(positions.size, *self.shape[1:])
        part_of = np.searchsorted(self._starts, positions.reshape(-1), side="right") - 1
        for number in np.unique(part_of):
            places = np.flatnonzero(part_of == number)
            rows = positions.reshape(-1)[places] - self._starts[number]
            taken[torch.from_numpy(places)] = self._parts[number][torch.from_numpy(rows)].to(
                self.dtype
            )
        return taken.reshape(*positions.shape, *self.shape[1:])

    def _pieces(self, start: int, stop: int) -> list[Tensor]:
        """Return the slices of the parts that make up some rows; an empty one for no rows."""
        first, last = np.searchsorted(
            self._starts[1:-1], [start, max(start, stop - 1)], side="right"
        ).tolist()
        bounds = zip(self._parts[first : last + 1], self._starts[first:].tolist(), strict=False)
        return [part[max(start - begin, 0) : max(stop - begin, 0)] for part, begin in bounds]

    def new_empty(self, *size: Any, **options: Any) -> Tensor:
        """Return a plain tensor, see :meth:`torch.Tensor.new_empty`."""
        return torch.empty(*size, **({"dtype": self.dtype} | options))

    def detach(self) -> PartedTensor:
        """Return the tensor itself, which has no gradient."""
        return self

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
        """Return a copy of all rows, in memory of its own."""
        return self.whole()

    def numpy(self, *, force: bool = False) -> NDArray[Any]:
        """Return a copy of all rows."""
        array: NDArray[Any] = self.whole().numpy(force=force)
        return array

"""Read the vectors of a gallery in blocks, which keeps memory small where they are memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import InputError

_BLOCK = 8192


def unit_blocks(
    vectors: torch.Tensor, rows: npt.NDArray[np.int64] | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield vectors of length 1, float32, a block of rows at a time.

    Args:
        vectors: float, shape (N, d).
        rows: int64, shape (n,); rows to yield. Default: all.

    Raises:
        InputError: A vector is not finite, or only zeros.
    """
    n = len(vectors) if rows is None else len(rows)
    for start in range(0, n, _BLOCK):
        chosen = slice(start, start + _BLOCK)
        block = vectors[chosen] if rows is None else vectors[torch.from_numpy(rows[chosen])]
        lengths = torch.linalg.vector_norm(block.float(), dim=1, keepdim=True)
        if not lengths.isfinite().all() or not lengths.all():
            raise InputError("an embedding has NaN, infinite or huge values, or only zeros; embed the images again")
        yield (block.float() / lengths).numpy()

"""Files of the standard deviations of feature maps, which ``hgld embed-images --with-std`` writes beside embeddings.

Those of ``photographs.npy`` are in ``photographs.deviations.npy``, a file in the format of embeddings with the same
ids in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.errors import InputError
from hgld.tables.embeddings import find_ids_file, read_embeddings, rows_of


def deviations_path(embeddings: Path) -> Path:
    """Return the path of the deviations that belong to a file of embeddings.

    >>> deviations_path(Path("data/photographs.npy")).as_posix()
    'data/photographs.deviations.npy'
    """
    return embeddings.with_suffix(f".deviations{embeddings.suffix}")


def read_deviations(embeddings: Path, ids: Sequence[str] | NDArray[np.str_] | None = None) -> torch.Tensor:
    """Read the standard deviations of feature maps that belong to a file of embeddings.

    Args:
        embeddings: File of the embeddings.
        ids: Ids of the images to look up. Default: all, in the order of the file, which is that of the embeddings.

    Returns:
        float32, shape (n, c), a row for each image; memory-mapped where the format is and all are read.

    Raises:
        InputError: There are no deviations beside the embeddings, or none of some of the images.
    """
    path = deviations_path(embeddings)
    if not path.is_file():
        raise InputError(
            f"{embeddings}: has no standard deviations of feature maps beside it ({path.name}); embed the images "
            "again with hgld embed-images --with-std"
        )
    deviations = read_embeddings(path)
    if ids is None or (deviations.ids is not None and np.array_equal(deviations.ids, ids)):
        return deviations.vectors
    return deviations.vectors[torch.from_numpy(rows_of(deviations, ids, "images"))]


def remove_deviations(embeddings: Path) -> None:
    """Remove the deviations that belong to a file of embeddings, with their ids, if there are any."""
    path = deviations_path(embeddings)
    ids = find_ids_file(path)
    for file in (path, ids):
        if file is not None:
            file.unlink(missing_ok=True)

"""Files of features in the layout that ILIAS publishes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def write_features(path: Path, features: np.ndarray[Any, Any], ids: Sequence[str]) -> None:
    """Write features and ids as the published code does, compressed at level 0 in chunks of h5py's choice."""
    with h5py.File(path, "w") as file:
        file.create_dataset("index", data=ids, dtype=h5py.string_dtype(encoding="ascii"))
        file.create_dataset("features", data=features, compression="gzip", compression_opts=0)

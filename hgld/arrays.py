"""Types of arrays that many rooms share; docstrings state their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]
#: int32 or int64.
AnyIntegers = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
#: float32 or float64.
AnyFloats = NDArray[np.floating[Any]]
#: Grey levels or colours.
Pixels = NDArray[np.uint8]
#: Texts, such as the classes of queries.
Objects = NDArray[np.object_]

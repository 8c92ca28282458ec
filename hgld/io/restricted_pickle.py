"""Read plain data and numeric arrays from pickle files of unknown origin.

A pickle is a program: it names functions and calls them. This module allows only the functions that
restore NumPy's arrays and scalars, and refuses all other names; see "Restricting Globals" in
https://docs.python.org/3/library/pickle.html.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from hgld.errors import InputError

#: Limit of the file size in bytes; the ground truth of a few thousand images has a few megabytes.
MAX_BYTES = 100_000_000
#: The package of NumPy's functions, which was renamed in NumPy 2.
_CORE = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
#: Modules and names that the pickles of arrays and scalars need.
_ALLOWED = {
    ("_codecs", "encode"),
    ("__builtin__", "bytes"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    (f"{_CORE}.multiarray", "_reconstruct"),
    (f"{_CORE}.multiarray", "scalar"),
    (f"{_CORE}.numeric", "_frombuffer"),
}


def read_pickle(path: Path, *, max_bytes: int = MAX_BYTES) -> Any:
    """Return the content of a pickle file of any protocol, also from Python 2 with NumPy 1.

    Args:
        path: The pickle file.
        max_bytes: Limit of the file size.

    Returns:
        Lists, tuples, dicts, sets, texts, bytes, numbers, None, and arrays and scalars of NumPy.
        Texts of Python 2 are decoded as Latin-1.

    Raises:
        InputError: The file does not exist, has more than ``max_bytes``, is not a complete pickle,
            or names a function that is not allowed; such a function is not run.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a pickle file")
    size = path.stat().st_size
    if size > max_bytes:
        raise InputError(
            f"{path}: {size:,} bytes; a pickle file of its kind may have at most {max_bytes:,}"
        )
    try:
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except _RefusedError as error:
        raise InputError(
            f"{path}: refused: the pickle asks for {error}, which plain data does not need, and a pickle can run "
            "any code; get the file from its authors"
        ) from error
    # A damaged pickle can raise almost anything; the documentation of pickle gives no complete
    # list.
    except Exception as error:
        raise InputError(
            f"{path}: damaged or not a pickle file ({type(error).__name__}: {error}); download it again"
        ) from error


class _RefusedError(Exception):
    """The pickle names a function or an object that is not allowed."""


class _Unpickler(pickle.Unpickler):
    """Unpickler that finds only the names in ``_ALLOWED``."""

    def find_class(self, module: str, name: str) -> Any:
        installed_module = re.sub(r"^numpy\._?core\b", _CORE, module)
        if (installed_module, name) not in _ALLOWED:
            raise _RefusedError(f"{module}.{name}")
        return super().find_class(installed_module, name)

    def persistent_load(self, pid: object) -> Any:
        raise _RefusedError(f"the persistent object {pid!r}")

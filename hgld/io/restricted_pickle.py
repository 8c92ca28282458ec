"""Read plain data and numeric arrays from pickle files of unknown origin.

A pickle is a program: it names functions and calls them. Here each allowed name is bound to a function or class of
this module, made separately for each file, that accepts nothing but the bytes of an array. numpy's constructors,
which trust the state that they are given, are never called. All other names are refused.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hgld.errors import InputError

#: Limit of the file size; ground truth of a few thousand images has a few megabytes.
MAX_BYTES = 100_000_000
#: Types without objects: booleans, integers, floats, bytes and texts.
_PLAIN_DTYPE = re.compile(r"[biufSU][0-9]{1,6}")


def read_pickle(path: Path, *, max_bytes: int = MAX_BYTES) -> Any:
    """Return the content of a pickle file of any protocol, including those of Python 2 with arrays of numpy 1.

    Returns:
        Lists, tuples, dicts, sets, texts, bytes, numbers, None, and numpy scalars. An array is an object that
        :func:`as_array` converts. Texts of Python 2 are decoded as Latin-1.

    Raises:
        InputError: The file does not exist, has more than ``max_bytes``, is not a complete pickle, or asks for
            anything else; nothing that it asks for was run.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a pickle file")
    size = path.stat().st_size
    if size > max_bytes:
        raise InputError(f"{path}: {size:,} bytes; a pickle file of its kind may have at most {max_bytes:,}")
    try:
        return _Unpickler(path.read_bytes()).load()
    except _RefusedError as error:
        raise InputError(
            f"{path}: refused: the pickle asks for {error}, which plain data does not need, and a pickle can run "
            "any code; get the file from its authors"
        ) from error
    # A damaged pickle can raise almost anything; the documentation of pickle gives no complete list.
    except Exception as error:
        raise InputError(
            f"{path}: damaged or not a pickle file ({type(error).__name__}: {error}); download it again"
        ) from error


def as_array(value: object) -> npt.NDArray[Any] | None:
    """Return ``value`` from :func:`read_pickle` as an array; None if it is not an array."""
    return value.array if isinstance(value, _Array) else None


class _RefusedError(Exception):
    """The pickle asks for something that is not allowed."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._allowed = _allowed_names()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise _RefusedError(f"{module}.{name}")
        return self._allowed[module, name]

    def persistent_load(self, pid: object) -> Any:
        raise _RefusedError(f"the persistent object {pid!r}")


class _Dtype:
    """Replacement of ``numpy.dtype``."""

    def __init__(self, name: str) -> None:
        if not _PLAIN_DTYPE.fullmatch(name):
            raise _RefusedError(f'an array of the type "{name}"')
        self._name, self._byte_order = name, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, byte_order, subdtype, names, fields, *_ = state
        if byte_order not in ("<", ">", "|", "=") or (subdtype, names, fields) != (None, None, None):
            raise _RefusedError("an array of a structured type")
        self._byte_order = byte_order

    def array(self, shape: tuple[int, ...], data: bytes, order: Literal["C", "F"] = "C") -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = np.ndarray(shape, self._byte_order + self._name, data, order=order)
        if array.nbytes != len(data):
            raise ValueError(f"an array of {array.nbytes:,} bytes in {len(data):,} bytes")
        return array


class _Array:
    """Replacement of ``numpy.ndarray``; as in numpy, the state is set after the object is made."""

    def __init__(self, array: npt.NDArray[Any] | None = None) -> None:
        self._array = array

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        # Python 2 stored the bytes as text.
        data = data.encode("latin1") if isinstance(data, str) else data
        self._array = dtype.array(shape, data, "F" if is_fortran else "C")

    @property
    def array(self) -> npt.NDArray[Any]:
        if self._array is None:
            raise ValueError("an array without values")
        return self._array


def _allowed_names() -> dict[tuple[str, str], Any]:
    """Return the replacement of each allowed name; new ones each time, as a pickle can set their attributes."""

    def encode(text: str, codec: str) -> bytes:
        # Looking up other codecs by name imports modules, and some codecs expand data to any size.
        if codec not in ("latin1", "latin-1"):
            raise _RefusedError(f'_codecs.encode with the codec "{codec}"')
        return text.encode("latin1")

    def no_bytes() -> bytes:
        return b""

    def dtype(name: str, align: bool = False, copy: bool = False) -> _Dtype:
        return _Dtype(name)

    def reconstruct(kind: object, shape: object, dtype: object) -> _Array:
        return _Array()

    def scalar(dtype: _Dtype, data: bytes | str) -> Any:
        return dtype.array((), data.encode("latin1") if isinstance(data, str) else data)[()]

    def frombuffer(data: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Literal["C", "F"]) -> _Array:
        return _Array(dtype.array(shape, bytes(data), order))

    allowed: dict[tuple[str, str], Any] = {
        ("_codecs", "encode"): encode,
        ("__builtin__", "bytes"): no_bytes,
        ("numpy", "dtype"): dtype,
        # Only used as an argument of _reconstruct.
        ("numpy", "ndarray"): "ndarray",
    }
    for core in ("numpy.core", "numpy._core"):
        allowed[f"{core}.multiarray", "_reconstruct"] = reconstruct
        allowed[f"{core}.multiarray", "scalar"] = scalar
        allowed[f"{core}.numeric", "_frombuffer"] = frombuffer
    return allowed

"""Pickles are read without running any code in them."""

import collections
import copyreg
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.io.restricted_pickle import read_pickle

CONTENTS = {"images": ["a", "b"], "gnd": [{"easy": np.array([4, 0]), "box": [1.5, 2.0, 30.0, 40.25]}, {"easy": ()}]}


def write(tmp_path: Path, data: Any, protocol: int = 2) -> Path:
    return write_bytes(tmp_path, pickle.dumps(data, protocol))


def write_bytes(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "data.pkl"
    path.write_bytes(data)
    return path


def python_2(array: np.ndarray) -> bytes:
    """An array as numpy 1 under Python 2 wrote it in protocol 2: the bytes are texts."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    kind = text(array.dtype.str[1:].encode())
    dtype = (
        b"cnumpy\ndtype\n"
        + kind
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"<")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    state = b"(K\x01" + b"K" + bytes([len(array)]) + b"\x85" + dtype + b"\x89" + text(array.tobytes()) + b"tb"
    return b"\x80\x02" + start + state + b"."


def test_pickles_of_python_2(tmp_path: Path) -> None:
    array = np.array([200, 3, -1, 2**40])
    data = python_2(array)
    assert (pickle.loads(data, encoding="latin1") == array).all()
    restored = read_pickle(write_bytes(tmp_path, data))
    assert restored.tolist() == array.tolist()
    assert read_pickle(write_bytes(tmp_path, b"\x80\x02U\x04caf\xe9.")) == "café"


@given(
    protocol=st.integers(0, 5),
    dtype=st.sampled_from(["b1", "<i2", ">i8", "u4", "f4", ">f8", "<U3", "S2"]),
    shape=st.sampled_from([(0,), (6,), (2, 3), (3, 1, 2)]),
    fortran=st.booleans(),
)
def test_arrays_and_scalars_round_trip(
    tmp_path_factory: pytest.TempPathFactory, protocol: int, dtype: str, shape: tuple[int, ...], fortran: bool
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype, order="F" if fortran else "C")
    contents = [array, *([array.flat[0]] if array.size else [])]
    path = tmp_path_factory.getbasetemp() / "array.pkl"
    path.write_bytes(pickle.dumps(contents, protocol))
    read, *scalars = read_pickle(path)
    # NumPy restores arrays in the byte order of the machine, before protocol 5.
    assert (read.dtype.newbyteorder("="), read.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert (read == array).all()
    assert [(type(x), x) for x in scalars] == [(type(x), x) for x in contents[1:]]


def called(module: str, name: str, *arguments: Any, protocol: int = 2) -> bytes:
    """A pickle that calls a function by its name."""
    packed = b"".join(pickle.dumps(x, protocol)[2:-1] for x in arguments)
    start = b"\x80" + bytes([protocol])
    if protocol < 4:
        named = f"c{module}\n{name}\n".encode()
    else:
        named = b"".join(b"\x8c" + bytes([len(x)]) + x.encode() for x in (module, name)) + b"\x93"
    return start + named + b"(" + packed + b"tR."


class Shell:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("nested", [False, True])
def test_pickled_code_is_not_run(tmp_path: Path, protocol: int, nested: bool) -> None:
    trap = tmp_path / "run"
    contents: Any = Shell(trap)
    if nested:
        contents = {"gnd": [{"easy": np.array([1]), "hard": (Shell(trap),)}]}
    path = write(tmp_path, contents, protocol)
    with pytest.raises(InputError, match=r"refused: the pickle asks for (posix|nt)\.system, which") as caught:
        read_pickle(path)
    assert str(path) in str(caught.value)
    assert not trap.exists()
    pickle.loads(path.read_bytes())
    assert trap.exists()  # the trap is a real one


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("__builtin__", "eval"),
        ("builtins", "getattr"),
        ("builtins", "bytearray"),
        ("numpy", "load"),
        ("numpy", "fromfile"),
        ("numpy", "ndarray.tofile"),
        ("numpy.core.multiarray", "fromstring"),
        ("numpy._core.multiarray", "scalar.__class__"),
        ("numpy", "core.multiarray._reconstruct"),
        ("numpy.core", "multiarray._reconstruct"),
        ("_codecs", "decode"),
        ("_codecs", "encode.__self__"),
        ("codecs", "encode"),
        ("copyreg", "_reconstructor"),
        ("hgld.io.restricted_pickle", "read_pickle"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_other_names_are_refused(tmp_path: Path, module: str, name: str, protocol: int) -> None:
    path = write_bytes(tmp_path, called(module, name, "1", protocol=protocol))
    with pytest.raises(InputError, match=f"refused: the pickle asks for {module}.{name},"):
        read_pickle(path)


def test_persistent_objects_are_refused(tmp_path: Path) -> None:
    for data in (b"Psome id\n.", b"\x80\x02X\x07\x00\x00\x00some idQ."):
        with pytest.raises(InputError, match="the persistent object 'some id'"):
            read_pickle(write_bytes(tmp_path, data))


def test_extensions_are_looked_up_by_name(tmp_path: Path) -> None:
    copyreg.add_extension("os", "system", 240)
    try:
        with pytest.raises(InputError, match="refused: the pickle asks for os.system"):
            read_pickle(write_bytes(tmp_path, b"\x80\x02\x82\xf0."))
    finally:
        copyreg.remove_extension("os", "system", 240)


@pytest.mark.parametrize(
    "contents",
    [
        np.ma.masked_array([1, 2]),
        collections.OrderedDict(a=1),
        range(3),
    ],
    ids=lambda contents: type(contents).__name__,
)
def test_unexpected_types_are_refused(tmp_path: Path, contents: Any) -> None:
    for protocol in range(6):
        with pytest.raises(InputError, match="refused: the pickle asks for"):
            read_pickle(write(tmp_path, contents, protocol))


def test_array_with_wrong_shape_is_refused(tmp_path: Path) -> None:
    for shape in [(10**12,), (2,), (-3,)]:
        data = pickle.dumps(np.arange(3), 2).replace(b"K\x01K\x03\x85", b"K\x01" + pickle.dumps(shape, 2)[2:-1])
        with pytest.raises(InputError, match="damaged or not a pickle file"):
            read_pickle(write_bytes(tmp_path, data))


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_truncated_and_damaged_files_are_refused(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(CONTENTS, protocol)
    for end in range(0, len(data), 7):
        with pytest.raises(InputError, match="damaged or not a pickle file"):
            read_pickle(write_bytes(tmp_path, data[:end]))
    with pytest.raises(InputError, match="damaged or not a pickle file"):
        read_pickle(write_bytes(tmp_path, b"<html>not found</html>"))


def test_missing_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_pickle(tmp_path / "absent.pkl")
    with pytest.raises(InputError, match="bytes; a pickle file of its kind may have at most 10"):
        read_pickle(write(tmp_path, CONTENTS), max_bytes=10)

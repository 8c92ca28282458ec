from __future__ import annotations

import collections
import copyreg
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.protocols.revisited_ground_truth import SETTINGS, read_ground_truth
from hgld.evaluation.protocols.revisited_metrics import revisited_average_precision, revisited_precision_at
from hgld.io import restricted_pickle
from hgld.io.restricted_pickle import as_array, read_pickle

BOX = [1.5, 2.0, 30.0, 40.25]


def ground_truth(as_list: Callable[[list[int]], Any] = list, box: Any = BOX) -> dict[str, Any]:
    kinds = [{"easy": [4, 0], "hard": [2], "junk": [1]}, {"easy": [], "hard": [3, 1], "junk": []}]
    return {
        "imlist": ["a", "b", "c", "d", "e"],
        "qimlist": ["all_souls_1", "all_souls_2"],
        "gnd": [{**{kind: as_list(x) for kind, x in entry.items()}, "bbx": box} for entry in kinds],
    }


def write(tmp_path: Path, data: Any, protocol: int = 2) -> Path:
    return write_bytes(tmp_path, pickle.dumps(data, protocol))


def write_bytes(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", [None, "<i8", ">i4", "uint16"])
def test_reads_lists_and_arrays_of_every_protocol(tmp_path: Path, protocol: int, dtype: str | None) -> None:
    contents = ground_truth() if dtype is None else ground_truth(lambda x: np.array(x, dtype), np.array(BOX))
    truth = read_ground_truth(write(tmp_path, contents, protocol))
    assert truth.gallery_names == ("a", "b", "c", "d", "e")
    assert truth.query_names == ("all_souls_1", "all_souls_2")
    assert truth.boxes.tolist() == [BOX, BOX]
    assert [sorted(truth.easy.row(n).tolist()) for n in (0, 1)] == [[0, 4], []]
    assert truth.hard.columns.tolist() == [2, 1, 3]
    assert truth.easy.columns.dtype == np.int64


def test_positives_and_ignored_images_of_each_setting(tmp_path: Path) -> None:
    truth = read_ground_truth(write(tmp_path, ground_truth()))
    actual = {
        setting: [
            [rows.row(n).tolist() for n in (0, 1)] for rows in (truth.positives(setting), truth.ignored(setting))
        ]
        for setting in SETTINGS
    }
    assert actual == {
        "easy": [[[0, 4], []], [[1, 2], [1, 3]]],
        "medium": [[[0, 2, 4], [1, 3]], [[1], []]],
        "hard": [[[2], [1, 3]], [[0, 1, 4], []]],
    }
    with pytest.raises(ConfigurationError, match='no setting "Medium"; expected one of easy, medium, hard'):
        truth.positives("Medium")


def entry(**changes: Any) -> dict[str, Any]:
    contents = ground_truth()
    contents["gnd"][1] |= changes
    return contents


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([1], "expected a pickle of a dict with imlist, qimlist and gnd"),
        ({"imlist": ["a"]}, "expected a pickle of a dict with imlist, qimlist and gnd"),
        (ground_truth() | {"imlist": "abcde"}, "imlist is not a list of names"),
        (ground_truth() | {"imlist": ["a", 1]}, "imlist is not a list of names"),
        (ground_truth() | {"qimlist": []}, "qimlist is not a list of names"),
        (ground_truth() | {"imlist": ["a", "b", "a", "d", "e"]}, "imlist has 1 repeated names"),
        (ground_truth() | {"gnd": []}, "gnd has 0 entries for 2 queries"),
        (ground_truth() | {"gnd": 7}, "gnd has a int of entries for 2 queries"),
        (ground_truth() | {"gnd": [{}, 7]}, "2 bad entries of gnd:\n.*no easy and no hard and no junk and no bbx\n"),
        (entry(easy=[5]), "query all_souls_2: easy has position 5; the gallery has 5 images"),
        (entry(easy=[-1]), "easy has position -1"),
        (entry(easy=[2**70]), "easy holds object; expected numbers"),
        (entry(easy=[True]), "easy holds bool"),
        (entry(easy=[1.0]), "easy holds float64; expected whole numbers"),
        (entry(easy=["1"]), "easy is a list; expected a list or an array of numbers"),
        (entry(easy=1), "easy is a int; expected a list or an array of numbers"),
        (entry(easy=np.array([["a"]])), "easy holds <U1; expected numbers"),
        (entry(easy=np.array([[0]])), r"easy has the shape \(1, 1\); expected one row"),
        (entry(easy=[3]), "position 3 is repeated in easy, hard, junk"),
        (entry(junk=[0, 0]), "position 0 is repeated"),
        (entry(bbx=[1.0, 2.0, 3.0]), r"bbx has the shape \(3,\); expected 4 finite numbers"),
        (entry(bbx=[1.0, 2.0, 3.0, float("nan")]), "expected 4 finite numbers"),
    ],
)  # fmt: skip
def test_malformed_ground_truth_is_refused(tmp_path: Path, contents: Any, message: str) -> None:
    path = write(tmp_path, contents)
    with pytest.raises(InputError, match=message) as caught:
        read_ground_truth(path)
    assert str(path) in str(caught.value)


# Reading pickles


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
    restored = as_array(read_pickle(write_bytes(tmp_path, data)))
    assert restored is not None
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
    pickled_array, *scalars = read_pickle(path)
    read = as_array(pickled_array)
    assert read is not None
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
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
        contents = ground_truth() | {"gnd": [{"easy": np.array([1]), "hard": (Shell(trap),)}]}
    path = write(tmp_path, contents, protocol)
    with pytest.raises(InputError, match=r"refused: the pickle asks for (posix|nt)\.system, which") as caught:
        read_ground_truth(path)
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


@pytest.mark.parametrize("codec", ["rot13", "zlib", "utf-8", "idna", "../x", "LATIN1"])
def test_only_latin1_is_allowed(tmp_path: Path, codec: str) -> None:
    assert read_pickle(write_bytes(tmp_path, called("_codecs", "encode", "é", "latin1"))) == b"\xe9"
    with pytest.raises(InputError, match=f'_codecs.encode with the codec "{codec}"'):
        read_pickle(write_bytes(tmp_path, called("_codecs", "encode", "a", codec)))


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
        np.array([{}, []], dtype=object),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2018-01-01"], dtype="M8[D]"),
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


def test_array_without_values_is_refused(tmp_path: Path) -> None:
    data = called("numpy.core.multiarray", "_reconstruct", "ndarray", (0,), b"b")
    pickled = pickle.dumps(ground_truth() | {"gnd": [0, 0]}, 2)
    assert read_pickle(write_bytes(tmp_path, data)) is not None
    empty = pickle.dumps({"hard": [], "junk": [], "bbx": BOX}, 2)[2:-1] + b"X\x04\x00\x00\x00easy" + data[2:-1] + b"s"
    bad = pickled.replace(b"K\x00K\x00e", empty + empty + b"e")
    assert bad != pickled
    with pytest.raises(InputError, match="query all_souls_1: an array without values"):
        read_ground_truth(write_bytes(tmp_path, bad))


def test_pickles_do_not_affect_each_other(tmp_path: Path) -> None:
    # BUILD with a state (None, {...}) sets attributes of what is on the stack, here of the function for numpy.dtype.
    attack = b"\x80\x02cnumpy\ndtype\n" + pickle.dumps((None, {"__defaults__": (1,), "mark": 1}), 2)[2:-1] + b"b."
    assert read_pickle(write_bytes(tmp_path, attack)).mark == 1
    assert not hasattr(read_pickle(write_bytes(tmp_path, b"\x80\x02cnumpy\ndtype\n.")), "mark")


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_truncated_and_damaged_files_are_refused(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(ground_truth(np.array), protocol)
    for end in range(0, len(data), 7):
        with pytest.raises(InputError, match="damaged or not a pickle file"):
            read_pickle(write_bytes(tmp_path, data[:end]))
    with pytest.raises(InputError, match="damaged or not a pickle file"):
        read_pickle(write_bytes(tmp_path, b"<html>not found</html>"))


def test_missing_and_huge_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_pickle(tmp_path / "absent.pkl")
    monkeypatch.setattr(restricted_pickle, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="bytes; a pickle file of ground truth may have at most 10"):
        read_pickle(write(tmp_path, ground_truth()))


# Measures


def published(ranking: list[int], positives: set[int], junk: set[int], k: int) -> tuple[float, float]:
    """The measures by walking down the ranked list, in the published protocol's terms."""
    recall = area = 0.0
    precision, n_found, n_seen = 1.0, 0, 0
    hits = []
    for item in ranking:
        if item in junk:
            continue
        n_seen += 1
        if item in positives:
            n_found += 1
            hits.append(n_seen)
            area += (n_found / len(positives) - recall) * (precision + n_found / n_seen) / 2
            recall = n_found / len(positives)
        precision = n_found / n_seen
    reach = min(hits[-1], k)
    return area, sum(hit <= reach for hit in hits) / reach


@given(st.data())
def test_metrics_agree_with_the_published_algorithm(data: st.DataObject) -> None:
    ranking = data.draw(st.permutations(range(data.draw(st.integers(1, 30)))))
    positives = data.draw(st.sets(st.sampled_from(ranking), min_size=1))
    others = [item for item in ranking if item not in positives]
    junk = data.draw(st.sets(st.sampled_from(others))) if others else set()
    k = data.draw(st.integers(1, 12))
    is_junk = np.isin(ranking, list(junk))
    at = np.flatnonzero(np.isin(ranking, list(positives)))
    ranks = at - np.cumsum(is_junk)[at]
    area, precision = published(ranking, positives, junk, k)
    assert revisited_average_precision(ranks, len(positives)) == pytest.approx(area, abs=1e-12)
    assert revisited_precision_at(ranks, k) == pytest.approx(precision, abs=1e-12)
    plain = np.mean((np.arange(len(ranks)) + 1) / (ranks + 1))
    assert 0 < area <= plain + 1e-12


def test_metrics_by_hand() -> None:
    assert revisited_average_precision([0, 1, 2], 3) == 1
    assert revisited_average_precision([1], 1) == pytest.approx((0 / 1 + 1 / 2) / 2)
    assert revisited_average_precision([0], 4) == pytest.approx(1 / 4)
    assert revisited_average_precision([], 4) == 0
    # The last positive is third, so that ten cannot be asked for.
    assert revisited_precision_at([0, 2], 10) == pytest.approx(2 / 3)
    assert revisited_precision_at([0, 2], 2) == pytest.approx(1 / 2)
    assert revisited_precision_at([7], 5) == 0


def test_metrics_without_positives_are_nan() -> None:
    assert np.isnan(revisited_average_precision([], 0))
    assert np.isnan(revisited_precision_at([], 5))


@pytest.mark.parametrize("ranks", [[1, 0], [0, 0], [-1, 2], [[0]]])
def test_invalid_ranks_are_refused(ranks: Any) -> None:
    with pytest.raises(ValueError, match="not one row of ascending numbers"):
        revisited_average_precision(ranks, 5)
    with pytest.raises(ValueError, match="not one row of ascending numbers"):
        revisited_precision_at(ranks, 5)


def test_invalid_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="2 ranks of 1 positives"):
        revisited_average_precision([0, 1], 1)
    with pytest.raises(ValueError, match="k is 0"):
        revisited_precision_at([0], 0)

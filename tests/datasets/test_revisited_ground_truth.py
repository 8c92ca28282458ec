"""Ground truth of ROxford and RParis, and what is refused."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgld.datasets.readers.landmarks import SETTINGS, read_ground_truth
from hgld.errors import ConfigurationError, InputError
from hgld.io.restricted_pickle import read_pickle
from tests.io.test_restricted_pickle import called

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


def test_array_without_values_is_refused(tmp_path: Path) -> None:
    data = called("numpy.core.multiarray", "_reconstruct", "ndarray", (0,), b"b")
    pickled = pickle.dumps(ground_truth() | {"gnd": [0, 0]}, 2)
    assert read_pickle(write_bytes(tmp_path, data)) is not None
    empty = pickle.dumps({"hard": [], "junk": [], "bbx": BOX}, 2)[2:-1] + b"X\x04\x00\x00\x00easy" + data[2:-1] + b"s"
    bad = pickled.replace(b"K\x00K\x00e", empty + empty + b"e")
    assert bad != pickled
    with pytest.raises(InputError, match="query all_souls_1: an array without values"):
        read_ground_truth(write_bytes(tmp_path, bad))

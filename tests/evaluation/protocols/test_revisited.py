from __future__ import annotations

import pickle
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

"""Results as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from hgld.evaluation.reports import results_to_json
from hgld.evaluation.results import RetrievalResult
from tests.evaluation.sample_results import result


def test_json_has_means_intervals_counts_and_settings(evaluated: RetrievalResult) -> None:
    report = json.loads(results_to_json([evaluated], intervals=[evaluated.intervals()]))
    (part,) = report["results"]
    assert part["name"] == "leave-one-out"
    assert part["means"] == evaluated.means
    assert {name: tuple(ends) for name, ends in part["intervals"].items()} == evaluated.intervals()
    assert part["counts"] == evaluated.counts
    assert part["settings"] == evaluated.settings


def test_nan_is_null_in_json() -> None:
    settings = {"alpha": np.float32(0.5), "k": np.int64(3), "path": Path("a/b"), "nothing": None, "of": (math.inf, 1)}
    (part,) = json.loads(results_to_json([result(means={"ASI": math.nan}, settings=settings)]))["results"]
    assert part["means"] == {"ASI": None}
    assert part["intervals"] is None
    assert {name: part["settings"][name] for name in settings} == {
        "alpha": 0.5, "k": 3, "path": "a/b", "nothing": None, "of": [None, 1],
    }  # fmt: skip

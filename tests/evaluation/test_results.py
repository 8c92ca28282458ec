"""Means, intervals and counts of results, and the units of metrics."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import bootstrap

from hgld.errors import ConfigurationError
from hgld.evaluation.metrics import METRICS
from hgld.evaluation.results import DISTANCES, RetrievalResult, goodness, is_distance, results_to_latex, setting_notes
from tests.evaluation.sample_results import result as sample


def result(**columns: list[float]) -> RetrievalResult:
    per_query = pd.DataFrame(columns, index=pd.Index(range(len(next(iter(columns.values())))), name="query"))
    return RetrievalResult(
        "leave-one-out", per_query, tuple(columns), {"queries": len(per_query), "gallery": 1234}, {}
    )


def values(n: int, seed: int = 0) -> list[float]:
    sample: list[float] = np.random.default_rng(seed).beta(2, 5, size=n).tolist()
    return sample


def test_means_exclude_queries_without_the_metric() -> None:
    means = result(**{"H-AP": [0.5, np.nan, 1.0], "R@1": [np.nan] * 3}).means
    assert means["H-AP"] == 0.75
    assert np.isnan(means["R@1"])


def test_repr_is_one_line() -> None:
    assert repr(result(**{"H-AP": [0.5, 0.25], "R@1": [1.0, 0.0]})) == (
        "leave-one-out | H-AP 37.50 | R@1 50.00 | 2 queries x 1,234"
    )


def test_intervals_hold_the_mean_and_shrink_with_more_queries_and_less_confidence() -> None:
    widths = []
    for n in (20, 200, 2000):
        some = result(AP=values(n))
        low, high = some.intervals()["AP"]
        assert low < some.means["AP"] < high
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
    low, high = result(AP=values(200)).intervals(0.5)["AP"]
    assert high - low < 0.5 * widths[1]


def test_intervals_are_reproducible_and_need_a_seed_to_change() -> None:
    some = result(AP=values(50))
    assert some.intervals() == some.intervals()
    assert some.intervals(seed=1) != some.intervals()


def test_intervals_agree_with_scipy() -> None:
    sample = values(300)
    low, high = result(AP=sample).intervals(0.9, n_resamples=4000)["AP"]
    rng = np.random.default_rng(1)
    options: dict[str, Any] = {"confidence_level": 0.9, "method": "percentile", "n_resamples": 4000}
    theirs = bootstrap((sample,), np.mean, rng=rng, **options).confidence_interval
    tolerance = 0.1 * (theirs.high - theirs.low)
    assert low == pytest.approx(theirs.low, abs=tolerance)
    assert high == pytest.approx(theirs.high, abs=tolerance)


def test_queries_without_the_metric_do_not_affect_its_interval() -> None:
    """Which of them are drawn differs, so the ends agree only roughly."""
    sample = values(400)
    low, high = result(AP=sample).intervals(n_resamples=4000)["AP"]
    with_gaps = result(AP=[*sample, *[np.nan] * 400]).intervals(n_resamples=4000)["AP"]
    assert with_gaps == pytest.approx((low, high), abs=0.15 * (high - low))


def test_intervals_of_few_queries() -> None:
    intervals = result(A=[0.5, np.nan], B=[np.nan, np.nan]).intervals()
    assert intervals["A"] == (0.5, 0.5)  # also where draws miss the query altogether
    assert np.isnan(intervals["B"]).all()


def test_metrics_share_the_same_resamples() -> None:
    sample = values(40)
    intervals = result(A=sample, B=[2 * value for value in sample]).intervals()
    assert intervals["B"] == pytest.approx((2 * intervals["A"][0], 2 * intervals["A"][1]))


@pytest.mark.parametrize(
    "options", [{"confidence": 0.0}, {"confidence": 1.0}, {"confidence": 95}, {"n_resamples": 0}]
)
def test_invalid_resampling_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more resamples"):
        result(AP=[0.5]).intervals(**options)


def test_a_part_has_its_own_queries_and_counts() -> None:
    whole = result(AP=[0.5, 1.0, np.nan], positives_l1=[2, 3, 0])
    whole = RetrievalResult(
        "all", whole.per_query, ("AP",), {"queries": 3, "gallery": 9, "without_positives_l1": 1}, {}
    )
    part = whole.part("Public", np.array([True, False, True]))
    assert (part.name, part.means, len(whole.per_query)) == ("Public", {"AP": 0.5}, 3)
    assert part.counts == {"queries": 2, "gallery": 9, "without_positives_l1": 1}
    nothing = whole.part("none", np.zeros(3, bool))
    assert np.isnan(nothing.means["AP"])
    assert np.isnan(nothing.intervals()["AP"]).all()


def test_metrics_can_be_renamed() -> None:
    renamed = result(A=[0.5], B=[1.0]).renamed({"A": "map100_labelled"})
    assert renamed.metrics == ("map100_labelled", "B")
    assert renamed.means == {"map100_labelled": 0.5, "B": 1.0}


def test_distances_are_metrics() -> None:
    assert {name.partition("@")[0] for name in METRICS if is_distance(name)} == set(DISTANCES)


def test_fewer_levels_are_better() -> None:
    assert goodness("mistake_severity", 1.0) > goodness("mistake_severity", 1.5)
    assert goodness("small avg_hdist@5", 1.0) > goodness("small avg_hdist@5", 1.5)
    assert goodness("H-AP", 0.5) > goodness("H-AP", 0.4)
    for metric in ("H-AP", "mistake_severity"):
        assert goodness(metric, 0.1) > goodness(metric, math.nan)


def test_tables_mark_the_least_distance() -> None:
    metrics = ["H-AP", "mistake_severity", "avg_hdist@5"]
    rows = [
        sample("a", dict(zip(metrics, (0.5, 2.25, 1.0), strict=True))),
        sample("b", dict(zip(metrics, (0.4, 1.5, 2.0), strict=True))),
    ]
    table = results_to_latex(rows, metrics=metrics)
    assert r"a & \textbf{50.0} & \underline{2.2} & \textbf{1.0} \\" in table
    assert r"b & \underline{40.0} & \textbf{1.5} & \underline{2.0} \\" in table
    assert repr(rows[0]).startswith("a | H-AP 50.00 | mistake_severity 2.25 |")
    notes = setting_notes(rows)
    assert "mistake_severity, avg_hdist@5: in levels of the tree and not in %; lower is better." in notes

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.benchmark.statistics import compare, paired_difference
from hgld.errors import ConfigurationError
from hgld.evaluation.results import RetrievalResult


def result(name: str, metric: str = "H-AP", **columns: Any) -> RetrievalResult:
    table = pd.DataFrame(columns)
    table.index.name = "query"
    return RetrievalResult(name, table, (metric,), {"queries": len(table)}, {})


def h_ap(values: list[float]) -> RetrievalResult:
    return results_of(np.array(values)[:, None], np.arange(len(values)))[0]


def results_of(values: np.ndarray, classes: np.ndarray, metric: str = "H-AP") -> list[RetrievalResult]:
    """Results a, b, ... with the values of each column."""
    return [
        result(name, metric, **{metric: column, "class": classes.astype(object)})
        for name, column in zip("abcdefghijklmnopqrst", values.T, strict=False)
    ]


def test_two_results_agree_with_the_paired_difference() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(60, size=400)
    values = rng.normal(size=(400, 2)) * 0.1 + rng.normal(size=(60, 1))[classes] + [0.04, 0.0]
    table = compare(results_of(values, classes)).set_index("name")
    expected = paired_difference(values[None, :, 1], values[None, :, 0], classes.astype(object))
    row = table.loc["b"]
    assert row["difference"] == pytest.approx(expected.mean)
    # One is a percentile interval, the other one of the largest deviation divided by its standard error.
    assert row[["difference_low", "difference_high"]].tolist() == pytest.approx(expected[1:], abs=0.002)
    assert table.loc["a", ["rank", "best_rank", "worst_rank"]].tolist() == [1, 1, 1 if expected.high < 0 else 2]
    assert table.loc["a", "p_value"] == 1
    assert (table.loc["b", "p_value"] < 0.05) == (row["difference_high"] < 0)


def test_intervals_of_all_pairs_hold_together() -> None:
    """Of 20 equal results, some pair seems to differ by intervals of pairs alone, but seldom by those of all."""
    any_difference = any_pair_alone = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        classes = np.repeat(np.arange(80), 3)
        values = rng.normal(size=(240, 20))
        table = compare(results_of(values, classes), n_resamples=500, seed=seed)
        any_difference += bool((table["worst_rank"] < 20).any() or (table["best_rank"] > 1).any())
        worst, best = (values[None, :, column] for column in (values.mean(0).argmin(), values.mean(0).argmax()))
        any_pair_alone += paired_difference(worst, best, classes.astype(object), n_resamples=500).high < 0
    assert any_pair_alone > 30
    assert any_difference <= 8  # 3 of 60 are expected


@given(st.integers(0, 1000), st.integers(2, 5))
def test_order_and_names_do_not_matter(seed: int, n_results: int) -> None:
    rng = np.random.default_rng(seed)
    classes = rng.integers(9, size=40)
    results = results_of(rng.random((40, n_results)), classes)
    table = compare(results, "a", n_resamples=50).set_index("name")
    again = compare({each.name: each for each in results[::-1]}, "a", n_resamples=50).set_index("name")
    pd.testing.assert_frame_equal(table, again.loc[table.index])
    assert ((table["best_rank"] <= table["rank"]) & (table["rank"] <= table["worst_rank"])).all()
    assert (table["low"] <= table["high"]).all()


def test_fewer_levels_of_a_distance_are_better_and_equal_results_are_equal() -> None:
    classes = np.arange(50)
    values = np.column_stack([np.linspace(1, 2, 50), np.linspace(1, 2, 50), np.linspace(2, 3, 50)])
    table = compare(results_of(values, classes, "mistake_severity")).set_index("name")
    assert table["rank"].tolist() == [1, 1, 3]
    assert table.loc["b", ["difference", "difference_low", "difference_high", "p_value"]].tolist() == [0, 0, 0, 1]
    assert table["reference"].unique().tolist() == ["a"]
    assert table["best_rank"].tolist()[:2] == [1, 1]


def test_queries_without_a_metric_count_for_nothing() -> None:
    """As those with a right answer in mistake_severity, which differ between models."""
    one = result("a", "mistake_severity", mistake_severity=[1.0, np.nan, 2.0, np.nan])
    other = result("b", "mistake_severity", mistake_severity=[np.nan, 3.0, np.nan, 2.0])
    table = compare([one, other]).set_index("name")
    assert table["mean"].tolist() == [1.5, 2.5]
    assert table.loc["b", ["difference", "rank", "best_rank"]].tolist() == [1, 2, 1]


def test_wrong_results_are_refused() -> None:
    one, other = h_ap([0.5, 0.6]), result("b", "R@1", **{"R@1": [1.0, 0.0]})
    for results, options, message in (
        ([one, one], {}, "2 with 1 names"),
        ([], {}, "0 with 0 names"),
        ([one, other], {}, "the metrics none"),
        ([one], {"reference": "c"}, 'no result is called "c"'),
        ([one], {"metrics": ["AP"]}, "the metrics H-AP"),
        ([one], {"confidence": 1.0}, "confidence"),
        ([h_ap([np.nan])], {}, "no metric that some query of every result has"),
        ([h_ap([np.nan])], {"metrics": ["H-AP"]}, "no query has H-AP"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            compare(results, **options)

"""Differences of methods, and comparisons of results of the same queries, against drawing classes one by one."""

import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hgld.benchmark.statistics import Difference, compare, difference_over_splits, paired_difference
from hgld.errors import ConfigurationError
from hgld.evaluation.results import RetrievalResult


def test_copies_of_a_query_narrow_the_interval_only_across_landmarks() -> None:
    """Copies that share a landmark add no information; copies of different landmarks do."""
    rng = np.random.default_rng(0)
    baseline, gain = rng.random((1, 20)), rng.normal(0.05, 0.1, (1, 20))

    def width(classes: list[int], copies: int) -> float:
        names = [str(number) for number in classes]
        interval = paired_difference(np.repeat(baseline + gain, copies, 1), np.repeat(baseline, copies, 1), names)
        return interval.high - interval.low

    once = width(list(range(20)), 1)
    assert width([number // 25 for number in range(500)], 25) == pytest.approx(once, rel=0.05)
    assert width(list(range(500)), 25) == pytest.approx(once / 5, rel=0.15)  # 500 classes, not 20


def test_block_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    arguments = rng.random((2, 50)), rng.random((2, 50)), [str(n // 5) for n in range(50)]
    whole = paired_difference(*arguments, n_resamples=101)
    monkeypatch.setattr("hgld.compute.resampling._BLOCK_SIZE", 70)
    assert paired_difference(*arguments, n_resamples=101) == pytest.approx(whole, abs=1e-12)


def test_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(2)
    classes = [str(n // 3) for n in range(180)]
    n_covered = 0
    for seed in range(100):
        gains = 0.03 + np.repeat(rng.normal(0, 0.1, 60), 3) + rng.normal(0, 0.05, 180)
        interval = paired_difference(gains[None], np.zeros((1, 180)), classes, n_resamples=400, seed=seed)
        n_covered += interval.low <= 0.03 <= interval.high
    assert 88 <= n_covered <= 99


def test_difference_without_values_is_nan() -> None:
    nothing = np.full((2, 3), np.nan)
    assert all(map(math.isnan, paired_difference(nothing, nothing, ["a", "b", "c"])))
    assert paired_difference(np.ones((1, 6)), np.ones((1, 6)), list("abcdef")) == Difference(0, 0, 0)


def test_too_few_classes_have_a_difference_and_no_interval() -> None:
    mean, low, high = paired_difference(np.ones((1, 5)), np.zeros((1, 5)), list("abcde"))
    assert mean == 1
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"confidence": 0.0}, {"n_resamples": 0}])
def test_invalid_settings_are_errors(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more"):
        paired_difference(np.ones((1, 2)), np.ones((1, 2)), ["a", "b"], **wrong)  # type: ignore[arg-type]


# Several splits


@settings(max_examples=20)
@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=9), st.sampled_from([0.25, 1.0, 4.0]))
def test_interval_over_splits_is_that_of_the_corrected_t_test(differences: list[float], ratio: float) -> None:
    """The p-value of the corrected test of a difference from either end of the interval is 5 %."""
    interval = difference_over_splits(differences, test_train_ratio=ratio)
    n, mean, deviation = len(differences), statistics.fmean(differences), statistics.stdev(differences)
    assert interval.mean == pytest.approx(mean, abs=1e-12)
    if deviation > 1e-6:
        for end in (interval.low, interval.high):
            statistic = abs(mean - end) / (deviation * math.sqrt(1 / n + ratio))
            assert 2 * stats.t.sf(statistic, n - 1) == pytest.approx(0.05)
    plain = difference_over_splits(differences, test_train_ratio=0)
    expected = stats.t.interval(0.95, n - 1, mean, deviation / math.sqrt(n) or math.nan)
    assert (plain.low, plain.high) == pytest.approx(expected, abs=1e-9, nan_ok=True) or deviation == 0


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_interval_over_splits_covers_a_population_of_classes(share: float) -> None:
    """Classes have effects, those to train on as those to test on; each data set of 40 is split at random 4 times.

    The true difference is that of the population. An interval over the seeds of one split misses it nearly always,
    one over splits that takes them as independent far too often.
    """
    rng, n_data_sets, n_classes, n_splits, n_seeds, truth = np.random.default_rng(3), 400, 40, 4, 3, 0.02
    n_test = int(share * n_classes)
    covered = dict.fromkeys(["corrected", "independent", "seeds"], 0)
    for _ in range(n_data_sets):
        when_tested, when_trained = rng.normal(truth, 0.1, n_classes), rng.normal(0, 0.02, n_classes)
        runs = []
        for _ in range(n_splits):
            order = rng.permutation(n_classes)
            effect = when_tested[order[:n_test]].mean() + when_trained[order[n_test:]].mean()
            runs.append(effect + rng.normal(0, 0.002, n_seeds))
        means = [float(of_split.mean()) for of_split in runs]
        intervals = {
            "corrected": difference_over_splits(means, test_train_ratio=share / (1 - share)),
            "independent": difference_over_splits(means, test_train_ratio=0),
            "seeds": difference_over_splits(runs[0].tolist(), test_train_ratio=0),
        }
        for name, (_, low, high) in intervals.items():
            covered[name] += low <= truth <= high
    shares = {name: count / n_data_sets for name, count in covered.items()}
    assert 0.92 <= shares["corrected"] <= 0.98
    assert shares["independent"] < 0.88
    assert shares["seeds"] < 0.35


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


def test_results_are_compared_on_their_common_queries() -> None:
    rng = np.random.default_rng(3)
    classes, values = np.arange(60) // 4, rng.random((60, 2))
    whole, other = results_of(values, classes)
    fewer = other.part("b", np.arange(60) >= 10)
    table = compare([whole, fewer]).set_index("name")
    assert table["queries"].tolist() == [50, 50]
    assert table["mean"].tolist() == pytest.approx(values[10:].mean(axis=0).tolist())
    pd.testing.assert_frame_equal(
        compare([fewer, whole], "a").set_index("name").loc[["a", "b"]], compare([whole, fewer], "a").set_index("name")
    )


def test_results_of_other_images_or_labels_are_refused() -> None:
    values, classes = np.random.default_rng(4).random((24, 2)), np.arange(24) // 3
    one, other = results_of(values, classes)
    with pytest.raises(ConfigurationError, match="galleries of different sizes \\(a 24, b 20\\)"):
        compare([replace(one, counts={"gallery": 24}), replace(other, counts={"gallery": 20})])
    elsewhere = replace(other, per_query=other.per_query.set_axis([f"x{row}" for row in range(24)]))
    with pytest.raises(ConfigurationError, match="no query is in all results"):
        compare([one, elsewhere])
    (_, relabelled) = results_of(values, (classes + 1) % 8)
    with pytest.raises(ConfigurationError, match='query "0" is of class "0" in a result and of class "1" in b'):
        compare([one, relabelled])


def test_intervals_of_shares_stay_between_0_and_1() -> None:
    classes = np.repeat(np.arange(8), 2)
    values = np.where(classes[:, None] == 0, 1.0, 0.0) * [1.0, 1.0]
    table = compare(results_of(values, classes))
    assert (table["low"] == 0).all()
    assert (table["high"] < 1).all()
    (one, _) = results_of(values, classes)
    assert one.intervals()["H-AP"][0] == 0

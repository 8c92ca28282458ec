import math
import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError
from hgld.evaluation import metrics
from hgld.evaluation.metrics import METRICS, Metric, default_metrics
from hgld.evaluation.ranking_statistics import RankingStatistics, ranking_statistics
from hgld.evaluation.relevance import by_level, weighted_ap_relevance
from tests.evaluation import oracles
from tests.evaluation.helpers import metric_values

#: L and the levels of the items of one ranking, best rank first.
Ranking = tuple[int, list[int]]


@st.composite
def rankings(draw: st.DrawFn, max_levels: int = 4, max_size: int = 30) -> Ranking:
    n_levels = draw(st.integers(1, max_levels))
    return n_levels, draw(st.lists(st.integers(0, n_levels), min_size=1, max_size=max_size))


def summed(levels: Sequence[int], n_levels: int, cutoffs: Sequence[int] = ()) -> RankingStatistics:
    return ranking_statistics(torch.tensor([levels], dtype=torch.uint8), n_levels, cutoffs)


def all_names(n_levels: int, cutoffs: Sequence[int]) -> list[str]:
    return list(oracles.by_name([0] * max(cutoffs, default=1), n_levels, cutoffs=cutoffs))


@given(rankings(), st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.data())
@example((3, [0, 0, 0]), 1.0, None)
@example((1, [1]), 1.0, None)
@example((3, [1, 3, 0, 1, 3]), 1.0, None)
def test_metrics_agree_with_their_equations(ranking: Ranking, alpha: float, data: st.DataObject | None) -> None:
    n_levels, levels = ranking
    ks = st.lists(st.integers(1, len(levels)), max_size=3, unique=True)
    cutoffs = data.draw(ks) if data else [1, len(levels)]
    ranked, names = torch.tensor([levels], dtype=torch.uint8), all_names(n_levels, cutoffs)
    actual = metric_values(ranked, n_levels, names, cutoffs=cutoffs, alpha=alpha)
    expected = oracles.by_name(levels, n_levels, alpha, cutoffs)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], [value], rtol=0, atol=1e-12, err_msg=name)


def test_every_metric_has_an_oracle() -> None:
    names = {re.sub(r"@\d+", "@K", name.partition("_l")[0]) for name in all_names(2, [3])}
    assert names == METRICS.keys()


@given(rankings(), st.data())
def test_property_1(ranking: Ranking, data: st.DataObject) -> None:
    n_levels, levels = ranking
    weights = data.draw(st.lists(st.floats(0.01, 1), min_size=n_levels, max_size=n_levels))
    expected = oracles.weighted_average_precision(levels, weights)
    weighted = metrics.weighted_average_precision(summed(levels, n_levels), weights).item()
    assert weighted == pytest.approx(expected, abs=1e-12, nan_ok=True)
    h_ap = metrics.h_ap(summed(levels, n_levels), partial(weighted_ap_relevance, weights=weights)).item()
    assert h_ap == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert h_ap == pytest.approx(oracles.h_ap(levels, oracles.property_1(levels, weights)), abs=1e-12, nan_ok=True)


@given(rankings(max_size=15), st.data())
def test_equation_32(ranking: Ranking, data: st.DataObject) -> None:
    n_levels, levels = ranking
    assume(max(levels) > 0)
    own = data.draw(st.lists(st.floats(0.01, 1), min_size=n_levels, max_size=n_levels))
    relevance = by_level([0.0, *own])
    sums = summed(levels, n_levels, range(1, len(levels) + 1))
    area, before = 0.0, 0.0
    for k in range(1, len(levels) + 1):
        recall = metrics.h_recall_at_k(sums, k, relevance).item()
        precision = metrics.h_precision_at_k(sums, k, relevance).item()
        area += 0.0 if math.isnan(precision) else (recall - before) * precision
        before = recall
    assert metrics.h_ap(sums, relevance).item() == pytest.approx(area, abs=1e-12)


def test_two_levels_of_equal_relevance_are_counted_once() -> None:
    """The published code compares relevances and counts such items twice."""
    levels = [3, 2, 2, 1]
    relevance = by_level([0, 0.25, 0.5, 0.5])
    assert metrics.h_ap(summed(levels, 3), relevance).item() == pytest.approx(1.0)
    levels = [0, 2, 1, 3]
    expected = oracles.h_ap(levels, [0, 0.25, 0.5, 0.5])
    assert metrics.h_ap(summed(levels, 3), relevance).item() == pytest.approx(expected)


def test_figures_13_and_14() -> None:
    relevance, table = by_level([0, 1 / 3, 2 / 3, 1]), [0, 1 / 3, 2 / 3, 1]
    assert oracles.h_rank_plus([2, 3], table, 1) == pytest.approx(5 / 3)
    assert oracles.h_rank_plus([1, 3], table, 1) == pytest.approx(4 / 3)
    for levels, h_ap in (([2, 3, 0, 1, 3], 0.7833333333333333), ([1, 3, 0, 1, 3], 0.66875)):
        sums = summed(levels, 3, [2])
        assert metrics.average_precision(sums).item() == pytest.approx(0.45)
        assert metrics.h_ap(sums, relevance).item() == pytest.approx(h_ap, abs=1e-12)
        h_rank_plus = 2 * metrics.h_precision_at_k(sums, 2, relevance).item()
        assert h_rank_plus == pytest.approx(oracles.h_rank_plus(levels, table, 1))


def test_binary_metrics_and_ndcg_agree_with_trec_eval() -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    ranked = torch.from_numpy(rng.choice(4, size=(200, 50), p=[0.7, 0.15, 0.1, 0.05]).astype(np.uint8))
    runs = {str(q): {str(i): float(50 - i) for i in range(50)} for q in range(200)}
    for level in (1, 2, 3):
        judged = {str(q): {str(i): int(item >= level) for i, item in enumerate(row)} for q, row in enumerate(ranked)}
        measures = {"map", "P.5,10", "recall.10", "success.1,5,10"}
        theirs = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(runs)
        sums = ranking_statistics(ranked, 3, [1, 5, 10])
        n_positive = sums.positives[:, level - 1]
        ours = {
            "map": metrics.average_precision(sums, level),
            "P_5": metrics.precision_at_k(sums, 5, level),
            "P_10": metrics.precision_at_k(sums, 10, level),
            "success_1": metrics.recall_at_k(sums, 1, level),
            "success_5": metrics.recall_at_k(sums, 5, level),
            "recall_10": metrics.true_recall_at_k(sums, 10, level) * n_positive.clamp(max=10) / n_positive,
        }
        for measure, values in ours.items():
            expected = [theirs[str(q)][measure] for q in range(200)]
            np.testing.assert_allclose(values.nan_to_num(0.0), expected, atol=1e-9, err_msg=measure)
    gains = {str(q): {str(i): 2 ** int(item) - 1 for i, item in enumerate(row)} for q, row in enumerate(ranked)}
    theirs = pytrec_eval.RelevanceEvaluator(gains, {"ndcg", "ndcg_cut.10"}).evaluate(runs)
    sums = ranking_statistics(ranked, 3, [10])
    for measure, values in (("ndcg", metrics.ndcg(sums)), ("ndcg_cut_10", metrics.ndcg_at_k(sums, 10))):
        expected = [theirs[str(q)][measure] for q in range(200)]
        np.testing.assert_allclose(values.nan_to_num(0.0), expected, atol=1e-9, err_msg=measure)


@pytest.mark.parametrize("block", [1, 20, 10**6])
def test_ahp_does_not_depend_on_the_block_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = torch.from_numpy(np.random.default_rng(block).choice(4, size=(5, 9)).astype(np.uint8))
    expected = [oracles.by_name(levels, 3, cutoffs=[1, 7]) for levels in ranked.tolist()]
    names = [name for name in expected[0] if name.startswith("AHP")]
    assert len(names) == 12
    monkeypatch.setattr(metrics, "_BLOCK", {"cpu": block})
    values = metric_values(ranked, 3, names, cutoffs=[1, 7])
    for name in names:
        np.testing.assert_allclose(values[name], [row[name] for row in expected], rtol=0, atol=1e-12, err_msg=name)


def test_excluded_items_change_only_the_number_of_irrelevant_ones() -> None:
    """Three ranked items, then two excluded ones: AHP ends with the ranked ones, HP@k beyond them has no value."""
    short, padded = (torch.tensor([levels], dtype=torch.uint8) for levels in ([2, 0, 1], [2, 0, 1, 0, 0]))
    n_ranked, names = torch.tensor([3]), all_names(2, [3])
    beyond = ["HP@4", "HP_WUP@4", "AHP@4", "WUP@4", "avg_hdist@4"]
    statistics = [ranking_statistics(short, 2), ranking_statistics(padded, 2, n_ranked=n_ranked)]
    assert [one.counts().tolist() for one in statistics] == [[[1, 1, 1]]] * 2
    assert ranking_statistics(padded, 2).counts().tolist() == [[3, 1, 1]]
    expected = metric_values(short, 2, names, cutoffs=[3])
    values = metric_values(padded, 2, [*names, *beyond], cutoffs=[3, 4], n_ranked=n_ranked)
    for name in names:
        np.testing.assert_array_equal(values[name], expected[name], err_msg=name)
    assert all(np.isnan(values[name]) for name in beyond)


def test_statistics_of_a_long_ranking_are_precise() -> None:
    """A million items, so that float32 sums would be off by far more."""
    rng = np.random.default_rng(0)
    levels = rng.choice(4, size=200_000, p=[0.5, 0.4, 0.0999, 0.0001]).astype(np.uint8)
    sums = summed(levels.tolist(), 3)
    rank = np.arange(1, len(levels) + 1)
    for level in (1, 2, 3):
        positive = levels >= level
        expected = (positive.cumsum() / rank)[positive].mean()
        assert metrics.average_precision(sums, level).item() == pytest.approx(expected, abs=1e-12)
    gains = 2.0**levels - 1
    expected = (gains / np.log2(1 + rank)).sum() / (np.sort(gains)[::-1] / np.log2(1 + rank)).sum()
    assert metrics.ndcg(sums).item() == pytest.approx(expected, abs=1e-12)


def test_cutoff_beyond_the_ranking() -> None:
    short, padded = summed([0, 1, 2], 2, [2, 9]), summed([0, 1, 2] + [0] * 6, 2, [2, 9])
    for metric in (
        metrics.map_at_k,
        metrics.true_recall_at_k,
        metrics.precision_at_k,
        metrics.recall_at_k,
        metrics.ndcg_at_k,
    ):
        assert metric(short, 9).item() == metric(padded, 9).item()
    assert metrics.precision_at_k(short, 9, level=1).item() == 2 / 9
    assert math.isnan(metrics.h_precision_at_k(short, 9).item())


SUMS = summed([0, 1, 2], 2, [3])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HAP", "H-AP"),
        ("h_ap", "H-AP"),
        ("map@r", "mAP@R"),
        ("map@100", "mAP@K"),
        ("ndcg", "NDCG"),
        ("ndcg@10", "NDCG@K"),
        ("ap_l2", "AP"),
        ("tr@1", "TR@K"),
        ("misstake-severity", "mistake_severity"),
    ],
)
def test_metrics_spelt_otherwise_are_asked_for(name: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"no metric '{name}' \(did you mean {meant}\?\); expected AP"):
        Metric.from_name(name, 3)


NO_METRIC = r"there is no metric .*expected AP, mAP@R, mAP@K.*H-AP_selfcount"
NO_LEVEL = r"no level {}; expected 1 \(coarsest\) to {} \(finest\)"
UNKNOWN = ("", "H", "map@r", "mAP@", "R@", "R@-1", "R@1.5", "AP@5", "AP_l", "AP_lx", "H-AP_l2", "NDCG_l1")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((partial(summed, [0, 1, 2], 2, [k, 2]), rf"`k` is {k}; expected 1 or more") for k in (0, -1)),
        (partial(metrics.recall_at_k, SUMS, 2), "the statistics have no cutoff 2; add it to `cutoffs`"),
        *((partial(metrics.average_precision, SUMS, n), NO_LEVEL.format(n, 2)) for n in (0, 3, -1)),
        (partial(metrics.ndcg, SUMS, by_level([0, 2, 1])), "falls from a level to a finer one"),
        (partial(metrics.ndcg, SUMS, torch.ones_like), "the gain is not 0 for level 0"),
        *((partial(Metric.from_name, name, 3), NO_METRIC) for name in (*UNKNOWN, "R@1_l2_l3", "ASI@3")),
        *(
            (partial(Metric.from_name, name, 3), f"there is {NO_LEVEL.format(level, 3)}")
            for name, level in (("AP_l0", 0), ("AP_l4", 4), ("mAP@10_l4", 4), ("R@1_l99", 99))
        ),
    ],
)
def test_what_has_no_value_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call()


def test_metric_without_a_level_is_that_of_the_finest() -> None:
    ranked = torch.tensor([[1, 0, 3, 2, 0, 3]], dtype=torch.uint8)
    names = ["AP", "mAP@R", "mAP@3", "R@3", "TR@3", "P@2"]
    values = metric_values(ranked, 3, [*names, *(f"{name}_l3" for name in names)], cutoffs=[2, 3])
    for name in names:
        assert values[name] == values[f"{name}_l3"]


@pytest.mark.parametrize("n_levels", [1, 3])
@pytest.mark.parametrize("n_ranked", [5, 99, 100])
def test_default_metrics_are_valid(n_levels: int, n_ranked: int) -> None:
    metrics = [Metric.from_name(name, n_levels) for name in default_metrics(n_levels, n_ranked)]
    assert all(metric.k is None or metric.k <= n_ranked for metric in metrics)
    assert ("mAP@100" in default_metrics(n_levels, n_ranked)) == (n_ranked >= 100)

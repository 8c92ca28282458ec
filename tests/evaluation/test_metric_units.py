"""Distances are shown in levels, and the lowest is the best."""

from __future__ import annotations

import math

from hgld.evaluation.metric_registry import METRICS
from hgld.evaluation.reports import results_to_latex, setting_notes
from hgld.evaluation.results import DISTANCES, goodness, is_distance
from tests.evaluation.sample_results import result


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
        result("a", dict(zip(metrics, (0.5, 2.25, 1.0), strict=True))),
        result("b", dict(zip(metrics, (0.4, 1.5, 2.0), strict=True))),
    ]
    table = results_to_latex(rows, metrics=metrics)
    assert r"a & \textbf{50.0} & \underline{2.2} & \textbf{1.0} \\" in table
    assert r"b & \underline{40.0} & \textbf{1.5} & \underline{2.0} \\" in table
    assert repr(rows[0]).startswith("a | H-AP 50.00 | mistake_severity 2.25 |")
    notes = setting_notes(rows)
    assert "mistake_severity, avg_hdist@5: in levels of the tree and not in %; lower is better." in notes

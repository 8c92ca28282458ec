"""Figures of coverage: written, with every name, value and interval that they are given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from hgld.compute.resampling import wilson
from hgld.figures import coverage
from hgld.figures.coverage import (
    Estimate,
    MetricPanel,
    RiskCoverageCurve,
    draw_detection,
    draw_risk_coverage,
)


def curve(title: str, risk_at_full: float = 0.5, *, n: int = 40) -> RiskCoverageCurve:
    shares = np.arange(1, n + 1) / n
    return RiskCoverageCurve(title, shares, risk_at_full * shares, n, risk_at_full / 2)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they are saved, in place of files."""
    figures: list[Figure] = []
    monkeypatch.setattr(coverage, "save", lambda figure, path: figures.append(figure))
    return figures


def points(figure: Figure, panel: int = 0) -> dict[str, Any]:
    """Return the coordinates of each line of a panel, shape (n, 2), by its name in the legend."""
    return {str(line.get_label()): np.asarray(line.get_xydata()) for line in figure.axes[panel].get_lines()}


def test_pictures_are_written(tmp_path: Path) -> None:
    panels = [MetricPanel("FPR95", {"near": [Estimate(0.2, (0.1, 0.3))], "far": [Estimate(math.nan)]}, True)]
    draw_risk_coverage(tmp_path / "risk.png", [curve("energy")], title="Washington")
    draw_detection(tmp_path / "detection.png", ["energy"], panels)
    for name in ("risk.png", "detection.png"):
        assert (tmp_path / name).stat().st_size > 2000


def test_curves_begin_with_enough_images_and_end_with_all(drawn: list[Figure]) -> None:
    draw_risk_coverage(Path("unused.png"), [curve("a"), curve("b", 0.4, n=5000)])
    lines = points(drawn[0])
    assert list(lines) == ["b: 0.200", "a: 0.250"]
    few, many = lines["a: 0.250"], lines["b: 0.200"]
    np.testing.assert_allclose(few, np.stack([np.arange(10, 41) / 40, np.arange(10, 41) / 80], axis=1))
    assert many[0].tolist() == [0.002, 0.4 * 0.002]
    assert many[-1].tolist() == [1, 0.4]
    assert len(many) <= 1000


def test_the_best_order_is_drawn_where_as_many_answers_are_right(drawn: list[Figure]) -> None:
    draw_risk_coverage(Path("unused.png"), [curve("a"), curve("b")])
    lines = points(drawn[0])
    best = lines["best possible order"]
    assert best[-1].tolist() == [1, 0.5]
    assert (best[best[:, 0] <= 0.5, 1] == 0).all()


def test_single_images_have_a_curve(drawn: list[Figure]) -> None:
    draw_risk_coverage(Path("unused.png"), [RiskCoverageCurve("a", np.ones(1), np.zeros(1), 1, 0.0)])
    assert points(drawn[0])["a: 0.000"].tolist() == [[1, 0]]


def test_each_score_has_a_row_with_points_and_intervals(drawn: list[Figure]) -> None:
    near = [Estimate(0.9, (0.8, 0.95)), Estimate(0.5)]
    far = [Estimate(0.99, (0.98, 1.0)), Estimate(0.7, (0.6, 0.8))]
    gap = MetricPanel("GAP", {"all": [Estimate(0.4), Estimate(0.3)]})
    draw_detection(Path("unused.png"), ["knn", "energy"], [gap, MetricPanel("AUROC", {"near": near, "far": far})])
    axes = drawn[0].axes
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["knn", "energy"]
    assert axes[0].get_ylim()[0] > axes[0].get_ylim()[1]  # the first row is at the top
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["all", "near", "far"]
    values = {kind: line[:, 0].tolist() for kind, line in points(drawn[0], 1).items()}
    assert values == {"near": [0.9, 0.5], "far": [0.99, 0.7]}
    (intervals, *_) = (lines for lines in axes[1].collections if isinstance(lines, LineCollection))
    ends = [np.asarray(segment)[:, 0].tolist() for segment in intervals.get_segments()]
    assert ends == [[0.8, 0.95], [0.5, 0.5]]


def test_interval_contains_the_share() -> None:
    count = np.arange(1, 200)
    for share in (np.zeros(199), np.ones(199), np.floor(count / 3) / count):
        low, high = wilson(share, count)
        assert (low <= share).all()
        assert (share <= high).all()
        assert (low >= -1e-12).all()
        assert (high <= 1 + 1e-12).all()

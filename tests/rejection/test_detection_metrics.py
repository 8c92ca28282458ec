"""Metrics of detection: golden values, scikit-learn, and slow oracles by their definitions."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from hgld.errors import InputError
from hgld.rejection.detection_metrics import (
    DETECTION_METRICS,
    detection_metrics,
    metrics_of_counts,
)

Floats = npt.NDArray[np.float64]
#: Our names by those of the golden values.
GOLDEN_NAMES = {
    "auroc": "auroc",
    "auroc_strict": "auroc_strict",
    "fpr95_id": "fpr95_known",
    "fpr95_ood": "fpr95_unknown",
    "aupr_out_ap": "aupr_unknown",
    "aupr_in_ap": "aupr_known",
    "aupr_out_trapz": "aupr_unknown_trapezoid",
    "aupr_in_trapz": "aupr_known_trapezoid",
    "det_acc": "detection_accuracy",
}
ANY_SCORES = st.lists(
    st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.25, 0.5, 1.0, math.inf]) | st.floats(allow_nan=False),
    min_size=1,
    max_size=30,
)
FINITE_SCORES = st.lists(st.integers(-4, 4).map(float) | st.floats(-1, 1, width=32), min_size=1, max_size=45)


def assert_metrics_equal(metrics: dict[str, float], expected: dict[str, float], tolerance: float) -> None:
    assert list(metrics) == list(DETECTION_METRICS)
    assert metrics == pytest.approx(expected, abs=tolerance, rel=0)


def test_golden_values(shared: Path) -> None:
    with np.load(shared / "golden_beyond" / "ood.npz") as golden:
        names = [GOLDEN_NAMES[name] for name in golden["metrics/names"]]
        scores, sets = golden["metrics/scores"], golden["metrics/sets"]
        assert len(scores) == 28
        assert len(sets) == 3
        for row, score in enumerate(scores):
            near, far = golden[f"scores/{score}/near"], golden[f"scores/{score}/far"]
            for column, unknown in enumerate((near, far, np.concatenate([near, far]))):
                expected = dict(zip(names, golden["metrics/values"][row, column], strict=True))
                assert_metrics_equal(detection_metrics(golden[f"scores/{score}/id"], unknown), expected, 1e-12)
        expected = dict(zip(names, golden["ties/values"], strict=True))
        assert_metrics_equal(detection_metrics(golden["ties/id"], golden["ties/ood"]), expected, 1e-12)


def ranks(known: list[float], unknown: list[float]) -> tuple[Floats, Floats]:
    """Replace scores by whole numbers of the same order, which scikit-learn takes where it refuses infinities."""
    codes = np.unique([*known, *unknown], return_inverse=True)[1].astype(float)
    return codes[: len(known)], codes[len(known) :]


def sklearn_metrics(known: list[float], unknown: list[float]) -> dict[str, float]:
    scores = np.concatenate(ranks(known, unknown))
    is_unknown = np.repeat([False, True], [len(known), len(unknown)])
    metrics = {"auroc": roc_auc_score(is_unknown, scores)}
    rates, found, _ = roc_curve(is_unknown, scores, drop_intermediate=False)
    metrics["fpr95_unknown"] = rates[np.argmax(found >= 0.95)]
    metrics["detection_accuracy"] = ((found + 1 - rates) / 2).max()
    for name, positive, confidence in (("known", ~is_unknown, -scores), ("unknown", is_unknown, scores)):
        metrics[f"aupr_{name}"] = average_precision_score(positive, confidence)
        precision, recall, _ = precision_recall_curve(positive, confidence)
        metrics[f"aupr_{name}_trapezoid"] = auc(recall, precision)
    return {name: float(value) for name, value in metrics.items()}


@given(ANY_SCORES, ANY_SCORES)
def test_scikit_learn_agrees(known: list[float], unknown: list[float]) -> None:
    metrics, expected = detection_metrics(known, unknown), sklearn_metrics(known, unknown)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-12)


@given(ANY_SCORES, ANY_SCORES)
def test_pairs_in_the_right_order_are_counted(known: list[float], unknown: list[float]) -> None:
    right = sum(low < high for low in known for high in unknown) / (len(known) * len(unknown))
    ties = sum(low == high for low in known for high in unknown) / (len(known) * len(unknown))
    metrics = detection_metrics(known, unknown)
    assert metrics["auroc_strict"] == pytest.approx(right, abs=1e-12)
    assert metrics["auroc"] == pytest.approx(right + ties / 2, abs=1e-12)


@given(FINITE_SCORES, FINITE_SCORES)
def test_fpr95_known_is_the_share_below_numpys_percentile(known: list[float], unknown: list[float]) -> None:
    expected = np.mean(np.array(unknown) < np.percentile(known, 95))
    assert detection_metrics(known, unknown)["fpr95_known"] == expected


@given(ANY_SCORES, ANY_SCORES)
def test_infinite_scores_are_only_very_low_or_high_ones(known: list[float], unknown: list[float]) -> None:
    metrics, of_ranks = detection_metrics(known, unknown), detection_metrics(*ranks(known, unknown))
    for name in set(DETECTION_METRICS) - {"fpr95_known"}:  # a percentile depends on more than the order
        assert metrics[name] == of_ranks[name]
    threshold = sorted(known)[math.ceil(0.95 * (len(known) - 1))]
    assert 0 <= metrics["fpr95_known"] <= np.mean(np.array(unknown) < threshold)


@pytest.mark.parametrize(
    ("known", "unknown", "expected"),
    [
        ([-math.inf], [math.inf], 0.0),
        ([-math.inf, math.inf], [0.0, 1.0], 1.0),
        ([math.inf, math.inf], [0.0, math.inf], 0.5),
        ([-math.inf, 0.0], [-math.inf, -5.0, 0.0], 2 / 3),
    ],
)
def test_percentiles_between_infinities(known: list[float], unknown: list[float], expected: float) -> None:
    assert detection_metrics(known, unknown)["fpr95_known"] == pytest.approx(expected)


def test_sets_of_different_sizes_are_measured_together() -> None:
    rng = np.random.default_rng(0)
    values = np.array([-np.inf, -0.3, 0.1, 0.2, 1.0, np.inf])
    known, unknown = rng.integers(4, size=(2, 30, 6))
    known[0], unknown[1] = 0, 0
    together = metrics_of_counts(values, known, unknown)
    assert list(together) == list(DETECTION_METRICS)
    for name, measured in together.items():
        assert np.isnan(measured[:2]).all(), name
        assert not np.isnan(measured[2:]).any(), name
    for row in range(2, 30):
        apart = detection_metrics(np.repeat(values, known[row]), np.repeat(values, unknown[row]))
        assert {name: measured[row] for name, measured in together.items()} == pytest.approx(apart, abs=1e-12)


def test_wrong_scores_are_one_line() -> None:
    wrong: tuple[tuple[Any, Any, str], ...] = (
        ([], [1.0], "`known` is empty"),
        ([1.0], np.empty(0), "`unknown` is empty"),
        ([1.0, math.nan, math.nan], [1.0], "`known` has 2 NaN of 3 scores, the first at position 1"),
        ([1.0], [[1.0]], r"`unknown` has the shape \(1, 1\)"),
        ([True], [1.0], "type bool"),
        (["a"], [1.0], "expected numbers"),
    )
    for known, unknown, message in wrong:
        with pytest.raises(InputError, match=message) as caught:
            detection_metrics(known, unknown)
        assert "\n" not in str(caught.value)


@pytest.mark.slow  # importing the package takes seconds
def test_pytorch_ood_agrees_and_so_has_the_convention_of_fpr95_unknown() -> None:
    from pytorch_ood.metrics import OODMetrics

    rng = np.random.default_rng(0)
    known, unknown = rng.normal(size=300).round(1), rng.normal(1.5, 2, size=120).round(1)
    labels = torch.tensor([1] * len(known) + [-1] * len(unknown))
    theirs = OODMetrics().update(torch.from_numpy(np.concatenate([known, unknown])), labels).compute()
    metrics = detection_metrics(known, unknown)
    names = {
        "AUROC": "auroc",
        "FPR95TPR": "fpr95_unknown",
        "AUPR-IN": "aupr_known_trapezoid",
        "AUPR-OUT": "aupr_unknown_trapezoid",
    }
    assert {name: metrics[ours] for name, ours in names.items()} == pytest.approx(
        {name: float(theirs[name]) for name in names}, abs=1e-12
    )

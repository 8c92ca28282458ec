"""AP_e and operating regions against loops over the definitions of Smooth-AP."""

import math

import pytest
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.losses import Heaviside, Sigmoid, Step, SupRankStep, suprank_step
from hgld.losses.diagnosis import ap_errors, operating_intervals, operating_shares
from tests.losses.batches import LABELS, class_vectors, unit_vectors

X = class_vectors(LABELS)
STEPS: list[Step] = [
    Sigmoid(0.001),
    Sigmoid(0.01),
    Sigmoid(0.3),
    suprank_step("eq4"),
    suprank_step("cfginat", tau=0.1),
    SupRankStep(rho=0),
]


def slow_average_precision(scores: torch.Tensor, positives: list[int], others: list[int], step: Step) -> float:
    """Return AP with a sigmoid for all steps, or H^- for the steps of negatives and exact ones for positives."""
    total = 0.0
    for k in positives:
        steps = {j: (scores[j] - scores[k]) for j in others if j != k}
        plus_step: Step = step if isinstance(step, Sigmoid) else Heaviside()
        plus = 1 + sum(float(plus_step.value(t)) for j, t in steps.items() if j in positives)
        minus = sum(float(step.value(t)) for j, t in steps.items() if j not in positives)
        total += plus / (plus + minus)
    return total / len(positives)


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_errors_of_ap_agree_with_loops(step: Step) -> None:
    expected = []
    for q in range(len(X)):
        others = [j for j in range(len(X)) if j != q]
        positives = [j for j in others if LABELS[j] == LABELS[q]]
        if positives:
            values = [slow_average_precision(X @ X[q], positives, others, each) for each in (step, Heaviside())]
            expected.append(abs(values[0] - values[1]))
    assert ap_errors(X, LABELS, step).tolist() == pytest.approx(expected, abs=1e-9)


def test_lower_temperatures_approximate_ap_better() -> None:
    """Brown et al., Fig. 4."""
    labels = torch.arange(20).repeat_interleave(4)
    x = unit_vectors(80, dim=16)
    errors = [float(ap_errors(x, labels, Sigmoid(tau)).mean()) for tau in (0.1, 0.01, 0.001, 0.0001)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 10 * errors[-1]


@pytest.mark.parametrize("threshold", [0.005, 2.0])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_shares_in_the_operating_region_agree_with_loops(step: Step, threshold: float) -> None:
    n = len(X)
    differences = torch.stack([s[:, None] - s[None, :] for s in X @ X.T])  # query, j, k
    steep = step.slope(differences.clone()) > threshold
    ranked = torch.zeros_like(steep)
    for q in range(n):
        for k in range(n):
            for j in range(n):
                ranked[q, j, k] = k != q and LABELS[k] == LABELS[q] and LABELS[j] != LABELS[q]
    wrong = ranked & (differences > 0)
    shares = operating_shares(X, LABELS, step, threshold=threshold)
    assert shares.pairs == pytest.approx(float(steep.double().mean()), abs=1e-12)
    assert shares.ranked_negatives == pytest.approx(float(steep[ranked].double().mean()), abs=1e-12)
    assert shares.wrong_negatives == pytest.approx(float(steep[wrong].double().mean()), abs=1e-12)


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_intervals_are_where_the_slope_exceeds_the_threshold(step: Step) -> None:
    t = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    inside = torch.zeros_like(t, dtype=torch.bool)
    for low, high in operating_intervals(step, 0.005):
        inside |= (t > low) & (t < high)
    assert torch.equal(inside, step.slope(t.clone()) > 0.005)


def test_suprank_reaches_all_negatives_that_are_ranked_wrongly_and_a_sigmoid_few() -> None:
    x, labels = unit_vectors(64, dim=16), torch.arange(16).repeat_interleave(4)
    assert operating_shares(x, labels, SupRankStep()).wrong_negatives == 1
    assert operating_shares(x, labels, Sigmoid()).wrong_negatives < 0.3


def test_a_perfect_ranking_has_gradients_between_equal_scores_only() -> None:
    x = torch.eye(4, dtype=torch.float64).repeat_interleave(3, 0)
    shares = operating_shares(x, torch.arange(4).repeat_interleave(3), Sigmoid())
    assert math.isnan(shares.wrong_negatives)
    assert shares.ranked_negatives == 0
    assert shares.pairs == pytest.approx((3 * 3 + 9 * 9) / 12**2)


def test_what_has_no_region_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="`threshold` is 0; expected more than 0"):
        operating_intervals(Sigmoid(), 0)
    with pytest.raises(ConfigurationError, match="has no operating region"):
        operating_shares(X, LABELS, Heaviside())
    with pytest.raises(InputError, match="none of 8 queries has both a positive and a negative"):
        operating_shares(X, torch.arange(8), Sigmoid())
    assert operating_intervals(Sigmoid(100.0)) == []

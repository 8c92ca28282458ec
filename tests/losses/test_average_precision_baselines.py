from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from hgld.errors import ConfigurationError, InputError
from hgld.losses import BlackBoxAP, FastAP, SoftBinAP

LABELS = torch.tensor([[0], [0], [1], [1], [1], [2], [0], [3]])
REFERENCE_LABELS = torch.tensor([[0], [1], [1], [5], [6], [0]])


def unit(n: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(n, dim, dtype=torch.float64, generator=generator))


def soft_bin_ap(scores: list[float], positives: list[bool], n_bins: int) -> float:
    """1 - AP of one query's histogram, bin by bin."""
    width = 2 / (n_bins - 1)
    found, seen, total = 0.0, 0.0, 0.0
    for b in range(n_bins):
        shares = [max(0.0, 1 - abs(score - (1 - b * width)) / width) for score in scores]
        here = sum(share for share, positive in zip(shares, positives, strict=True) if positive)
        found, seen = found + here, seen + sum(shares)
        total += here * found / seen if seen else 0.0
    return 1 - total / sum(positives)


@pytest.mark.parametrize(
    ("loss", "n_bins"), [(SoftBinAP(), 20), (SoftBinAP(7, include_query=False), 7), (SoftBinAP(2), 2), (FastAP(), 11)]
)
def test_histograms_agree_with_loops(loss: SoftBinAP, n_bins: int) -> None:
    x, references = unit(8), unit(6, seed=1)
    for others, of_others in ((x, LABELS), (references, REFERENCE_LABELS)):
        expected = []
        for i in range(8):
            kept = [j for j in range(len(others)) if others is references or loss.include_query or i != j]
            positives = [bool(LABELS[i, 0] == of_others[j, 0]) for j in kept]
            if any(positives):
                scores = [min(1.0, float(x[i] @ others[j])) for j in kept]
                expected.append(soft_bin_ap(scores, positives, n_bins))
        given = () if others is x else (others, of_others)
        assert loss(x, LABELS, *given).item() == pytest.approx(sum(expected) / len(expected), abs=1e-12)


def test_fast_ap_is_that_of_pytorch_metric_learning() -> None:
    from pytorch_metric_learning import losses

    x = unit(8)
    expected = losses.FastAPLoss(5)(x, LABELS[:, 0])
    assert FastAP(5)(x, LABELS).item() == pytest.approx(expected.item(), abs=1e-12)


@pytest.mark.parametrize("loss", [SoftBinAP(6, include_query=False), FastAP(5)])
def test_gradients_of_histograms(loss: SoftBinAP) -> None:
    x, references = unit(8).requires_grad_(), unit(6, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, LABELS), x)
    assert torch.autograd.gradcheck(lambda x, y: loss(x, LABELS, y, REFERENCE_LABELS), (x, references))


def test_a_perfect_ranking_in_bins_of_its_own_costs_nothing() -> None:
    x = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 1, 2, 2]].requires_grad_()
    value = SoftBinAP(5)(x, torch.tensor([[0], [0], [1], [1], [2], [2]]))
    value.backward()
    assert value.item() == pytest.approx(0)
    assert x.grad is not None
    assert x.grad.isfinite().all()


def black_box_in_loops(scores: list[float], positives: list[bool], lambda_: float, n_queries: int) -> Any:
    """1 - AP of one query, and its gradient by the scores."""

    def ranks(values: list[float]) -> list[float]:
        return [sum(other >= value for other in values) / len(values) for value in values]

    n_positives, before = sum(positives), ranks(scores)
    among = [
        sum(other >= score for other, positive in zip(scores, positives, strict=True) if positive) / len(scores)
        for score in scores
    ]
    loss = 1 - sum(a / r for a, r, p in zip(among, before, positives, strict=True) if p) / n_positives
    by_rank = [
        a / r**2 / n_positives / n_queries if p else 0.0 for a, r, p in zip(among, before, positives, strict=True)
    ]
    after = ranks([score + lambda_ * slope for score, slope in zip(scores, by_rank, strict=True)])
    return loss, [-(r - moved) / lambda_ for r, moved in zip(before, after, strict=True)]


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_black_box_agrees_with_loops(margin: float) -> None:
    x = unit(8).requires_grad_()
    references = unit(6, seed=1)
    torch.manual_seed(5)
    value = BlackBoxAP(lambda_=2.0, margin=margin)(x, LABELS, references, REFERENCE_LABELS)
    value.backward()

    torch.manual_seed(5)
    noise = torch.randn(8, 6, dtype=torch.float64).abs()
    positives = LABELS == REFERENCE_LABELS.T
    scores = x.detach() @ references.T - margin * noise * (positives.double() - 0.5)
    answered = [i for i in range(8) if positives[i].any()]
    rows = {i: black_box_in_loops(scores[i].tolist(), positives[i].tolist(), 2.0, len(answered)) for i in answered}
    assert value.item() == pytest.approx(sum(loss for loss, _ in rows.values()) / len(answered), abs=1e-12)
    by_score = torch.tensor([rows[i][1] if i in rows else [0.0] * 6 for i in range(8)], dtype=torch.float64)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, by_score @ references)
    assert by_score.any()


def test_black_box_draws_anew() -> None:
    x, loss = unit(8), BlackBoxAP(margin=0.5)
    torch.manual_seed(0)
    first, second = loss(x, LABELS), loss(x, LABELS)
    torch.manual_seed(0)
    assert loss(x, LABELS) == first != second


@pytest.mark.parametrize("loss", [SoftBinAP(), FastAP(), BlackBoxAP()])
def test_no_positives_at_all(loss: Any) -> None:
    with pytest.raises(
        InputError, match="none of 2 queries has a positive; batches .* two or more images of a class"
    ):
        loss(unit(2), torch.tensor([[0], [1]]), unit(2), torch.tensor([[2], [3]]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SoftBinAP(1), "`n_bins` is 1; expected at least 2"),
        (lambda: FastAP(0), "`n_bins` is 0; expected at least 1"),
        (lambda: BlackBoxAP(0), "`lambda_` is 0"),
        (lambda: BlackBoxAP(margin=-1), "`margin` -1"),
    ],
)
def test_settings_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()

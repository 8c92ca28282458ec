"""SoftBin-AP, its special case FastAP, and BlackBox-AP."""

import pytest
import torch

from hgld.losses import BlackBoxAP, FastAP, SoftBinAP
from tests.losses.batches import LABELS, REFERENCE_LABELS, gradient, unit_vectors


def soft_bin_ap(scores: list[float], positives: list[bool], n_bins: int) -> float:
    """Return 1 - AP of one query's histogram, bin by bin."""
    width = 2 / (n_bins - 1)
    hits, seen, total = 0.0, 0.0, 0.0
    for b in range(n_bins):
        shares = [max(0.0, 1 - abs(score - (1 - b * width)) / width) for score in scores]
        bin_hits = sum(share for share, positive in zip(shares, positives, strict=True) if positive)
        hits, seen = hits + bin_hits, seen + sum(shares)
        total += bin_hits * hits / seen if seen else 0.0
    return 1 - total / sum(positives)


@pytest.mark.parametrize(
    ("loss", "n_bins"), [(SoftBinAP(), 20), (SoftBinAP(7, include_query=False), 7), (SoftBinAP(2), 2), (FastAP(), 11)]
)
def test_values_agree_with_loops(loss: SoftBinAP, n_bins: int) -> None:
    x, references = unit_vectors(8), unit_vectors(6, seed=1)
    for items, item_labels in ((x, LABELS), (references, REFERENCE_LABELS)):
        expected = []
        for i in range(8):
            kept = [j for j in range(len(items)) if items is references or loss.include_query or i != j]
            positives = [bool(LABELS[i, 0] == item_labels[j, 0]) for j in kept]
            if any(positives):
                scores = [min(1.0, float(x[i] @ items[j])) for j in kept]
                expected.append(soft_bin_ap(scores, positives, n_bins))
        given = () if items is x else (items, item_labels)
        assert loss(x, LABELS, *given).item() == pytest.approx(sum(expected) / len(expected), abs=1e-12)


def test_fast_ap_agrees_with_pytorch_metric_learning() -> None:
    from pytorch_metric_learning import losses

    x = unit_vectors(8)
    expected = losses.FastAPLoss(5)(x, LABELS[:, 0])
    assert FastAP(5)(x, LABELS).item() == pytest.approx(expected.item(), abs=1e-12)


@pytest.mark.parametrize("loss", [SoftBinAP(6, include_query=False), FastAP(5)])
def test_gradients_agree_with_finite_differences(loss: SoftBinAP) -> None:
    x, references = unit_vectors(8).requires_grad_(), unit_vectors(6, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, LABELS), x)
    assert torch.autograd.gradcheck(lambda x, y: loss(x, LABELS, y, REFERENCE_LABELS), (x, references))


def test_perfect_ranking_in_separate_bins_has_no_loss() -> None:
    x = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 1, 2, 2]].requires_grad_()
    value = SoftBinAP(5)(x, torch.tensor([[0], [0], [1], [1], [2], [2]]))
    assert value.item() == pytest.approx(0)
    assert gradient(value, x).isfinite().all()


def blackbox_ap(
    scores: list[float], positives: list[bool], lambda_: float, n_queries: int
) -> tuple[float, list[float]]:
    """Return 1 - AP of one query, and its gradient by the scores."""

    def ranks(values: list[float]) -> list[float]:
        return [sum(other >= value for other in values) / len(values) for value in values]

    n_positives, before = sum(positives), ranks(scores)
    among_positives = [
        sum(other >= score for other, positive in zip(scores, positives, strict=True) if positive) / len(scores)
        for score in scores
    ]
    items = list(zip(among_positives, before, positives, strict=True))
    loss = 1 - sum(a / r for a, r, positive in items if positive) / n_positives
    grad_ranks = [a / r**2 / n_positives / n_queries if positive else 0.0 for a, r, positive in items]
    after = ranks([score + lambda_ * gradient for score, gradient in zip(scores, grad_ranks, strict=True)])
    return loss, [-(r - moved) / lambda_ for r, moved in zip(before, after, strict=True)]


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_values_and_gradients_agree_with_loops(margin: float) -> None:
    x = unit_vectors(8).requires_grad_()
    references = unit_vectors(6, seed=1)
    torch.manual_seed(5)
    value = BlackBoxAP(lambda_=2.0, margin=margin)(x, LABELS, references, REFERENCE_LABELS)
    torch.manual_seed(5)
    noise = torch.randn(8, 6, dtype=torch.float64).abs()
    positives = LABELS == REFERENCE_LABELS.T
    scores = x.detach() @ references.T - margin * noise * (positives.double() - 0.5)
    valid = [i for i in range(8) if positives[i].any()]
    expected = {i: blackbox_ap(scores[i].tolist(), positives[i].tolist(), 2.0, len(valid)) for i in valid}
    assert value.item() == pytest.approx(sum(loss for loss, _ in expected.values()) / len(valid), abs=1e-12)
    grad_scores = torch.tensor(
        [expected[i][1] if i in expected else [0.0] * 6 for i in range(8)], dtype=torch.float64
    )
    torch.testing.assert_close(gradient(value, x), grad_scores @ references)
    assert grad_scores.any()


def test_each_call_draws_new_noise() -> None:
    x, loss = unit_vectors(8), BlackBoxAP(margin=0.5)
    torch.manual_seed(0)
    first, second = loss(x, LABELS), loss(x, LABELS)
    torch.manual_seed(0)
    assert loss(x, LABELS) == first != second

import pytest
import torch

from hgld.losses import BlackBoxAP
from tests.losses.batches import LABELS, REFERENCE_LABELS, unit_vectors


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
    value.backward()

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
    assert x.grad is not None
    torch.testing.assert_close(x.grad, grad_scores @ references)
    assert grad_scores.any()


def test_each_call_draws_new_noise() -> None:
    x, loss = unit_vectors(8), BlackBoxAP(margin=0.5)
    torch.manual_seed(0)
    first, second = loss(x, LABELS), loss(x, LABELS)
    torch.manual_seed(0)
    assert loss(x, LABELS) == first != second

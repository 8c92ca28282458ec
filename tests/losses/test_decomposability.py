import pytest
import torch
from torch.nn import functional

from hgld.losses import DecomposabilityLoss, ProxyLoss
from hgld.losses.decomposability import PairReduction
from tests.losses.batches import LABELS, unit_vectors

REFERENCES, REFERENCE_LABELS = unit_vectors(5, seed=2), torch.tensor([[0], [1], [1], [5], [6]])


def pair_loss(
    embeddings: torch.Tensor,
    references: torch.Tensor,
    reference_labels: torch.Tensor,
    reduction: PairReduction,
    *,
    exclude_query: bool = False,
) -> float:
    """Return L_DG by loops over Eq. 7, for queries with ``LABELS``."""
    positive_terms, negative_terms, query_losses = [], [], []
    for i, query in enumerate(embeddings):
        terms: dict[bool, list[float]] = {True: [], False: []}
        for j, reference in enumerate(references):
            if exclude_query and i == j:
                continue
            score, positive = float(query @ reference), bool(LABELS[i, 0] == reference_labels[j, 0])
            terms[positive].append(max(0.0, 0.9 - score if positive else score - 0.6))
        positive_terms += terms[True]
        negative_terms += terms[False]
        query_losses.append(sum(sum(losses) / max(1, len(losses)) for losses in terms.values()))
    if reduction == "query_mean":
        return sum(query_losses) / len(query_losses)
    return sum(sum(losses) / max(1, sum(loss > 0 for loss in losses)) for losses in (positive_terms, negative_terms))


@pytest.mark.parametrize("reduction", ["query_mean", "violating"])
@pytest.mark.parametrize("include_query", [True, False])
def test_pair_loss_agrees_with_loops(reduction: PairReduction, include_query: bool) -> None:
    x = functional.normalize(unit_vectors(8) + unit_vectors(4, seed=1)[LABELS[:, 0]])
    loss = DecomposabilityLoss(reduction=reduction, include_query=include_query)
    within_batch = pair_loss(x, x, LABELS, reduction, exclude_query=not include_query)
    assert loss(x, LABELS).item() == pytest.approx(within_batch, abs=1e-12)
    against_references = pair_loss(x, REFERENCES, REFERENCE_LABELS, reduction)
    assert loss(x, LABELS, REFERENCES, REFERENCE_LABELS).item() == pytest.approx(against_references, abs=1e-12)


@pytest.mark.parametrize("reduction", ["query_mean", "violating"])
def test_gradients_of_the_pair_loss_agree_with_finite_differences(reduction: PairReduction) -> None:
    loss = DecomposabilityLoss(reduction=reduction)
    x = unit_vectors(8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, LABELS), x)
    assert torch.autograd.gradcheck(
        lambda x, references: loss(x, LABELS, references, REFERENCE_LABELS), (x, REFERENCES.clone().requires_grad_())
    )


def test_gradients_of_the_proxy_loss_agree_with_finite_differences() -> None:
    loss = ProxyLoss(4, 6).double()

    def value(x: torch.Tensor, proxies: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.func.functional_call(loss, {"proxies": proxies}, (x, LABELS))
        return result

    assert torch.autograd.gradcheck(value, (unit_vectors(8).requires_grad_(), loss.proxies.detach().requires_grad_()))


def test_proxy_loss_agrees_with_norm_softmax_of_pytorch_metric_learning() -> None:
    from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

    loss, other = ProxyLoss(4, 6).double(), NormalizedSoftmaxLoss(4, 6, temperature=0.05)
    other.W.data = loss.proxies.data.T.clone()
    x = unit_vectors(8)
    assert loss(x, LABELS).item() == pytest.approx(other(x, LABELS[:, 0]).item(), abs=1e-12)


def test_proxies_are_uniform_at_first_and_ignore_references() -> None:
    torch.manual_seed(0)
    loss = ProxyLoss(100, 16)
    assert loss.proxies.abs().max() <= 0.25
    assert loss.proxies.std().item() == pytest.approx(0.5 / 12**0.5, rel=0.05)
    x = unit_vectors(8, 16)
    assert loss(x, LABELS) == loss(x, LABELS, unit_vectors(3, 16, seed=1), LABELS[:3])
    assert loss.reference_part() is None


def test_half_precision_is_computed_in_float32() -> None:
    x = unit_vectors(8).float()
    for loss in (DecomposabilityLoss(), ProxyLoss(4, 6)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(x, LABELS)
        assert value.dtype == torch.float32
        assert value == loss(x, LABELS)
    references, reference_labels = REFERENCES.half(), LABELS[:5]
    loss = DecomposabilityLoss()
    assert loss(x, LABELS, references, reference_labels) == loss(x, LABELS, references.float(), reference_labels)

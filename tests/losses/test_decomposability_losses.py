from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from hgld.errors import ConfigurationError, InputError
from hgld.losses import DecomposabilityLoss, ProxyLoss


def unit(n: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(n, dim, dtype=torch.float64, generator=generator))


LABELS = torch.tensor([[0], [0], [1], [1], [1], [2], [0], [3]])


def in_loops(
    embeddings: torch.Tensor, labels: torch.Tensor, references: torch.Tensor, of_references: torch.Tensor, **how: Any
) -> float:
    """Eq. 7 as it is read; ``how`` has the reduction, and whether references are the queries and left out."""
    near, far, per_query = [], [], []
    for i, query in enumerate(embeddings):
        of_query: dict[bool, list[float]] = {True: [], False: []}
        for j, reference in enumerate(references):
            if how.get("leave_out") and i == j:
                continue
            score, positive = float(query @ reference), bool(labels[i, 0] == of_references[j, 0])
            of_query[positive].append(max(0.0, 0.9 - score if positive else score - 0.6))
        near += of_query[True]
        far += of_query[False]
        per_query.append(sum(sum(losses) / max(1, len(losses)) for losses in of_query.values()))
    if how["reduction"] == "query_mean":
        return sum(per_query) / len(per_query)
    return sum(sum(losses) / max(1, sum(loss > 0 for loss in losses)) for losses in (near, far))


@pytest.mark.parametrize("reduction", ["query_mean", "violating"])
@pytest.mark.parametrize("include_query", [True, False])
def test_pairs_agree_with_loops(reduction: Any, include_query: bool) -> None:
    x = functional.normalize(unit(8) + unit(4, seed=1)[LABELS[:, 0]])
    loss = DecomposabilityLoss(reduction=reduction, include_query=include_query)
    alone = in_loops(x, LABELS, x, LABELS, reduction=reduction, leave_out=not include_query)
    assert loss(x, LABELS).item() == pytest.approx(alone, abs=1e-12)
    references, of_references = unit(5, seed=2), torch.tensor([[0], [1], [1], [5], [6]])
    against = in_loops(x, LABELS, references, of_references, reduction=reduction)
    assert loss(x, LABELS, references, of_references).item() == pytest.approx(against, abs=1e-12)


@pytest.mark.parametrize("reduction", ["query_mean", "violating"])
def test_gradients_of_pairs(reduction: Any) -> None:
    loss = DecomposabilityLoss(reduction=reduction)
    references, of_references = unit(5, seed=2), torch.tensor([[0], [1], [1], [5], [6]])
    x = unit(8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, LABELS), x)
    assert torch.autograd.gradcheck(
        lambda x, references: loss(x, LABELS, references, of_references), (x, references.requires_grad_())
    )


def test_gradients_of_proxies() -> None:
    loss = ProxyLoss(4, 6).double()

    def value(x: torch.Tensor, proxies: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(loss, {"proxies": proxies}, (x, LABELS))

    assert torch.autograd.gradcheck(value, (unit(8).requires_grad_(), loss.proxies.detach().requires_grad_()))


def test_proxies_are_those_of_normalised_softmax() -> None:
    from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

    loss, other = ProxyLoss(4, 6).double(), NormalizedSoftmaxLoss(4, 6, temperature=0.05)
    other.W.data = loss.proxies.data.T.clone()
    x = unit(8)
    assert loss(x, LABELS).item() == pytest.approx(other(x, LABELS[:, 0]).item(), abs=1e-12)


def test_proxies_begin_uniform_and_look_at_no_references() -> None:
    torch.manual_seed(0)
    loss = ProxyLoss(100, 16)
    assert loss.proxies.abs().max() <= 0.25
    assert loss.proxies.std().item() == pytest.approx(0.5 / 12**0.5, rel=0.05)
    x = unit(8, 16)
    assert loss(x, LABELS) == loss(x, LABELS, unit(3, 16, seed=1), LABELS[:3])
    assert loss.reference_part() is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DecomposabilityLoss(alpha=1.5), "cosines, -1 to 1"),
        (lambda: DecomposabilityLoss(reduction="mean"), "choose query_mean or violating"),  # type: ignore[arg-type]
        (lambda: ProxyLoss(0, 8), "at least 1 of each"),
        (lambda: ProxyLoss(4, 8, eta=0), "`eta` is 0; expected more than 0"),
    ],
)
def test_settings_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_classes_without_a_proxy() -> None:
    with pytest.raises(InputError, match=r"classes 0 to 3, but the loss has proxies for 0 to 2; number the"):
        ProxyLoss(3, 6)(unit(8), LABELS)
    with pytest.raises(InputError, match="`embeddings` have dimension 6, but the loss has proxies of dimension 5"):
        ProxyLoss(4, 5)(unit(8), LABELS)


def test_half_precision_is_worked_on_in_full() -> None:
    x = unit(8).float()
    for loss in (DecomposabilityLoss(), ProxyLoss(4, 6)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(x, LABELS)
        assert value.dtype == torch.float32
        assert value == loss(x, LABELS)
    references = unit(5, seed=2).half()
    of_references = LABELS[:5]
    loss = DecomposabilityLoss()
    assert loss(x, LABELS, references, of_references) == loss(x, LABELS, references.float(), of_references)

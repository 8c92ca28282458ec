"""ROADMAP, ROD-R@k, HAPPIER and ROD-NDCG."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hgld.losses import (
    DecomposabilityLoss,
    Loss,
    ProxyLoss,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    WeightedSum,
    happier,
    roadmap,
    rod_ndcg,
    rod_recall,
    suprank_step,
)
from tests.losses.batches import unit_vectors
from tests.losses.golden import expect_close, read_golden, tensor

LABELS = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 0], [2, 1, 0], [3, 2, 1], [3, 2, 1]])
STEP = suprank_step("cfg144")
Make = Callable[[ProxyLoss], WeightedSum]


@pytest.mark.parametrize(
    ("make", "rank_loss", "name"),
    [
        (lambda p: roadmap(p, 0.3, step=STEP, include_query=False), SupAP(step=STEP, include_query=False), "sup_ap"),
        (lambda p: rod_recall(p, 0.3, ks=(2,), tau_star=0.5), SupRecall((2,), 0.5), "sup_recall"),
        (lambda p: happier(p, 0.3, alpha=3.0, step=STEP), SupHAP(3.0, step=STEP), "sup_hap"),
        (lambda p: rod_ndcg(p, 0.3, include_query=False), SupNDCG(include_query=False), "sup_ndcg"),
    ],
)
@pytest.mark.parametrize("decomposability", [ProxyLoss(4, 6).double(), DecomposabilityLoss()])
def test_decomposable_losses_are_weighted_sums(
    make: Callable[[Loss], WeightedSum], rank_loss: Loss, name: str, decomposability: Loss
) -> None:
    x = unit_vectors(8)
    loss = make(decomposability)
    rank_value, gap_value = rank_loss(x, LABELS), decomposability(x, LABELS)
    assert loss(x, LABELS).item() == pytest.approx(0.7 * rank_value.item() + 0.3 * gap_value.item(), abs=1e-12)
    assert loss.parts == {name: rank_value, "decomposability": gap_value}
    assert not any(part.requires_grad for part in loss.parts.values())


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("happier_cfg144_lambda0.1", lambda p: happier(p, 0.1, step=STEP)),
        ("happierF_cfg144_lambda0.5", lambda p: happier(p, 0.5, alpha=5.0, step=STEP)),
        ("roadmap_pp_cfg144_lambda0.1", lambda p: roadmap(p, 0.1, step=STEP)),
    ],
)
@pytest.mark.parametrize(("source", "dtype"), [("official_f64", torch.float64), ("official", torch.float32)])
def test_agreement_with_the_published_code(
    shared: Path, key: str, make: Make, source: str, dtype: torch.dtype
) -> None:
    golden = read_golden(shared)
    proxies = ProxyLoss(16, 32).to(dtype)
    proxies.proxies.data = tensor(golden["proxies"], dtype)
    x = tensor(golden["x"], dtype).requires_grad_()
    value = make(proxies)(x, tensor(golden["labels"]))
    grad_x, grad_proxies = torch.autograd.grad(value, (x, proxies.proxies))
    # in float64, too, the published code has relevances in float32
    atol = 1e-8 if dtype == torch.float64 else 1e-5
    expect_close(value, golden[f"{source}/{key}/value"], atol)
    expect_close(grad_x, golden[f"{source}/{key}/grad"], atol)
    expect_close(grad_proxies, golden[f"{source}/{key}/grad_proxies"], atol)

"""Values and gradients of independent implementations, for the losses that are not rank losses."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hgld.losses import (
    CSL,
    ArcFace,
    BlackBoxAP,
    ContrastiveLoss,
    DecomposabilityLoss,
    FastAP,
    Loss,
    ProxyLoss,
    ProxyNCAPP,
    SoftBinAP,
    TripletLoss,
    XBMContrastive,
)
from tests.losses.golden import Arrays, expect_close, read_golden, references, tensor

LOSSES: dict[str, Callable[[], Loss]] = {
    "LDG_eq7_a0.9_b0.6": DecomposabilityLoss,
    "calibration_a0.9_b0.6": lambda: DecomposabilityLoss(reduction="violating"),
    "calibration_a0.9_b0.6 by contrastive": lambda: ContrastiveLoss(0.9, 0.6),
    "calibration_a0.9_b0.6_memory": lambda: DecomposabilityLoss(reduction="violating"),
    "triplet_all_m.05": lambda: TripletLoss(mining="all"),
    "triplet_pml_all_semihard_m.05": TripletLoss,
    "triplet_pml_easypos_semihardneg_m.05": lambda: TripletLoss(mining="easy_positive"),
    "xbm_contrastive_m0.5": XBMContrastive,
    "xbm_contrastive_m0.5_memory": XBMContrastive,
    "fastap_10bins": FastAP,
    "softbinap_20": SoftBinAP,
}
WITH_PROXIES: dict[str, Callable[[torch.Tensor], Loss]] = {
    "cluster_eta0.05": lambda _: ProxyLoss(16, 32),
    "cluster_eta0.1": lambda _: ProxyLoss(16, 32, eta=0.1),
    "proxynca_pp_scale3": lambda _: ProxyNCAPP(16, 32),
    "arcface_s30_m0.5": lambda _: ArcFace(16, 32),
    "arcface_s30_m0.3": lambda _: ArcFace(16, 32, margin=0.3),
    "csl_m.25-.35-.45_s32": lambda classes: CSL(classes, 32),
    "csl_m.25_s32_L1": lambda classes: CSL(classes[:, :1], 32),
}
#: Implementations that normalise embeddings again, which removes the component of the gradient along them.
RENORMALISED = ("calibration", "triplet", "fastap", "arcface", "proxynca")
TOLERANCES = {"paper": 1e-9, "official_f64": 1e-9, "official": 1e-5}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Arrays:
    return read_golden(shared)


def gradient(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, parameter, retain_graph=True)[0]


def compare(golden: Arrays, name: str, loss: Loss, proxies: nn.Parameter | None = None) -> None:
    """Compare a loss with every source there is, each in its own precision."""
    key = name.split(" ")[0]
    sources = [source for source in TOLERANCES if f"{source}/{key}/value" in golden]
    assert sources
    levels = 1 if key.endswith("_L1") else 3
    for source in sources:
        atol = TOLERANCES[source]
        dtype = torch.float32 if source == "official" else torch.float64
        x = tensor(golden["x"], dtype).requires_grad_()
        embeddings = functional.normalize(x) if key.startswith(RENORMALISED) else x
        given = references(golden, dtype) if key.endswith("_memory") else ()
        value = loss(embeddings, tensor(golden["labels"])[:, :levels], *given)
        assert value.dtype == dtype
        expect_close(value, golden[f"{source}/{key}/value"], atol)
        grad, expected = gradient(value, x), tensor(golden[f"{source}/{key}/grad"])
        if key == "softbinap_20":
            # Rounding decides whether a query's score with itself has a gradient, which is along the query.
            grad, expected = (each - (each * x).sum(1, keepdim=True) * x for each in (grad, expected))
        expect_close(grad, expected.detach().numpy(), atol)
        expected_proxies = golden.get(f"{source}/{key}/grad_proxies")
        if proxies is not None and expected_proxies is not None:
            grad_proxies = gradient(value, proxies)
            transposed = grad_proxies.shape != expected_proxies.shape
            expect_close(grad_proxies.T if transposed else grad_proxies, expected_proxies, atol)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_pairs_and_triplets(golden: Arrays, name: str) -> None:
    compare(golden, name, LOSSES[name]())


@pytest.mark.parametrize("name", WITH_PROXIES)
def test_losses_with_proxies(golden: Arrays, name: str) -> None:
    loss = WITH_PROXIES[name](tensor(np.unique(golden["labels"], axis=0)))
    (parameter,) = loss.parameters()
    proxies = tensor(golden["proxies_nca" if name.startswith("proxynca") else "proxies"]).double()
    parameter.data = proxies if parameter.shape == proxies.shape else proxies.T.contiguous()
    compare(golden, name, loss, parameter)


@pytest.mark.parametrize(("name", "margin"), [("blackboxap_l4_m.02", 0.02), ("blackboxap_l4_m0", 0.0)])
def test_blackbox_ap_with_recorded_noise(
    golden: Arrays, name: str, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "randn_like", lambda _: tensor(golden["bb_noise"]))
    compare(golden, name, BlackBoxAP(margin=margin))


def test_pair_loss_without_the_query_in_its_retrieval_set(golden: Arrays) -> None:
    x = tensor(golden["x"]).double().requires_grad_()
    value = DecomposabilityLoss(include_query=False)(x, tensor(golden["labels"]))
    key = "paper_selfout/LDG_eq7_a0.9_b0.6"
    expect_close(value, golden[f"{key}/value"], 1e-12)
    expect_close(gradient(value, x), golden[f"{key}/grad"], 1e-12)

"""Values and gradients of independent implementations, for the losses that are no rank losses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
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

Arrays = dict[str, npt.NDArray[Any]]

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
#: These normalise their embeddings once more, which takes from the gradient what lies along them.
RENORMALISED = ("calibration", "triplet", "fastap", "arcface", "proxynca")
TOLERANCES = {"paper": 1e-9, "official_f64": 1e-9, "official": 1e-5}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Arrays:
    with np.load(shared / "golden" / "losses.npz") as arrays:
        return {name.removeprefix("B64/"): arrays[name] for name in arrays.files if name.startswith("B64/")}


def compare(golden: Arrays, name: str, loss: Loss, proxies: nn.Parameter | None = None) -> None:
    """Every source there is, each in its own precision."""
    key = name.split(" ")[0]
    sources = [source for source in TOLERANCES if f"{source}/{key}/value" in golden]
    assert sources
    levels = 1 if key.endswith("_L1") else 3
    for source in sources:
        dtype = torch.float32 if source == "official" else torch.float64
        x = torch.from_numpy(golden["x"]).to(dtype).requires_grad_()
        embeddings = functional.normalize(x) if key.startswith(RENORMALISED) else x
        labels = torch.from_numpy(golden["labels"])[:, :levels]
        memory = ()
        if key.endswith("_memory"):
            memory = (torch.from_numpy(golden["memory"]).to(dtype), torch.from_numpy(golden["memory_labels"]))
        value = loss(embeddings, labels, *memory)
        value.backward()
        assert value.dtype == dtype
        tolerance = {"rtol": 0, "atol": TOLERANCES[source]}
        np.testing.assert_allclose(value.item(), golden[f"{source}/{key}/value"], **tolerance)
        gradients = (x.grad, torch.from_numpy(golden[f"{source}/{key}/grad"]))
        if key == "softbinap_20":
            # Rounding says whether a query's score with itself has a gradient, which lies along the query.
            gradients = tuple(gradient - (gradient * x).sum(1, keepdim=True) * x for gradient in gradients)
        np.testing.assert_allclose(*(gradient.detach() for gradient in gradients), **tolerance)
        if proxies is None:
            continue
        if (expected := golden.get(f"{source}/{key}/grad_proxies")) is not None:
            gradient = proxies.grad if proxies.shape == expected.shape else proxies.grad.T
            np.testing.assert_allclose(gradient, expected, **tolerance)
        proxies.grad = None


@pytest.mark.parametrize("name", LOSSES)
def test_every_baseline_of_pairs(golden: Arrays, name: str) -> None:
    compare(golden, name, LOSSES[name]())


@pytest.mark.parametrize("name", WITH_PROXIES)
def test_every_loss_with_proxies(golden: Arrays, name: str) -> None:
    classes = torch.from_numpy(golden["labels"]).unique(dim=0)
    loss = WITH_PROXIES[name](classes)
    (parameter,) = loss.parameters()
    proxies = torch.from_numpy(golden["proxies_nca" if name.startswith("proxynca") else "proxies"]).double()
    parameter.data = proxies if parameter.shape == proxies.shape else proxies.T.contiguous()
    compare(golden, name, loss, parameter)


@pytest.mark.parametrize(("name", "margin"), [("blackboxap_l4_m.02", 0.02), ("blackboxap_l4_m0", 0.0)])
def test_black_box_with_the_noise_that_was_drawn(
    golden: Arrays, name: str, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "randn_like", lambda _: torch.from_numpy(golden["bb_noise"]))
    compare(golden, name, BlackBoxAP(margin=margin))


def test_the_query_left_out_of_its_retrieval_set(golden: Arrays) -> None:
    x = torch.from_numpy(golden["x"]).double().requires_grad_()
    value = DecomposabilityLoss(include_query=False)(x, torch.from_numpy(golden["labels"]))
    value.backward()
    key = "paper_selfout/LDG_eq7_a0.9_b0.6"
    np.testing.assert_allclose(value.item(), golden[f"{key}/value"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(x.grad, golden[f"{key}/grad"], rtol=0, atol=1e-12)

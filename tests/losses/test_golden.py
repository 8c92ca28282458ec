"""Values and gradients of independent implementations."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hgld.evaluation.relevance import by_level
from hgld.losses import (
    CSL,
    ArcFace,
    BlackBoxAP,
    ContrastiveLoss,
    DecomposabilityLoss,
    FastAP,
    LeakyStep,
    Loss,
    ProxyLoss,
    ProxyNCAPP,
    RankLoss,
    SmoothAP,
    SmoothHAP,
    SmoothNDCG,
    SmoothRecall,
    SoftBinAP,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    TripletLoss,
    XBMContrastive,
    suprank_step,
)
from hgld.losses.kernels.steps import Variant
from hgld.losses.simix import same_class_pairs, with_mixed_positives, with_virtual_items
from tests.losses.batches import gradient
from tests.losses.golden import Arrays, expect_close, read_golden, references, tensor


@pytest.fixture(scope="module")
def golden(shared: Path) -> Arrays:
    return read_golden(shared)


def suprank_losses(variant: Variant) -> dict[str, Callable[..., RankLoss]]:
    step = suprank_step(variant)
    return {
        f"supap_{variant}": partial(SupAP, step=step),
        f"supndcg_{variant}": partial(SupNDCG, step=step),
        f"suprecall_{variant}_K1-2-4-8-16": partial(SupRecall, (1, 2, 4, 8, 16), step=step),
        f"suphap_{variant}_a1": partial(SupHAP, step=step),
        f"suphap_{variant}_a3": partial(SupHAP, 3.0, step=step),
        f"suphap_{variant}_a5": partial(SupHAP, 5.0, step=step),
    }


CFG144 = suprank_step("cfg144")
LOSSES: dict[str, Callable[..., RankLoss]] = {
    **suprank_losses("eq4"),
    **suprank_losses("cfg144"),
    **suprank_losses("cfginat"),
    "smoothap": SmoothAP,
    "smoothrecall_K1-2-4-8-16": SmoothRecall,
    "suphap_cfg144_a1_hrank": partial(SupHAP, step=CFG144, finer=LeakyStep()),
    # these lack the source "paper"
    "suprecall_cfg144_K10": partial(SupRecall, (10,), step=CFG144),
    "smoothhap_a1": SmoothHAP,
    "smoothndcg": SmoothNDCG,
}
#: Even in float64, the published code has parts in float32: the offset sigma(delta / tau) + 1/2 of eq4, ranks of the
#: ideal ranking, relevances.
ROUNDED_TO_FLOAT32 = {name for name in LOSSES if "eq4" in name or "hap" in name or "ndcg" in name}


def compare(
    loss: RankLoss,
    golden: Arrays,
    key: str,
    atol: float,
    *,
    dtype: torch.dtype = torch.float64,
    columns: int = 3,
    memory: bool = False,
) -> None:
    x = tensor(golden["x"], dtype).requires_grad_()
    given = references(golden, dtype, columns) if memory else ()
    value = loss(x, tensor(golden["labels"])[:, :columns], *given)
    expect_close(value, golden[f"{key}/value"], atol)
    expect_close(torch.autograd.grad(value, x)[0], golden[f"{key}/grad"], atol)


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient(golden: Arrays, name: str) -> None:
    make = LOSSES[name]
    if f"paper/{name}/value" in golden:
        compare(make(), golden, f"paper/{name}", 1e-9)
        compare(make(include_query=False), golden, f"paper_selfout/{name}", 1e-9)
    compare(make(), golden, f"official_f64/{name}", 5e-8 if name in ROUNDED_TO_FLOAT32 else 1e-12)
    compare(make(), golden, f"official/{name}", 1e-5, dtype=torch.float32)


@pytest.mark.parametrize("variant", ["eq4", "cfg144", "cfginat"])
def test_sup_ap_against_a_memory(golden: Arrays, variant: Variant) -> None:
    loss, key = SupAP(step=suprank_step(variant)), f"supap_{variant}_memory"
    compare(loss, golden, f"official_f64/{key}", 2e-8, memory=True)
    compare(loss, golden, f"official/{key}", 1e-5, dtype=torch.float32, memory=True)


def test_sup_hap_against_a_memory(golden: Arrays) -> None:
    compare(SupHAP(step=CFG144), golden, "official_f64/suphap_cfg144_a1_memory", 2e-8, memory=True)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("supndcg_cfg144_L1", SupNDCG(step=CFG144)),
        ("suphap_cfg144_L1_unit_relevance", SupHAP(relevance=by_level([0, 1]), step=CFG144)),
    ],
)
def test_one_level(golden: Arrays, name: str, loss: RankLoss) -> None:
    compare(loss, golden, f"official_f64/{name}", 5e-8, columns=1)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("supap_eq4_simix", SupAP),
        ("supap_cfg144_simix", partial(SupAP, step=CFG144)),
        ("supap_cfginat_simix", partial(SupAP, step=suprank_step("cfginat"))),
        ("smoothrecall_K1-2-4-8-16_simix", SmoothRecall),
    ],
)
def test_mixed_positives(golden: Arrays, name: str, make: Callable[..., RankLoss]) -> None:
    alphas = tensor(golden["simix_alpha_official"])
    for dtype, source, atol in [(torch.float64, "official_f64", 5e-8), (torch.float32, "official", 1e-5)]:
        loss = make(mixup=partial(with_mixed_positives, alphas=alphas.to(dtype)))
        compare(loss, golden, f"{source}/{name}", atol, dtype=dtype)


def test_simix_of_patel_et_al(golden: Arrays, shared: Path) -> None:
    legend = json.loads((shared / "golden" / "losses.json").read_text("utf-8"))
    name = "smoothrecall_simix_paper_K10values"
    x = tensor(golden["x"]).double().requires_grad_()
    labels = tensor(golden["labels"])
    pairs = tensor(golden["simix_pairs_paper"]).long()
    assert set(map(tuple, same_class_pairs(labels).tolist())) == set(map(tuple, pairs.tolist()))
    alphas = tensor(golden["simix_alpha_paper"])
    loss = SmoothRecall(legend["cases"]["B64"]["losses"][name]["K"], include_query=False)
    value = loss.forward_batch(*with_virtual_items(x, labels, pairs, alphas))
    expect_close(value, golden[f"paper/{name}/value"], 1e-9)
    expect_close(torch.autograd.grad(value, x)[0], golden[f"paper/{name}/grad"], 1e-9)


CLASS_LOSSES: dict[str, Callable[[], Loss]] = {
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


def compare_sources(golden: Arrays, name: str, loss: Loss, proxies: nn.Parameter | None = None) -> None:
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


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_losses_of_pairs_and_triplets(golden: Arrays, name: str) -> None:
    compare_sources(golden, name, CLASS_LOSSES[name]())


@pytest.mark.parametrize("name", WITH_PROXIES)
def test_losses_with_proxies(golden: Arrays, name: str) -> None:
    loss = WITH_PROXIES[name](tensor(np.unique(golden["labels"], axis=0)))
    (parameter,) = loss.parameters()
    proxies = tensor(golden["proxies_nca" if name.startswith("proxynca") else "proxies"]).double()
    parameter.data = proxies if parameter.shape == proxies.shape else proxies.T.contiguous()
    compare_sources(golden, name, loss, parameter)


@pytest.mark.parametrize(("name", "margin"), [("blackboxap_l4_m.02", 0.02), ("blackboxap_l4_m0", 0.0)])
def test_blackbox_ap_with_recorded_noise(
    golden: Arrays, name: str, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "randn_like", lambda _: tensor(golden["bb_noise"]))
    compare_sources(golden, name, BlackBoxAP(margin=margin))


def test_pair_loss_without_the_query_in_its_retrieval_set(golden: Arrays) -> None:
    x = tensor(golden["x"]).double().requires_grad_()
    value = DecomposabilityLoss(include_query=False)(x, tensor(golden["labels"]))
    key = "paper_selfout/LDG_eq7_a0.9_b0.6"
    expect_close(value, golden[f"{key}/value"], 1e-12)
    expect_close(gradient(value, x), golden[f"{key}/grad"], 1e-12)

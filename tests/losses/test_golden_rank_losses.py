"""Values and gradients of independent implementations, for the rank losses."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from hgld.evaluation.metrics import by_level
from hgld.losses import (
    LeakyStep,
    RankLoss,
    SmoothAP,
    SmoothHAP,
    SmoothNDCG,
    SmoothRecall,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    suprank_step,
)
from hgld.losses.kernels.steps import Variant
from hgld.losses.simix import same_class_pairs, with_mixed_positives, with_virtual_items
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
    """Compare value and gradient."""
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

"""The rank losses against the numbers of independent implementations: values and gradients."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from hgld.evaluation.relevance import by_level
from hgld.losses import SmoothAP, SmoothHAP, SmoothNDCG, SmoothRecall, SupAP, SupHAP, SupNDCG, SupRecall
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.steps import LeakyStep, suprank_step
from hgld.losses.simix import same_class_pairs, with_mixed_positives, with_virtual_items

Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def golden(shared: Path) -> Arrays:
    with np.load(shared / "golden" / "losses.npz") as arrays:
        return dict(arrays)


def of_each_step(variant: Any) -> dict[str, Callable[..., RankLoss]]:
    step = suprank_step(variant)
    return {
        f"supap_{variant}": lambda **more: SupAP(step=step, **more),
        f"supndcg_{variant}": lambda **more: SupNDCG(step=step, **more),
        f"suprecall_{variant}_K1-2-4-8-16": lambda **more: SupRecall((1, 2, 4, 8, 16), step=step, **more),
        f"suphap_{variant}_a1": lambda **more: SupHAP(step=step, **more),
        f"suphap_{variant}_a3": lambda **more: SupHAP(3.0, step=step, **more),
        f"suphap_{variant}_a5": lambda **more: SupHAP(5.0, step=step, **more),
    }


CFG144 = suprank_step("cfg144")
LOSSES: dict[str, Callable[..., RankLoss]] = {
    **of_each_step("eq4"),
    **of_each_step("cfg144"),
    **of_each_step("cfginat"),
    "smoothap": SmoothAP,
    "smoothrecall_K1-2-4-8-16": SmoothRecall,
    "suphap_cfg144_a1_hrank": lambda **more: SupHAP(step=CFG144, finer=LeakyStep(), **more),
    # without numbers of our own implementation of the equations
    "suprecall_cfg144_K10": lambda: SupRecall((10,), step=CFG144),
    "smoothhap_a1": SmoothHAP,
    "smoothndcg": SmoothNDCG,
}
#: In float64, too, the published code has parts in float32: the offset sigma(delta / tau) + 1/2 of eq4, ranks of the
#: ideal ranking, relevances.
ROUNDED_TO_FLOAT32 = {name for name in LOSSES if "eq4" in name or "hap" in name or "ndcg" in name}


def value_and_gradient(
    loss: RankLoss, golden: Arrays, dtype: torch.dtype, *, columns: int = 3, memory: bool = False
) -> tuple[float, npt.NDArray[Any]]:
    x = torch.from_numpy(golden["B64/x"]).to(dtype).requires_grad_()
    labels = torch.from_numpy(golden["B64/labels"])[:, :columns]
    references = ()
    if memory:
        references = (
            torch.from_numpy(golden["B64/memory"]).to(dtype),
            torch.from_numpy(golden["B64/memory_labels"])[:, :columns],
        )
    value = loss(x, labels, *references)
    value.backward()
    return value.item(), x.grad.numpy()


def expect(golden: Arrays, key: str, found: tuple[float, npt.NDArray[Any]], atol: float) -> None:
    np.testing.assert_allclose(found[0], golden[f"B64/{key}/value"], rtol=0, atol=atol)
    np.testing.assert_allclose(found[1], golden[f"B64/{key}/grad"], rtol=0, atol=atol)


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient(golden: Arrays, name: str) -> None:
    make = LOSSES[name]
    in_float64 = value_and_gradient(make(), golden, torch.float64)
    if f"B64/paper/{name}/value" in golden:
        expect(golden, f"paper/{name}", in_float64, 1e-9)
        left_out = value_and_gradient(make(include_query=False), golden, torch.float64)
        expect(golden, f"paper_selfout/{name}", left_out, 1e-9)
    expect(golden, f"official_f64/{name}", in_float64, 5e-8 if name in ROUNDED_TO_FLOAT32 else 1e-12)
    expect(golden, f"official/{name}", value_and_gradient(make(), golden, torch.float32), 1e-5)


@pytest.mark.parametrize("variant", ["eq4", "cfg144", "cfginat"])
def test_sup_ap_against_a_memory(golden: Arrays, variant: Any) -> None:
    loss = SupAP(step=suprank_step(variant))
    for dtype, source, atol in [(torch.float64, "official_f64", 2e-8), (torch.float32, "official", 1e-5)]:
        found = value_and_gradient(loss, golden, dtype, memory=True)
        expect(golden, f"{source}/supap_{variant}_memory", found, atol)


def test_sup_hap_against_a_memory(golden: Arrays) -> None:
    found = value_and_gradient(SupHAP(step=CFG144), golden, torch.float64, memory=True)
    expect(golden, "official_f64/suphap_cfg144_a1_memory", found, 2e-8)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("supndcg_cfg144_L1", SupNDCG(step=CFG144)),
        ("suphap_cfg144_L1_unit_relevance", SupHAP(relevance=by_level([0, 1]), step=CFG144)),
    ],
)
def test_one_level(golden: Arrays, name: str, loss: RankLoss) -> None:
    expect(golden, f"official_f64/{name}", value_and_gradient(loss, golden, torch.float64, columns=1), 5e-8)


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
    alphas = torch.from_numpy(golden["B64/simix_alpha_official"])
    for dtype, source, atol in [(torch.float64, "official_f64", 5e-8), (torch.float32, "official", 1e-5)]:
        loss = make(mixup=partial(with_mixed_positives, alphas=alphas.to(dtype)))
        expect(golden, f"{source}/{name}", value_and_gradient(loss, golden, dtype), atol)


def test_simix_of_patel_et_al(golden: Arrays, shared: Path) -> None:
    legend = json.loads((shared / "golden" / "losses.json").read_text("utf-8"))
    name = "smoothrecall_simix_paper_K10values"
    x = torch.from_numpy(golden["B64/x"]).double().requires_grad_()
    labels = torch.from_numpy(golden["B64/labels"])
    pairs = torch.from_numpy(golden["B64/simix_pairs_paper"]).long()
    assert set(map(tuple, same_class_pairs(labels).tolist())) == set(map(tuple, pairs.tolist()))
    alphas = torch.from_numpy(golden["B64/simix_alpha_paper"])
    loss = SmoothRecall(legend["cases"]["B64"]["losses"][name]["K"], include_query=False)
    value = loss(*with_virtual_items(x, labels, pairs, alphas))
    value.backward()
    assert x.grad is not None
    expect(golden, f"paper/{name}", (value.item(), x.grad.numpy()), 1e-9)

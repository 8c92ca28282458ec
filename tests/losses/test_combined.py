from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from hgld.errors import ConfigurationError, InputError
from hgld.losses import (
    AtLevel,
    DecomposabilityLoss,
    Loss,
    ProxyLoss,
    SoftBinAP,
    SumOverLevels,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    TripletLoss,
    WeightedSum,
    happier,
    roadmap,
    rod_ndcg,
    rod_recall,
    suprank_step,
)

LABELS = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 0], [2, 1, 0], [3, 2, 1], [3, 2, 1]])
STEP = suprank_step("cfg144")


def unit(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(n, 6, dtype=torch.float64, generator=generator))


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
def test_compositions_are_weighted_sums(make: Any, rank_loss: Loss, name: str, decomposability: Loss) -> None:
    x = unit(8)
    loss = make(decomposability)
    of_rank, of_gap = rank_loss(x, LABELS), decomposability(x, LABELS)
    assert loss(x, LABELS).item() == pytest.approx(0.7 * of_rank.item() + 0.3 * of_gap.item(), abs=1e-12)
    assert loss.parts == {name: of_rank, "decomposability": of_gap}
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
def test_compositions_against_the_published_code(
    shared: Path, key: str, make: Any, source: str, dtype: torch.dtype
) -> None:
    with np.load(shared / "golden" / "losses.npz") as golden:
        arrays = {name: golden[f"B64/{name}"] for name in ("x", "labels", "proxies")}
        expected = {name: golden[f"B64/{source}/{key}/{name}"] for name in ("value", "grad", "grad_proxies")}
    proxies = ProxyLoss(16, 32).to(dtype)
    proxies.proxies.data = torch.from_numpy(arrays["proxies"]).to(dtype)
    x = torch.from_numpy(arrays["x"]).to(dtype).requires_grad_()
    value = make(proxies)(x, torch.from_numpy(arrays["labels"]))
    value.backward()
    # in float64, too, the published code has relevances in float32
    tolerance: dict[str, Any] = {"rtol": 0, "atol": 1e-8 if dtype == torch.float64 else 1e-5}
    np.testing.assert_allclose(value.item(), expected["value"], **tolerance)
    np.testing.assert_allclose(x.grad, expected["grad"], **tolerance)
    np.testing.assert_allclose(proxies.proxies.grad, expected["grad_proxies"], **tolerance)


def test_parameters_and_state_of_a_sum_are_those_of_its_losses() -> None:
    loss = WeightedSum({"a": (1.0, ProxyLoss(4, 6)), "b": (2.0, ProxyLoss(3, 6))})
    assert sorted(loss.state_dict()) == ["losses.a.proxies", "losses.b.proxies"]
    assert len(list(loss.parameters())) == 2


def test_what_of_a_sum_depends_on_references() -> None:
    x, references = unit(8), unit(5, seed=1)
    given = (x, LABELS, references, LABELS[:5])
    loss = happier(ProxyLoss(4, 6).double(), 0.3)
    part = loss.reference_part()
    assert part is not None
    assert part(*given).item() == pytest.approx(0.7 * SupHAP()(*given).item(), abs=1e-12)
    assert not list(part.parameters())
    assert WeightedSum({"a": (1.0, ProxyLoss(4, 6))}).reference_part() is None
    # of a sum over levels, the same
    n_classes = (4, 3, 2)
    both = SumOverLevels(lambda column: roadmap(ProxyLoss(n_classes[column], 6).double(), 0.3), 3)
    part = both.reference_part()
    assert part is not None
    expected = sum(SupAP()(x, LABELS[:, [c]], references, LABELS[:5, [c]]).item() * 0.7 for c in range(3))
    assert part(*given).item() == pytest.approx(expected, abs=1e-12)
    assert SumOverLevels(lambda column: ProxyLoss(n_classes[column], 6), 3).reference_part() is None


@pytest.mark.parametrize("make", [SoftBinAP, lambda: TripletLoss(0.3, "all"), SupAP])
def test_sum_over_levels_is_the_loss_of_each_column(make: Any) -> None:
    x, references = unit(8), unit(5, seed=1)
    loss = SumOverLevels(lambda column: make(), 3)
    for given in ((), (references, LABELS[:5])):
        columns = [
            make()(x, LABELS[:, [column]], *(() if not given else (references, LABELS[:5, [column]])))
            for column in range(3)
        ]
        assert loss(x, LABELS, *given).item() == pytest.approx(sum(columns).item(), abs=1e-12)  # type: ignore[union-attr]
        assert loss.parts == {"level_3": columns[0], "level_2": columns[1], "level_1": columns[2]}


def test_what_cannot_be_put_together() -> None:
    with pytest.raises(ConfigurationError, match="is empty; name at least one"):
        WeightedSum({})
    with pytest.raises(ConfigurationError, match="is empty"):
        SumOverLevels(lambda column: SupAP(), 0)
    with pytest.raises(ConfigurationError, match=r"`lambda_` is 1.5; expected 0 \(the rank loss alone\) to 1"):
        happier(ProxyLoss(4, 6), 1.5)
    with pytest.raises(InputError, match="`labels` have 3 levels, but the loss is a sum over 2"):
        SumOverLevels(lambda column: SupAP(), 2)(unit(8), LABELS)
    with pytest.raises(InputError, match="`labels` have 3 levels and no column 3"):
        AtLevel(SupAP(), 3)(unit(8), LABELS)

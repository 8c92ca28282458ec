"""Weighted sums of losses and sums over levels."""

from collections.abc import Callable

import pytest
import torch

from hgld.losses import (
    Loss,
    ProxyLoss,
    SoftBinAP,
    SumOverLevels,
    SupAP,
    SupHAP,
    TripletLoss,
    WeightedSum,
    happier,
    roadmap,
)
from tests.losses.batches import unit_vectors

LABELS = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 0], [2, 1, 0], [3, 2, 1], [3, 2, 1]])


def test_parameters_and_state_of_a_sum_are_those_of_its_losses() -> None:
    loss = WeightedSum({"a": (1.0, ProxyLoss(4, 6)), "b": (2.0, ProxyLoss(3, 6))})
    assert sorted(loss.state_dict()) == ["losses.a.proxies", "losses.b.proxies"]
    assert len(list(loss.parameters())) == 2


def test_reference_part_of_a_sum() -> None:
    x, references = unit_vectors(8), unit_vectors(5, seed=1)
    batch = (x, LABELS, references, LABELS[:5])
    part = happier(ProxyLoss(4, 6).double(), 0.3).reference_part()
    assert part is not None
    assert part(*batch).item() == pytest.approx(0.7 * SupHAP()(*batch).item(), abs=1e-12)
    assert not list(part.parameters())
    assert WeightedSum({"a": (1.0, ProxyLoss(4, 6))}).reference_part() is None


def test_reference_part_of_a_sum_over_levels() -> None:
    x, references = unit_vectors(8), unit_vectors(5, seed=1)
    n_classes = (4, 3, 2)
    loss = SumOverLevels(lambda column: roadmap(ProxyLoss(n_classes[column], 6).double(), 0.3), 3)
    part = loss.reference_part()
    assert part is not None
    expected = sum(SupAP()(x, LABELS[:, [c]], references, LABELS[:5, [c]]).item() * 0.7 for c in range(3))
    assert part(x, LABELS, references, LABELS[:5]).item() == pytest.approx(expected, abs=1e-12)
    assert SumOverLevels(lambda column: ProxyLoss(n_classes[column], 6), 3).reference_part() is None


@pytest.mark.parametrize("make", [SoftBinAP, lambda: TripletLoss(0.3, "all"), SupAP])
def test_sum_and_mean_over_levels_add_the_losses_of_all_columns(make: Callable[[], Loss]) -> None:
    x, references = unit_vectors(8), unit_vectors(5, seed=1)
    loss = SumOverLevels(lambda column: make(), 3)
    for given in ((), (references, LABELS[:5])):
        columns = [
            make()(x, LABELS[:, [column]], *(() if not given else (references, LABELS[:5, [column]])))
            for column in range(3)
        ]
        assert loss(x, LABELS, *given).item() == pytest.approx(float(sum(columns)), abs=1e-12)
        assert loss.parts == {"level_3": columns[0], "level_2": columns[1], "level_1": columns[2]}
        mean = SumOverLevels(lambda column: make(), 3, mean=True)
        assert mean(x, LABELS, *given).item() == pytest.approx(float(sum(columns)) / 3, abs=1e-12)
        assert mean.parts == loss.parts

"""ArcFace, ProxyNCA++ and CSL; NormSoftMax is tested as a decomposability loss."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from hgld.losses import CSL, ArcFace, Loss, ProxyNCAPP
from tests.losses.batches import class_vectors

LABELS = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 0], [1, 0], [2, 1], [0, 0], [3, 1]])
CLASSES = torch.tensor([[0, 0], [1, 0], [2, 1], [3, 1]])
X = class_vectors(LABELS)


def test_csl_agrees_with_loops() -> None:
    loss = CSL(CLASSES, 6).double()
    proxies = functional.normalize(loss.proxies.detach())
    level_losses = []
    for column, margin in ((0, 0.25), (1, 0.45)):
        total = 0.0
        for x, label in zip(X, LABELS, strict=True):
            own = 32 * float(x @ proxies[label[0]])
            others = [32 * float(x @ proxies[z]) for z in range(4) if CLASSES[z, column] != label[column]]
            total += math.log1p(math.exp(math.log(sum(math.exp(s) for s in others)) - own + 32 * margin))
        level_losses.append(total / 8)
    assert loss(X, LABELS).item() == pytest.approx(sum(level_losses), abs=1e-9)
    assert {name: value.item() for name, value in loss.parts.items()} == pytest.approx(
        {"level_2": level_losses[0], "level_1": level_losses[1]}
    )


def test_csl_with_a_single_class_at_the_root_ignores_the_root() -> None:
    """No proxy has another class there, so the loss and the gradient of that level are 0."""
    flat, rooted = CSL(CLASSES[:, :1], 6, (0.25,)), CSL(CLASSES * torch.tensor([1, 0]), 6, (0.25, 0.45))
    rooted.proxies.data = flat.proxies.data.clone()
    values = flat(X, LABELS[:, :1]), rooted(X, LABELS * torch.tensor([1, 0]))
    assert values[0] == values[1]
    with torch.autograd.set_detect_anomaly(True):
        sum(values).backward()
    torch.testing.assert_close(flat.proxies.grad, rooted.proxies.grad)


@pytest.mark.parametrize("make", [lambda: CSL(CLASSES, 6), lambda: ArcFace(4, 6), lambda: ProxyNCAPP(4, 6)])
def test_gradients_agree_with_finite_differences(make: Callable[[], Loss]) -> None:
    torch.manual_seed(0)
    loss = make().double()
    ((name, parameter),) = loss.named_parameters()

    def value(x: torch.Tensor, proxies: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.func.functional_call(loss, {name: proxies}, (x, LABELS))
        return result

    x = X.clone().requires_grad_()
    assert torch.autograd.gradcheck(value, (x, parameter.detach().requires_grad_()))
    assert loss.reference_part() is None


def test_initial_proxies() -> None:
    torch.manual_seed(0)
    (arcface_proxies,), (nca_proxies,) = ArcFace(200, 16).parameters(), ProxyNCAPP(200, 16).parameters()
    assert arcface_proxies.abs().max() <= 0.25
    assert arcface_proxies.std().item() == pytest.approx(0.5 / 12**0.5, rel=0.05)
    assert nca_proxies.std().item() == pytest.approx(1 / 8, rel=0.05)

"""Losses of proxies against loops over their definitions; NormSoftMax is tested as a decomposability loss."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from hgld.losses import CSL, ArcFace, CrossEntropy, Loss, ProxyGML, ProxyLoss, ProxyNCA, ProxyNCAPP
from tests.losses.batches import LABELS, check_gradients, class_vectors

X = class_vectors(LABELS)
OWN = LABELS[:, 0].tolist()
#: Labels with a coarser level, and those of each class.
TWO_LEVELS = torch.cat([LABELS, LABELS // 2], 1)
CLASSES = torch.tensor([[0, 0], [1, 0], [2, 1], [3, 1]])


def squared_distance(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).square().sum())


def test_proxy_nca_agrees_with_loops() -> None:
    loss = ProxyNCA(4, 6, scale=2.0).double()
    proxies = functional.normalize(loss.proxies.detach())
    total = 0.0
    for x, own in zip(X, OWN, strict=True):
        squared = [4 * squared_distance(x, proxy) for proxy in proxies]
        others = sum(math.exp(-squared[z]) for z in range(4) if z != own)
        total -= math.log(math.exp(-squared[own]) / others)
    assert loss(X, LABELS).item() == pytest.approx(total / 8, abs=1e-9)
    single = ProxyNCA(1, 6).double()  # the distance from its proxy
    (proxy,) = functional.normalize(single.proxies.detach())
    expected = sum(9 * squared_distance(x, proxy) for x in X) / 8
    assert single(X, torch.zeros_like(LABELS)).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
def test_proxy_gml_agrees_with_loops(share: float) -> None:
    torch.manual_seed(0)
    loss = ProxyGML(4, 6, proxies_per_class=3, share=share).double()
    proxies = functional.normalize(loss.proxies.detach())
    n_kept = max(4, math.ceil(share * 12))

    def entropy(scores: list[float], own: int, kept: list[int]) -> float:
        sums = {z: sum(scores[i] for i in kept if i // 3 == z) for z in {i // 3 for i in kept}}
        return math.log(sum(math.exp(value) for value in sums.values())) - sums[own]

    total = 0.0
    for x, own in zip(X, OWN, strict=True):
        scores = (proxies @ x).tolist()
        total += entropy(scores, own, sorted(range(12), key=lambda i: (i // 3 != own, -scores[i]))[:n_kept]) / 8
    for i in range(12):
        total += 0.3 * entropy((proxies @ proxies[i]).tolist(), i // 3, list(range(12))) / 12
    assert loss(X, LABELS).item() == pytest.approx(total, abs=1e-9)
    assert ProxyGML(4, 6, proxy_weight=0)(X, LABELS) > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_agrees_with_loops(smoothing: float) -> None:
    loss = CrossEntropy(4, 6, label_smoothing=smoothing).double()
    weight, bias = loss.classifier.weight.detach(), loss.classifier.bias.detach()
    total = 0.0
    for x, own in zip(X, OWN, strict=True):
        logits = [float(weight[z] @ x + bias[z]) for z in range(4)]
        normaliser = math.log(sum(math.exp(logit) for logit in logits))
        targets = [(1 - smoothing) * (z == own) + smoothing / 4 for z in range(4)]
        total -= sum(target * (logit - normaliser) for target, logit in zip(targets, logits, strict=True))
    assert loss(X, LABELS).item() == pytest.approx(total / 8, abs=1e-12)


def test_csl_agrees_with_loops() -> None:
    loss = CSL(CLASSES, 6).double()
    proxies = functional.normalize(loss.proxies.detach())
    level_losses = []
    for column, margin in ((0, 0.25), (1, 0.45)):
        total = 0.0
        for x, label in zip(X, TWO_LEVELS, strict=True):
            own = 32 * float(x @ proxies[label[0]])
            others = [32 * float(x @ proxies[z]) for z in range(4) if CLASSES[z, column] != label[column]]
            total += math.log1p(math.exp(math.log(sum(math.exp(s) for s in others)) - own + 32 * margin))
        level_losses.append(total / 8)
    assert loss(X, TWO_LEVELS).item() == pytest.approx(sum(level_losses), abs=1e-9)
    assert {name: value.item() for name, value in loss.parts.items()} == pytest.approx(
        {"level_2": level_losses[0], "level_1": level_losses[1]}
    )


def test_csl_with_a_single_class_at_the_root_ignores_the_root() -> None:
    """No proxy has another class there, so the loss and the gradient of that level are 0."""
    root = torch.tensor([1, 0])
    flat, rooted = CSL(CLASSES[:, :1], 6, (0.25,)), CSL(CLASSES * root, 6, (0.25, 0.45))
    rooted.proxies.data = flat.proxies.data.clone()
    values = flat(X, LABELS), rooted(X, TWO_LEVELS * root)
    assert values[0] == values[1]
    with torch.autograd.set_detect_anomaly(True):
        sum(values).backward()
    torch.testing.assert_close(flat.proxies.grad, rooted.proxies.grad)


MAKE: dict[str, Callable[[], Loss]] = {
    "norm_softmax": lambda: ProxyLoss(4, 6),
    "csl": lambda: CSL(CLASSES, 6),
    "arcface": lambda: ArcFace(4, 6),
    "proxy_nca_pp": lambda: ProxyNCAPP(4, 6),
    "proxy_nca": lambda: ProxyNCA(4, 6),
    "proxy_gml": lambda: ProxyGML(4, 6, 2, 0.5),
    "cross_entropy": lambda: CrossEntropy(4, 6),
}


@pytest.mark.parametrize("name", MAKE)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    torch.manual_seed(0)
    loss = MAKE[name]()
    check_gradients(loss, X, TWO_LEVELS)
    assert loss.reference_part() is None


def test_initial_proxies() -> None:
    torch.manual_seed(0)
    (arcface_proxies,), (nca_proxies,) = ArcFace(200, 16).parameters(), ProxyNCAPP(200, 16).parameters()
    assert arcface_proxies.abs().max() <= 0.25
    assert arcface_proxies.std().item() == pytest.approx(0.5 / 12**0.5, rel=0.05)
    assert nca_proxies.std().item() == pytest.approx(1 / 8, rel=0.05)

"""Baselines of the papers' tables against loops over their definitions, and pytorch-metric-learning."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as library
from pytorch_metric_learning.distances import LpDistance
from torch.nn import functional

from hgld.losses import (
    CrossEntropy,
    LiftedStructureLoss,
    Loss,
    MarginLoss,
    ProxyGML,
    ProxyNCA,
    SelectivelyContrastiveTriplet,
)
from hgld.losses.pair_losses import sampling_weights
from tests.losses.batches import LABELS, REFERENCE_LABELS, class_vectors, unit_vectors

X = class_vectors(LABELS)
REFERENCES = unit_vectors(6, seed=1)
CLASSES = LABELS[:, 0].tolist()


def distance(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).norm())


def test_proxy_nca_agrees_with_loops() -> None:
    loss = ProxyNCA(4, 6, scale=2.0).double()
    proxies = functional.normalize(loss.proxies.detach())
    total = 0.0
    for x, own in zip(X, CLASSES, strict=True):
        squared = [(2 * distance(x, proxy)) ** 2 for proxy in proxies]
        others = sum(math.exp(-squared[z]) for z in range(4) if z != own)
        total -= math.log(math.exp(-squared[own]) / others)
    assert loss(X, LABELS).item() == pytest.approx(total / 8, abs=1e-9)


def test_proxy_nca_of_a_single_class_is_the_distance_from_its_proxy() -> None:
    loss = ProxyNCA(1, 6).double()
    (proxy,) = functional.normalize(loss.proxies.detach())
    expected = sum(9 * distance(x, proxy) ** 2 for x in X) / 8
    assert loss(X, torch.zeros_like(LABELS)).item() == pytest.approx(expected, abs=1e-9)


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
    for x, own in zip(X, CLASSES, strict=True):
        scores = (proxies @ x).tolist()
        total += entropy(scores, own, sorted(range(12), key=lambda i: (i // 3 != own, -scores[i]))[:n_kept]) / 8
    for i in range(12):
        total += 0.3 * entropy((proxies @ proxies[i]).tolist(), i // 3, list(range(12))) / 12
    assert loss(X, LABELS).item() == pytest.approx(total, abs=1e-9)
    assert ProxyGML(4, 6, proxy_weight=0)(X, LABELS) > 0


@pytest.mark.parametrize("references", [False, True])
def test_selective_contrast_agrees_with_loops(references: bool) -> None:
    others, classes = (REFERENCES, REFERENCE_LABELS[:, 0].tolist()) if references else (X, CLASSES)
    terms = []
    for i in range(8):
        scores = (others @ X[i]).tolist()
        positives = [s for j, s in enumerate(scores) if classes[j] == CLASSES[i] and (references or i != j)]
        negatives = [s for j, s in enumerate(scores) if classes[j] != CLASSES[i]]
        if positives:
            p, n = max(positives), max(negatives)
            terms.append(0.5 * n if n > p or n > 0.3 else math.log1p(math.exp((n - p) / 0.1)))
    loss = SelectivelyContrastiveTriplet(hard=0.3, weight=0.5)
    value = loss(X, LABELS, REFERENCES, REFERENCE_LABELS) if references else loss(X, LABELS)
    assert value.item() == pytest.approx(sum(terms) / len(terms), abs=1e-12)


def test_selective_contrast_does_not_pull_copies() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    assert SelectivelyContrastiveTriplet()(x, torch.tensor([0, 0, 1])) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_agrees_with_loops(smoothing: float) -> None:
    loss = CrossEntropy(4, 6, label_smoothing=smoothing).double()
    weight, bias = loss.classifier.weight.detach(), loss.classifier.bias.detach()
    total = 0.0
    for x, own in zip(X, CLASSES, strict=True):
        logits = [float(weight[z] @ x + bias[z]) for z in range(4)]
        normaliser = math.log(sum(math.exp(logit) for logit in logits))
        targets = [(1 - smoothing) * (z == own) + smoothing / 4 for z in range(4)]
        total -= sum(target * (logit - normaliser) for target, logit in zip(targets, logits, strict=True))
    assert loss(X, LABELS).item() == pytest.approx(total / 8, abs=1e-12)


def lifted_structure(
    x: torch.Tensor, classes: list[int], references: torch.Tensor, reference_classes: list[int], own: bool
) -> float:
    terms = []
    for i in range(len(x)):
        for j in range(len(references)):
            if classes[i] != reference_classes[j] or (own and i == j):
                continue
            of_i = [
                distance(x[i], references[k]) for k in range(len(references)) if reference_classes[k] != classes[i]
            ]
            of_j = [distance(x[k], references[j]) for k in range(len(x)) if classes[k] != reference_classes[j]]
            total = sum(math.exp(1 - each) for each in of_i + of_j)
            terms.append(max(0.0, math.log(total) + distance(x[i], references[j])) ** 2 / 2)
    return sum(terms) / len(terms)


def test_lifted_structure_agrees_with_loops_and_the_library() -> None:
    value = LiftedStructureLoss()(X, LABELS)
    assert value.item() == pytest.approx(lifted_structure(X, CLASSES, X, CLASSES, own=True), abs=1e-9)
    other = library.LiftedStructureLoss(distance=LpDistance(normalize_embeddings=False))
    torch.testing.assert_close(value, other(X, LABELS[:, 0]), rtol=1e-9, atol=0)
    with_references = LiftedStructureLoss()(X, LABELS, REFERENCES, REFERENCE_LABELS)
    expected = lifted_structure(X, CLASSES, REFERENCES, REFERENCE_LABELS[:, 0].tolist(), own=False)
    assert with_references.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("references", [False, True])
def test_margin_agrees_with_the_library_on_the_same_triplets(
    references: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = MarginLoss(4).double()
    given = (REFERENCES, REFERENCE_LABELS) if references else ()
    drawn: list[tuple[torch.Tensor, ...]] = []
    draw = loss._triplets

    def recorded(*arguments: Any) -> tuple[torch.Tensor, ...]:
        drawn.append(draw(*arguments))
        return drawn[-1]

    monkeypatch.setattr(loss, "_triplets", recorded)
    value = loss(X, LABELS, *given)
    distance = LpDistance(normalize_embeddings=False)
    other = library.MarginLoss(learn_beta=True, num_classes=4, distance=distance).double()
    columns = (REFERENCES, REFERENCE_LABELS[:, 0]) if references else (X, LABELS[:, 0])
    torch.testing.assert_close(value, other(X, LABELS[:, 0], drawn[0], *columns).double(), rtol=1e-6, atol=0)
    queries, positives, negatives = drawn[0]
    assert len(queries) == 12
    assert (LABELS[queries, 0] == columns[1][positives]).all()
    assert (LABELS[queries, 0] != columns[1][negatives]).all()


def test_negatives_are_drawn_with_inverse_density() -> None:
    distances = torch.tensor([[0.2, 0.5, 0.9, 1.2, 1.39, 1.4, 1.9, 1.0]], dtype=torch.float64)
    negatives = torch.tensor([[True] * 7 + [False]])
    weights = sampling_weights(distances, negatives, 16)

    def density(d: float) -> float:
        return float(d**14 * (1 - d**2 / 4) ** 6.5)

    expected = [density(0.5) / density(max(0.5, d)) for d in (0.2, 0.5, 0.9, 1.2, 1.39)] + [0.0] * 3
    assert weights[0].tolist() == pytest.approx(expected, rel=1e-9)
    assert sampling_weights(distances, ~negatives & False, 16).tolist() == [[0.0] * 8]


def test_margin_without_near_negatives_is_0() -> None:
    x = torch.eye(6, dtype=torch.float64)[LABELS[:, 0]].requires_grad_()  # at a distance of the root of 2
    value = MarginLoss(4)(x, LABELS)
    assert value == 0
    value.backward()
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ProxyNCA(4, 6),
        lambda: ProxyGML(4, 6, 2, 0.5),
        lambda: CrossEntropy(4, 6),
        lambda: LiftedStructureLoss(),
        lambda: MarginLoss(4),
        lambda: SelectivelyContrastiveTriplet(),
    ],
)
def test_gradients_agree_with_finite_differences(make: Callable[[], Loss]) -> None:
    torch.manual_seed(0)
    loss = make().double()
    names = dict(loss.named_parameters())

    def value(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        result: torch.Tensor = torch.func.functional_call(
            loss, dict(zip(names, parameters, strict=True)), (x / x.norm(dim=1, keepdim=True), LABELS)
        )
        return result

    parameters = [parameter.detach().clone().requires_grad_() for parameter in names.values()]
    assert torch.autograd.gradcheck(value, (X.clone().requires_grad_(), *parameters), fast_mode=True)

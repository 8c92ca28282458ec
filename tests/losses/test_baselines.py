from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from hgld.errors import ConfigurationError, InputError
from hgld.losses import (
    CSL,
    ArcFace,
    ContrastiveLoss,
    DecomposabilityLoss,
    Loss,
    MultiSimilarityLoss,
    ProxyNCAPP,
    TripletLoss,
    XBMContrastive,
)

LABELS = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 0], [1, 0], [2, 1], [0, 0], [3, 1]])
REFERENCE_LABELS = torch.tensor([[0, 0], [1, 0], [1, 0], [2, 1], [3, 1], [0, 0]])
CLASSES = torch.tensor([[0, 0], [1, 0], [2, 1], [3, 1]])


def near(labels: torch.Tensor, seed: int = 0, spread: float = 1.2) -> torch.Tensor:
    """Unit vectors around one centre for each class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.eye(6, dtype=torch.float64)[labels[:, 0]]
    noise = torch.randn(len(labels), 6, dtype=torch.float64, generator=generator)
    return functional.normalize(centres + spread * functional.normalize(noise))


X = near(LABELS)
REFERENCES = near(REFERENCE_LABELS, seed=1)


def triplets(x: torch.Tensor, y: torch.Tensor, mining: str, margin: float = 0.05) -> float:
    """The triplet loss as it is read; ``y`` is ``x`` where the batch is alone."""
    of_y = LABELS if y is x else REFERENCE_LABELS
    losses = []
    for i in range(len(x)):
        others = [j for j in range(len(y)) if y is not x or i != j]
        positives = [float(x[i] @ y[j]) for j in others if of_y[j, 0] == LABELS[i, 0]]
        negatives = [float(x[i] @ y[j]) for j in others if of_y[j, 0] != LABELS[i, 0]]
        if mining == "easy_positive":
            positives = [max(positives, default=math.nan)]
            negatives = [max((n for n in negatives if n < positives[0]), default=math.nan)]
        for p, n in itertools.product(positives, negatives):
            if mining != "semihard" or 0 < p - n <= margin:
                losses.append(n - p + margin)
    above = [loss for loss in losses if loss > 0]
    return sum(above) / max(1, len(above))


@pytest.mark.parametrize("mining", ["semihard", "easy_positive", "all"])
@pytest.mark.parametrize("margin", [0.05, 0.3])
def test_triplets_agree_with_loops(mining: Any, margin: float) -> None:
    loss = TripletLoss(margin, mining)
    alone, against = triplets(X, X, mining, margin), triplets(X, REFERENCES, mining, margin)
    assert alone > 0
    assert against > 0
    assert loss(X, LABELS).item() == pytest.approx(alone, abs=1e-12)
    assert loss(X, LABELS, REFERENCES, REFERENCE_LABELS).item() == pytest.approx(against, abs=1e-12)


def test_contrastive_is_the_pair_loss_of_violating_pairs() -> None:
    """Two implementations: pytorch-metric-learning's and our L_DG."""
    ours = DecomposabilityLoss(alpha=1.0, beta=0.5, reduction="violating")
    for given in ((), (REFERENCES, REFERENCE_LABELS)):
        assert ContrastiveLoss()(X, LABELS, *given).item() == pytest.approx(ours(X, LABELS, *given).item(), abs=1e-12)


def test_contrastive_of_cross_batch_memory_agrees_with_loops() -> None:
    total = 0.0
    for i, j in itertools.product(range(8), range(6)):
        score = float(X[i] @ REFERENCES[j])
        if LABELS[i, 0] == REFERENCE_LABELS[j, 0]:
            total += 1 - score if score < 1 - 1e-5 else 0
        elif score > 0.1:
            total += score
    loss = XBMContrastive(margin=0.1)
    assert loss(X, LABELS, REFERENCES, REFERENCE_LABELS).item() == pytest.approx(total / 8, abs=1e-12)
    # queries among the references are no positives of their own
    both = torch.cat([REFERENCES, X]), torch.cat([REFERENCE_LABELS, LABELS])
    assert loss(X, LABELS, *both).item() == pytest.approx(total / 8 + loss(X, LABELS).item(), abs=1e-12)


def test_multi_similarity_agrees_with_loops() -> None:
    kept = [
        0,
        1,
        2,
        3,
        4,
        6,
    ]  # those of classes with two or more: without a positive, the library takes all negatives
    for y, of_y in ((X[kept], LABELS[kept]), (REFERENCES, REFERENCE_LABELS)):
        total = 0.0
        for i in kept:
            others = [j for j in range(len(y)) if y is REFERENCES or kept[j] != i]
            positives = [float(X[i] @ y[j]) for j in others if of_y[j, 0] == LABELS[i, 0]]
            negatives = [float(X[i] @ y[j]) for j in others if of_y[j, 0] != LABELS[i, 0]]
            hard_positives = [p for p in positives if p - 0.1 < max(negatives)]
            hard_negatives = [n for n in negatives if n + 0.1 > min(positives)]
            total += math.log(1 + sum(math.exp(-2 * (p - 0.5)) for p in hard_positives)) / 2
            total += math.log(1 + sum(math.exp(50 * (n - 0.5)) for n in hard_negatives)) / 50
        given = () if y is not REFERENCES else (y, of_y)
        assert MultiSimilarityLoss()(X[kept], LABELS[kept], *given).item() == pytest.approx(total / 6, abs=1e-12)


def test_csl_agrees_with_loops() -> None:
    loss = CSL(CLASSES, 6).double()
    proxies = functional.normalize(loss.proxies.detach())
    by_level = []
    for column, margin in ((0, 0.25), (1, 0.45)):
        total = 0.0
        for x, label in zip(X, LABELS, strict=True):
            own = 32 * float(x @ proxies[label[0]])
            others = [32 * float(x @ proxies[z]) for z in range(4) if CLASSES[z, column] != label[column]]
            total += math.log1p(math.exp(math.log(sum(math.exp(s) for s in others)) - own + 32 * margin))
        by_level.append(total / 8)
    assert loss(X, LABELS).item() == pytest.approx(sum(by_level), abs=1e-9)
    assert {name: value.item() for name, value in loss.parts.items()} == pytest.approx(
        {"level_2": by_level[0], "level_1": by_level[1]}
    )


def test_csl_with_one_class_at_the_root() -> None:
    """No proxy is of another class there, so that level says nothing, and has a gradient of 0."""
    flat, rooted = CSL(CLASSES[:, :1], 6, (0.25,)), CSL(CLASSES * torch.tensor([1, 0]), 6, (0.25, 0.45))
    rooted.proxies.data = flat.proxies.data.clone()
    values = flat(X, LABELS[:, :1]), rooted(X, LABELS * torch.tensor([1, 0]))
    assert values[0] == values[1]
    with torch.autograd.set_detect_anomaly(True):
        sum(values).backward()  # type: ignore[union-attr]
    torch.testing.assert_close(flat.proxies.grad, rooted.proxies.grad)


@pytest.mark.parametrize("make", [lambda: CSL(CLASSES, 6), lambda: ArcFace(4, 6), lambda: ProxyNCAPP(4, 6)])
def test_gradients_of_proxies(make: Any) -> None:
    torch.manual_seed(0)
    loss: Loss = make().double()
    ((name, parameter),) = loss.named_parameters()

    def value(x: torch.Tensor, proxies: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(loss, {name: proxies}, (x, LABELS))

    assert torch.autograd.gradcheck(value, (X.clone().requires_grad_(), parameter.detach().requires_grad_()))
    assert loss.reference_part() is None


def test_how_proxies_begin() -> None:
    torch.manual_seed(0)
    (of_arcface,), (of_nca,) = ArcFace(200, 16).parameters(), ProxyNCAPP(200, 16).parameters()
    assert of_arcface.abs().max() <= 0.25
    assert of_arcface.std().item() == pytest.approx(0.5 / 12**0.5, rel=0.05)
    assert of_nca.std().item() == pytest.approx(1 / 8, rel=0.05)


@pytest.mark.parametrize("loss", [TripletLoss(), ContrastiveLoss(), MultiSimilarityLoss()])
def test_a_batch_without_pairs_costs_nothing(loss: Loss) -> None:
    x = torch.eye(3, requires_grad=True)
    value = loss(x, torch.tensor([[0], [1], [2]]))
    value.backward()
    assert value == 0
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TripletLoss(0), "`margin` is 0; expected more than 0"),
        (lambda: TripletLoss(mining="hard"), "choose semihard, easy_positive or all"),  # type: ignore[arg-type]
        (lambda: ContrastiveLoss(2.0), "cosines, -1 to 1"),
        (lambda: XBMContrastive(2.0), "a cosine, -1 to 1"),
        (lambda: MultiSimilarityLoss(beta=0), "`beta` 0; expected more than 0"),
        (lambda: ArcFace(4, 6, margin=28.6), "0 to pi / 2"),
        (lambda: ProxyNCAPP(4, 6, scale=0), "`scale` is 0"),
        (lambda: CSL(CLASSES, 6, (0.1,)), "a margin for each of 2 levels, finest first, and has 1; give `margins`"),
        (lambda: CSL(torch.zeros(1, 5, dtype=torch.int64), 6), "each of 5 levels, .* has none by default; give"),
        (lambda: CSL(CLASSES, 6, scale=0), "`scale` is 0"),
    ],
)
def test_settings_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_labels_that_csl_cannot_use() -> None:
    with pytest.raises(InputError, match=r"shape \(2, 2\); expected a row of labels per finest class"):
        CSL(CLASSES[[1, 0]], 6)
    with pytest.raises(InputError, match="`labels` have 1 levels, but the loss was built for 2"):
        CSL(CLASSES, 6)(X, LABELS[:, :1])
    with pytest.raises(InputError, match="`labels` have classes 0 to 9, but the loss has proxies for 0 to 3"):
        CSL(CLASSES, 6)(X, LABELS * 3)

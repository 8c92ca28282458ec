"""Losses of images with several labels each, against plain loops: values and gradients."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.hierarchy import LabelSets
from hgld.losses import (
    ArcFace,
    BlackBoxAP,
    CrossBatchMemory,
    DecomposabilityLoss,
    Loss,
    ProxyLoss,
    SiMix,
    SmoothAP,
    SmoothHAP,
    SmoothRecall,
    SoftBinAP,
    SumOverLevels,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    TripletLoss,
    happier,
    roadmap,
)
from hgld.losses.base import pair_levels, shared_classes
from hgld.losses.kernels.batches import gather_embeddings
from hgld.losses.registry import LabelSpace
from tests.evaluation.oracles import best_level
from tests.losses import oracles
from tests.losses.batches import unit_vectors
from tests.losses.oracles import h_minus, heaviside, sigmoid

#: Labels of three levels below two roots.
LEAVES = torch.tensor([[leaf, leaf // 2, leaf // 4] for leaf in range(8)])
IMAGES = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True), min_size=2, max_size=5)

Sets = list[list[list[int]]]


def padded(images: list[list[int]], width: int = 5) -> torch.Tensor:
    rows = [torch.cat([LEAVES[image], torch.full((width - len(image), 3), -1)]) for image in images]
    return torch.stack(rows)


def lists(labels: torch.Tensor) -> Sets:
    return [[label for label in image if label[0] >= 0] for image in labels.tolist()]


def random_images(n: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.choice(8, rng.integers(1, 4), replace=False).tolist() for _ in range(n)]


Query = tuple[torch.Tensor, list[int]]


def queries(x: torch.Tensor, own: Sets, references: torch.Tensor, others: Sets) -> Iterator[Query]:
    """Yield scores and levels of each query that has a positive, by the oracle of levels."""
    for query, labels in zip(x, own, strict=True):
        yield (references * query).sum(1), [best_level(labels, other) for other in others]


def hierarchical(query: Query, plus: oracles.H, minus: oracles.H) -> torch.Tensor:
    counts = [query[1].count(level) for level in range(4)]
    return oracles.h_ap(*query, [level / 3 / max(counts[level], 1) for level in range(4)], minus, plus)


def finest(query: Query) -> Query:
    return query[0], [int(level == 3) for level in query[1]]


def slow_ap(query: Query, plus: oracles.H, minus: oracles.H) -> torch.Tensor:
    return oracles.h_ap(*finest(query), [0, 1], minus, plus)


def slow_recall(query: Query, ks: tuple[int, ...], plus: oracles.H, minus: oracles.H) -> torch.Tensor:
    return torch.stack([oracles.recall(*finest(query), k, 1.0, minus, plus) for k in ks]).mean()


def slow_pairs(query: Query) -> torch.Tensor:
    """L_DG of Eq. 7 for one query."""
    scores, levels = query
    positive = [torch.relu(0.9 - s) for s, level in zip(scores, levels, strict=True) if level == 3]
    negative = [torch.relu(s - 0.6) for s, level in zip(scores, levels, strict=True) if level < 3]
    total = sum(positive) / len(positive) if positive else torch.zeros((), dtype=torch.float64)
    return total + (sum(negative) / len(negative) if negative else 0)  # type: ignore[return-value]


def slow_proxies(loss: ProxyLoss, x: torch.Tensor, own: Sets) -> torch.Tensor:
    """Eq. 8, averaged over the labels of each image."""
    total = torch.zeros((), dtype=torch.float64)
    for v, image in zip(x, own, strict=True):
        logits = [(v * p / p.norm()).sum() / loss.eta for p in loss.proxies.double()]
        log_sum = torch.stack(logits).logsumexp(0)
        total = total - sum(logits[label[0]] - log_sum for label in image) / len(image)
    return total / len(x)


Slow = Callable[[Query], torch.Tensor]
CASES: dict[str, tuple[Loss, Slow]] = {
    "smooth_ap": (SmoothAP(), lambda q: 1 - slow_ap(q, sigmoid, sigmoid)),
    "sup_ap": (SupAP(), lambda q: 1 - slow_ap(q, heaviside, h_minus)),
    "sup_hap": (SupHAP(), lambda q: 1 - hierarchical(q, heaviside, h_minus)),
    "smooth_hap": (SmoothHAP(), lambda q: 1 - hierarchical(q, sigmoid, sigmoid)),
    "recall": (SmoothRecall((1, 3)), lambda q: 1 - slow_recall(q, (1, 3), sigmoid, sigmoid)),
    "sup_recall": (SupRecall((2,)), lambda q: 1 - slow_recall(q, (2,), heaviside, h_minus)),
    "sup_ndcg": (SupNDCG(), lambda q: 1 - oracles.ndcg(*q, h_minus)),
    "pairs": (DecomposabilityLoss(), slow_pairs),
    "roadmap": (
        roadmap(DecomposabilityLoss(), 0.3),
        lambda q: 0.7 * (1 - slow_ap(q, heaviside, h_minus)) + 0.3 * slow_pairs(q),
    ),
}


@given(IMAGES, IMAGES)
def test_levels_are_the_best_that_any_labels_share(own: list[list[int]], others: list[list[int]]) -> None:
    labels, references = padded(own), padded(others, width=4)
    expected = [[best_level(a, b) for b in lists(references)] for a in lists(labels)]
    assert pair_levels(labels, references).tolist() == expected
    shared = [[bool(set(a) & set(b)) for b in others] for a in own]
    assert shared_classes(labels[:, :, 0], references[:, :, 0]).tolist() == shared


@pytest.mark.filterwarnings("ignore:no query of a batch")
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=4)
@given(IMAGES, st.integers(0, 99))
def test_values_and_gradients_are_those_of_loops(name: str, images: list[list[int]], seed: int) -> None:
    """With the batch as references: each query is among its own positives, so that every query has one."""
    loss, slow = CASES[name]
    labels, x = padded(images), unit_vectors(len(images), 3, seed).requires_grad_()
    value = loss(x, labels)
    (gradient,) = torch.autograd.grad(value, x)
    others = x.detach().clone().requires_grad_()
    expected = torch.stack([slow(query) for query in queries(others, lists(labels), others, lists(labels))]).mean()
    (expected_gradient,) = torch.autograd.grad(expected + 0 * others.sum(), others)  # may be constant
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_references_may_have_more_labels_than_queries(name: str) -> None:
    loss, slow = CASES[name]
    own, others = padded([[0], [3, 5], [6]]), padded([[0, 7], [5], [1, 2, 3, 4], [6, 0], [7]])
    x, references = unit_vectors(3, 4).requires_grad_(), unit_vectors(5, 4, 1)
    value = loss(x, own, references, others)
    (gradient,) = torch.autograd.grad(value, x)
    found = [slow(query) for query in queries(x, lists(own), references, lists(others))]
    (expected_gradient,) = torch.autograd.grad(torch.stack(found).mean(), x)
    assert value.item() == pytest.approx(torch.stack(found).mean().item(), abs=1e-9)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_happier_averages_the_terms_of_an_images_labels(seed: int) -> None:
    torch.manual_seed(seed)
    proxies = ProxyLoss(8, 5)
    labels, x = padded(random_images(6, seed)), unit_vectors(6, 5, seed).requires_grad_()
    value = happier(proxies, 0.25)(x, labels)
    gradients = torch.autograd.grad(value, [x, proxies.proxies])
    rank_losses = [
        1 - hierarchical(query, heaviside, h_minus) for query in queries(x, lists(labels), x, lists(labels))
    ]
    expected = 0.75 * torch.stack(rank_losses).mean() + 0.25 * slow_proxies(proxies, x, lists(labels))
    assert value.item() == pytest.approx(expected.item(), abs=1e-9)
    for gradient, slow in zip(gradients, torch.autograd.grad(expected, [x, proxies.proxies]), strict=True):
        torch.testing.assert_close(gradient, slow, rtol=1e-5, atol=1e-6)  # proxies are float32


def test_levels_of_queries_that_share_a_reference_are_independent() -> None:
    """Image 1 shares a class with each of the others, which share nothing: no kernel may take that for one class."""
    labels, x = padded([[0], [0, 7], [7]]), unit_vectors(3, 4, 2)
    assert pair_levels(labels, labels).tolist() == [[3, 3, 0], [3, 3, 3], [0, 3, 3]]
    for loss, slow in CASES.values():
        expected = torch.stack([slow(query) for query in queries(x, lists(labels), x, lists(labels))]).mean()
        assert loss(x, labels).item() == pytest.approx(expected.item(), abs=1e-9)


#: All losses that take label sets, and that draw no random numbers.
SEVERAL: dict[str, Callable[[], Loss]] = {
    **{name: lambda loss=loss: loss for name, (loss, _) in CASES.items()},  # type: ignore[misc]
    "happier": lambda: happier(ProxyLoss(8, 6), 0.1),
    "softbin_ap": SoftBinAP,
    "sum": lambda: SumOverLevels(lambda column: SupAP(), 3),
    "memory": lambda: CrossBatchMemory(SupHAP(), 50, 6, 3, labels_per_image=1),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_sets_of_one_label_are_single_labels(name: str) -> None:
    torch.manual_seed(0)
    single, several = SEVERAL[name](), SEVERAL[name]()
    several.load_state_dict({k: v for k, v in single.state_dict().items() if "labels" not in k}, strict=False)
    if name == "memory":
        single = CrossBatchMemory(SupHAP(), 50, 6, 3)
    labels, x = LEAVES[torch.randint(8, (12,))], unit_vectors(12)
    width = 1 if name == "memory" else 3
    sets = torch.cat([labels[:, None], torch.full((12, width - 1, 3), -1)], 1)
    values = []
    for loss, given_labels in ((single, labels), (several, sets)):
        leaf = x.clone().requires_grad_()
        value = loss(leaf, given_labels)
        values.append((value.item(), torch.autograd.grad(value, leaf)[0]))
    assert values[0][0] == pytest.approx(values[1][0], abs=1e-12)
    torch.testing.assert_close(values[0][1], values[1][1])


def test_order_of_labels_and_padding_do_not_matter() -> None:
    images, x = random_images(8, 3), unit_vectors(8)
    labels = padded(images, width=4)
    turned = labels.flip(1)  # padding first
    wider = torch.cat([labels, torch.full((8, 3, 3), -1)], 1)
    for loss, _ in CASES.values():
        value = loss(x, labels)
        assert loss(x, turned).item() == pytest.approx(value.item(), abs=1e-12)
        assert torch.equal(loss(x, wider), value)
        assert torch.equal(loss(x, wider.numpy()), value)


def test_sum_over_levels_takes_the_classes_of_each_level() -> None:
    labels, x = padded(random_images(7, 1)), unit_vectors(7)
    total = SumOverLevels(lambda column: SupAP(), 3)(x, labels)
    levels = pair_levels(labels, labels)
    expected = sum(SupAP().query_losses(x @ x.T, (levels >= level).long(), 1).mean().item() for level in (1, 2, 3))
    assert total.item() == pytest.approx(expected, abs=1e-9)


def test_memory_holds_label_sets() -> None:
    memory = CrossBatchMemory(SupHAP(), size=10, dim=6, n_levels=3, labels_per_image=4)
    batches = [(unit_vectors(6, 6, seed), padded(random_images(6, seed), width=4)) for seed in (0, 1)]
    for x, labels in batches:
        value = memory(x, labels)
    stored = torch.cat([x for x, _ in batches])[2:].float().double(), torch.cat([labels for _, labels in batches])[2:]
    expected = (SupHAP()(x, labels) + SupHAP()(x, labels, *stored)) / 2
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    assert sorted(lists(memory.content()[1])) == sorted(lists(stored[1]))
    with pytest.raises(
        InputError, match=r"memory holds labels of shape \(4, 3\); set `labels_per_image` to the most"
    ):
        memory(batches[0][0], padded([[0, 1, 2, 3, 4]] * 6))
    with pytest.raises(InputError, match="`labels` have shape"):
        memory(batches[0][0], LEAVES[:6])


def test_gathering_keeps_sets() -> None:
    labels = padded(random_images(4, 0))
    assert torch.equal(gather_embeddings(unit_vectors(4), labels)[1], labels)


def test_label_space_of_sets() -> None:
    sets = LabelSets.from_lists([LEAVES[[0, 3]].numpy(), LEAVES[[5]].numpy()])
    assert LabelSpace.from_labels(4, sets) == LabelSpace(4, (6, 3, 2), labels_per_image=2)


@pytest.mark.parametrize(
    "loss",
    [ArcFace(8, 6), TripletLoss(), SiMix(SupAP()), happier(ArcFace(8, 6)), CrossBatchMemory(TripletLoss(), 9, 6, 3)],
)
def test_losses_of_single_labels_refuse_sets(loss: Loss) -> None:
    with pytest.raises(
        InputError, match="is for images with one label each, and these may have several; choose a rank"
    ):
        loss(unit_vectors(4), padded([[0], [1], [0], [1]]))


def test_random_and_binned_losses_take_sets() -> None:
    labels, x = padded(random_images(9, 4)), unit_vectors(9)
    same = pair_levels(labels, labels) == 3
    assert SoftBinAP()(x, labels) == SoftBinAP().forward_pairs(x @ x.T, same, ~same)
    torch.manual_seed(0)
    value = BlackBoxAP()(x, labels)
    torch.manual_seed(0)
    assert value == BlackBoxAP().forward_pairs(x @ x.T, same, ~same)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda labels: labels[1].fill_(-1), "`labels` of 1 of 3 images have no label, first in row 1"),
        (lambda labels: labels[2, 0].fill_(-2), "of 1 of 3 images have .*, first in row 2"),
        (lambda labels: labels[0, 0, 2].fill_(-1), "of 1 of 3 images have"),
    ],
)
def test_wrong_sets_are_refused(change: Callable[[torch.Tensor], Any], message: str) -> None:
    labels = padded([[0], [1, 2], [3]])
    change(labels)
    with pytest.raises(InputError, match=message):
        SupAP()(unit_vectors(3), labels)


def test_references_must_be_sets_as_well() -> None:
    with pytest.raises(InputError, match=r"expected \(N, 6\) and \(N, K, 3\)"):
        SupAP()(unit_vectors(3), padded([[0], [1], [2]]), unit_vectors(2), LEAVES[:2])

from typing import Any

import pytest
import torch
from torch.nn import functional

from hgld.losses import (
    LOSSES,
    CrossBatchMemory,
    LabelSpace,
    Loss,
    MixedPositives,
    ProxyLoss,
    SiMix,
    SmoothAP,
    SupAP,
    XBMContrastive,
    roadmap,
)
from hgld.losses.simix import same_class_pairs, with_virtual_items
from tests.losses.batches import hierarchical_batch

#: The losses of the methods in Table 2 of Patel et al. that hgld has, and of Table 3.
PATEL_TABLES = [
    *("recall", "smooth_ap", "proxy_nca", "margin", "xbm_contrastive", "fast_ap", "multi_similarity"),
    *("norm_softmax", "blackbox_ap", "proxy_nca_pp", "softbin_ap"),
]


def test_simix_repeats_with_its_generator() -> None:
    embeddings, labels = hierarchical_batch()
    first, second = (SiMix(SupAP(), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    value = first(embeddings, labels)
    assert value == second(embeddings, labels)
    assert value != first(embeddings, labels)
    assert first(embeddings, labels, *hierarchical_batch(1)).isfinite()


@pytest.mark.parametrize("loss", [SiMix(SupAP()), SupAP(mixup=MixedPositives())], ids=type)
def test_mixing_repeats_with_the_global_generator(loss: Loss) -> None:
    values = []
    for _ in range(2):
        torch.manual_seed(3)
        values.append(loss(*hierarchical_batch()))
    assert values[0] == values[1]


def test_mixed_positives_of_queries_with_different_numbers_of_positives() -> None:
    scores = torch.tensor([[0.1, 0.5, 0.3, 0.9], [0.1, 0.5, 0.3, 0.9]])
    levels = torch.tensor([[1, 0, 1, 1], [0, 1, -1, 1]])
    mixed_scores, mixed_levels = MixedPositives(torch.Generator().manual_seed(0))(scores, levels)
    assert mixed_levels[:, 4:].tolist() == [[1, 1, 1], [1, -1, -1]]
    bounds = [(0, 4, 0.1, 0.3), (0, 5, 0.1, 0.9), (0, 6, 0.3, 0.9), (1, 4, 0.5, 0.9)]
    assert all(low < mixed_scores[query, column] < high for query, column, low, high in bounds)
    torch.testing.assert_close(mixed_scores[:, :4], scores)
    without_positives = MixedPositives()(scores, torch.zeros_like(levels))
    assert without_positives[0].shape == (2, 4)


def smooth_ap_of_mixed_scores(scores: torch.Tensor, classes: list[int], tau: float = 0.01) -> float:
    """Return L_Smooth-AP of a batch whose items are queries and retrieved, as loops over its scores."""
    losses = []
    for query in range(len(scores)):
        positives = [k for k in range(len(scores)) if classes[k] == classes[query]]
        ratios = []
        for k in positives:
            steps = torch.sigmoid((scores[query] - scores[query, k]) / tau)
            steps[k] = 0
            ratios.append((1 + float(steps[positives].sum())) / (1 + float(steps.sum())))
        losses.append(1 - sum(ratios) / len(ratios))
    return sum(losses) / len(losses)


def test_smooth_ap_of_virtual_items_is_that_of_mixed_similarities() -> None:
    """Eqs. 9 and 10: similarities are mixed, and virtual items are queries, positives and negatives."""
    x, labels = hierarchical_batch(n_classes=4)
    pairs = same_class_pairs(labels)
    alphas = torch.linspace(0.1, 0.9, len(pairs), dtype=torch.float64)
    weights = torch.cat([torch.eye(len(x)), torch.zeros(len(pairs), len(x))]).double()
    for row, ((i, j), alpha) in enumerate(zip(pairs.tolist(), alphas.tolist(), strict=True), start=len(x)):
        weights[row, i], weights[row, j] = alpha, 1 - alpha
    mixed_scores = weights @ (x @ x.T) @ weights.T
    classes = labels[:, 0].tolist() + labels[pairs[:, 0], 0].tolist()
    value = SmoothAP().forward_batch(*with_virtual_items(x, labels, pairs, alphas))
    assert value.item() == pytest.approx(smooth_ap_of_mixed_scores(mixed_scores, classes), abs=1e-9)


def build(name: str, **options: Any) -> Loss:
    torch.manual_seed(0)
    return LOSSES[name](LabelSpace.from_labels(6, hierarchical_batch()[1].numpy()), **options).double()


@pytest.mark.parametrize("name", PATEL_TABLES)
def test_losses_see_virtual_items_as_they_are(name: str) -> None:
    """With coefficients of 1 virtual items are copies; those between are not normalised again."""
    x, labels = hierarchical_batch()
    loss, mixed = build(name), build(name, simix=True)
    assert isinstance(mixed, SiMix)
    pairs = same_class_pairs(labels)
    values = []
    for length in (1.0, 0.5):
        virtual = length * x[pairs[:, 0]]
        torch.manual_seed(1)
        values.append(loss.forward_batch(torch.cat([x, virtual]), torch.cat([labels, labels[pairs[:, 0]]])))
    assert values[0] != values[1]
    assert torch.stack(values).isfinite().all()
    assert mixed(x, labels).isfinite()


@pytest.mark.filterwarnings("ignore:no query of a batch")
def test_virtual_items_are_not_their_own_positives_in_the_contrastive_loss() -> None:
    short = functional.normalize(torch.randn(2, 4, generator=torch.Generator().manual_seed(0))) * 0.5
    assert XBMContrastive().forward_batch(short, torch.tensor([[0], [1]])) == 0


def test_simix_of_proxies_has_no_reference_part() -> None:
    assert SiMix(ProxyLoss(4, 6)).reference_part() is None
    part = SiMix(SupAP()).reference_part()
    assert isinstance(part, SiMix)
    x, labels = hierarchical_batch(dtype=torch.float32)
    assert CrossBatchMemory(SiMix(SupAP()), size=30, dim=6, n_levels=3)(x, labels).isfinite()


def test_simix_of_a_sum_keeps_its_proxies_beside_a_memory() -> None:
    x, labels = hierarchical_batch(dtype=torch.float32)
    torch.manual_seed(0)
    loss = SiMix(roadmap(ProxyLoss(6, 6)))
    with_memory = CrossBatchMemory(loss, size=30, dim=6, n_levels=3)
    with_memory(x, labels)
    assert set(with_memory.parts) >= {"batch.sup_ap", "batch.decomposability", "memory.sup_ap"}
    assert "memory.decomposability" not in with_memory.parts

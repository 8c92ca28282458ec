from __future__ import annotations

import torch

from hgld.losses import MixedPositives, SiMix, SupAP
from tests.losses.batches import hierarchical_batch


def test_simix_repeats_with_its_generator() -> None:
    embeddings, labels = hierarchical_batch()
    first, second = (SiMix(SupAP(), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    value = first(embeddings, labels)
    assert value == second(embeddings, labels)
    assert value != first(embeddings, labels)
    assert first(embeddings, labels, *hierarchical_batch(1)).isfinite()


def test_simix_repeats_with_the_global_generator() -> None:
    embeddings, labels = hierarchical_batch()
    torch.manual_seed(3)
    value = SiMix(SupAP())(embeddings, labels)
    torch.manual_seed(3)
    assert value == SiMix(SupAP())(embeddings, labels)


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


def test_mixed_positives_repeat_with_the_global_generator() -> None:
    embeddings, labels = hierarchical_batch()
    torch.manual_seed(0)
    value = SupAP(mixup=MixedPositives())(embeddings, labels)
    torch.manual_seed(0)
    assert value == SupAP(mixup=MixedPositives())(embeddings, labels)

"""MultiSupCon against plain loops over sets of classes, and against the supervised contrastive loss of one level."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss

from hgld.losses import MultiSupCon
from tests.losses.batches import LABELS, REFERENCE_LABELS, hierarchical_batch, unit_vectors

#: A class of each level below two roots.
LEAVES = torch.tensor([[leaf, leaf // 2, leaf // 4] for leaf in range(8)])
IMAGES = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True), min_size=2, max_size=6)


def padded(images: list[list[int]]) -> torch.Tensor:
    return torch.stack([torch.cat([LEAVES[image], torch.full((5 - len(image), 3), -1)]) for image in images])


def classes(image: list[list[int]]) -> set[tuple[int, int]]:
    return {(column, row[column]) for row in image for column in range(3) if row[column] >= 0}


def loops(
    queries: torch.Tensor, labels: Any, items: torch.Tensor, item_labels: Any, tau: float, threshold: float
) -> torch.Tensor:
    """Return the formula of the docstring, for the same images if queries and items are the same object."""
    values = []
    for i, query in enumerate(queries):
        others = [a for a in range(len(items)) if queries is not items or a != i]
        total = torch.stack([query @ items[a] / tau for a in others]).logsumexp(0)
        terms = []
        for p in others:
            own, other = classes(labels[i]), classes(item_labels[p])
            overlap = len(own & other) / len(own | other)
            if overlap >= threshold:
                terms.append(-overlap * (query @ items[p] / tau - total))
        if terms:
            values.append(torch.stack(terms).mean())
    return torch.stack(values).mean() if values else queries.sum() * 0


@settings(max_examples=15)
@given(IMAGES, IMAGES, st.sampled_from([0.05, 0.3, 1.0]), st.booleans())
@pytest.mark.filterwarnings("ignore:no query of a batch")
def test_values_and_gradients_of_label_sets_are_those_of_loops(
    images: list[list[int]], others: list[list[int]], threshold: float, alone: bool
) -> None:
    x, y = unit_vectors(len(images)).requires_grad_(), unit_vectors(len(others), seed=1)
    labels, other_labels = padded(images), padded(others)
    loss = MultiSupCon(0.2, threshold)
    value = loss(x, labels) if alone else loss(x, labels, y, other_labels)
    items, item_labels = (x, labels) if alone else (y, other_labels)
    expected = loops(x, labels.tolist(), items, item_labels.tolist(), 0.2, threshold)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(each, x)[0] for each in (value, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_single_labels_are_label_sets_of_one() -> None:
    x, labels = hierarchical_batch()
    torch.testing.assert_close(MultiSupCon()(x, labels), MultiSupCon()(x, labels.unsqueeze(1)), rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(lambda raw: MultiSupCon().forward_batch(raw, labels), x.requires_grad_())


def test_one_level_is_the_supervised_contrastive_loss() -> None:
    x, y = unit_vectors(len(LABELS)), unit_vectors(len(REFERENCE_LABELS), seed=1)
    oracle = SupConLoss(0.07)  # its mean leaves out anchors without positives too
    expected = oracle(x, LABELS[:, 0]), oracle(x, LABELS[:, 0], ref_emb=y, ref_labels=REFERENCE_LABELS[:, 0])
    values = MultiSupCon()(x, LABELS), MultiSupCon()(x, LABELS, y, REFERENCE_LABELS)
    torch.testing.assert_close(values, expected, rtol=1e-9, atol=0)

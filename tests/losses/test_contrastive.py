"""The contrastive losses and the multi-similarity loss."""

import itertools
import math

import pytest
import torch

from hgld.losses import ContrastiveLoss, DecomposabilityLoss, Loss, MultiSimilarityLoss, XBMContrastive
from tests.losses.batches import class_vectors

LABELS = torch.tensor([[0], [0], [1], [1], [1], [2], [0], [3]])
REFERENCE_LABELS = torch.tensor([[0], [1], [1], [2], [3], [0]])
X = class_vectors(LABELS)
REFERENCES = class_vectors(REFERENCE_LABELS, seed=1)


def test_contrastive_agrees_with_the_violating_pairs_of_our_pair_loss() -> None:
    """Compare two implementations: pytorch-metric-learning's and our L_DG."""
    ours = DecomposabilityLoss(alpha=1.0, beta=0.5, reduction="violating")
    for given in ((), (REFERENCES, REFERENCE_LABELS)):
        assert ContrastiveLoss()(X, LABELS, *given).item() == pytest.approx(ours(X, LABELS, *given).item(), abs=1e-12)


def test_xbm_contrastive_agrees_with_loops() -> None:
    total = 0.0
    for i, j in itertools.product(range(8), range(6)):
        score = float(X[i] @ REFERENCES[j])
        if LABELS[i, 0] == REFERENCE_LABELS[j, 0]:
            total += 1 - score if score < 1 - 1e-5 else 0
        elif score > 0.1:
            total += score
    loss = XBMContrastive(margin=0.1)
    assert loss(X, LABELS, REFERENCES, REFERENCE_LABELS).item() == pytest.approx(total / 8, abs=1e-12)
    # queries among the references are not their own positives
    both = torch.cat([REFERENCES, X]), torch.cat([REFERENCE_LABELS, LABELS])
    assert loss(X, LABELS, *both).item() == pytest.approx(total / 8 + loss(X, LABELS).item(), abs=1e-12)


def test_multi_similarity_agrees_with_loops() -> None:
    # without a positive, the library takes all negatives: only classes with two items or more are compared
    kept = [0, 1, 2, 3, 4, 6]
    for y, y_labels in ((X[kept], LABELS[kept]), (REFERENCES, REFERENCE_LABELS)):
        total = 0.0
        for i in kept:
            others = [j for j in range(len(y)) if y is REFERENCES or kept[j] != i]
            positives = [float(X[i] @ y[j]) for j in others if y_labels[j, 0] == LABELS[i, 0]]
            negatives = [float(X[i] @ y[j]) for j in others if y_labels[j, 0] != LABELS[i, 0]]
            hard_positives = [p for p in positives if p - 0.1 < max(negatives)]
            hard_negatives = [n for n in negatives if n + 0.1 > min(positives)]
            total += math.log(1 + sum(math.exp(-2 * (p - 0.5)) for p in hard_positives)) / 2
            total += math.log(1 + sum(math.exp(50 * (n - 0.5)) for n in hard_negatives)) / 50
        given = () if y is not REFERENCES else (y, y_labels)
        assert MultiSimilarityLoss()(X[kept], LABELS[kept], *given).item() == pytest.approx(total / 6, abs=1e-12)


@pytest.mark.filterwarnings("ignore:no query of a batch")
@pytest.mark.parametrize("loss", [ContrastiveLoss(), MultiSimilarityLoss()])
def test_batch_without_pairs_has_no_loss_and_no_gradient(loss: Loss) -> None:
    x = torch.eye(3, requires_grad=True)
    value = loss(x, torch.tensor([[0], [1], [2]]))
    value.backward()
    assert value == 0
    assert x.grad is not None
    assert not x.grad.any()

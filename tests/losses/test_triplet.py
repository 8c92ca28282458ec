import itertools
import math

import pytest
import torch

from hgld.losses import TripletLoss
from hgld.losses.pair_losses import Mining
from tests.losses.batches import class_vectors

LABELS = torch.tensor([[0], [0], [1], [1], [1], [2], [0], [3]])
REFERENCE_LABELS = torch.tensor([[0], [1], [1], [2], [3], [0]])
X = class_vectors(LABELS)
REFERENCES = class_vectors(REFERENCE_LABELS, seed=1)


def triplet_loss(x: torch.Tensor, y: torch.Tensor, mining: str, margin: float, include_query: bool = False) -> float:
    """Return the triplet loss by loops; ``y`` is ``x`` where there are no references."""
    y_labels = LABELS if y is x else REFERENCE_LABELS
    losses = []
    for i in range(len(x)):
        others = [j for j in range(len(y)) if y is not x or i != j or include_query]
        positives = [float(x[i] @ y[j]) for j in others if y_labels[j, 0] == LABELS[i, 0]]
        negatives = [float(x[i] @ y[j]) for j in others if y_labels[j, 0] != LABELS[i, 0]]
        if mining == "easy_positive":
            positives = [max(positives, default=math.nan)]
            negatives = [max((n for n in negatives if n < positives[0]), default=math.nan)]
        for p, n in itertools.product(positives, negatives):
            if mining != "semihard" or 0 < p - n <= margin:
                losses.append(n - p + margin)
    violating = [loss for loss in losses if loss > 0]
    return sum(violating) / max(1, len(violating))


@pytest.mark.parametrize("mining", ["semihard", "easy_positive", "all"])
@pytest.mark.parametrize("margin", [0.05, 0.3])
def test_values_agree_with_loops(mining: Mining, margin: float) -> None:
    loss = TripletLoss(margin, mining)
    within_batch = triplet_loss(X, X, mining, margin)
    against_references = triplet_loss(X, REFERENCES, mining, margin)
    assert within_batch > 0
    assert against_references > 0
    assert loss(X, LABELS).item() == pytest.approx(within_batch, abs=1e-12)
    assert loss(X, LABELS, REFERENCES, REFERENCE_LABELS).item() == pytest.approx(against_references, abs=1e-12)


def test_the_query_is_one_of_its_own_positives_where_the_published_code_has_it() -> None:
    close = torch.nn.functional.normalize(X + 4 * X[:1])  # some negatives are more similar than 1 - margin
    for mining in ("all", "easy_positive"):
        loss = TripletLoss(0.2, mining, include_query=True)
        expected = triplet_loss(close, close, mining, 0.2, include_query=True)
        assert expected != triplet_loss(close, close, mining, 0.2) > 0
        assert loss(close, LABELS).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.filterwarnings("ignore:no query of a batch")
def test_batch_without_positives_has_no_loss_and_no_gradient() -> None:
    x = torch.eye(3, requires_grad=True)
    value = TripletLoss()(x, torch.tensor([[0], [1], [2]]))
    value.backward()
    assert value == 0
    assert x.grad is not None
    assert not x.grad.any()

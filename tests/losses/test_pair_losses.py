"""Losses of pairs and triplets against loops over their definitions, and pytorch-metric-learning."""

import itertools
import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as library
from pytorch_metric_learning.distances import LpDistance

from hgld.errors import ConfigurationError
from hgld.losses import (
    ContrastiveLoss,
    DecomposabilityLoss,
    KoLeo,
    LiftedStructureLoss,
    Loss,
    MarginLoss,
    MultiSimilarityLoss,
    SelectivelyContrastiveTriplet,
    SphericalConstraint,
    TripletLoss,
    XBMContrastive,
    irt,
    pair_losses,
)
from hgld.losses.pair_losses import Mining, sampling_weights
from tests.losses.batches import LABELS, REFERENCE_LABELS, check_gradients, class_vectors, gradient, unit_vectors

X = class_vectors(LABELS)
CLASSES = LABELS[:, 0].tolist()
#: References of the same classes, and others of which some have a class that no query has.
NEAR_LABELS = torch.tensor([[0], [1], [1], [2], [3], [0]])
NEAR = class_vectors(NEAR_LABELS, seed=1)
FAR = unit_vectors(6, seed=1)


def distance(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).norm())


def scores_of(
    i: int, x: torch.Tensor, y: torch.Tensor, y_labels: torch.Tensor, include_query: bool = False
) -> tuple[list[float], list[float]]:
    """Return the scores of a query with its positives and negatives; ``y`` is ``x`` where there are no references."""
    others = [j for j in range(len(y)) if y is not x or i != j or include_query]
    positives = [float(x[i] @ y[j]) for j in others if y_labels[j, 0] == LABELS[i, 0]]
    return positives, [float(x[i] @ y[j]) for j in others if y_labels[j, 0] != LABELS[i, 0]]


def test_contrastive_agrees_with_the_violating_pairs_of_our_pair_loss() -> None:
    """Compare two implementations: pytorch-metric-learning's and our L_DG."""
    ours = DecomposabilityLoss(alpha=1.0, beta=0.5, reduction="violating")
    for given in ((), (NEAR, NEAR_LABELS)):
        assert ContrastiveLoss()(X, LABELS, *given).item() == pytest.approx(ours(X, LABELS, *given).item(), abs=1e-12)


def test_xbm_contrastive_agrees_with_loops() -> None:
    total = 0.0
    for i in range(8):
        positives, negatives = scores_of(i, X, NEAR, NEAR_LABELS)
        total += sum(1 - score for score in positives if score < 1 - 1e-5) + sum(s for s in negatives if s > 0.1)
    loss = XBMContrastive(margin=0.1)
    assert loss(X, LABELS, NEAR, NEAR_LABELS).item() == pytest.approx(total / 8, abs=1e-12)
    # queries among the references are not their own positives
    both = torch.cat([NEAR, X]), torch.cat([NEAR_LABELS, LABELS])
    assert loss(X, LABELS, *both).item() == pytest.approx(total / 8 + loss(X, LABELS).item(), abs=1e-12)


def test_multi_similarity_agrees_with_loops() -> None:
    # without a positive, the library takes all negatives: only classes with two items or more are compared
    kept = [0, 1, 2, 3, 4, 6]
    for y, y_labels in ((X, LABELS), (NEAR, NEAR_LABELS)):
        total = 0.0
        for i in kept:
            items = kept if y is X else range(6)
            positives = [
                float(X[i] @ y[j]) for j in items if y_labels[j, 0] == LABELS[i, 0] and (y is NEAR or i != j)
            ]
            negatives = [float(X[i] @ y[j]) for j in items if y_labels[j, 0] != LABELS[i, 0]]
            hard_positives = [p for p in positives if p - 0.1 < max(negatives)]
            hard_negatives = [n for n in negatives if n + 0.1 > min(positives)]
            total += math.log(1 + sum(math.exp(-2 * (p - 0.5)) for p in hard_positives)) / 2
            total += math.log(1 + sum(math.exp(50 * (n - 0.5)) for n in hard_negatives)) / 50
        given = () if y is X else (y, y_labels)
        assert MultiSimilarityLoss()(X[kept], LABELS[kept], *given).item() == pytest.approx(total / 6, abs=1e-12)


def triplet_loss(x: torch.Tensor, y: torch.Tensor, mining: str, margin: float, include_query: bool = False) -> float:
    """Return the triplet loss by loops."""
    losses = []
    for i in range(len(x)):
        positives, negatives = scores_of(i, x, y, LABELS if y is x else NEAR_LABELS, include_query)
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
def test_triplets_agree_with_loops(mining: Mining, margin: float) -> None:
    loss = TripletLoss(margin, mining)
    within_batch, against_references = (triplet_loss(X, y, mining, margin) for y in (X, NEAR))
    assert min(within_batch, against_references) > 0
    assert loss(X, LABELS).item() == pytest.approx(within_batch, abs=1e-12)
    assert loss(X, LABELS, NEAR, NEAR_LABELS).item() == pytest.approx(against_references, abs=1e-12)


def test_the_query_is_one_of_its_own_positives_where_the_published_code_has_it() -> None:
    close = torch.nn.functional.normalize(X + 4 * X[:1])  # some negatives are more similar than 1 - margin
    minings: list[Mining] = ["all", "easy_positive"]
    for mining in minings:
        expected = triplet_loss(close, close, mining, 0.2, include_query=True)
        assert expected != triplet_loss(close, close, mining, 0.2) > 0
        loss = TripletLoss(0.2, mining, include_query=True)
        assert loss(close, LABELS).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("references", [False, True])
def test_selective_contrast_agrees_with_loops(references: bool) -> None:
    y, y_labels = (FAR, REFERENCE_LABELS) if references else (X, LABELS)
    terms = []
    for i in range(8):
        positives, negatives = scores_of(i, X, y, y_labels)
        if positives:
            p, n = max(positives), max(negatives)
            terms.append(0.5 * n if n > p or n > 0.3 else math.log1p(math.exp((n - p) / 0.1)))
    loss = SelectivelyContrastiveTriplet(hard=0.3, weight=0.5)
    value = loss(X, LABELS, *((y, y_labels) if references else ()))
    assert value.item() == pytest.approx(sum(terms) / len(terms), abs=1e-12)


def test_selective_contrast_does_not_pull_copies() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    assert SelectivelyContrastiveTriplet()(x, torch.tensor([0, 0, 1])) == 0


def lifted_structure(y: torch.Tensor, y_labels: torch.Tensor) -> float:
    classes, terms = y_labels[:, 0].tolist(), []
    for i, j in itertools.product(range(len(X)), range(len(y))):
        if CLASSES[i] != classes[j] or (y is X and i == j):
            continue
        of_i = [distance(X[i], y[k]) for k in range(len(y)) if classes[k] != CLASSES[i]]
        of_j = [distance(X[k], y[j]) for k in range(len(X)) if CLASSES[k] != classes[j]]
        total = sum(math.exp(1 - each) for each in of_i + of_j)
        terms.append(max(0.0, math.log(total) + distance(X[i], y[j])) ** 2 / 2)
    return sum(terms) / len(terms)


def test_lifted_structure_agrees_with_loops_and_the_library() -> None:
    value = LiftedStructureLoss()(X, LABELS)
    assert value.item() == pytest.approx(lifted_structure(X, LABELS), abs=1e-9)
    other = library.LiftedStructureLoss(distance=LpDistance(normalize_embeddings=False))
    torch.testing.assert_close(value, other(X, LABELS[:, 0]), rtol=1e-9, atol=0)
    with_references = LiftedStructureLoss()(X, LABELS, FAR, REFERENCE_LABELS)
    assert with_references.item() == pytest.approx(lifted_structure(FAR, REFERENCE_LABELS), abs=1e-9)


@pytest.mark.parametrize("references", [False, True])
def test_margin_agrees_with_the_library_on_the_same_triplets(
    references: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = MarginLoss(4).double()
    drawn: list[tuple[torch.Tensor, ...]] = []
    draw = pair_losses._sampled_triplets

    def recorded(*arguments: Any) -> tuple[torch.Tensor, ...]:
        drawn.append(draw(*arguments))
        return drawn[-1]

    monkeypatch.setattr(pair_losses, "_sampled_triplets", recorded)
    value = loss(X, LABELS, *((FAR, REFERENCE_LABELS) if references else ()))
    other = library.MarginLoss(learn_beta=True, num_classes=4, distance=LpDistance(normalize_embeddings=False))
    columns = (FAR, REFERENCE_LABELS[:, 0]) if references else (X, LABELS[:, 0])
    expected = other.double()(X, LABELS[:, 0], drawn[0], *columns).double()
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
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


@pytest.mark.filterwarnings("ignore:no query of a batch")
@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        *[(loss, torch.arange(6)[:, None]) for loss in (ContrastiveLoss(), MultiSimilarityLoss(), TripletLoss())],
        (MarginLoss(4), LABELS),  # negatives are at a distance of the root of 2, too far to be drawn
    ],
)
def test_batch_without_pairs_or_near_negatives_has_no_loss_and_no_gradient(loss: Loss, labels: torch.Tensor) -> None:
    x = torch.eye(6, dtype=torch.float64)[labels[:, 0]].requires_grad_()
    value = loss(x, labels)
    assert value == 0
    assert not gradient(value, x).any()


def naive_koleo(embeddings: torch.Tensor) -> torch.Tensor:
    terms = [
        torch.stack([torch.dist(one, other) for j, other in enumerate(embeddings) if j != i]).min().log()
        for i, one in enumerate(embeddings)
    ]
    return -torch.stack(terms).mean()


def test_entropy_is_that_of_nearest_neighbours() -> None:
    embeddings = unit_vectors(len(LABELS)).requires_grad_()
    value, expected = KoLeo()(embeddings, LABELS), naive_koleo(embeddings)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    gradients = (torch.autograd.grad(each, embeddings)[0] for each in (value, expected))
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_entropy_of_equal_and_single_embeddings_is_finite() -> None:
    equal = unit_vectors(1).repeat(3, 1).requires_grad_()
    value = KoLeo()(equal, LABELS[:3])
    assert value.item() == pytest.approx(-math.log(1e-8))
    assert not gradient(value, equal).any()
    assert KoLeo()(unit_vectors(1), LABELS[:1]) == 0


def test_spherical_constraint_is_the_variance_of_lengths() -> None:
    embeddings = (torch.arange(1, 9) * unit_vectors(8).T).T.requires_grad_()
    value = SphericalConstraint()(embeddings, LABELS)
    assert value.item() == pytest.approx((8**2 - 1) / 12, rel=1e-12)  # of 1 to 8
    assert torch.autograd.gradcheck(lambda x: SphericalConstraint()(x, LABELS), embeddings)
    assert SphericalConstraint()(unit_vectors(8), LABELS).item() == pytest.approx(0, abs=1e-12)


def test_irt_adds_the_entropy_of_the_batch_to_the_contrastive_loss() -> None:
    embeddings, references = unit_vectors(len(LABELS)), (FAR, REFERENCE_LABELS)
    for others in ((), references):
        loss = irt(lambda_=0.3, margin=0.2)
        expected = XBMContrastive(0.2)(embeddings, LABELS, *others) + 0.3 * naive_koleo(embeddings)
        torch.testing.assert_close(loss(embeddings, LABELS, *others), expected)
        assert list(loss.parts) == ["contrastive", "entropy"]
    memory = loss.reference_part()
    assert memory is not None
    expected = XBMContrastive(0.2)(embeddings, LABELS, *references)
    torch.testing.assert_close(memory(embeddings, LABELS, *references), expected)
    with pytest.raises(ConfigurationError, match="`lambda_` is -1"):
        irt(lambda_=-1)


@pytest.mark.parametrize(
    "loss", [LiftedStructureLoss(), MarginLoss(4), SelectivelyContrastiveTriplet(), KoLeo()], ids=repr
)
def test_gradients_agree_with_finite_differences(loss: Loss) -> None:
    check_gradients(loss, X, LABELS)

"""The entropy regulariser against loops, alone and in the loss of IRT_R."""

from __future__ import annotations

import math

import pytest
import torch

from hgld.errors import ConfigurationError
from hgld.losses import KoLeo, XBMContrastive, irt
from tests.losses.batches import LABELS, REFERENCE_LABELS, unit_vectors


def naive_koleo(embeddings: torch.Tensor) -> torch.Tensor:
    terms = [
        torch.stack([torch.dist(one, other) for j, other in enumerate(embeddings) if j != i]).min().log()
        for i, one in enumerate(embeddings)
    ]
    return -torch.stack(terms).mean()


def test_entropy_is_that_of_nearest_neighbours() -> None:
    embeddings = unit_vectors(len(LABELS)).requires_grad_()
    value = KoLeo()(embeddings, LABELS)
    torch.testing.assert_close(value, naive_koleo(embeddings), rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(value, embeddings)
    (expected,) = torch.autograd.grad(naive_koleo(embeddings), embeddings)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: KoLeo()(x, LABELS), embeddings)


def test_equal_and_single_embeddings_are_finite() -> None:
    equal = unit_vectors(1).repeat(3, 1).requires_grad_()
    value = KoLeo()(equal, LABELS[:3])
    value.backward()
    assert value.item() == pytest.approx(-math.log(1e-8))
    assert equal.grad is not None
    assert not equal.grad.any()
    assert KoLeo()(unit_vectors(1), LABELS[:1]) == 0


def test_irt_adds_the_entropy_of_the_batch_to_the_contrastive_loss() -> None:
    embeddings, references = unit_vectors(len(LABELS)), unit_vectors(len(REFERENCE_LABELS), seed=1)
    for others in ((), (references, REFERENCE_LABELS)):
        loss = irt(lambda_=0.3, margin=0.2)
        expected = XBMContrastive(0.2)(embeddings, LABELS, *others) + 0.3 * naive_koleo(embeddings)
        torch.testing.assert_close(loss(embeddings, LABELS, *others), expected)
        assert list(loss.parts) == ["contrastive", "entropy"]
    memory = loss.reference_part()
    assert memory is not None
    torch.testing.assert_close(
        memory(embeddings, LABELS, references, REFERENCE_LABELS),
        XBMContrastive(0.2)(embeddings, LABELS, references, REFERENCE_LABELS),
    )
    with pytest.raises(ConfigurationError, match="`lambda_` is -1"):
        irt(lambda_=-1)

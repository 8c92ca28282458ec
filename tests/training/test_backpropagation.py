from __future__ import annotations

import pytest
import torch
from torch import nn

from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_settings import ModelSettings
from hgld.training.backpropagation import backpropagate
from tests.training import toy
from tests.training.toy import gradients

LABELS = torch.arange(12) // 3


def made(dropout: float) -> EmbeddingModel:
    torch.manual_seed(0)
    return toy.build(ModelSettings(backbone="toy", pretrained=False, pooling="average", dim=6), dropout)


def loss_of(embeddings: torch.Tensor) -> torch.Tensor:
    """No sum over images: a softmax over all pairs."""
    same = (LABELS[:, None] == LABELS).float()
    return -((embeddings @ embeddings.T * 5).log_softmax(1) * same).sum()


@pytest.mark.parametrize("chunk_size", [1, 5, 6, 12, 40])
def test_chunks_give_the_gradient_of_one_pass(chunk_size: int) -> None:
    images = torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    model = made(dropout=0.0)
    one = backpropagate(model, images, loss_of)
    expected = gradients(model)
    model.zero_grad()
    loss = backpropagate(model, images, loss_of, chunk_size=chunk_size, scale=lambda loss: 2 * loss)
    torch.testing.assert_close(loss, one)
    torch.testing.assert_close(gradients(model), 2 * expected, rtol=1e-5, atol=1e-5)


def test_dropout_drops_the_same_in_both_passes() -> None:
    images = torch.randn(12, 3, 16, 16)
    model = made(dropout=0.5)
    torch.manual_seed(7)
    loss = loss_of(torch.cat([model(chunk) for chunk in images.split(5)]))
    loss.backward()
    expected, after = gradients(model), torch.rand(3)
    model.zero_grad()
    torch.manual_seed(7)
    torch.testing.assert_close(backpropagate(model, images, loss_of, chunk_size=5), loss.detach())
    torch.testing.assert_close(gradients(model), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.rand(3), after, rtol=0, atol=0)  # as if there had been one pass


def test_a_frozen_model_lets_the_loss_learn() -> None:
    images, proxies = torch.randn(12, 3, 16, 16), nn.Parameter(torch.randn(4, 6))

    def proxy_loss(embeddings: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(embeddings @ proxies.T, LABELS)

    model = made(dropout=0.0).requires_grad_(False)
    backpropagate(model, images, proxy_loss)
    assert proxies.grad is not None
    expected, proxies.grad = proxies.grad, None
    backpropagate(model, images, proxy_loss, chunk_size=5)
    torch.testing.assert_close(proxies.grad, expected)

import pytest
import torch
from torch import nn

from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_settings import ModelSettings
from hgld.training.optimisation import backpropagate
from tests.training import toy
from tests.training.toy import gradients

LABELS = torch.arange(12) // 3


def toy_model(dropout: float) -> EmbeddingModel:
    torch.manual_seed(0)
    return toy.build(ModelSettings(backbone="toy", pretrained=False, pooling="average", dim=6), dropout)


def softmax_loss(embeddings: torch.Tensor) -> torch.Tensor:
    """Return a loss that is not a sum over images: a softmax over all pairs."""
    same = (LABELS[:, None] == LABELS).float()
    return -((embeddings @ embeddings.T * 5).log_softmax(1) * same).sum()


@pytest.mark.parametrize("chunk_size", [1, 5, 6, 12, 40])
def test_chunks_give_the_gradient_of_a_single_pass(chunk_size: int) -> None:
    images = torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    model = toy_model(dropout=0.0)
    expected_loss = backpropagate(model, images, softmax_loss)
    expected = gradients(model)
    model.zero_grad()
    loss = backpropagate(model, images, softmax_loss, chunk_size=chunk_size, scale=lambda loss: 2 * loss)
    torch.testing.assert_close(loss, expected_loss)
    torch.testing.assert_close(gradients(model), 2 * expected, rtol=1e-5, atol=1e-5)


def test_chunks_of_images_of_unequal_shape_give_the_gradient_of_a_single_pass() -> None:
    rng = torch.Generator().manual_seed(1)
    images = [torch.randn(3, 16 + 4 * (n % 3), 16, generator=rng) for n in range(12)]
    model = toy_model(dropout=0.0)
    embeddings = torch.cat([model(image[None]) for image in images])
    expected_loss = softmax_loss(embeddings)
    expected_loss.backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    for chunk_size in (None, 5):
        model.zero_grad()
        loss = backpropagate(model, images, softmax_loss, chunk_size=chunk_size)
        torch.testing.assert_close(loss, expected_loss.detach())
        torch.testing.assert_close(gradients(model), expected, rtol=1e-5, atol=1e-5)


def test_both_passes_use_the_same_dropout() -> None:
    images = torch.randn(12, 3, 16, 16)
    model = toy_model(dropout=0.5)
    torch.manual_seed(7)
    loss = softmax_loss(torch.cat([model(chunk) for chunk in torch.split(images, 5)]))
    loss.backward()  # type: ignore[no-untyped-call]
    expected, after = gradients(model), torch.rand(3)
    model.zero_grad()
    torch.manual_seed(7)
    torch.testing.assert_close(backpropagate(model, images, softmax_loss, chunk_size=5), loss.detach())
    torch.testing.assert_close(gradients(model), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.rand(3), after, rtol=0, atol=0)  # as after a single pass


def test_loss_has_gradients_where_the_model_is_frozen() -> None:
    images, proxies = torch.randn(12, 3, 16, 16), nn.Parameter(torch.randn(4, 6))

    def proxy_loss(embeddings: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(embeddings @ proxies.T, LABELS)

    model = toy_model(dropout=0.0).requires_grad_(False)
    backpropagate(model, images, proxy_loss)
    assert proxies.grad is not None
    expected, proxies.grad = proxies.grad, None
    backpropagate(model, images, proxy_loss, chunk_size=5)
    torch.testing.assert_close(proxies.grad, expected)


def test_chunks_of_batch_norm_that_learns_its_statistics_are_warned_of() -> None:
    images = torch.randn(12, 3, 16, 16)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    backpropagate(model, images, softmax_loss)
    with pytest.warns(UserWarning, match="gradients differ from those of one pass; set model.frozen_batch_norm"):
        backpropagate(model, images, softmax_loss, chunk_size=5)
    model[1].eval()
    backpropagate(model, images, softmax_loss, chunk_size=5)

"""PCA against numpy."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError, InputError
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.pca_projection import Moments, initialise_projection, pca
from tests.assertions import not_none
from tests.models.test_embedding_model import batch_norm, images, tiny


def features(n: int, c: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, c)) @ rng.normal(size=(c, c)) + 10 * rng.normal(size=c)


def moments_of(x: np.ndarray, *cuts: int) -> Moments:
    first, *others = (Moments.from_vectors(torch.from_numpy(part)) for part in np.split(x, sorted(cuts)) if len(part))
    return sum(others, start=first)


@settings(max_examples=20)
@given(st.integers(2, 40), st.lists(st.integers(0, 40), max_size=4), st.integers(0, 3))
def test_moments_of_batches_match_numpy(n: int, cuts: list[int], seed: int) -> None:
    x = features(n, 5, seed)
    moments = moments_of(x, *cuts)
    assert moments.count == n
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.scatter / (n - 1), np.cov(x.T), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize("dim", [1, 4, 8])
def test_projection_matches_numpy_svd(dim: int, whitened: bool) -> None:
    x = features(200, 8)
    weight, bias = pca(moments_of(x, 7, 100), dim, whitened=whitened)
    projected = x @ weight.numpy().T + bias.numpy()
    # by singular value decomposition, without a covariance matrix
    _, s, v = np.linalg.svd(x - x.mean(0), full_matrices=False)
    deviations = s[:dim] / np.sqrt(len(x) - 1)
    variances = np.ones(dim) if whitened else deviations**2
    np.testing.assert_allclose(projected.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(projected.T).reshape(dim, dim), np.diag(variances), atol=1e-8)
    expected = v[:dim] / (deviations[:, None] if whitened else 1)
    signs = np.sign((expected * weight.numpy()).sum(1, keepdims=True))
    np.testing.assert_allclose(weight, expected * signs, rtol=1e-7, atol=1e-9)
    assert (weight.gather(1, weight.abs().argmax(1, keepdim=True)) > 0).all()


def test_directions_without_variance_stay_near_zero() -> None:
    x = features(50, 6)
    x[:, 2] = x[:, 3]  # one direction has no variance
    weight, bias = pca(moments_of(x), 6, whitened=True)
    whitened = x @ weight.numpy().T + bias.numpy()
    np.testing.assert_allclose(np.cov(whitened.T), np.diag([1, 1, 1, 1, 1, 0]), atol=1e-6)
    assert weight.isfinite().all()


def running_mean(model: EmbeddingModel) -> torch.Tensor:
    return not_none(batch_norm(model).running_mean).clone()


def test_initialised_model_has_whitened_embeddings() -> None:
    model = tiny(pooling="gem", l2_norm=True, dim=6, projection="whitening").train()
    batches = [images(8, 32, seed) for seed in range(4)]
    before = running_mean(model)
    initialise_projection(model, [*batches[:1], torch.empty(0, 3, 32, 32), *batches[1:]])
    assert model.training
    assert torch.equal(before, running_mean(model)), "evaluation mode"
    model.eval()
    projection = not_none(model.projection)
    with torch.no_grad():
        projected = projection(torch.cat([model.features(batch) for batch in batches]))
    torch.testing.assert_close(projected.T.cov(), torch.eye(6), atol=2e-3, rtol=0)
    torch.testing.assert_close(projected.mean(0), torch.zeros(6), atol=2e-3, rtol=0)
    assert projection.weight.requires_grad


def test_processes_combine_their_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [images(8, 32, seed) for seed in range(3)]
    alone, together = tiny(dim=4), tiny(dim=4)
    initialise_projection(alone, batches)
    other = Moments.from_vectors(tiny(dim=4).features(torch.cat(batches[1:])).detach())
    monkeypatch.setattr(Processes, "gather", lambda _, own: [own, None, other])
    initialise_projection(together, batches[:1], Processes(0, 3))
    for expected, combined in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(combined, expected, rtol=1e-4, atol=1e-4)


def test_too_few_or_degenerate_features_are_refused() -> None:
    with pytest.raises(InputError, match="needs more than 6 images; found 6"):
        initialise_projection(tiny(dim=6), [images(6, 32)])
    with pytest.raises(InputError, match="there are no images"):
        initialise_projection(tiny(dim=6), [])
    with pytest.raises(InputError, match="all the same, or not finite"):
        initialise_projection(tiny(dim=2), [torch.full((4, 3, 32, 32), torch.nan)])
    with pytest.raises(InputError, match="all the same, or not finite"):
        pca(Moments.from_vectors(torch.ones(9, 3)), 2, whitened=False)
    with pytest.raises(ConfigurationError, match="the model has no projection to initialise"):
        initialise_projection(tiny(), [images()])

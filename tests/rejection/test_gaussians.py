"""Gaussians of classes with a shared covariance, against loops, SciPy, scikit-learn and golden values."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf

from hgld.errors import ConfigurationError, InputError
from hgld.rejection import gaussians
from hgld.rejection.gaussians import fit_gaussians, unit_length


def images(n: int = 60, dim: int = 4, n_classes: int = 3) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(3)
    classes = rng.permutation(np.arange(n) % n_classes)
    return torch.from_numpy(rng.normal(size=(n, dim)) @ rng.normal(size=(dim, dim)) + 3 * classes[:, None]), classes


def moments(
    embeddings: torch.Tensor, classes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return means, covariance and frequencies, image by image."""
    names = sorted(set(classes.tolist()))
    means = np.array([embeddings[classes == name].numpy().mean(axis=0) for name in names])
    deviations = [z - means[names.index(c)] for z, c in zip(embeddings.numpy(), classes, strict=True)]
    covariance = sum(np.outer(d, d) for d in deviations) / len(deviations)
    return means, np.asarray(covariance), np.array([(classes == name).mean() for name in names])


def test_distances_and_likelihoods_are_those_of_scipy() -> None:
    embeddings, classes = images()
    means, covariance, frequencies = moments(embeddings, classes)
    fitted = fit_gaussians(embeddings, classes * 7)
    points = np.random.default_rng(4).normal(size=(9, 4), scale=4)
    precision = np.linalg.inv(covariance)
    distances = np.array([[(z - mean) @ precision @ (z - mean) for mean in means] for z in points])
    densities = sum(
        pi * multivariate_normal(mean, covariance).pdf(points) for pi, mean in zip(frequencies, means, strict=True)
    )
    query = torch.from_numpy(points)
    np.testing.assert_allclose(fitted.nearest_squared_distances(query), distances.min(axis=1), rtol=1e-11)
    np.testing.assert_allclose(fitted.negative_log_likelihoods(query), -np.log(densities), rtol=1e-11)
    energies = -np.log(np.exp(-distances / 2).sum(axis=1))
    np.testing.assert_allclose(fitted.mixture_energies(query), energies, rtol=1e-11)
    warm = -10 * np.log(np.exp(-distances / 20).sum(axis=1))
    np.testing.assert_allclose(fitted.mixture_energies(query, temperature=10), warm, rtol=1e-11)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, classes = images()
    whole = fit_gaussians(embeddings, classes)
    monkeypatch.setattr(gaussians, "_ROWS", 7)
    monkeypatch.setattr(gaussians, "_DISTANCES", 60)  # one class at a time
    blocks = fit_gaussians(embeddings, classes)
    for method in ("nearest_squared_distances", "mixture_energies", "negative_log_likelihoods"):
        torch.testing.assert_close(getattr(blocks, method)(embeddings), getattr(whole, method)(embeddings))


def test_images_without_a_class_are_excluded_and_float16_is_widened() -> None:
    embeddings, classes = images()
    unlabelled = np.where(np.arange(60) < 10, -1, classes)
    some, rest = fit_gaussians(embeddings, unlabelled), fit_gaussians(embeddings[10:], classes[10:])
    torch.testing.assert_close(some.mixture_energies(embeddings), rest.mixture_energies(embeddings))
    assert fit_gaussians(embeddings.half(), classes).means.dtype == torch.float32
    assert some.means.dtype == torch.float64


def test_float32_keeps_its_digits_far_from_the_origin() -> None:
    embeddings, classes = images()
    far = (embeddings + 1000).float()
    wide = fit_gaussians(far.double(), classes).nearest_squared_distances(far[:5])
    narrow = fit_gaussians(far, classes).nearest_squared_distances(far[:5])
    assert (narrow - wide).abs().max() < 1e-4 * wide.max()


def test_energies_are_differentiable_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, classes = images()
    fitted = fit_gaussians(embeddings, classes)
    monkeypatch.setattr(gaussians, "_DISTANCES", 5)
    points = embeddings[:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(fitted.mixture_energies, (points,))
    assert torch.autograd.gradcheck(fitted.negative_log_likelihoods, (points,))


def test_a_singular_covariance_is_shrunk_as_by_ledoit_and_wolf() -> None:
    embeddings, classes = images(n=12, dim=20)
    fitted = fit_gaussians(embeddings, classes)
    means = moments(embeddings, classes)[0]
    covariance, shrinkage = ledoit_wolf(embeddings.numpy() - means[classes], assume_centered=True)
    assert fitted.shrinkage.item() == pytest.approx(shrinkage, rel=1e-9)
    assert 0 < shrinkage < 1
    differences = embeddings[0].numpy() - means
    expected = min(difference @ np.linalg.inv(covariance) @ difference for difference in differences)
    assert fitted.nearest_squared_distances(embeddings[:1]).item() == pytest.approx(expected, rel=1e-8)


def test_constant_features_are_shrunk_and_invertible_covariances_are_not() -> None:
    embeddings, classes = images()
    assert fit_gaussians(embeddings, classes).shrinkage == 0
    embeddings[:, 2] = 1.5
    fitted = fit_gaussians(embeddings, classes)
    assert 0 < fitted.shrinkage < 1
    assert fitted.nearest_squared_distances(embeddings).isfinite().all()
    with pytest.raises(InputError, match="rank 3 in 4 dimensions; set `shrinkage`"):
        fit_gaussians(embeddings, classes, shrinkage=0)


def test_invalid_inputs_are_one_line() -> None:
    embeddings, classes = images()
    with pytest.raises(InputError, match="60 classes are identical, or single ones"):
        fit_gaussians(embeddings, np.arange(60))
    with pytest.raises(InputError, match="3 classes are identical"):
        fit_gaussians(torch.from_numpy(np.eye(4)[classes] / 3).float(), classes)
    with pytest.raises(InputError, match="no image has a label"):
        fit_gaussians(embeddings, np.full(60, -1))
    with pytest.raises(ConfigurationError, match="`shrinkage` is 2"):
        fit_gaussians(embeddings, classes, shrinkage=2)
    with pytest.raises(InputError, match="1 embeddings have only zeros"):
        unit_length(torch.eye(3)[:2] * torch.tensor([[1.0], [0.0]]))


@pytest.mark.parametrize("kind", ["raw", "unit"])
def test_golden_means_and_covariances(shared: Path, kind: str) -> None:
    golden = np.load(shared / "golden_beyond" / "ood.npz")
    train = torch.from_numpy(golden["x/train"]).double()
    fitted = fit_gaussians(train, golden["y/train"], unit_length=kind == "unit")
    covariance = torch.linalg.inv(fitted.whitening @ fitted.whitening.T)
    means = fitted.means @ torch.linalg.inv(fitted.whitening) + fitted.origin
    np.testing.assert_allclose(covariance, golden[f"fit/gmm_{kind}_cov"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(means, golden[f"fit/gmm_{kind}_means"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fitted.log_frequencies.exp(), golden["fit/class_freq"], rtol=1e-12)

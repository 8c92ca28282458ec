"""Linear classifiers: fitted ones against scikit-learn, and files."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import save_file
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hgld.errors import InputError
from hgld.rejection import classifiers
from hgld.rejection.classifiers import (
    LinearClassifier,
    fit_linear_classifier,
    gaussian_classifier,
    load_classifier,
    row_blocks,
    save_classifier,
)


def images(n: int = 90, dim: int = 5, n_classes: int = 4) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(5)
    classes = rng.permutation(np.arange(n) % n_classes)
    centres = rng.normal(size=(n_classes, dim))
    return torch.from_numpy(7 + 2 * (centres[classes] + rng.normal(size=(n, dim)))), classes


def softmax_regression(features: npt.NDArray[np.float64], classes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return logits that minimise the cross-entropies plus half of the squared weights, over all classes."""
    n_classes, one_hot = classes.max() + 1, np.eye(classes.max() + 1)[classes]
    with_bias = np.column_stack([features, np.ones(len(features))])

    def loss(flat: npt.NDArray[np.float64]) -> float:
        weights = flat.reshape(n_classes, -1)
        logits = with_bias @ weights.T
        return float((logsumexp(logits, axis=1) - (logits * one_hot).sum(1)).sum() + (weights[:, :-1] ** 2).sum() / 2)

    solution = minimize(loss, np.zeros(n_classes * with_bias.shape[1]), options={"gtol": 1e-4}).x
    return np.asarray(with_bias @ solution.reshape(n_classes, -1).T)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_softmax_regression_minimises_its_loss(n_classes: int) -> None:
    embeddings, classes = images(n_classes=n_classes)
    fitted = fit_linear_classifier(embeddings, classes * 3)
    centred = embeddings - embeddings.mean(dim=0)
    expected = softmax_regression((centred / centred.square().mean().sqrt()).numpy(), classes)
    np.testing.assert_allclose(
        fitted.logits(embeddings).log_softmax(dim=1), expected - logsumexp(expected, axis=1, keepdims=True), atol=1e-3
    )
    torch.testing.assert_close(fitted.weight.sum(dim=0), torch.zeros(5, dtype=torch.float64), atol=1e-9, rtol=0)


def test_discriminant_analysis_is_that_of_scikit_learn() -> None:
    embeddings, classes = images()
    fitted = gaussian_classifier(embeddings, classes)
    oracle = LinearDiscriminantAnalysis(solver="lsqr").fit(embeddings, classes)
    np.testing.assert_allclose(
        fitted.logits(embeddings).log_softmax(dim=1), oracle.predict_log_proba(embeddings), atol=1e-9
    )


def test_fits_are_deterministic_and_the_same_in_float32() -> None:
    embeddings, classes = images()
    whole = fit_linear_classifier(embeddings, classes)
    assert torch.equal(whole.weight, fit_linear_classifier(embeddings, classes).weight)
    narrow = fit_linear_classifier(embeddings.float(), classes)
    torch.testing.assert_close(narrow.to(torch.float64).weight, whole.weight, atol=1e-3, rtol=1e-3)
    assert narrow.weight.dtype == torch.float32


def test_unlabelled_images_do_not_count() -> None:
    embeddings, classes = images()
    some = fit_linear_classifier(embeddings, np.where(np.arange(90) < 20, -1, classes))
    torch.testing.assert_close(some.weight, fit_linear_classifier(embeddings[20:], classes[20:]).weight)


def test_logits_in_blocks_are_bounded() -> None:
    assert list(row_blocks(5, 2**23)) == [slice(0, 2), slice(2, 4), slice(4, 6)]
    assert list(row_blocks(2, 2**30)) == [slice(0, 1), slice(1, 2)]
    assert not list(row_blocks(0, 3))


def test_invalid_files_are_one_line(tmp_path: Path) -> None:
    path, weight = tmp_path / "head.safetensors", torch.ones(3, 4)
    with pytest.raises(InputError, match=r"head\.safetensors: not a readable safetensors file"):
        load_classifier(path)
    path.write_text("weights")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_classifier(path)
    for tensors, message in (
        ({"weight": weight}, "no tensor 'bias'"),
        ({"weight": weight, "bias": torch.ones(4)}, r"head\.safetensors: .* shapes \(3, 4\) and \(4,\)"),
        ({"weight": weight * torch.nan, "bias": torch.ones(3)}, "NaN or infinite"),
    ):
        save_file(tensors, path)
        with pytest.raises(InputError, match=message):
            load_classifier(path)


def test_invalid_inputs_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, classes = images()
    for fit in (fit_linear_classifier, gaussian_classifier):
        with pytest.raises(InputError, match="the same label; a classifier needs two"):
            fit(embeddings, np.where(classes == 1, 1, -1))
    with pytest.raises(InputError, match="90 embeddings are identical"):
        fit_linear_classifier(torch.ones(90, 3), classes)
    monkeypatch.setattr(classifiers, "_MAX_WEIGHTS", 19)
    with pytest.raises(InputError, match="of 4 classes in 5 dimensions .* choose the `classifier` lda"):
        fit_linear_classifier(embeddings, classes)


def test_files_keep_classifiers(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    saved = LinearClassifier(torch.randn(4, 3).T, torch.randn(3))
    save_classifier(saved, path)
    loaded = load_classifier(path)
    assert torch.equal(loaded.weight, saved.weight)
    assert torch.equal(loaded.bias, saved.bias)

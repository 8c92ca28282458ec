"""Baselines: pytorch-ood as the oracle, classifiers from elsewhere, and invalid inputs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_ood import detector as pytorch_ood

from hgld.errors import ConfigurationError, InputError
from hgld.rejection import DETECTORS, Detector, build_detector
from hgld.rejection.classifiers import LinearClassifier, save_classifier
from hgld.rejection.gaussian_scores import GaussianDetector, Gmm
from hgld.rejection.logit_scores import ClassifierDetector
from hgld.rejection.subspaces import Vim
from tests.rejection.test_detectors import DIM, N_CLASSES, index_images, queries

CLASSIFIER_SCORES = [name for name, kind in DETECTORS.items() if issubclass(kind, ClassifierDetector)]
GAUSSIAN_SCORES = [name for name, kind in DETECTORS.items() if issubclass(kind, GaussianDetector)]


@pytest.fixture(scope="module")
def head() -> LinearClassifier:
    generator = torch.Generator().manual_seed(6)
    return LinearClassifier(torch.randn(12, 9, generator=generator), 1 + torch.randn(12, generator=generator))


@pytest.fixture(scope="module")
def features() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    train, test = torch.randn(200, 9, generator=generator), 2 * torch.randn(50, 9, generator=generator)
    return train.relu() + 0.01, test.relu() + 0.01


def oracle_scores(name: str, head: LinearClassifier, train: torch.Tensor, test: torch.Tensor) -> Any:
    """Return the scores of pytorch-ood as a tensor."""
    labels = torch.zeros(len(train), dtype=torch.int64)
    logits = head.logits(test)
    if name in ("msp", "max_logit", "energy"):
        kinds = {"msp": "MaxSoftmax", "max_logit": "MaxLogit", "energy": "EnergyBased"}
        return getattr(pytorch_ood, kinds[name]).score(logits)
    if name == "kl_matching":
        return pytorch_ood.KLMatching(None).fit_logits(head.logits(train)).predict_logits(logits)
    if name == "odin":
        return pytorch_ood.ODIN(head.logits, eps=0.05, temperature=10).predict(test)
    if name == "react":
        react = pytorch_ood.ReAct(None, lambda maps: head.logits(maps.flatten(1)))
        return react.fit_feature_maps(train[..., None, None], labels).predict_feature_maps(test[..., None, None])
    if name == "dice":
        oracle = pytorch_ood.DICE(None, head.weight, head.bias, p=0.7)
    elif name == "vim":
        oracle = pytorch_ood.ViM(None, d=4, w=head.weight, b=head.bias)
    else:
        oracle = pytorch_ood.KNN(None, k=5, normalize=True)
    return oracle.fit_features(train, labels).predict_features(test)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("msp", {}),
        ("max_logit", {}),
        ("energy", {}),
        ("kl_matching", {}),
        ("odin", {"temperature": 10, "perturbation": 0.05}),
        ("dice", {}),
        ("react", {}),
        ("vim", {"n_principal": 4}),
        ("knn", {"k": 5}),
    ],
)
def test_pytorch_ood_agrees(
    name: str, options: dict[str, Any], head: LinearClassifier, features: tuple[torch.Tensor, torch.Tensor]
) -> None:
    train, test = features
    if name != "knn":
        options = options | {"classifier": head}
    scores = build_detector(name, options).fit(train).score(test)
    expected = oracle_scores(name, head, train, test).detach().numpy()
    # pytorch-ood works in float32, in which the pseudo-inverse of ViM loses digits.
    tolerance = 2e-5 if name == "vim" else 2e-6
    np.testing.assert_allclose(scores, expected, atol=tolerance * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("name", CLASSIFIER_SCORES)
def test_classifiers_are_given_read_or_derived(name: str, tmp_path: Path) -> None:
    given, path = LinearClassifier(torch.eye(N_CLASSES, DIM), torch.zeros(N_CLASSES)), tmp_path / "head.safetensors"
    save_classifier(given, path)
    embeddings, labels, images = index_images()["embeddings"], index_images()["labels"], queries()["embeddings"]
    scores = build_detector(name, {"classifier": given}).fit(embeddings).score(images)
    from_file = build_detector(name, {"classifier": str(path)}).fit(embeddings)
    np.testing.assert_array_equal(from_file.score(images), scores)
    derived = build_detector(name, {"classifier": "lda"}).fit(embeddings, labels).score(images)
    assert np.isfinite(derived).all()
    assert (derived != scores).any()


@pytest.mark.parametrize("name", CLASSIFIER_SCORES)
def test_a_classifier_needs_labels_or_the_same_dimension(name: str, head: LinearClassifier) -> None:
    embeddings = index_images()["embeddings"]
    with pytest.raises(InputError, match="has 9 dimensions, and the embeddings have 6"):
        build_detector(name, {"classifier": head}).fit(embeddings)
    with pytest.raises(InputError, match=r"no\.safetensors: not a readable"):
        build_detector(name, {"classifier": "no.safetensors"}).fit(embeddings)
    with pytest.raises(InputError, match="the same label"):
        build_detector(name).fit(embeddings, np.zeros(len(embeddings), int))


def test_softmax_regression_that_takes_hours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_images()
    monkeypatch.setattr("hgld.rejection.classifiers._MAX_PRODUCTS", 3599)
    with pytest.raises(InputError, match="of 120 images and 5 classes takes hours; set the option `classifier`"):
        build_detector("vim").fit(index["embeddings"], index["labels"])
    build_detector("vim", {"classifier": "lda"}).fit(index["embeddings"], index["labels"])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("energy", {"temperature": 0}, "`temperature` is 0"),
        ("odin", {"temperature": -1}, "`temperature` is -1"),
        ("odin", {"temperature": math.inf}, "`temperature` is inf"),
        ("odin", {"perturbation": -0.1}, "`perturbation` is -0.1"),
        ("odin", {"perturbation": math.nan}, "`perturbation` is nan; expected a number of 0 or more"),
        ("odin", {"perturbation": math.inf}, "`perturbation` is inf"),
        ("gmm", {"inner_temperature": 0}, "`inner_temperature` is 0"),
        ("gmm", {"variant": "code", "inner_temperature": 2}, "`variant` paper"),
        ("gmm", {"variant": "thesis"}, "variant of the score gmm"),
        ("dice", {"sparsity": 1}, "`sparsity` is 1"),
        ("react", {"quantile": 1.5}, "`quantile` is 1.5"),
        ("knn", {"k": 0}, "`k` is 0"),
    ],
)
def test_options_out_of_range_are_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        build_detector(name, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("score", [Vim, Gmm])
def test_variants_are_checked_in_python_too(score: type[Detector]) -> None:
    with pytest.raises(ConfigurationError, match='`variant` is "thesis"; choose paper or code'):
        score(variant="thesis")  # type: ignore[call-arg]


def test_indexes_that_cannot_be_fitted_are_one_line() -> None:
    index = index_images()
    embeddings, labels = index["embeddings"], index["labels"]
    singles = np.arange(len(embeddings))
    for name in ("mahalanobis", "ssd_plus", "gmm"):
        with pytest.raises(InputError, match="single ones"):
            build_detector(name).fit(embeddings, singles)
        with pytest.raises(InputError, match="is singular: it has the rank"):
            build_detector(name, {"shrinkage": 0}).fit(embeddings[:8], labels[:8])
    with pytest.raises(InputError, match="`k` is 3, and the index has 2 images"):
        build_detector("knn").fit(embeddings[:2])
    for name in ("vim", "residual"):
        with pytest.raises(ConfigurationError, match="`n_principal` is 6, and the embeddings have 6"):
            build_detector(name, {"n_principal": 6}).fit(embeddings, labels)
        flat = embeddings.copy()
        flat[:, 1:] = 0
        with pytest.raises(InputError, match="nothing remains without the 3 largest"):
            build_detector(name, {"n_principal": 3}).fit(flat, labels)


@pytest.mark.parametrize("name", CLASSIFIER_SCORES + GAUSSIAN_SCORES)
@pytest.mark.parametrize("change", ["fewer images than dimensions", "constant features", "one image", "coarse"])
def test_poor_indexes_have_finite_scores(name: str, change: str) -> None:
    index = index_images()
    if change == "fewer images than dimensions":
        rng = np.random.default_rng(2)
        index = {key: values[:12] for key, values in index.items()}
        index["embeddings"] = rng.normal(size=(12, 20)).astype(np.float32)
    elif change == "constant features":
        index["embeddings"][:, 2:4] = 1.0
    elif change == "one image":
        index["labels"][0] = 99
    else:
        index["labels"] = np.where(index["labels"] < 0, -1, index["labels"] % 2)
    images = queries() | {"embeddings": np.random.default_rng(3).normal(size=(30, index["embeddings"].shape[1]))}
    assert np.isfinite(build_detector(name).fit(**index).score(**images)).all()


def test_odin_without_a_perturbation_is_msp_at_a_temperature(head: LinearClassifier) -> None:
    test = torch.randn(20, 9, generator=torch.Generator().manual_seed(8))
    odin = build_detector("odin", {"temperature": 5, "perturbation": 0, "classifier": head}).fit(test)
    expected = -(head.logits(test) / 5).softmax(dim=1).amax(dim=1)
    np.testing.assert_allclose(odin.score(test), expected, rtol=1e-6)

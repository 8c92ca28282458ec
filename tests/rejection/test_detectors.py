"""What all rejection scores have in common."""

from typing import Any

import numpy as np
import pytest
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.rejection import Detector, build_detector, detector
from hgld.rejection.gaussian_scores import Mahalanobis
from hgld.rejection.logit_scores import ClassifierDetector

N, DIM, N_CLASSES = 120, 6, 5
#: Options of scores whose training takes long by default.
FAST: dict[str, dict[str, Any]] = {"heat": {"hidden_dim": 8, "epochs": 1, "steps": 2, "batch_size": 64}}


def index_images(dtype: type[np.floating[Any]] = np.float32) -> dict[str, Any]:
    """Return an index of images of five classes, with standard deviations of feature maps.

    Every twelfth image is unlabelled.
    """
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(N) % N_CLASSES)
    centres = rng.normal(size=(N_CLASSES, DIM))
    embeddings = centres[labels] + 0.3 * rng.normal(size=(N, DIM))
    labels[::12] = -1
    deviations = rng.gamma(2.0, size=(N, 4))
    return {"embeddings": embeddings.astype(dtype), "labels": labels, "deviations": deviations.astype(dtype)}


def queries(n: int = 30, dtype: type[np.floating[Any]] = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = {"embeddings": DIM, "deviations": 4}
    return {key: rng.normal(size=(n, width)).astype(dtype) for key, width in shapes.items()}


def test_scores_are_finite_float32_and_one_per_image(fitted: Detector) -> None:
    scores = fitted.score(**queries())
    assert scores.dtype == np.float32
    assert scores.shape == (30,)
    assert np.isfinite(scores).all()
    assert fitted.score(**queries(0)).shape == (0,)
    tensors = {key: torch.from_numpy(values) for key, values in queries().items()}
    np.testing.assert_array_equal(fitted.score(**tensors), scores)


def test_blocks_do_not_change_scores(fitted: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted.score(**queries())
    blocks = detector.DetectorInputs.blocks
    monkeypatch.setattr(detector.DetectorInputs, "blocks", lambda images: blocks(images, 7))
    np.testing.assert_allclose(fitted.score(**queries()), whole, rtol=1e-5, atol=1e-6)


def test_float64_is_kept(fitted: Detector) -> None:
    wide = build_detector(fitted.name, fitted.options()).fit(**index_images(np.float64))
    scores = wide.score(**queries(dtype=np.float64))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(fitted.score(**queries()), scores, rtol=2e-3, atol=2e-3)


def test_equal_fits_are_equal(fitted: Detector) -> None:
    again = build_detector(fitted.name, fitted.options()).fit(**index_images())
    np.testing.assert_array_equal(again.score(**queries()), fitted.score(**queries()))


def test_wrong_inputs_are_one_line(fitted: Detector) -> None:
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "dimension": ({"embeddings": np.ones((30, DIM + 1), np.float32)}, "dimensions"),
        "nan": ({"embeddings": np.full((30, DIM), np.nan, np.float32)}, "NaN"),
        "integers": ({"embeddings": np.ones((30, DIM), int)}, "floating point"),
        "rows": ({"deviations": np.ones((29, 4), np.float32)}, "29 rows of `deviations` for 30"),
    }
    for change, message in wrong.values():
        with pytest.raises(InputError, match=message) as caught:
            fitted.score(**queries() | change)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="call `fit` first"):
        build_detector(fitted.name).score(**queries())
    for labels in (np.zeros(N - 1, int), np.zeros((N, 2), int), np.zeros(N)):
        with pytest.raises(InputError, match=r"`labels` have the shape .* expected integers of the shape \(120,\)"):
            build_detector(fitted.name).fit(**index_images() | {"labels": labels})


def test_missing_labels_are_named(fitted: Detector) -> None:
    unlabelled = index_images() | {"labels": None}
    if fitted.name == "knn":
        build_detector("knn").fit(**unlabelled)
        return
    message = f"the score {fitted.name} needs `labels`"
    if isinstance(fitted, ClassifierDetector):
        message += " to fit a classifier on, or its option `classifier`: the file of one"
    with pytest.raises(ConfigurationError, match=message):
        build_detector(fitted.name, FAST.get(fitted.name)).fit(**unlabelled)


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no score cosine; choose one of knn"):
        build_detector("cosine")
    with pytest.raises(ConfigurationError, match="option k of the score msp: .* its options are classifier"):
        build_detector("msp", {"k": 3})


def test_refused_fits_leave_no_score() -> None:
    mahalanobis = Mahalanobis().fit(**index_images())
    with pytest.raises(InputError, match="single ones"):
        mahalanobis.fit(**index_images() | {"labels": np.arange(N)})
    with pytest.raises(ConfigurationError, match="call `fit` first"):
        mahalanobis.score(**queries())

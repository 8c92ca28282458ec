"""What all rejection scores have in common."""

from typing import Any

import numpy as np
import pytest
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import ConfigurationError, InputError
from hgld.rejection import DETECTORS, Detector, NeighbourDetector, build_detector, detector

N, DIM, N_CLASSES = 120, 6, 5
#: Options of scores whose training takes long by default.
FAST: dict[str, dict[str, Any]] = {"heat": {"hidden_dim": 8, "epochs": 1, "steps": 2, "batch_size": 64}}


def index_images(dtype: type[np.floating[Any]] = np.float32) -> dict[str, Any]:
    """Return an index of images of five classes of two groups, with logits and standard deviations.

    Every twelfth image is unlabelled.
    """
    rng = np.random.default_rng(0)
    classes = rng.permutation(np.arange(N) % N_CLASSES)
    labels = np.stack([classes, classes % 2 + 10], axis=1)
    labels[::12] = -1
    centres = rng.normal(size=(N_CLASSES, DIM))
    embeddings = centres[classes] + 0.3 * rng.normal(size=(N, DIM))
    return {
        "embeddings": embeddings.astype(dtype),
        "labels": labels,
        "logits": (embeddings @ centres.T).astype(dtype),
        "deviations": rng.gamma(2.0, size=(N, 4)).astype(dtype),
    }


def queries(n: int = 30, dtype: type[np.floating[Any]] = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = {"embeddings": DIM, "logits": N_CLASSES, "deviations": 4}
    return {key: rng.normal(size=(n, width)).astype(dtype) for key, width in shapes.items()}


def test_scores_are_finite_float32_and_one_per_image_and_level(fitted: Detector) -> None:
    scores, levels = fitted.score(**queries()), fitted.score_levels(**queries())
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert levels.shape == (30, 2)
    np.testing.assert_array_equal(levels[:, 0], scores)
    assert (fitted.score(**queries(0)).shape, fitted.score_levels(**queries(0)).shape) == ((0,), (0, 2))
    tensors = {key: torch.from_numpy(values) for key, values in queries().items()}
    np.testing.assert_array_equal(fitted.score(**tensors), scores)


def test_answers_are_labels_of_neighbours(fitted: Detector) -> None:
    if not isinstance(fitted, NeighbourDetector):
        return
    embeddings = torch.from_numpy(queries()["embeddings"])
    cosines, positions = nearest_neighbours(embeddings, fitted.index, fitted.n_neighbours)
    found = fitted.complete_neighbours(cosines, positions, embeddings)
    np.testing.assert_array_equal(fitted.score_neighbours(*found, embeddings), fitted.score(**queries()))
    np.testing.assert_array_equal(fitted.score_neighbour_levels(*found, embeddings), fitted.score_levels(**queries()))
    answers = fitted.answers(*found)
    assert answers.shape == (30, 2)
    assert fitted.labels is not None
    for row, near in zip(answers.tolist(), found[1], strict=True):
        assert row in fitted.labels[near].tolist()


def test_blocks_do_not_change_scores(fitted: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted.score(**queries())
    monkeypatch.setattr(detector, "_BLOCK", 7)
    np.testing.assert_allclose(fitted.score(**queries()), whole, rtol=1e-5, atol=1e-6)


def test_float64_is_kept(fitted: Detector) -> None:
    detector = build_detector(fitted.name, fitted.options())
    wide = detector.fit(**index_images(np.float64)).score(**queries(dtype=np.float64))
    assert wide.dtype == np.float64
    np.testing.assert_allclose(fitted.score(**queries()), wide, rtol=2e-3, atol=2e-3)


def test_restored_scores_are_the_same(fitted: Detector) -> None:
    copy = build_detector(fitted.name, fitted.options()).restore(DIM, fitted.state(), n_levels=2)
    np.testing.assert_array_equal(copy.score_levels(**queries()), fitted.score_levels(**queries()))
    if fitted.state():
        with pytest.raises(InputError, match="has no tensor"):
            build_detector(fitted.name).restore(DIM, {})


def test_wrong_inputs_are_one_line(fitted: Detector) -> None:
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "dimension": ({"embeddings": np.ones((30, DIM + 1), np.float32)}, "dimensions"),
        "nan": ({"embeddings": np.full((30, DIM), np.nan, np.float32)}, "NaN"),
        "integers": ({"embeddings": np.ones((30, DIM), int)}, "floating point"),
        "rows": ({"logits": np.ones((29, N_CLASSES), np.float32)}, "29 rows of `logits` for 30"),
    }
    for change, message in wrong.values():
        with pytest.raises(InputError, match=message) as caught:
            fitted.score(**queries() | change)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="call `fit` first"):
        build_detector(fitted.name).score(**queries())
    with pytest.raises(InputError, match="labels"):
        build_detector(fitted.name).fit(**index_images() | {"labels": np.zeros(N - 1, int)})


@pytest.mark.parametrize("missing", ["labels", "logits", "deviations"])
def test_missing_inputs_are_named(missing: str) -> None:
    for name, kind in DETECTORS.items():
        if missing in kind.requires:
            with pytest.raises(ConfigurationError, match=f"{name} needs .*`{missing}`"):
                build_detector(name).fit(**index_images() | {missing: None})


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no score cosine; choose one of top1_cosine"):
        build_detector("cosine")
    with pytest.raises(ConfigurationError, match="option k of the score top1_cosine"):
        build_detector("top1_cosine", {"k": 3})


def test_refused_fits_leave_no_score() -> None:
    margin = build_detector("margin").fit(**index_images())
    with pytest.raises(InputError, match="expected at least 2"):
        margin.fit(**index_images() | {"labels": np.zeros(N, int)})
    with pytest.raises(ConfigurationError, match="call `fit` first"):
        margin.score(**queries())

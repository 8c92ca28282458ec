"""All golden scores: thesis's baselines on stored features, in float64 and float32."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hgld.rejection import Detector, build_detector
from hgld.rejection.classifiers import LinearClassifier, save_classifier

#: Name of the golden score: ours and its options.
SCORES: dict[str, tuple[str, dict[str, Any]]] = {
    "msp": ("msp", {}),
    "maxlogit": ("max_logit", {}),
    "energy": ("energy", {}),
    "energy_T2": ("energy", {"temperature": 2}),
    "entropy": ("entropy", {}),
    "knn1_raw": ("knn_raw", {"k": 1}),
    "knn10_raw": ("knn_raw", {"k": 10}),
    "knn50_raw": ("knn_raw", {"k": 50}),
    "knn1_unit": ("knn", {"k": 1}),
    "knn10_unit": ("knn", {"k": 10}),
    "knn50_unit": ("knn", {"k": 50}),
    "maha_raw": ("mahalanobis", {}),
    "maha_unit": ("ssd_plus", {}),
    "egmm_raw": ("gmm", {"normalize": False}),
    "egmm_unit": ("gmm", {}),
    "egmm_raw_Tin1000": ("gmm", {"temperature": 1000, "temperature_inside": True, "normalize": False}),
    "egmm_unit_Tin1000": ("gmm", {"temperature": 1000, "temperature_inside": True}),
    "gmm_nll_raw": ("gmm", {"variant": "code", "normalize": False}),
    "gmm_nll_unit": ("gmm", {"variant": "code"}),
    "rmd": ("relative_mahalanobis", {}),
    "residual32": ("residual", {"n_principal": 32}),
    "vim32": ("vim", {"n_principal": 32}),
    "vim32_heatood": ("vim", {"n_principal": 32, "variant": "code"}),
    "dice70": ("dice", {}),
    "react90": ("react", {}),
    "ash_p65": ("ash", {"variant": "p"}),
    "ash_b65": ("ash", {"variant": "b"}),
    "ash_s65": ("ash", {"variant": "s"}),
}


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Any]:
    with np.load(shared / "golden_beyond" / "ood.npz") as archive:
        return {key: archive[key] for key in archive.files if not key.startswith("heat/")}


@pytest.fixture(scope="module")
def classifier(golden: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the stored classifier."""
    path = tmp_path_factory.mktemp("classifier") / "classifier.safetensors"
    save_classifier(LinearClassifier(torch.from_numpy(golden["W"]), torch.from_numpy(golden["b"])), path)
    return path


def fitted(golden: dict[str, Any], name: str, dtype: type[np.floating[Any]], classifier: Path) -> Detector:
    score, options = SCORES[name]
    if "classifier" in build_detector(score).options():
        options = options | {"classifier": str(classifier)}
    return build_detector(score, options).fit(golden["x/train"].astype(dtype), golden["y/train"])


def test_each_golden_score_is_covered(golden: dict[str, Any]) -> None:
    assert set(golden["metrics/scores"].tolist()) == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_golden_scores(
    golden: dict[str, Any], name: str, dtype: type[np.floating[Any]], tolerance: float, classifier: Path
) -> None:
    detector = fitted(golden, name, dtype, classifier)
    for images in ("id", "near", "far"):
        expected = golden[f"scores/{name}/{images}"]
        scores = detector.score(golden[f"x/{images}"].astype(dtype))
        assert scores.dtype == dtype
        np.testing.assert_allclose(scores, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_golden_fits(golden: dict[str, Any], classifier: Path) -> None:
    vim, code, react = (
        fitted(golden, name, np.float64, classifier).state() for name in ("vim32", "vim32_heatood", "react90")
    )
    np.testing.assert_allclose(vim["origin"], golden["fit/vim_u"], rtol=1e-9, atol=1e-10)
    assert vim["alpha"].item() == pytest.approx(golden["fit/vim_alpha"].item(), rel=1e-10)
    assert code["alpha"].item() == pytest.approx(golden["fit/vim_alpha_heatood"].item(), rel=1e-10)
    assert react["threshold"].item() == pytest.approx(golden["fit/react_threshold"].item(), rel=1e-12)


@pytest.mark.parametrize("name", ["msp", "maxlogit", "energy", "energy_T2", "entropy"])
def test_given_logits_are_those_of_the_classifier(golden: dict[str, Any], name: str, classifier: Path) -> None:
    score, options = SCORES[name]
    train = golden["x/train"].astype(np.float64)
    logits = train @ golden["W"].T.astype(np.float64) + golden["b"]
    detector = build_detector(score, options).fit(train, logits=logits)
    scores = detector.score(golden["x/near"].astype(np.float64), golden["logits/near"])
    np.testing.assert_allclose(scores, golden[f"scores/{name}/near"], rtol=1e-9)

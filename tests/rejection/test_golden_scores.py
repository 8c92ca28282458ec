"""The golden values of the scores in tables of the thesis, on stored features, in float64 and float32."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hgld.rejection import DETECTORS, Detector, build_detector
from hgld.rejection.classifiers import LinearClassifier
from hgld.rejection.logit_scores import ClassifierDetector, React
from hgld.rejection.subspaces import Vim

#: Name of the golden score: ours and its options.
SCORES: dict[str, tuple[str, dict[str, Any]]] = {
    "msp": ("msp", {}),
    "maxlogit": ("max_logit", {}),
    "energy": ("energy", {}),
    "energy_T2": ("energy", {"temperature": 2}),
    "knn1_unit": ("knn", {"k": 1}),
    "knn10_unit": ("knn", {"k": 10}),
    "knn50_unit": ("knn", {"k": 50}),
    "maha_raw": ("mahalanobis", {}),
    "maha_unit": ("ssd_plus", {}),
    "egmm_raw": ("gmm", {"normalize": False}),
    "egmm_unit": ("gmm", {}),
    "egmm_raw_Tin1000": ("gmm", {"inner_temperature": 1000, "normalize": False}),
    "egmm_unit_Tin1000": ("gmm", {"inner_temperature": 1000}),
    "gmm_nll_raw": ("gmm", {"variant": "code", "normalize": False}),
    "gmm_nll_unit": ("gmm", {"variant": "code"}),
    "residual32": ("residual", {"n_principal": 32}),
    "vim32": ("vim", {"n_principal": 32}),
    "vim32_heatood": ("vim", {"n_principal": 32, "variant": "code"}),
    "dice70": ("dice", {}),
    "react90": ("react", {}),
}


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Any]:
    with np.load(shared / "golden_beyond" / "ood.npz") as archive:
        return {key: archive[key] for key in archive.files if not key.startswith("heat/")}


@pytest.fixture(scope="module")
def classifier(golden: dict[str, Any]) -> LinearClassifier:
    """The stored classifier."""
    return LinearClassifier(torch.from_numpy(golden["W"]), torch.from_numpy(golden["b"]))


def fitted(
    golden: dict[str, Any], name: str, dtype: type[np.floating[Any]], classifier: LinearClassifier
) -> Detector:
    score, options = SCORES[name]
    if issubclass(DETECTORS[score], ClassifierDetector):
        options = options | {"classifier": classifier}
    return build_detector(score, options).fit(golden["x/train"].astype(dtype), golden["y/train"])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_golden_scores(
    golden: dict[str, Any],
    name: str,
    dtype: type[np.floating[Any]],
    tolerance: float,
    classifier: LinearClassifier,
) -> None:
    detector = fitted(golden, name, dtype, classifier)
    for images in ("id", "near", "far"):
        expected = golden[f"scores/{name}/{images}"]
        scores = detector.score(golden[f"x/{images}"].astype(dtype))
        assert scores.dtype == dtype
        np.testing.assert_allclose(scores, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_golden_fits(golden: dict[str, Any], classifier: LinearClassifier) -> None:
    vim, code, react = (
        fitted(golden, name, np.float64, classifier) for name in ("vim32", "vim32_heatood", "react90")
    )
    assert isinstance(vim, Vim)
    assert isinstance(code, Vim)
    assert isinstance(react, React)
    np.testing.assert_allclose(vim.space.origin, golden["fit/vim_u"], rtol=1e-9, atol=1e-10)
    assert vim.alpha.item() == pytest.approx(golden["fit/vim_alpha"].item(), rel=1e-10)
    assert code.alpha.item() == pytest.approx(golden["fit/vim_alpha_heatood"].item(), rel=1e-10)
    assert react.threshold.item() == pytest.approx(golden["fit/react_threshold"].item(), rel=1e-12)

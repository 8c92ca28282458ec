"""ODIN on pixels: the sign of a gradient of finite differences, and embeddings of perturbed images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import hgld
from hgld.errors import InputError
from hgld.models.image_embedder import STEP, TEMPERATURE, ImageEmbedder, odin_perturbation
from hgld.rejection import build_detector
from hgld.rejection.classifiers import LinearClassifier, save_classifier
from hgld.tables.embeddings import read_embeddings
from tests.datasets.pictures import save_pictures
from tests.models.embedding import CONFIG, PATHS, embed


@pytest.fixture(scope="module")
def model() -> ImageEmbedder:
    return hgld.load_model("test_resnet", "none", size=32, resize=32)


@pytest.fixture
def classifier(model: ImageEmbedder, tmp_path: Path) -> Path:
    weight = torch.randn(5, model.dim, generator=torch.Generator().manual_seed(0))
    save_classifier(LinearClassifier(30 * weight, torch.arange(5.0)), tmp_path / "classifier.safetensors")
    return tmp_path / "classifier.safetensors"


def test_pixels_move_against_the_gradient(model: ImageEmbedder, classifier: Path) -> None:
    model = replace(model, network=model.network.double())
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    perturb = odin_perturbation(model, classifier)
    with torch.inference_mode():  # as images are embedded
        perturbed = perturb(images)
    assert isinstance(perturbed, torch.Tensor)
    moves = (perturbed - images) * torch.tensor(model.image_settings.std)[:, None, None] / STEP
    weight, bias = (
        (30 * torch.randn(5, model.dim, generator=torch.Generator().manual_seed(0))).double(),
        torch.arange(5),
    )

    def log_confidence(pixels: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = model.network(pixels) @ weight.T + bias
        return (logits / TEMPERATURE).log_softmax(1).amax(1)

    for colour, row, column in [(0, 0, 0), (1, 15, 16), (2, 31, 7)]:
        pixel = (slice(None), colour, row, column)
        step = torch.zeros_like(images)
        step[pixel] = 1e-5
        with torch.inference_mode():
            slope = (log_confidence(images + step) - log_confidence(images - step)) / 2e-5
        torch.testing.assert_close(moves[pixel], slope.sign(), rtol=1e-6, atol=1e-6)
    model.network.float()


def test_embeddings_are_those_of_perturbed_images(model: ImageEmbedder, classifier: Path, tmp_path: Path) -> None:
    save_pictures(tmp_path / "pictures", *PATHS)
    embed(tmp_path / "pictures", tmp_path / "plain.npy", model)
    embed(tmp_path / "pictures", tmp_path / "odin.npy", model, replace(CONFIG, odin=classifier))
    plain, perturbed = (read_embeddings(tmp_path / f"{name}.npy").vectors.numpy() for name in ("plain", "odin"))
    assert 1e-6 < np.abs(plain - perturbed).max() < 0.1
    score = build_detector("odin", {"classifier": str(classifier), "perturbation": 0}).fit(plain)
    assert (score.score(perturbed) < score.score(plain)).all()  # the prediction becomes surer
    with pytest.raises(InputError, match="no file of `weight`"):
        odin_perturbation(model, tmp_path / "odin.npy")

"""Models made for other distances than cosines: from training settings to evaluations and searches."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hgld.compute.scoring import Distance
from hgld.errors import ConfigurationError
from hgld.losses import HIER, ContrastiveLoss, HyperbolicContrastive
from hgld.losses.hyperbolic import PoincareBall
from hgld.models.embedding_files import recorded_distance
from hgld.models.embedding_model import build_model
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_loading import load_model, write_model
from hgld.models.model_settings import ModelSettings
from hgld.tables.embeddings import read_embeddings
from hgld.training.run import _require_distance
from tests.commands import run_hgld


def settings(distance: Distance, **changes: Any) -> ModelSettings:
    return ModelSettings.model_validate(
        {"backbone": "test_resnet", "pretrained": False, "dim": 8, "distance": distance, **changes}
    )


@pytest.mark.parametrize("distance", ["euclidean", "poincare"])
def test_embeddings_carry_the_distance_of_their_model(
    distance: Distance, gallery_folder: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    images = load_model("test_resnet", "none", size=32, resize=32).image_settings
    (tmp_path / "model").mkdir()
    write_model(ImageEmbedder(build_model(settings(distance)).eval(), images), tmp_path / "model")
    file, pictures = tmp_path / "all.npy", gallery_folder / "pictures"
    images_of_gallery = ("--manifest", gallery_folder / "manifest.csv", "--images", pictures)
    run_hgld("embed-images", *images_of_gallery, "-o", file, "--model", tmp_path / "model", "--workers", 0)
    assert recorded_distance(file) == distance
    vectors = read_embeddings(file).vectors
    lengths = torch.linalg.vector_norm(vectors, dim=1)
    assert lengths.unique().numel() == len(vectors)
    assert (lengths < 1).all() == (distance == "poincare") or distance == "euclidean"

    labels = ("--embeddings", file, "--manifest", gallery_folder / "manifest.csv", "--no-intervals", "--json")
    results = [
        json.loads(run_hgld("evaluate", *labels, *options).stdout)["results"][0]
        for options in ((), ("--distance", "cosine"))
    ]
    assert [result["settings"]["distance"] for result in results] == [distance, "cosine"]

    answers = json.loads(
        run_hgld("search", pictures / "a/b/0.jpg", "--embeddings", file, "--top", 9, "--json").stdout
    )
    scores = [result["score"] for result in answers["queries"][0]["results"]]
    expected = torch.cdist(vectors[:1].double(), vectors.double())[0]
    if distance == "poincare":
        expected = PoincareBall(curvature=1.0).distances(vectors[:1].double(), vectors.double())[0]
    np.testing.assert_allclose(scores, -np.sort(expected.numpy()), atol=2e-3)
    centred = ("--images", pictures, "-o", tmp_path / "b.npy", "--model", tmp_path / "model", "--center")
    failed = run_hgld("embed-images", *centred, code=1)
    assert "--center scales embeddings to length 1, but those of this model are for" in failed.stderr


def test_points_are_those_of_the_loss() -> None:
    model = build_model(settings("poincare", curvature=0.3, clip=1.5))
    vectors = torch.randn(20, 8, generator=torch.Generator().manual_seed(0)) * 2
    expected = PoincareBall(0.3, 1.5).points(vectors) * 0.3**0.5
    torch.testing.assert_close(model.points(vectors), expected)
    assert torch.equal(build_model(settings("euclidean")).points(vectors), vectors)


def test_losses_have_to_be_for_the_distance_of_the_model() -> None:
    _require_distance(ContrastiveLoss(), settings("cosine"))
    _require_distance(HIER(dim=8, curvature=0.3), settings("poincare", curvature=0.3))
    with pytest.raises(ConfigurationError, match="model.distance is euclidean, but ContrastiveLoss compares cosines"):
        _require_distance(ContrastiveLoss(), settings("euclidean"))
    with pytest.raises(ConfigurationError, match="curvature 0.2 and clip 2.3, but the model 0.1 and 2.3"):
        _require_distance(HyperbolicContrastive(curvature=0.2), settings("poincare"))

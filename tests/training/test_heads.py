"""Heads that are trained on features in a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from hgld.cli.models import format_training
from hgld.datasets.encoded_images import SkippedImage
from hgld.datasets.image_dataset import FeatureDataset
from hgld.datasets.loading import Example, collate
from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.models.model_loading import load_checkpoint_model, load_model
from hgld.tables import Provenance
from hgld.tables.embeddings import write_embeddings
from hgld.training.run import is_finished, train
from hgld.training.training_settings import TrainingSettings
from tests.datasets.pictures import manifest_of

N_CLASSES, PER_CLASS, N_FEATURES = 12, 6, 10


def write_features(path: Path, manifest: Manifest, n_features: int = N_FEATURES) -> torch.Tensor:
    """Write points around a centre per class, near that of its super-class, with strong noise in one dimension."""
    rng = np.random.default_rng(0)
    centres = [rng.normal(size=(n, n_features)) for n in manifest.n_classes]
    vectors = np.sum([centre[manifest.labels[:, column]] for column, centre in enumerate(centres)], axis=0)
    vectors = vectors + rng.normal(scale=0.7, size=vectors.shape)
    vectors[:, 0] += rng.normal(scale=4, size=len(vectors))
    features = torch.from_numpy(vectors.astype(np.float16))
    write_embeddings(path, features, manifest.ids.tolist())
    return features


def write_files(folder: Path) -> dict[str, str]:
    """Write a manifest of images that do not exist, and their features; return the section ``data``."""
    names = [(c, n) for c in range(N_CLASSES) for n in range(PER_CLASS)]
    levels = {"class": [f"c{c}" for c, _ in names], "super": [f"s{c % 3}" for c, _ in names]}
    split = ["test" if c < N_CLASSES // 2 else "train" for c, _ in names]
    manifest = manifest_of([f"{c}/{n}.png" for c, n in names], levels, split=split)
    write_manifest(folder / "manifest.parquet", manifest, Provenance("test"))
    write_features(folder / "features.parquet", manifest)
    return {
        "manifest": str(folder / "manifest.parquet"),
        "features": str(folder / "features.parquet"),
        "test": "test",
    }


def head_settings(data: dict[str, str], **changes: Any) -> TrainingSettings:
    model = {"backbone": "features", "n_features": N_FEATURES, "l2_norm": True, "dim": 6, "projection": "pca"}
    rates = {"head": {"lr": 0.01}, "proxies": {"lr": 0.1}}
    values: dict[str, Any] = {
        "model": model,
        "data": data,
        "loss": {"name": "happier"},
        "optimiser": rates,
        "steps": 20,
    }
    return TrainingSettings.model_validate({**values, "batch_size": 16, "workers": 0, **changes})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_files(tmp_path_factory.mktemp("features"))


def test_head_learns_from_features(data: dict[str, str], tmp_path: Path) -> None:
    assert not is_finished(head_settings(data), tmp_path / "run")
    summary = train(head_settings(data), tmp_path / "run")
    first, *_, last = summary.test.values()
    assert last["H-AP"] > first["H-AP"] + 0.02
    assert is_finished(head_settings(data), tmp_path / "run")
    assert is_finished(head_settings(data, workers=2), tmp_path / "run")  # does not affect the result
    with pytest.raises(ConfigurationError, match=r"seed: 0 then, 1 now"):
        is_finished(head_settings(data, seed=1), tmp_path / "run")
    model = load_checkpoint_model(tmp_path / "run" / "last.pt").network
    assert model(torch.ones(3, N_FEATURES)).shape == (3, 6)
    with pytest.raises(ConfigurationError, match=r"last.pt: a head trained on features of 10 numbers"):
        load_model(tmp_path / "run" / "last.pt")


def test_features_are_evaluated_without_steps_and_head(data: dict[str, str], tmp_path: Path) -> None:
    settings = head_settings(data, steps=0, model={"backbone": "features", "n_features": N_FEATURES})
    summary = train(settings, tmp_path / "run")
    assert list(summary.test) == ["epoch 0"]
    assert "0 steps" in format_training(summary)
    assert is_finished(settings, tmp_path / "run")
    model = load_checkpoint_model(tmp_path / "run" / "last.pt").network
    vectors = torch.rand(3, N_FEATURES)
    torch.testing.assert_close(model(vectors), vectors / vectors.norm(dim=1, keepdim=True))


def test_features_are_found_by_image_id(data: dict[str, str], tmp_path: Path) -> None:
    manifest = read_manifest(Path(data["manifest"]))
    vectors = write_features(tmp_path / "all.npy", manifest)
    order = np.random.default_rng(1).permutation(len(manifest))[:-1]  # all but one
    write_embeddings(tmp_path / "some.npy", vectors[torch.from_numpy(order)], manifest.ids[order].tolist())
    dataset = FeatureDataset(manifest, tmp_path / "some.npy", N_FEATURES)
    for row in order.tolist():
        example = dataset[row, 7]
        assert isinstance(example, Example)
        assert example.image.equal(vectors[row].float())
        assert example.labels.tolist() == manifest.labels[row].tolist()
    (missing,) = set(range(len(manifest))) - set(order.tolist())
    batch = collate([dataset[int(order[0])], dataset[missing]], dataset.normalisation)
    assert isinstance(batch.images, torch.Tensor)
    assert batch.images.shape == (1, N_FEATURES)
    assert [(image.row, image.reason) for image in batch.skipped] == [
        (missing, f"{manifest.ids[missing]}: has no features in {tmp_path / 'some.npy'}")
    ]
    assert isinstance(dataset[missing], SkippedImage)


def test_mismatched_features_are_refused(data: dict[str, str], tmp_path: Path) -> None:
    manifest = read_manifest(Path(data["manifest"]))
    with pytest.raises(InputError, match=r"features of 10 numbers, but the model expects 9; set model.n_features"):
        FeatureDataset(manifest, Path(data["features"]), 9)
    write_embeddings(tmp_path / "others.npy", torch.ones(2, N_FEATURES), ["a", "b"])
    with pytest.raises(InputError, match=r"has the features of none of the 72 images"):
        FeatureDataset(manifest, tmp_path / "others.npy", N_FEATURES)
    np.save(tmp_path / "nameless.npy", np.ones((72, N_FEATURES), np.float32))
    with pytest.raises(InputError, match=r"nameless.npy: no ids"):
        FeatureDataset(manifest, tmp_path / "nameless.npy", N_FEATURES)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": {"backbone": "resnet50"}}, "data.features and the backbone features require each other"),
        ({"model": {"backbone": "features"}}, "n_features is for the backbone features"),
        ({"model": {"backbone": "resnet50", "n_features": 10}}, "n_features is for the backbone features"),
        ({"model": {"backbone": "features", "n_features": 10, "pooling": "gem"}}, "no positions to pool"),
    ],
)
def test_contradictory_settings_are_refused(data: dict[str, str], changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        head_settings(data, **changes)


def test_missing_features_are_refused(data: dict[str, str], tmp_path: Path) -> None:
    train(head_settings(data, steps=0), tmp_path / "run")
    gone = {**data, "features": str(tmp_path / "gone.parquet")}
    with pytest.raises(InputError, match=r"gone.parquet: no such file"):
        is_finished(head_settings(gone, steps=0), tmp_path / "run")

"""A training that takes less than a second: noise of 16 x 16 pixels, and a model of two convolutions."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hgld.datasets.manifest import write_manifest
from hgld.io.settings import to_dict
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_settings import ModelSettings
from hgld.tables import Provenance
from hgld.training import run
from hgld.training.training_settings import TrainingSettings
from tests.datasets.pictures import manifest_of, save_pictures

SETTINGS: dict[str, Any] = {
    "model": {"backbone": "toy", "pretrained": False, "pooling": "average", "dim": 6},
    "image": {"size": 16, "resize": 16},
    "loss": {"name": "happier"},
    "memory": {"size": 20, "start_epoch": 2},
    "optimiser": {"backbone": {"lr": 0.01}, "head": {"lr": 0.01}, "proxies": {"lr": 0.1, "end_lr": 0.01}},
    "sampler": {"name": "class_balanced", "per_class": 2},
    "evaluation": {"metrics": ["H-AP", "R@1"]},
    "epochs": 2,
    "batch_size": 8,
    "checkpoint_steps": 2,
    "workers": 0,
}


class Backbone(nn.Module):
    """Two convolutions, with dropout to reveal whether random numbers are the same."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Dropout(dropout), nn.Conv2d(8, 12, 3, stride=2)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.layers(images)
        return features


def build(settings: ModelSettings, dropout: float = 0.2) -> EmbeddingModel:
    return EmbeddingModel(Backbone(dropout), 12, settings)


def gradients(module: nn.Module) -> torch.Tensor:
    """Return the concatenated gradients of all parameters that have one."""
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters() if parameter.grad is not None])


def write_images(folder: Path, n_classes: int = 9, per_class: int = 6, *, n_val: int = 0) -> Path:
    """Write images of noise and return their manifest.

    The first third of the classes are for tests, the last ``n_val`` for validation; one training class has a single
    image.
    """
    names = [(c, n) for c in range(n_classes) for n in range(per_class)] + [(n_classes, 0)]
    paths = [f"{c}/{n}.png" for c, n in names]
    save_pictures(folder, *paths)
    levels = {"class": [f"c{c}" for c, _ in names], "super": [f"s{c % 2}" for c, _ in names]}
    val = range(n_classes - n_val, n_classes)
    split = ["test" if c < n_classes // 3 else "val" if c in val else "train" for c, _ in names]
    write_manifest(folder / "manifest.parquet", manifest_of(paths, levels, split=split), Provenance("test"))
    return folder / "manifest.parquet"


def settings(manifest: Path, **changes: Any) -> TrainingSettings:
    data = {"manifest": str(manifest), "test": "test"}
    return TrainingSettings.model_validate({"data": data, **SETTINGS, **changes})


def changed(before: TrainingSettings, **changes: Any) -> TrainingSettings:
    return TrainingSettings.model_validate({**to_dict(before), **changes})


def use_toy_model(dropout: float = 0.2) -> None:
    """Replace the models of ``hgld.training`` by the toy model, in scripts."""
    setattr(run, "build_model", partial(build, dropout=dropout))  # noqa: B010

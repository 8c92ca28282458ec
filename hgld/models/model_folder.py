"""Folders of published models: those that hgld writes, and those of timm on the Hugging Face hub.

::

    config.json        settings of the network and its images, SHA-256 of the weights
    model.safetensors  weights
    training.json      settings, data digests and evaluations of the training
    README.md          model card

Loading runs no code from a folder: weights are safetensors, and settings are JSON that is validated. A folder of timm
has a ``config.json`` of its own format, and is loaded as the timm model of that architecture.
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hgld.datasets.transforms import ImageSettings
from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.io.settings import Settings
from hgld.models.embedding_model import build_model
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_settings import FEATURES, ModelSettings
from hgld.version import __version__

CONFIG, WEIGHTS, TRAINING, CARD = "config.json", "model.safetensors", "training.json", "README.md"
#: Names of the files that loading needs.
MODEL_FILES = (CONFIG, WEIGHTS)


class ModelConfig(Settings):
    """Contents of ``config.json``.

    Args:
        format: Name and version of the format.
        hgld_version: Version of hgld that wrote the folder.
        model: Settings of the network; its weights are in the folder.
        image: Transforms of its images.
        dim: Number of dimensions of the embeddings.
        weights_sha256: SHA-256 of the file of weights.
    """

    format: Literal["hgld.model/1"]
    hgld_version: str
    model: ModelSettings
    image: ImageSettings
    dim: int
    weights_sha256: str


class _TimmWeights(BaseModel):
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class _TimmConfig(BaseModel):
    """The part of timm's ``config.json`` that hgld needs."""

    architecture: str
    pretrained_cfg: _TimmWeights


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has the configuration of a published model."""
    return (folder / CONFIG).is_file()


def is_written_by_hgld(folder: Path) -> bool:
    """Return whether a folder has a ``config.json`` in the format of hgld, of any version."""
    try:
        values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and str(values.get("format")).startswith("hgld.model/")


def write_model(model: ImageEmbedder, folder: Path) -> None:
    """Write the configuration and the weights of a model to a folder.

    Args:
        model: The model.
        folder: Existing folder.
    """
    state = {name: value.cpu().contiguous() for name, value in model.network.state_dict().items()}
    save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
    config = ModelConfig(
        format="hgld.model/1",
        hgld_version=__version__,
        model=model.settings.model_copy(update={"pretrained": False}),
        image=model.image_settings,
        dim=model.dim,
        weights_sha256=sha256_of(folder / WEIGHTS),
    )
    text = json.dumps(config.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")


def read_model(folder: Path, name: str) -> ImageEmbedder:
    """Load a published model.

    Args:
        folder: Folder of its files.
        name: Name of the model in error messages, such as the path of the folder.

    Returns:
        The model in evaluation mode on the CPU.

    Raises:
        InputError: Files are missing, damaged or do not fit together, or are in another format.
        ConfigurationError: timm does not know the architecture.
    """
    values = _read_config(folder, name)
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"{name}: has no {WEIGHTS}; weights in other formats are not loaded, as they may run code")
    try:
        if "architecture" in values:
            return _timm_model(_TimmConfig.model_validate(values), folder / WEIGHTS)
        return _own_model(ModelConfig.model_validate(values), folder / WEIGHTS)
    except (
        ValidationError,
        ValueError,
        SafetensorError,
        RuntimeError,
    ) as error:  # torch names tensors that do not fit
        raise InputError(
            f"{name}: does not fit this version of hgld or of timm, or is damaged: {shorten(str(error), 500)}"
        ) from error


def _read_config(folder: Path, name: str) -> dict[str, Any]:
    try:
        values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{name}: has no {CONFIG}; expected a model of hgld push-model or of timm") from error
    except ValueError as error:
        raise InputError(f"{name}: {CONFIG} is not JSON: {error}") from error
    if not isinstance(values, dict) or not {"format", "architecture"} & set(values):
        raise InputError(
            f"{name}: {CONFIG} is that of another library; expected a model of hgld push-model or of timm"
        )
    return values


def _own_model(config: ModelConfig, weights: Path) -> ImageEmbedder:
    if config.model.backbone == FEATURES:
        raise ValueError("a head of features takes no images")
    if sha256_of(weights) != config.weights_sha256:
        raise ValueError(f"{weights.name} is not the file that {CONFIG} describes, or it is incomplete")
    # Never follow what the file says about initial weights: it could name files of this machine.
    network = build_model(config.model.model_copy(update={"pretrained": False}))
    network.load_state_dict(load_file(weights))
    return ImageEmbedder(network, config.image)


def _timm_model(config: _TimmConfig, weights: Path) -> ImageEmbedder:
    settings = ModelSettings(backbone=config.architecture, pretrained=str(weights))
    image_settings = ImageSettings(mean=config.pretrained_cfg.mean, std=config.pretrained_cfg.std)
    return ImageEmbedder(build_model(settings), image_settings)

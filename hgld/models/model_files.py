"""Files of models: checkpoints of a training, and folders of published models.

Checkpoints are one format for everything that training saves, readable without running code from it. Folders are
those that hgld writes, and those of timm and open_clip on the Hugging Face hub::

    config.json        settings of the network and its images, SHA-256 of the weights
    model.safetensors  weights
    training.json      settings, data digests and evaluations of the training
    README.md          model card

Loading runs no code from a folder: weights are safetensors, and settings are JSON that is validated. A folder of timm
has a ``config.json`` of another format, and one of open_clip the files ``open_clip_config.json`` and
``open_clip_model.safetensors``; both are loaded as the model of that architecture.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from sys import intern
from textwrap import shorten
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hgld.datasets.transforms import ImageSettings
from hgld.errors import InputError
from hgld.io.files import atomic_write, read_json, sha256_of
from hgld.io.settings import Settings
from hgld.models.backbones import timm_image_settings, tower_image_settings, tower_of_configuration
from hgld.models.embedding_model import build_model
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_settings import FEATURES, ModelSettings
from hgld.version import __version__

CHECKPOINT_FORMAT = "hgld.checkpoint/1"

CONFIG, WEIGHTS, TRAINING, CARD = "config.json", "model.safetensors", "training.json", "README.md"
_OPEN_CLIP_CONFIG, _OPEN_CLIP_WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
#: Names of configurations; that which is found first counts.
CONFIG_FILES = (CONFIG, _OPEN_CLIP_CONFIG)


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; the bytes depend on the values only, not on whether the run was resumed.

    Args:
        state: Tensors, numbers and strings, and mappings and sequences of them.
    """
    with atomic_write(path) as draft, draft.open("wb") as stream:  # torch writes the name of a path into the file
        torch.save(_without_identity({"format": CHECKPOINT_FORMAT, **state}), stream)


def _without_identity(value: Any) -> Any:
    """Return a value in which equal strings are one object, and no two containers are.

    Pickle writes an object that occurs again as a reference, and strings that a checkpoint was read from are other
    objects than the equal ones of the program.
    """
    if type(value) is str:
        return intern(value)
    if type(value) is dict:
        return {_without_identity(key): _without_identity(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_without_identity, value))
    return value


def read_checkpoint(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a checkpoint.

    Only tensors and plain values are accepted, so a checkpoint cannot run code. The file is memory-mapped: tensors
    that are never accessed are never read.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkpoint of hgld train")
    try:
        checkpoint = torch.load(path, map_location=device, weights_only=True, mmap=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).partition(". ")[0]  # torch goes on for several sentences
        raise InputError(
            f"{path}: not a readable checkpoint, or an incomplete one ({reason}); copy it again, or train again"
        ) from error
    file_format = checkpoint.get("format") if isinstance(checkpoint, dict) else None
    if file_format != CHECKPOINT_FORMAT:
        raise InputError(
            f'{path}: expected a checkpoint of hgld train, "{CHECKPOINT_FORMAT}", but '
            + (f'its format is "{file_format}"' if file_format else "it names no format")
        )
    state: dict[str, Any] = checkpoint
    return state


class ModelConfig(Settings):
    """Contents of ``config.json``."""

    format: Literal["hgld.model/1"]
    hgld_version: str
    model: ModelSettings
    image: ImageSettings
    dim: int
    weights_sha256: str


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has the configuration of a published model."""
    return any((folder / name).is_file() for name in CONFIG_FILES)


def is_written_by_hgld(folder: Path) -> bool:
    """Return whether a folder has a ``config.json`` in the format of hgld, of any version."""
    try:
        return str(read_json(folder / CONFIG).get("format")).startswith("hgld.model/")
    except (OSError, ValueError):
        return False


def write_model(model: ImageEmbedder, folder: Path) -> None:
    """Write the configuration and the weights of a model to an existing folder."""
    state = {name: value.cpu().contiguous() for name, value in model.network.state_dict().items()}
    with atomic_write(folder / WEIGHTS) as draft:
        save_file(state, draft, metadata={"format": "pt"})
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
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # safetensors lets nobody but the owner read its files


def read_model(folder: Path, name: str) -> ImageEmbedder:
    """Load a published model, in evaluation mode on the CPU; ``name`` is its name in error messages."""
    weights = folder / weights_name(folder, name)
    if not weights.is_file():
        raise InputError(
            f"{name}: has no {weights.name}; weights in other formats are not loaded, as they may run code"
        )
    try:
        if weights.name == _OPEN_CLIP_WEIGHTS:
            return _open_clip_model(read_json(folder / _OPEN_CLIP_CONFIG), weights)
        values = read_json(folder / CONFIG)
        return _timm_model(values, weights) if "architecture" in values else _own_model(values, weights)
    except KeyError as error:
        raise InputError(f"{name}: its configuration lacks {error}") from error
    except (TypeError, ValueError, SafetensorError, RuntimeError) as error:  # torch names the tensors that do not fit
        raise InputError(
            f"{name}: does not fit this version of hgld, timm or open_clip, or is damaged: {shorten(str(error), 500)}"
        ) from error


def weights_name(folder: Path, name: str) -> str:
    """Return the name of the file of weights that belongs to the configuration in a folder."""
    try:
        if {"format", "architecture"} & set(read_json(folder / CONFIG)):
            return WEIGHTS
    except OSError:
        pass
    except ValueError as error:
        raise InputError(f"{name}: {CONFIG} is not JSON: {error}") from error
    if (folder / _OPEN_CLIP_CONFIG).is_file():
        return _OPEN_CLIP_WEIGHTS
    found = "is that of another library" if (folder / CONFIG).is_file() else "is missing"
    raise InputError(f"{name}: {CONFIG} {found}; expected a model of hgld push-model, timm or open_clip")


def _own_model(values: dict[str, Any], weights: Path) -> ImageEmbedder:
    config = ModelConfig.model_validate(values)
    if config.model.backbone == FEATURES:
        raise ValueError("a head of features takes no images")
    if sha256_of(weights) != config.weights_sha256:
        raise ValueError(f"{weights.name} is not the file that {CONFIG} describes, or it is incomplete")
    # Never follow what the file says about initial weights: it could name files of this machine.
    network = build_model(config.model.model_copy(update={"pretrained": False}))
    network.load_state_dict(load_file(weights))
    return ImageEmbedder(network, config.image)


def _timm_model(values: dict[str, Any], weights: Path) -> ImageEmbedder:
    settings = ModelSettings(backbone=values["architecture"], pretrained=str(weights))
    image_settings = ImageSettings(**timm_image_settings(settings.backbone, values["pretrained_cfg"]))
    return ImageEmbedder(build_model(settings), image_settings)


def _open_clip_model(values: dict[str, Any], weights: Path) -> ImageEmbedder:
    settings = ModelSettings(backbone=tower_of_configuration(values["model_cfg"]), pretrained=str(weights))
    image_settings = ImageSettings(**tower_image_settings(settings, values["preprocess_cfg"]))
    return ImageEmbedder(build_model(settings), image_settings)

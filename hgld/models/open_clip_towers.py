"""Image towers of open_clip's models as backbones: CLIP, SigLIP and others, without their text towers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import nn

from hgld.datasets.transforms import Fit
from hgld.errors import ConfigurationError
from hgld.io.hub import open_clip_architecture, open_clip_weights, quiet_loading, tag_configuration, tags_of
from hgld.models.model_settings import OPEN_CLIP, ModelSettings

#: ``fit`` of :class:`~hgld.datasets.transforms.ImageSettings` by the names that open_clip gives to the same.
_FIT_OF_RESIZE_MODE: Mapping[str, Fit] = {"shortest": "crop", "squash": "squash"}

_QUICK_GELU = "-quickgelu"


class ImageTower(nn.Module):
    """The image tower of a model, up to the projection into the space that images and texts share.

    Args:
        visual: The tower as open_clip builds it.
        name: Name of the backbone, for messages.
        size: Height and width of the images in pixels.
    """

    def __init__(self, visual: nn.Module, name: str, size: int) -> None:
        super().__init__()
        self.visual = visual
        self._name, self._size = name, size

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute features: float, shape (B, 3, size, size) -> (B, C)."""
        if images.shape[2:] != (self._size, self._size):
            raise ConfigurationError(
                f"{self._name} takes no images of {images.shape[3]} x {images.shape[2]}; set `size` to {self._size}"
            )
        features: torch.Tensor = self.visual(images)
        return features


def create_tower(settings: ModelSettings) -> tuple[ImageTower, int]:
    """Create the image tower with its weights; returns it with the number of its features.

    Raises:
        ConfigurationError: open_clip has no such model or weights, or a file does not hold them.
        SourceError: The weights are not on this machine and cannot be downloaded.
    """
    import open_clip

    model = settings.backbone.removeprefix(OPEN_CLIP)
    architecture = open_clip_architecture(model)
    weights = _weights(model, settings)
    with quiet_loading():
        try:
            clip = open_clip.create_model(model, pretrained=str(weights) if weights else None, pretrained_text=False)
        except Exception as error:  # whatever torch, pickle and safetensors raise
            source = f" with the weights of {weights}" if weights else ""
            raise ConfigurationError(
                f"{settings.backbone} cannot be created{source}: {shorten(str(error), 500)}"
            ) from error
    size = int(architecture["vision_cfg"]["image_size"])
    return ImageTower(clip.visual, settings.backbone, size), int(architecture["embed_dim"])


def tower_image_settings(settings: ModelSettings, preprocess: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings of images, by name, that the tower was trained with.

    Args:
        settings: Settings of the model.
        preprocess: open_clip's configuration of the transform. Default: that of the tag of the weights.

    Raises:
        ConfigurationError: open_clip has no such model or weights.
    """
    from open_clip.transform import PreprocessCfg

    model = settings.backbone.removeprefix(OPEN_CLIP)
    size = int(open_clip_architecture(model)["vision_cfg"]["image_size"])
    if preprocess is None and isinstance(settings.pretrained, str) and not Path(settings.pretrained).is_file():
        preprocess = tag_configuration(model, settings.pretrained)
    expected = {**vars(PreprocessCfg()), **(preprocess or {})}
    fit = _FIT_OF_RESIZE_MODE.get(expected["resize_mode"])
    if fit is None:
        raise ConfigurationError(f'{settings.backbone} resizes by "{expected["resize_mode"]}", which hgld cannot')
    return {
        "size": size,
        "resize": size,
        "mean": tuple(expected["mean"]),
        "std": tuple(expected["std"]),
        "interpolation": expected["interpolation"],
        "fit": fit,
    }


def tower_of_configuration(configuration: dict[str, Any]) -> str:
    """Return the name of the backbone with a configuration of open_clip, such as that of a repository of the hub.

    Raises:
        ConfigurationError: No model that open_clip knows by name has it.
    """
    import open_clip

    for model in open_clip.list_models():
        if open_clip.get_model_config(model) == configuration:
            return f"{OPEN_CLIP}{model}"
    raise ConfigurationError("open_clip knows no model of this architecture by name; update open_clip_torch")


def _weights(model: str, settings: ModelSettings) -> Path | None:
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

"""The model that someone names on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import ValidationError

from hgld.datasets.transforms import ImageSettings
from hgld.errors import ConfigurationError
from hgld.models.embedding_model import EmbeddingModel, build_model
from hgld.models.input_images import image_settings_for
from hgld.models.model_checkpoints import load_checkpoint_model
from hgld.models.model_settings import FEATURES, PRESETS, ModelSettings


def chosen_model(
    checkpoint: Path | None,
    name: str | None,
    pretrained: str | None = None,
    *,
    size: int | None = None,
    resize: int | None = None,
) -> tuple[EmbeddingModel, ImageSettings]:
    """A trained model, or the backbone and the pooling of one that is not.

    Args:
        checkpoint: of ``hgld train``; or
        name: of a preset, or of a model of timm.
        pretrained: with a name: a file of weights, ``efficientnet-lite0``, or ``none`` for random ones, which are the
            same every time; by default what the preset says, or the weights of timm's hub.
        size: of the images, instead of what the checkpoint says, or 224.
        resize: of the images' shorter side before that, likewise, or 256.

    Raises:
        ConfigurationError: not one of ``checkpoint`` and ``name`` is given, there is no such model, its weights
            cannot be had, or the sizes do not fit; or the checkpoint is of a head without a backbone.
        InputError: the checkpoint cannot be used.
    """
    if (checkpoint is None) == (name is None):
        raise ConfigurationError("expected either --checkpoint or --model; found both or none of them")
    sizes = {key: value for key, value in (("size", size), ("resize", resize)) if value is not None}
    if checkpoint is not None:
        if pretrained is not None:
            raise ConfigurationError("--pretrained is for --model; the checkpoint has weights of its own")
        model, images = load_checkpoint_model(checkpoint)
        if model.settings.backbone == FEATURES:
            raise ConfigurationError(
                f"{checkpoint}: a head that was trained upon features of {model.settings.n_features:,} numbers; it "
                "takes no pictures. Name the checkpoint of a model with a backbone"
            )
        return model, _images(images.model_dump() | sizes)
    assert name is not None
    settings = ModelSettings.model_validate(
        {"preset": name} if name in PRESETS else {"backbone": name}
    ).without_head()
    if pretrained is not None:
        weights = False if pretrained == "none" else pretrained
        settings = settings.model_copy(update={"pretrained": weights})
    images = image_settings_for(settings, _images(sizes))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_model(settings).eval(), images


def _images(values: Mapping[str, object]) -> ImageSettings:
    try:
        return ImageSettings.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())
        raise ConfigurationError(
            f"images of this size cannot be made: {problems}; give --size and --resize"
        ) from error

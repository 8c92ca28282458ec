"""Models that are ready to embed: trained ones from checkpoints, untrained ones by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten

import torch
from pydantic import ValidationError

from hgld.datasets.transforms import ImageSettings
from hgld.errors import ConfigurationError, InputError
from hgld.models.backbones import image_settings_for
from hgld.models.checkpoint_files import read_checkpoint
from hgld.models.embedding_model import EmbeddingModel, build_model
from hgld.models.model_settings import FEATURES, PRESETS, ModelSettings


def load_model(
    checkpoint: Path | None = None,
    model: str | None = None,
    pretrained: str | None = None,
    *,
    size: int | None = None,
    resize: int | None = None,
) -> tuple[EmbeddingModel, ImageSettings]:
    """Load a trained model from a checkpoint, or an untrained one by name.

    Args:
        checkpoint: Checkpoint of ``hgld train``.
        model: Instead of a checkpoint, the name of a preset or of a timm model; see :func:`load_untrained_model`.
        pretrained: Weights of a model given by name; see :func:`load_untrained_model`.
        size: Input size in pixels. Default: that of the checkpoint, or 224.
        resize: Length in pixels of the shorter side before the centre crop. Default: that of the checkpoint, or 256.

    Returns:
        The model in evaluation mode on the CPU, and the image settings that it expects.

    Raises:
        ConfigurationError: Both or neither of ``checkpoint`` and ``model`` are given, the model does not exist, its
            weights are not available, the sizes do not fit, or the checkpoint holds a head without a backbone.
        InputError: The checkpoint is unusable.
    """
    if (checkpoint is None) == (model is None):
        raise ConfigurationError(
            f"expected either `checkpoint` or `model`; found {'neither' if model is None else 'both'}"
        )
    sizes = {key: value for key, value in (("size", size), ("resize", resize)) if value is not None}
    if checkpoint is None:
        assert model is not None
        return load_untrained_model(model, pretrained, _image_settings(sizes))
    if pretrained is not None:
        raise ConfigurationError("`pretrained` applies to `model`; the checkpoint has its own weights")
    trained, image_settings = load_checkpoint_model(checkpoint)
    if trained.settings.backbone == FEATURES:
        raise ConfigurationError(
            f"{checkpoint}: a head trained on features of {trained.settings.n_features:,} numbers, which takes no "
            "images; name the checkpoint of a model with a backbone"
        )
    return trained, _image_settings(image_settings.model_dump() | sizes)


def load_checkpoint_model(path: Path) -> tuple[EmbeddingModel, ImageSettings]:
    """Load the model of a checkpoint.

    Returns:
        The model in evaluation mode on the CPU, and the image settings that it was trained with.

    Raises:
        InputError: See :func:`~hgld.models.checkpoint_files.read_checkpoint`; or the settings and weights of the
            checkpoint do not fit together.
        ConfigurationError: timm no longer has the backbone.
    """
    checkpoint = read_checkpoint(path)
    try:
        settings = ModelSettings.model_validate(checkpoint["settings"]["model"])
        image_settings = ImageSettings.model_validate(checkpoint["settings"]["image"])
        # The checkpoint holds the weights of the backbone, too.
        model = build_model(settings.model_copy(update={"pretrained": False}))
        model.load_state_dict(checkpoint["model"])
    except KeyError as error:
        raise InputError(f"{path}: the checkpoint lacks {error}; train again") from error
    except (ValidationError, RuntimeError) as error:  # torch names the tensors that do not fit
        raise InputError(
            f"{path}: the checkpoint does not fit this version of hgld or of timm: {shorten(str(error), 500)}"
        ) from error
    return model.eval(), image_settings


def load_untrained_model(
    name: str, pretrained: str | None = None, image_settings: ImageSettings | None = None
) -> tuple[EmbeddingModel, ImageSettings]:
    """Build the backbone and pooling of a preset or a timm model, without a projection.

    Random weights are the same every time, and do not advance torch's global generator.

    Args:
        name: Name of a preset, or of a timm model.
        pretrained: A file of weights, ``efficientnet-lite0``, or ``none`` for random ones. Default: the weights that
            the preset names, or those of timm's hub.
        image_settings: Image settings; unless set, the mean and standard deviation are those of the backbone.

    Returns:
        The model in evaluation mode on the CPU, and the image settings that it expects.

    Raises:
        ConfigurationError: The model does not exist, or its weights are not available.
    """
    settings = ModelSettings.model_validate(
        {"preset": name} if name in PRESETS else {"backbone": name}
    ).without_head()
    if pretrained is not None:
        weights = False if pretrained == "none" else pretrained
        settings = settings.model_copy(update={"pretrained": weights})
    expected = image_settings_for(settings, image_settings or ImageSettings())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_model(settings).eval(), expected


def _image_settings(values: Mapping[str, object]) -> ImageSettings:
    try:
        return ImageSettings.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))} {problem['msg']}".strip() for problem in error.errors()
        )
        raise ConfigurationError(f"unusable image size: {problems}; set `size` and `resize`") from error

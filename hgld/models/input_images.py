"""The images that a model wants."""

from __future__ import annotations

from hgld.datasets.transforms import ImageSettings
from hgld.models.backbones import normalisation
from hgld.models.model_settings import ModelSettings


def image_settings_for(model: ModelSettings, given: ImageSettings) -> ImageSettings:
    """Image settings with the mean and standard deviation that the backbone was trained with.

    Args:
        model: the model.
        given: the other settings; a mean or standard deviation that was set there stays.

    Raises:
        ConfigurationError: timm knows no such backbone.
    """
    mean, std = normalisation(model)
    wanted = {"mean": mean, "std": std}
    return given.model_copy(
        update={name: value for name, value in wanted.items() if name not in given.model_fields_set}
    )

"""The base of all settings of training: typed, unchangeable, and closed to keys that nobody knows."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A part of a training's YAML file. Each room defines its own; ``hgld.training.training_settings`` reads files.

    Checks beyond types are validators that raise ``ValueError``; the message is shown with the key and the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

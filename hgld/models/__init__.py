"""Models that embed images: a timm backbone, pooling, and an optional linear projection."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgld.models.backbones import image_settings_for
    from hgld.models.checkpoint_files import read_checkpoint, save_checkpoint
    from hgld.models.embed_images import EmbedImagesConfig, embed_images
    from hgld.models.embedding_model import EmbeddingModel, build_model
    from hgld.models.model_loading import load_checkpoint_model, load_model, load_untrained_model
    from hgld.models.model_settings import PRESETS, ModelSettings
    from hgld.models.pca_projection import initialise_projection
    from hgld.models.pooling import AveragePooling, GeM, MaxPooling

_MODULES = {
    "PRESETS": "model_settings",
    "AveragePooling": "pooling",
    "EmbedImagesConfig": "embed_images",
    "EmbeddingModel": "embedding_model",
    "GeM": "pooling",
    "MaxPooling": "pooling",
    "ModelSettings": "model_settings",
    "build_model": "embedding_model",
    "embed_images": "embed_images",
    "image_settings_for": "backbones",
    "initialise_projection": "pca_projection",
    "load_checkpoint_model": "model_loading",
    "load_model": "model_loading",
    "load_untrained_model": "model_loading",
    "read_checkpoint": "checkpoint_files",
    "save_checkpoint": "checkpoint_files",
}

__all__ = [
    "PRESETS",
    "AveragePooling",
    "EmbedImagesConfig",
    "EmbeddingModel",
    "GeM",
    "MaxPooling",
    "ModelSettings",
    "build_model",
    "embed_images",
    "image_settings_for",
    "initialise_projection",
    "load_checkpoint_model",
    "load_model",
    "load_untrained_model",
    "read_checkpoint",
    "save_checkpoint",
]


def __getattr__(name: str) -> Any:
    """Import on first use: torch and timm take seconds."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

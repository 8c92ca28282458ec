"""Models that embed images: a timm backbone, pooling, and an optional linear projection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.models.backbones import image_settings_for
    from hgld.models.checkpoint_files import read_checkpoint, save_checkpoint
    from hgld.models.embed_images_config import EmbedImagesConfig
    from hgld.models.embedding_model import EmbeddingModel, build_model
    from hgld.models.image_embedder import ImageEmbedder
    from hgld.models.image_embedding import embed_images, embed_part, merge_parts
    from hgld.models.model_loading import load_checkpoint_model, load_model, load_untrained_model
    from hgld.models.model_settings import PRESETS, ModelSettings
    from hgld.models.pca_projection import initialise_projection
    from hgld.models.pooling import AveragePooling, GeM, MaxPooling


__all__ = [
    "PRESETS",
    "AveragePooling",
    "EmbedImagesConfig",
    "EmbeddingModel",
    "GeM",
    "ImageEmbedder",
    "MaxPooling",
    "ModelSettings",
    "build_model",
    "embed_images",
    "embed_part",
    "image_settings_for",
    "initialise_projection",
    "load_checkpoint_model",
    "load_model",
    "load_untrained_model",
    "merge_parts",
    "read_checkpoint",
    "save_checkpoint",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "PRESETS": "model_settings",
        "AveragePooling": "pooling",
        "EmbedImagesConfig": "embed_images_config",
        "EmbeddingModel": "embedding_model",
        "GeM": "pooling",
        "ImageEmbedder": "image_embedder",
        "MaxPooling": "pooling",
        "ModelSettings": "model_settings",
        "build_model": "embedding_model",
        "embed_images": "image_embedding",
        "embed_part": "image_embedding",
        "image_settings_for": "backbones",
        "initialise_projection": "pca_projection",
        "load_checkpoint_model": "model_loading",
        "load_model": "model_loading",
        "load_untrained_model": "model_loading",
        "merge_parts": "image_embedding",
        "read_checkpoint": "checkpoint_files",
        "save_checkpoint": "checkpoint_files",
    },
)

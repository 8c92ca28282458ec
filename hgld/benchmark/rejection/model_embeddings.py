"""Embeddings of the sets of images of a split: read from files, and turned by a head where the settings name one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from hgld.benchmark.rejection.comparison_settings import INDEX, EmbeddingSettings, for_split
from hgld.benchmark.rejection.image_sets import ImageSet
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.models.checkpoint_files import read_checkpoint
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_loading import find_checkpoint, load_checkpoint_model
from hgld.tables.embeddings import deviations_path, read_deviations, read_embeddings, rows_of
from hgld.training.training_images import read_training_manifest
from hgld.training.training_settings import DataSettings

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class SetEmbeddings:
    """Embeddings of the images of a set.

    Args:
        vectors: float32 or float64, shape (n, d).
        deviations: float32, shape (n, c): standard deviations of the feature maps; None if there are none.
    """

    vectors: torch.Tensor
    deviations: torch.Tensor | None = None


def embed_sets(settings: EmbeddingSettings, sets: Mapping[str, ImageSet], split: int) -> dict[str, SetEmbeddings]:
    """Return the embeddings of each set of images.

    Args:
        settings: Settings of the embeddings.
        sets: The sets of a split by name.
        split: Seed of the split.

    Raises:
        InputError: A file cannot be read or lacks images, or has vectors of another length than the head expects.
        ConfigurationError: The head was trained on landmarks of the sets.
    """
    checkpoint = head_checkpoint(settings, split)
    head = None if checkpoint is None else load_checkpoint_model(checkpoint).network.eval()
    if checkpoint is not None:
        _require_other_landmarks(checkpoint, sets)
    files = {source: read_embeddings(path) for source, path in embedding_files(settings, split).items()}
    has_deviations = all(deviations_path(embeddings.path).is_file() for embeddings in files.values())
    embedded = {}
    for name, images in sets.items():
        embeddings = files[images.source]
        rows = torch.from_numpy(rows_of(embeddings, images.ids, f"images of {name}"))
        vectors = embeddings.vectors[rows]
        embedded[name] = SetEmbeddings(
            vectors if head is None else _apply(head, vectors, embeddings.path),
            read_deviations(embeddings.path, images.ids) if has_deviations else None,
        )
    return embedded


def embedding_files(settings: EmbeddingSettings, split: int) -> dict[str, Path]:
    """Return the files of embeddings or features for a split, by the source of the images."""
    return {source: for_split(path, split) for source, path in settings.files.items()}


def head_checkpoint(settings: EmbeddingSettings, split: int) -> Path | None:
    """Return the checkpoint of the head for a split.

    Raises:
        InputError: There is no such run or file.
    """
    if settings.head is None:
        return None
    path = for_split(settings.head, split)
    checkpoint = find_checkpoint(path)
    if checkpoint is None or not checkpoint.is_file():
        raise InputError(f"{path}: no such run or checkpoint; train the head of `embeddings`, see `hgld train`")
    return checkpoint


def _apply(head: EmbeddingModel, features: torch.Tensor, path: Path) -> torch.Tensor:
    expected = head.settings.n_features
    if features.shape[1] != expected:
        raise InputError(
            f"{path}: vectors of {features.shape[1]:,} numbers, but the head expects "
            f"{'images' if expected is None else f'features of {expected:,}'}; name the features it was trained on"
        )
    with torch.inference_mode():
        starts = range(0, len(features), _BLOCK)
        blocks = [head(features[start : start + _BLOCK].float()) for start in starts]
    return torch.cat(blocks).clone()


def _require_other_landmarks(checkpoint: Path, sets: Mapping[str, ImageSet]) -> None:
    """Raise if the head was trained on a landmark of the index's manifest that the sets show."""
    try:
        data = DataSettings.model_validate(read_checkpoint(checkpoint)["settings"]["data"])
    except (KeyError, ValidationError) as error:
        raise InputError(f"{checkpoint}: does not say what it was trained on ({error}); train it again") from error
    trained = read_training_manifest(data).select_split(data.train)
    used = {name for images in sets.values() if images.source == INDEX for name in images.classes.tolist()}
    if shared := sorted(used.intersection(trained.class_names[0])):
        raise ConfigurationError(
            f"{checkpoint}: the head was trained on {len(shared):,} of the {len(used):,} landmarks that the "
            f"comparison tells apart, which would flatter it; train it on others:\n{indented_list(shared, limit=5)}"
        )

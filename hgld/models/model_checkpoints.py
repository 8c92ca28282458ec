"""Checkpoints of ``hgld train``, and the models in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from pydantic import ValidationError

from hgld.datasets.transforms import ImageSettings
from hgld.errors import InputError
from hgld.models.embedding_model import EmbeddingModel, build_model
from hgld.models.model_settings import ModelSettings

CHECKPOINT_FORMAT = "hgld.checkpoint/1"


def read_checkpoint(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a checkpoint; what it holds besides tensors and plain values is refused, so that it cannot run code.

    Its file is mapped into memory: tensors that are not used are not read.

    Raises:
        InputError: there is no such file, or it is no checkpoint of hgld's, or not a whole one.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkpoint of hgld train")
    try:
        found = torch.load(path, map_location=device, weights_only=True, mmap=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"{path}: not a checkpoint that can be read, or not a whole one: {error}") from error
    said = found.get("format") if isinstance(found, dict) else None
    if said != CHECKPOINT_FORMAT:
        raise InputError(
            f'{path}: expected a checkpoint of hgld train, "{CHECKPOINT_FORMAT}", but '
            + (f'it is "{said}"' if said else "it does not say what it is")
        )
    checkpoint: dict[str, Any] = found
    return checkpoint


def load_checkpoint_model(path: Path) -> tuple[EmbeddingModel, ImageSettings]:
    """The model that a checkpoint holds, on the CPU and ready to embed, and the images that it wants.

    Raises:
        InputError: as :func:`read_checkpoint`, or its parts do not fit together.
        ConfigurationError: timm knows no such backbone any more.
    """
    found = read_checkpoint(path)
    try:
        settings = ModelSettings.model_validate(found["settings"]["model"])
        images = ImageSettings.model_validate(found["settings"]["image"])
        # The weights of the backbone are those of the checkpoint.
        model = build_model(settings.model_copy(update={"pretrained": False}))
        model.load_state_dict(found["model"])
    except KeyError as error:
        raise InputError(f"{path}: the checkpoint lacks {error}; train again") from error
    except (ValidationError, RuntimeError) as error:  # torch tells which tensors do not fit
        raise InputError(
            f"{path}: the checkpoint does not fit this version of hgld or of timm: {shorten(str(error), 500)}"
        ) from error
    return model.eval(), images

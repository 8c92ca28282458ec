"""Functions in Python as networks, by which any other runtime embeds images.

Functions embed images, and are neither trained nor published. :func:`hgld.load_model` takes them by name only. They
are no setting of a model, since a checkpoint or a repository of the hub could then name a function and run its code.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hgld.errors import ConfigurationError, InputError
from hgld.io.files import sha256_of
from hgld.models.backbones import valid_image_settings
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_files import PYTHON
from hgld.models.model_settings import ModelSettings, ModelSource

#: Default height and width of images in pixels.
_DEFAULT_SIZE = 224


class FunctionNetwork(nn.Module):
    """A function as a network without parameters; the SHA-256 of its file is a buffer.

    Args:
        name: Name in messages and in the provenance of embeddings, without folders.
        function: Function from images, float32, shape (B, 3, h, w), to features, any type, shape (B, C).
        file: File of its module; None for modules of the interpreter.
    """

    def __init__(
        self, name: str, function: Callable[[NDArray[np.float32]], Any], file: Path | None
    ) -> None:
        super().__init__()
        self.name = name
        self._function = function
        digest = hashlib.sha256() if file is None else hashlib.sha256(sha256_of(file).encode())
        self.register_buffer("sha256", torch.tensor([*digest.digest()], dtype=torch.uint8))

    def forward(self, images: Tensor) -> Tensor:
        """Compute features on the CPU: float, shape (B, 3, h, w) -> float32, shape (B, C)."""
        try:
            # A copy, which a function may change.
            output = self._function(images.detach().float().cpu().numpy().copy(order="C"))
            features = torch.as_tensor(output).detach().to(images.device, torch.float32)
        except Exception as error:  # whatever functions raise
            raise ConfigurationError(
                f"{self.name} cannot embed images: {_reason(error)}"
            ) from error
        if features.ndim != 2 or len(features) != len(images):
            raise ConfigurationError(
                f"{self.name} returns the shape {tuple(features.shape)} for {len(images)} images; expected "
                f"({len(images)}, d), a row for each"
            )
        return features


def load_function(model: str, image_settings: Mapping[str, Any]) -> ImageEmbedder:
    """Load a function as a network.

    Args:
        model: ``python:MODULE:FUNCTION`` or ``python:FILE.py:FUNCTION``.
        image_settings: Image settings by name. Default: images of 224 x 224 pixels with values from 0 to 1.

    Returns:
        The model on the CPU. Its settings cannot build it again.

    Raises:
        ConfigurationError: There is no such function, its module cannot be imported, or it does not return a row for
            each image.
        InputError: There is no such file.
    """
    module_name, _, function_name = model.removeprefix(PYTHON).rpartition(":")
    if not module_name or not function_name:
        raise ConfigurationError(
            f"{model}: expected python:MODULE:FUNCTION or python:FILE.py:FUNCTION"
        )
    name = source = model
    path = Path(module_name)
    if path.suffix == ".py":
        if not path.is_file():
            raise InputError(f"{path}: no such file; expected a model")
        name = f"{PYTHON}{path.name}:{function_name}"
        source = f"{PYTHON}{path.absolute()}:{function_name}"
    module = _import(module_name, name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigurationError(f"{name}: {module_name} has no function {function_name}")
    file = getattr(module, "__file__", None)  # modules of C in the interpreter have none
    network = FunctionNetwork(name, function, Path(file) if file else None)
    size = image_settings.get("size", _DEFAULT_SIZE)
    defaults = {"size": size, "resize": size, "mean": (0.0,) * 3, "std": (1.0,) * 3}
    images = valid_image_settings({**defaults, **image_settings})
    n_channels = network(torch.zeros(1, 3, images.size, images.size)).shape[1]
    settings = ModelSettings(backbone=name, pretrained=False)
    return ImageEmbedder(EmbeddingModel(network, n_channels, settings), images, ModelSource(source))


def _import(module_name: str, name: str) -> ModuleType:
    """Import a module, or run a file; ``name`` is the name of the function in error messages."""
    path = Path(module_name)
    try:
        if path.suffix == ".py":
            return _run_file(path)
        return import_module(module_name)
    except Exception as error:  # whatever the code of the module raises
        raise ConfigurationError(
            f"{name} cannot be imported: {_reason(error)}; a module has to be installed or below PYTHONPATH, and a "
            "file is named by python:FILE.py:FUNCTION"
        ) from error


def _run_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"hgld_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # before it is run, as dataclasses look it up
    spec.loader.exec_module(module)
    return module


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {shorten(str(error), 300)}"

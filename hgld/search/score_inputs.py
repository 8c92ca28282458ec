"""Inputs of rejection scores from files, and whether the model that a score was fitted on made them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.models.embedding_files import EmbeddingRecord, read_embedding_record
from hgld.rejection import Detector, DetectorModel
from hgld.tables.embeddings import Embeddings, path_beside, read_deviations, read_embeddings

#: Inputs of scores that are in files of their own, beside the embeddings.
FILE_INPUTS = ("logits", "deviations")


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """Inputs of a score for n images.

    Args:
        embeddings: Embeddings of the images.
        tensors: Other inputs by name, such as ``logits``; each has a row for each image.
        files: Files of these inputs, where they are not parts of a folder of embeddings.
    """

    embeddings: Embeddings
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)

    def ids(self) -> list[str]:
        """Return the ids of the images; their rows if the file has none."""
        ids = self.embeddings.ids
        return list(map(str, range(len(self.embeddings)))) if ids is None else ids.tolist()

    def score(self, detector: Detector) -> Any:
        """Return the scores of the images at each level, shape (n, L); (n, 1) for a score without levels.

        Raises:
            InputError: The images do not fit the score; see :meth:`hgld.rejection.Detector.score`.
        """
        with file_errors(self.embeddings.path):
            return detector.score_levels(self.embeddings.vectors, **self.tensors)


def read_score_inputs(path: Path, inputs: Collection[str], files: Mapping[str, Path | None]) -> ScoreInputs:
    """Read embeddings, and the other inputs of a score.

    Args:
        path: File of the embeddings.
        inputs: Names of the other inputs, of :data:`FILE_INPUTS`.
        files: Files of these inputs by name. Default: those beside ``path``; see
            :func:`~hgld.tables.embeddings.path_beside`.

    Raises:
        InputError: A file is missing or malformed, or is that of other images.
    """
    embeddings = read_embeddings(path)
    paths = {name: files.get(name) or path_beside(path, name) for name in FILE_INPUTS if name in inputs}
    tensors = {}
    if path.is_dir() and files.get("deviations") is None and "deviations" in paths:  # each part has its own
        del paths["deviations"]
        tensors["deviations"] = read_deviations(path, embeddings.ids)
    tensors |= {name: _read_file_input(file, name, embeddings) for name, file in paths.items()}
    return ScoreInputs(embeddings, tensors, paths)


def _read_file_input(path: Path, name: str, embeddings: Embeddings) -> torch.Tensor:
    """Read an input of a score, such as ``logits``, and check that its rows are those of the embeddings."""
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; expected the {name} of the images of {embeddings.path}, which the score needs"
        )
    values = read_embeddings(path)
    if len(values) != len(embeddings):
        raise InputError(
            f"{path}: {len(values):,} rows of {name}, and {embeddings.path} has {len(embeddings):,} embeddings; "
            "expected a row for each, in the same order"
        )
    if values.ids is not None and embeddings.ids is not None and (values.ids != embeddings.ids).any():
        row = int(np.argmax(values.ids != embeddings.ids))
        raise InputError(
            f"{path}: has {values.ids[row]} in row {row:,}, where {embeddings.path} has {embeddings.ids[row]}; "
            "expected the same images in the same order"
        )
    return values.vectors


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Prefix the messages of errors with the file of the embeddings that they are about."""
    try:
        yield
    except (InputError, ConfigurationError) as error:
        message = str(error).replace("`embeddings`", "the embeddings")
        raise type(error)(message if str(path) in message else f"{path}: {message}") from error


def recorded_model(embeddings: Path) -> DetectorModel | None:
    """Return the model and the settings that made embeddings; None if they are not recorded.

    Embeddings from which different means were subtracted (``hgld embed-images --center``) do not compare, so a digest
    of the mean is one of the settings.
    """
    record = read_embedding_record(embeddings)
    if record is None or "weights" not in record.provenance.inputs:
        return None
    parameters = record.provenance.parameters
    settings = {name: parameters[name] for name in ("image", "scales", "half") if name in parameters}
    mean = None if record.mean is None else hashlib.sha256(np.array(record.mean).tobytes()).hexdigest()[:12]
    return DetectorModel(
        name=_model_name(record),
        weights_sha256=record.provenance.inputs["weights"],
        settings=settings | {"center": mean or "off"},
    )


def check_same_model(fitted_on: DetectorModel | None, embeddings: Path, description: str) -> None:
    """Check that embeddings were made as those that a score was fitted on, as far as both are recorded.

    Raises:
        ConfigurationError: They were made by another model, or with other settings.
    """
    model = recorded_model(embeddings)
    if fitted_on is None or model is None:
        return
    if model.weights_sha256 != fitted_on.weights_sha256:
        raise ConfigurationError(
            f"{embeddings}: made by the model {model.name}, and {description} was fitted on embeddings of another, "
            f"{fitted_on.name}; embed the images with that one, or fit the score again"
        )
    for name, value in model.settings.items():
        if value != fitted_on.settings.get(name, value):
            raise ConfigurationError(
                f"{embeddings}: made with the setting {name} {value}, and {description} was fitted on embeddings "
                f"made with {fitted_on.settings[name]}; embed the images alike, or fit the score again"
            )


def _model_name(record: EmbeddingRecord) -> str:
    """Return the name of a model without the folders of this machine."""
    source = record.sources.model
    if source is None:
        return str(dict(record.provenance.parameters.get("model") or {}).get("backbone", "unnamed"))
    path = Path(source.model)
    if not path.is_absolute():
        return source.model
    return f"{path.parent.name}/{path.name}" if path.suffix else path.name

"""Folders of fitted rejection scores.

::

    detector.json        the score, its options, what it was fitted on, and its thresholds
    detector.safetensors what was fitted: statistics of the index, or its embeddings
    README.md            detector card

Loading runs no code from a folder: JSON is validated, and tensors are memory-mapped, so a score that keeps the
embeddings of its index reads those that it needs. For that reason the values of the tensors are not checked against a
digest, only that they are whole and belong to ``detector.json``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hgld.errors import ConfigurationError, HgldError, InputError
from hgld.io.files import atomic_write, folder_draft, read_json, replace_folder
from hgld.io.locks import exclusive_lock
from hgld.io.settings import Settings
from hgld.rejection.detector import Detector
from hgld.rejection.detector_card import detector_card
from hgld.rejection.detector_record import DetectorRecord
from hgld.rejection.registry import build_detector
from hgld.version import __version__

DESCRIPTION, STATE, CARD = "detector.json", "detector.safetensors", "README.md"
_FORMAT: Literal["hgld.detector/1"] = "hgld.detector/1"


class _Description(Settings):
    """Contents of ``detector.json``.

    Args:
        format: Name and version of the format.
        hgld_version: Version of hgld that wrote the folder.
        score: Name of the score.
        options: Its options.
        dim: Dimension of the embeddings.
        n_levels: Number of levels of the labels that it was fitted on.
        record: What it was fitted on.
    """

    format: Literal["hgld.detector/1"]
    hgld_version: str
    score: str
    options: dict[str, Any]
    dim: int = Field(ge=1)
    n_levels: int = Field(ge=1)
    record: DetectorRecord

    def fit_digest(self) -> str:
        """Return a digest of what determines the state."""
        record = self.record.model_dump(mode="json", include={"n_images", "index_sha256", "model", "provenance"})
        content = [self.score, self.options, self.dim, self.n_levels, record]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class SavedDetector:
    """A fitted score and its record.

    Args:
        detector: The score, fitted.
        record: What it comes from.
    """

    detector: Detector
    record: DetectorRecord


def is_detector_folder(folder: Path) -> bool:
    """Return whether a folder has a ``detector.json`` in the format of hgld, of any version."""
    try:
        return str(read_json(folder / DESCRIPTION).get("format")).startswith("hgld.detector/")
    except (OSError, ValueError):
        return False


def check_replaceable_folder(folder: Path) -> None:
    """Check that a detector can be written to ``folder``: it is new, empty, or that of a detector.

    Raises:
        ConfigurationError: The folder holds something else.
    """
    if folder.exists() and any(folder.iterdir()) and not is_detector_folder(folder):
        raise ConfigurationError(f"{folder}: contains files that are not those of a detector; name another folder")


def save_detector(folder: Path, detector: Detector, record: DetectorRecord) -> None:
    """Write a fitted score with its card to a folder, which appears whole or not at all.

    Args:
        folder: Folder to write; that of another detector is replaced.
        detector: The fitted score.
        record: What it comes from.

    Raises:
        ConfigurationError: The score was not fitted, or the folder holds something else than a detector.
        BusyError: Another run is writing the folder.
    """
    if not detector.dim:
        raise ConfigurationError(f"the score {detector.name} was not fitted; call `fit` first")
    description = _Description(
        format=_FORMAT,
        hgld_version=__version__,
        score=detector.name,
        options=detector.options(),
        dim=detector.dim,
        n_levels=detector.n_levels,
        record=record,
    )
    folder = folder.absolute()
    with exclusive_lock(folder), folder_draft(folder) as draft:
        check_replaceable_folder(folder)
        # The digest is that of the values as they are read again: a tuple becomes a list.
        values = description.model_dump(mode="json")
        state = _savable(detector.state())
        # One entry only: safetensors writes several in an order that differs from file to file.
        metadata = {"fit": _Description.model_validate(values).fit_digest()}
        with atomic_write(draft / STATE) as part:
            save_file(state, part, metadata=metadata)
        text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        (draft / DESCRIPTION).write_text(text, encoding="utf-8")
        n_bytes = sum(tensor.nbytes for tensor in state.values())
        card = detector_card(detector, record, title=folder.name, n_bytes=n_bytes)
        (draft / CARD).write_text(card, encoding="utf-8")
        shutil.copymode(draft / DESCRIPTION, draft / STATE)  # safetensors lets nobody but the owner read its files
        replace_folder(draft, folder)


def load_detector(folder: Path) -> SavedDetector:
    """Load a fitted score from a folder of :func:`save_detector`.

    Args:
        folder: The folder.

    Raises:
        InputError: There is no such folder, or its files are missing, damaged, of another version or of several
            detectors.
    """
    description = _read_description(folder)
    try:
        detector = build_detector(description.score, description.options)
        detector.restore(description.dim, _read_state(folder, description), n_levels=description.n_levels)
        return SavedDetector(detector, description.record)
    except HgldError as error:
        raise InputError(f"{folder}: {error}") from error
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # tensors of other shapes or types
        raise InputError(
            f"{folder}: does not fit this version of hgld, or is damaged: {shorten(str(error), 200)}; fit it again"
        ) from error


def _read_description(folder: Path) -> _Description:
    path = folder / DESCRIPTION
    try:
        values = read_json(path)
        if values.get("format") != _FORMAT:
            raise InputError(
                f'{path}: expected a detector of hgld reject fit, "{_FORMAT}", but its format is '
                f'"{values.get("format")}"; fit it again'
            )
        return _Description.model_validate(values)
    except OSError as error:
        raise InputError(
            f"{folder}: not a detector of hgld reject fit, as it has no {DESCRIPTION} that can be read "
            f"({error.strerror})"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; was it changed? fit it again"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: not whole JSON ({error}); fit it again") from error


def _read_state(folder: Path, description: _Description) -> dict[str, torch.Tensor]:
    path = folder / STATE
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("fit") != description.fit_digest():
                raise InputError(
                    f"{STATE} belongs to another {DESCRIPTION}; copy both from one detector, or fit it again"
                )
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(f"{STATE} is not whole ({reason}); copy it again, or fit it again") from error


def _savable(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors as safetensors holds them: on the CPU, contiguous, and each with memory of its own."""
    tensors: dict[str, torch.Tensor] = {}
    used: set[int] = set()
    for name, value in state.items():
        tensor = value.detach().cpu().contiguous()
        memory = tensor.untyped_storage()
        if memory.data_ptr() in used or memory.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        used.add(tensor.untyped_storage().data_ptr())
        tensors[name] = tensor
    return tensors

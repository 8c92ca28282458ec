"""The checkpoint file: one format for everything that training saves, readable without running code from it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from sys import intern
from typing import Any

import torch

from hgld.errors import InputError
from hgld.io.files import atomic_write

CHECKPOINT_FORMAT = "hgld.checkpoint/1"


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; the bytes depend on the values only, not on whether the run was resumed.

    Args:
        path: File to write or replace.
        state: Tensors, numbers and strings, and mappings and sequences of them.
    """
    with atomic_write(path) as draft, draft.open("wb") as stream:  # torch writes the name of a path into the file
        torch.save(_without_identity({"format": CHECKPOINT_FORMAT, **state}), stream)


def _without_identity(value: Any) -> Any:
    """Return a value in which equal strings are one object, and no two containers are.

    Pickle writes an object that occurs again as a reference, and strings that a checkpoint was read from are other
    objects than the equal ones of the program.
    """
    if type(value) is str:
        return intern(value)
    if type(value) is dict:
        return {_without_identity(key): _without_identity(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_without_identity, value))
    return value


def read_checkpoint(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a checkpoint.

    Only tensors and plain values are accepted, so a checkpoint cannot run code. The file is memory-mapped: tensors
    that are never accessed are never read.

    Raises:
        InputError: The file does not exist, is incomplete, or is not a checkpoint of hgld.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkpoint of hgld train")
    try:
        checkpoint = torch.load(path, map_location=device, weights_only=True, mmap=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).partition(". ")[0]  # torch goes on for several sentences
        raise InputError(
            f"{path}: not a readable checkpoint, or an incomplete one ({reason}); copy it again, or train again"
        ) from error
    file_format = checkpoint.get("format") if isinstance(checkpoint, dict) else None
    if file_format != CHECKPOINT_FORMAT:
        raise InputError(
            f'{path}: expected a checkpoint of hgld train, "{CHECKPOINT_FORMAT}", but '
            + (f'its format is "{file_format}"' if file_format else "it names no format")
        )
    state: dict[str, Any] = checkpoint
    return state

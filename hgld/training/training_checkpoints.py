"""Checkpoints: all that a training needs to go on as if nothing had happened, in one file that holds no code."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgld.errors import ConfigurationError, indented_list
from hgld.io.settings import flatten

#: Settings that say how the work is done and not what comes of it; they may change when a run goes on. Files are told
#: by their digests.
_FREE = (
    *("workers", "checkpoint_steps", "evaluation.every", "evaluation.batch_size"),
    *("data.manifest", "data.root", "data.features"),
)


def require_same_run(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with something else.

    Args:
        path: the checkpoint.
        then: settings, digests of data and the number of processes, as the checkpoint has them.
        now: the same of this run.

    Raises:
        ConfigurationError: they differ in what has a part in the result.
    """
    before, after = result_affecting(then), result_affecting(now)
    differing = [
        f"{key.removeprefix('settings.')}: {before.get(key)} then, {after.get(key)} now"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    if differing:
        raise ConfigurationError(
            f"{path}: this run was begun with something else; go on with the same, or begin anew (--force, "
            f"or another folder):\n{indented_list(differing)}"
        )


def result_affecting(said: Mapping[str, Any]) -> dict[str, Any]:
    """What has a part in the result of a training, by keys joined with dots.

    Args:
        said: settings as JSON values; or what a checkpoint says, which has them below ``settings``.
    """
    return {key: value for key, value in flatten(said).items() if not key.removeprefix("settings.").startswith(_FREE)}


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of all generators of random numbers: Python's, NumPy's, torch's."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    version, words, gauss = random.getstate()
    state = {
        "python": [version, list(words), gauss],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """The inverse of :func:`random_state`."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)

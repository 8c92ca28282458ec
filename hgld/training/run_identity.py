"""Identity of a run: the settings and data that must not change when it is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, indented_list
from hgld.io.settings import flatten

#: Settings that do not affect the weights of an epoch, so they may change when a run is resumed. Data files are
#: identified by their digests rather than by their paths.
_NOT_RESULT_AFFECTING = (
    *("workers", "loggers", "checkpoint_steps", "evaluation.every", "evaluation.batch_size"),
    *("data.manifest", "data.root", "data.features"),
)


def require_same_run(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error if a run was started with other settings, data or numbers of processes.

    Args:
        path: Checkpoint or folder of the run, for the message.
        then: Settings, digests of the data and number of processes of the run, as far as they are to be compared.
        now: The same of the current process.

    Raises:
        ConfigurationError: They differ in a value that affects the result.
    """
    before, after = result_affecting(then), result_affecting(now)
    differences = [
        f"{key.removeprefix('settings.')}: {before.get(key)} then, {after.get(key)} now"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    if differences:
        raise ConfigurationError(
            f"{path}: this run was started with other settings or data; resume with the same ones, or start over "
            f"(`force`, or another folder):\n{indented_list(differences)}"
        )


def result_affecting(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that affect the result of a training, by keys joined with dots.

    Args:
        values: Settings as JSON values; or a mapping with the settings below the key ``settings``.

    >>> result_affecting({"settings": {"seed": 0, "workers": 4}, "processes": 2})
    {'settings.seed': 0, 'processes': 2}
    """
    return {
        key: value
        for key, value in flatten(values).items()
        if not key.removeprefix("settings.").startswith(_NOT_RESULT_AFFECTING)
    }

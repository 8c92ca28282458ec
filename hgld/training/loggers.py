"""Loggers of a training beside ``history.jsonl``: TensorBoard and Weights & Biases.

Weights & Biases comes with the extra ``wandb``, and is configured as in any other program: by its login and by
variables such as ``WANDB_PROJECT``. A logger that cannot start stops the training before its first step; one that
fails later is dropped with a warning, as ``history.jsonl`` has all values. A resumed run continues the runs of its
loggers.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from hgld.errors import ConfigurationError
from hgld.io.settings import flatten

log = logging.getLogger(__name__)

LoggerName = Literal["tensorboard", "wandb"]
#: What to do when a logger cannot start.
_REMEDIES = {
    "tensorboard": "correct that, or log without it (`loggers`)",
    "wandb": "log in with `wandb login`, or keep the run on this machine with WANDB_MODE=offline",
}


@dataclass(frozen=True)
class LoggedRun:
    """A run as its loggers see it.

    Args:
        lines: Lines of the history before a resumption.
        earlier_ids: Ids that loggers gave to the run before a resumption.
    """

    folder: Path
    settings: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    earlier_ids: Mapping[str, str]


class RunLogger(Protocol):
    """Receives the history of a run."""

    run_id: str | None

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Log values by name, for a step or an evaluation after a number of steps."""

    def close(self, *, finished: bool) -> None:
        """Write pending values, and record whether the training is complete."""


class TensorBoardLogger:
    """Writes event files to ``tensorboard/`` in the folder of the run."""

    run_id: str | None = None

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter  # TensorBoard takes a second to import

        next_step = run.lines[-1]["step"] + 1 if run.lines else None
        self._writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=next_step)

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self, *, finished: bool) -> None:
        self._writer.close()


class WandbLogger:
    """Writes to a run of Weights & Biases, with its files in ``wandb/`` in the folder of the run.

    Weights & Biases ignores steps that it has already.
    """

    def __init__(self, run: LoggedRun) -> None:
        import wandb

        earlier = run.earlier_ids.get("wandb")
        self.run_id: str | None = earlier or uuid.uuid4().hex[:8]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "hgld"),
            id=self.run_id,
            name=str(run.folder),
            dir=run.folder,
            config=dict(run.settings),
            resume="allow",
            reinit="create_new",  # leaves a run of the calling program alone
            settings=wandb.Settings(console="off", silent=True),
        )
        for line in run.lines if earlier is None else ():
            self.log(line["kind"], line["step"], scalars(line))

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self, *, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


#: The loggers by name.
LOGGERS: Mapping[str, Callable[[LoggedRun], RunLogger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
}


class RunLoggers:
    """The loggers of a run together; one that fails is dropped."""

    def __init__(self, names: Iterable[str], run: LoggedRun) -> None:
        self._loggers: dict[str, RunLogger] = {}
        for name in names:
            try:
                self._loggers[name] = LOGGERS[name](run)
            except Exception as error:  # whatever a server, a login or the network raise
                self.close(finished=False)
                raise ConfigurationError(
                    f"{name} cannot log: {_first_line(error)}; {_REMEDIES[name]}"
                ) from error

    @property
    def ids(self) -> dict[str, str]:
        """Ids under which a resumed run continues the runs of its loggers."""
        ids = {}
        for name, logger in self._loggers.items():
            if logger.run_id is not None:
                ids[name] = logger.run_id
        return ids

    def log(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Log numbers by name; mappings of numbers are allowed."""
        numbers = scalars(values)
        for name, logger in list(self._loggers.items()):
            try:
                logger.log(kind, step, numbers)
            except Exception as error:
                self._drop(name, error)

    def close(self, *, finished: bool) -> None:
        """Close all loggers."""
        for name, logger in list(self._loggers.items()):
            try:
                logger.close(finished=finished)
            except Exception as error:
                self._drop(name, error)

    def _drop(self, name: str, error: Exception) -> None:
        log.warning(
            "%s failed, and is dropped: %s; the training goes on, and history.jsonl has all values",
            name, _first_line(error),
        )  # fmt: skip
        del self._loggers[name]


def require_loggers(names: Iterable[str]) -> None:
    """Check, before any work, that the packages of loggers are installed."""
    if "wandb" in names and importlib.util.find_spec("wandb") is None:
        raise ConfigurationError(
            "the logger wandb needs its package, which is not installed; type pip install '.[wandb]' in a clone of "
            "hgld"
        )


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of the history by name.

    >>> scalars({"kind": "step", "step": 3, "loss": 0.5, "lr": {"head": 0.1}})
    {'loss': 0.5, 'lr.head': 0.1}
    """
    return {name: value for name, value in flatten(line).items() if name not in ("kind", "step")}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

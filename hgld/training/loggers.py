"""Loggers of a training beside ``history.jsonl``: TensorBoard, Weights & Biases, MLflow.

Weights & Biases and MLflow come with extras of their names, and are configured as in any other program: by their
logins and by variables such as ``WANDB_PROJECT`` or ``MLFLOW_TRACKING_URI``. A logger that cannot start stops the
training before its first step; one that fails later is dropped with a warning, as ``history.jsonl`` has all values. A
resumed run continues the runs of its loggers.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from hgld.errors import ConfigurationError
from hgld.io.settings import flatten

log = logging.getLogger(__name__)

LoggerName = Literal["tensorboard", "wandb", "mlflow"]
#: The project or experiment of runs, where the environment names none.
_PROJECT = "hgld"
#: Loggers whose package comes with an extra; logger, package and extra have the same name.
_EXTRAS = ("wandb", "mlflow")
#: What to do when a logger cannot start.
_REMEDIES = {
    "tensorboard": "correct that, or log without it (`loggers`)",
    "wandb": "log in with `wandb login`, or keep the run on this machine with WANDB_MODE=offline",
    "mlflow": "name a tracking server or store in MLFLOW_TRACKING_URI, such as http://localhost:5000",
}
_SECONDS_BETWEEN_REQUESTS = 5.0
#: MLflow's limits for one request.
_MAX_METRICS, _MAX_PARAMETERS = 1000, 100


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
        """Write what is left, and say whether the training is complete."""


class TensorBoardLogger:
    """Writes event files to ``tensorboard/`` in the folder of the run."""

    run_id: str | None = None

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter  # TensorBoard takes a second to import

        next_step = run.lines[-1]["step"] + 1 if run.lines else None
        self._writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=next_step)

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """See :class:`RunLogger`."""
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self, *, finished: bool) -> None:
        """See :class:`RunLogger`."""
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
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
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
        """See :class:`RunLogger`."""
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self, *, finished: bool) -> None:
        """See :class:`RunLogger`."""
        self._run.finish(exit_code=0 if finished else 1)


class MlflowLogger:
    """Writes to a run of MLflow, with one request every few seconds."""

    def __init__(self, run: LoggedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient()
        self._waiting: list[Any] = []
        self._requested_at = time.monotonic()
        earlier = run.earlier_ids.get("mlflow")
        self.run_id: str | None = earlier or self._create_run(str(run.folder))
        #: The last step of each kind that MLflow has: of a run that was killed, more or fewer than the history keeps.
        self._logged = {kind: self._last_step(kind) if earlier else -1 for kind in ("step", "val", "test")}
        if earlier:
            self._client.update_run(self.run_id, status="RUNNING")
        parameters = [Param(key, str(value)) for key, value in run.settings.items() if not earlier]
        for start in range(0, len(parameters), _MAX_PARAMETERS):
            self._client.log_batch(self.run_id, params=parameters[start : start + _MAX_PARAMETERS])
        for line in run.lines:
            self.log(line["kind"], line["step"], scalars(line))

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """See :class:`RunLogger`."""
        from mlflow.entities import Metric

        if step <= self._logged[kind]:
            return
        now = time.time_ns() // 1_000_000
        self._waiting += [Metric(_mlflow_name(f"{kind}/{name}"), value, now, step) for name, value in values.items()]
        if time.monotonic() - self._requested_at >= _SECONDS_BETWEEN_REQUESTS:
            self._send()

    def close(self, *, finished: bool) -> None:
        """See :class:`RunLogger`."""
        self._send()
        self._client.set_terminated(self.run_id, "FINISHED" if finished else "KILLED")

    def _create_run(self, name: str) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        found = self._client.get_experiment_by_name(experiment)
        experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
        run_id: str = self._client.create_run(experiment_id, run_name=name).info.run_id
        return run_id

    def _last_step(self, kind: str) -> int:
        """Return the last step of a kind that MLflow has, by the epoch, which every line has."""
        return max(
            (metric.step for metric in self._client.get_metric_history(self.run_id, f"{kind}/epoch")), default=-1
        )

    def _send(self) -> None:
        for start in range(0, len(self._waiting), _MAX_METRICS):
            self._client.log_batch(self.run_id, metrics=self._waiting[start : start + _MAX_METRICS])
        self._waiting = []
        self._requested_at = time.monotonic()


#: The loggers by name.
LOGGERS: Mapping[str, Callable[[LoggedRun], RunLogger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
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
                raise ConfigurationError(f"{name} cannot log: {_first_line(error)}; {_REMEDIES[name]}") from error

    @property
    def ids(self) -> dict[str, str]:
        """Ids under which a resumed run continues the runs of its loggers."""
        return {name: logger.run_id for name, logger in self._loggers.items() if logger.run_id is not None}

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
    for name in names:
        if name in _EXTRAS and importlib.util.find_spec(name) is None:
            raise ConfigurationError(
                f"the logger {name} needs its package, which is not installed; type pip install '.[{name}]' in a "
                "clone of hgld"
            )


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of the history by name.

    >>> scalars({"kind": "step", "step": 3, "loss": 0.5, "lr": {"head": 0.1}})
    {'loss': 0.5, 'lr.head': 0.1}
    """
    return {name: value for name, value in flatten(line).items() if name not in ("kind", "step")}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _mlflow_name(name: str) -> str:
    """Return a name in the characters that MLflow allows.

    >>> _mlflow_name("test/R@1")
    'test/R_at_1'
    """
    return name.replace("@", "_at_")

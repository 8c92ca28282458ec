"""The folder of a run: its settings, history and checkpoints; and loggers of the history.

::

    settings.yaml     all settings, including defaults; `hgld train settings.yaml` repeats the run
    run.json          versions, the machine, digests of the data, and whether the run is complete
    history.jsonl     one line per step and per evaluation
    skipped.csv       images that could not be read
    last.pt           the last checkpoint
    best.pt           the best checkpoint on the validation images, where there are some
    tensorboard/      the history for TensorBoard
    wandb/            files of Weights & Biases, if it logs the run

Weights & Biases comes with the extra ``wandb``, and is configured as in any other program: by its login and by
variables such as ``WANDB_PROJECT``. A logger that cannot start stops the training before its first step; one that
fails later is dropped with a warning, as ``history.jsonl`` has all values. A resumed run continues the runs of its
loggers.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import logging
import os
import platform
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
import yaml

from hgld.errors import ConfigurationError, indented_list
from hgld.io.files import atomic_write
from hgld.io.settings import flatten
from hgld.version import __version__

log = logging.getLogger(__name__)

LoggerName = Literal["tensorboard", "wandb"]
#: What to do when a logger cannot start.
_REMEDIES = {
    "tensorboard": "correct that, or log without it (`loggers`)",
    "wandb": "log in with `wandb login`, or keep the run on this machine with WANDB_MODE=offline",
}
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


class RunFolder:
    """The files of a run, which a single process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last, self.best = path / "last.pt", path / "best.pt"
        self._settings, self._run = path / "settings.yaml", path / "run.json"
        self._history, self._skipped = path / "history.jsonl", path / "skipped.csv"
        self._logger_folders = [path / "tensorboard", path / "wandb"]
        self._skipped_ids: set[str] = set()
        self.n_history_lines = 0

    def prepare(self, *, resume: bool, force: bool) -> bool:
        """Create the folder, and delete the files of an earlier run that is not resumed.

        Returns:
            Whether there is a checkpoint to resume from.
        """
        if resume and force:
            raise ConfigurationError("`resume` continues the run in the folder, `force` deletes it; choose one")
        existing = self._existing()
        if existing and not (resume or force):
            raise ConfigurationError(
                f"{self.path}: there is a run already ({existing[0].name}); resume it (`resume`), delete it "
                "(`force`), or choose another folder"
            )
        if resume and self.last.exists():
            return True
        self._delete()
        self.path.mkdir(parents=True, exist_ok=True)
        return False

    def open_run(
        self,
        settings: str,
        record: Mapping[str, Any],
        *,
        n_history_lines: int = 0,
        loggers: Sequence[str] = ("tensorboard",),
    ) -> None:
        """Write the settings and ``run.json``, and open the history and the loggers.

        Args:
            n_history_lines: Number of lines to keep of the history of a resumed run; lines that it wrote after its
                last checkpoint are dropped.
        """
        lines = self._history.read_text(encoding="utf-8").splitlines()[:n_history_lines] if n_history_lines else []
        recorded = self.recorded_run()
        logged = LoggedRun(
            self.path,
            flatten(yaml.safe_load(settings)),
            [json.loads(line) for line in lines],
            recorded[1].get("loggers", {}) if recorded else {},
        )
        try:
            self._loggers = RunLoggers(loggers, logged)
        except ConfigurationError:
            if not n_history_lines:
                self._delete()
            raise
        versions = {"hgld": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
        with atomic_write(self._settings) as draft:
            draft.write_text(settings, encoding="utf-8")
        ids = {**logged.earlier_ids, **self._loggers.ids}
        self._write_record({"versions": versions, **record, "loggers": ids, "finished": False})
        with atomic_write(self._history) as draft:
            draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.n_history_lines = len(lines)
        if self._skipped.exists():
            with self._skipped.open(encoding="utf-8", newline="") as stream:
                self._skipped_ids = {row["id"] for row in csv.DictReader(stream)}
        self._history_stream = self._history.open("a", encoding="utf-8")

    def log(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Append a line to the history.

        Args:
            kind: Kind of the line: ``step``, or the images of an evaluation, ``val`` or ``test``.
        """
        line = json.dumps({"kind": kind, "step": step, **values})
        self._history_stream.write(f"{line}\n")
        self._history_stream.flush()
        self.n_history_lines += 1
        self._loggers.log(kind, step, values)

    def log_skipped(self, images: Mapping[str, str]) -> None:
        """Append images that could not be read to ``skipped.csv``, each once."""
        new = {image_id: reason for image_id, reason in images.items() if image_id not in self._skipped_ids}
        if not new:
            return
        is_first = not self._skipped.exists()
        with self._skipped.open("a", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerows([["id", "reason"]] if is_first else [])
            writer.writerows(new.items())
        self._skipped_ids.update(new)

    def close(self, *, finished: bool) -> None:
        """Close the history and the loggers."""
        self._history_stream.close()
        self._loggers.close(finished=finished)

    def mark_finished(self) -> None:
        """Record in ``run.json`` that the run is complete."""
        self._write_record({**json.loads(self._run.read_text(encoding="utf-8")), "finished": True})

    def recorded_run(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the settings of the run in the folder and the contents of its ``run.json``; None without a run."""
        if not (self._settings.is_file() and self._run.is_file()):
            return None
        settings = yaml.safe_load(self._settings.read_text(encoding="utf-8"))
        return settings, json.loads(self._run.read_text(encoding="utf-8"))

    def history(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of the history of a kind, ``step``, ``val`` or ``test``."""
        lines = map(json.loads, self._history.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if line["kind"] == kind]

    @property
    def result(self) -> Path:
        """Checkpoint of the trained model: the best one on the validation images, or the last one without any."""
        return self.best if self.best.is_file() else self.last

    @property
    def n_skipped(self) -> int:
        """Number of images that could not be read."""
        return len(self._skipped_ids)

    def _write_record(self, record: Mapping[str, Any]) -> None:
        with atomic_write(self._run) as draft:
            draft.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _existing(self) -> list[Path]:
        files = [self.last, self.best, self._settings, self._run, self._history, self._skipped, *self._logger_folders]
        return [path for path in files if path.exists()]

    def _delete(self) -> None:
        for path in self._existing():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


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
        """See :class:`RunLogger`."""
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self, *, finished: bool) -> None:
        """See :class:`RunLogger`."""
        self._run.finish(exit_code=0 if finished else 1)


#: The loggers by name.
LOGGERS: Mapping[str, Callable[[LoggedRun], RunLogger]] = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}


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

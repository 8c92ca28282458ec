"""The folder of a run: its settings, history and checkpoints.

::

    settings.yaml     all settings, including defaults; `hgld train settings.yaml` repeats the run
    run.json          versions, the machine, digests of the data, whether the run is complete, and the command's
                      request, by which a finished run is found (see training_request)
    history.jsonl     one line per step and per evaluation
    skipped.csv       images that could not be read
    last.pt           the last checkpoint
    best.pt           the best checkpoint on the validation images, where there are some
    tensorboard/      the history for TensorBoard
    wandb/            files of Weights & Biases, if it logs the run
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from hgld.errors import ConfigurationError, indented_list
from hgld.io.files import atomic_write, sha256_of
from hgld.io.presets import training_file
from hgld.io.settings import flatten, read_values
from hgld.training.loggers import LoggedRun, RunLoggers
from hgld.version import __version__

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
    differences = []
    for key in before | after:
        if before.get(key) != after.get(key):
            name = key.removeprefix("settings.")
            differences.append(f"{name}: {before.get(key)} then, {after.get(key)} now")
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
    affecting = {}
    for key, value in flatten(values).items():
        if not key.removeprefix("settings.").startswith(_NOT_RESULT_AFFECTING):
            affecting[key] = value
    return affecting


def training_request(config: str | Path, overrides: Sequence[str] = ()) -> str | None:
    """Return a SHA-256 that identifies a training by its settings and data, without importing torch.

    Equal requests are the same training. Different requests may be the same, too, such as one that sets a default:
    :func:`require_same_run` then decides.

    Args:
        config: See :func:`hgld.training.run.read_training_settings`; the arguments are the same.

    Returns:
        The SHA-256, or None if the settings name no files of data that exist.
    """
    settings = read_values(training_file(config), overrides)
    leaves = flatten(settings)
    digests = []
    for name in ("data.manifest", "data.features"):
        file = leaves.get(name)
        if file is None:
            continue
        if not (isinstance(file, str) and Path(file).is_file()):
            return None
        digests.append(sha256_of(Path(file)))
    values = [result_affecting(settings), digests, __version__, version("timm")]
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class TrainingSummary:
    """Result of a training.

    Args:
        test: Means of all metrics on the test images by epoch, with keys such as ``epoch 5``; the last is the result.
            Where there are validation images, only of the epochs that were the best so far.
        val: Mean of ``metric`` on the validation images by epoch; empty without validation images.
        metric: Metric whose gain is reported.
        n_steps: Number of steps, including those before a resumption.
        n_skipped_batches: Number of steps without an update, because too few images of the batch could be read.
        n_skipped_images: Number of images that could not be read.
    """

    test: Mapping[str, Mapping[str, float]]
    val: Mapping[str, float]
    metric: str
    n_steps: int
    n_skipped_batches: int
    n_skipped_images: int

    @property
    def result(self) -> str:
        """Epoch of the trained model: the best on validation images, or the last without such images."""
        return list(self.test)[-1]


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
            raise ConfigurationError(
                "`resume` continues the run in the folder, `force` deletes it; choose one"
            )
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
        lines = []
        if n_history_lines:
            lines = self._history.read_text(encoding="utf-8").splitlines()[:n_history_lines]
        earlier_ids = {}
        recorded = self.recorded_run()
        if recorded is not None:
            earlier_ids = recorded[1].get("loggers", {})
        history = [json.loads(line) for line in lines]
        logged = LoggedRun(self.path, flatten(yaml.safe_load(settings)), history, earlier_ids)
        try:
            self._loggers = RunLoggers(loggers, logged)
        except ConfigurationError:
            if not n_history_lines:
                self._delete()
            raise
        import torch  # not to find that a run is finished

        versions = {
            "hgld": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        }
        with atomic_write(self._settings) as draft:
            draft.write_text(settings, encoding="utf-8")
        ids = {**earlier_ids, **self._loggers.ids}
        self._write_record({"versions": versions, **record, "loggers": ids, "finished": False})
        with atomic_write(self._history) as draft:
            draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.n_history_lines = len(lines)
        self._skipped_ids = self._read_skipped_ids()
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
        """Append images that could not be read to ``skipped.csv``, without images that it has already."""
        new_rows = []
        for image_id, reason in images.items():
            if image_id not in self._skipped_ids:
                new_rows.append([image_id, reason])
        if not new_rows:
            return
        if not self._skipped.exists():
            new_rows.insert(0, ["id", "reason"])
        with self._skipped.open("a", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(new_rows)
        self._skipped_ids.update(images)

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

    def summary(self, metric: str) -> TrainingSummary:
        """Return the result of the run by its history.

        Args:
            metric: Metric whose gain is reported.
        """
        test = {f"epoch {line['epoch']}": self.means_of(line) for line in self.history("test")}
        val = {f"epoch {line['epoch']}": line[metric] for line in self.history("val")}
        last_step = {"step": 0}
        for line in self.history("step"):
            last_step = line
        return TrainingSummary(
            test=test,
            val=val,
            metric=metric,
            n_steps=last_step["step"],
            n_skipped_batches=last_step.get("skipped_batches", 0),
            n_skipped_images=len(self._read_skipped_ids()),
        )

    @staticmethod
    def means_of(line: Mapping[str, Any]) -> dict[str, float]:
        """Return the means of metrics in a line of the history of the kind ``test``."""
        means = dict(line)
        for name in ("kind", "step", "epoch"):
            del means[name]
        return means

    def finished_summary(self, request: str | None) -> TrainingSummary | None:
        """Return the result of the run, or None unless it is complete, unchanged, and made by a request.

        Args:
            request: See :func:`training_request`.
        """
        recorded = self.recorded_run()
        if recorded is None or request is None or not self.last.is_file():
            return None
        settings, record = recorded
        if not record["finished"] or record.get("request") != request:
            return None
        if record["checkpoint"] != self._checkpoint_size_and_time():
            return None
        return self.summary(settings["evaluation"]["best"])

    def record_request(self, request: str) -> None:
        """Record the request that a finished run was made by, or would be resumed by."""
        _, record = self.recorded_run() or ({}, {})
        checkpoint = self._checkpoint_size_and_time()
        self._write_record({**record, "request": request, "checkpoint": checkpoint})

    def _checkpoint_size_and_time(self) -> list[int]:
        """Return the size in bytes and the modification time in nanoseconds of the last checkpoint."""
        stat = self.last.stat()
        return [stat.st_size, stat.st_mtime_ns]

    def _read_skipped_ids(self) -> set[str]:
        if not self._skipped.exists():
            return set()
        with self._skipped.open(encoding="utf-8", newline="") as stream:
            return {row["id"] for row in csv.DictReader(stream)}

    def _write_record(self, record: Mapping[str, Any]) -> None:
        with atomic_write(self._run) as draft:
            draft.write_text(
                json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )

    def _existing(self) -> list[Path]:
        files = [
            self.last,
            self.best,
            self._settings,
            self._run,
            self._history,
            self._skipped,
            *self._logger_folders,
        ]
        return [path for path in files if path.exists()]

    def _delete(self) -> None:
        for path in self._existing():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

"""The folder of a run: what was to be done, on what, and how it went.

::

    settings.yaml     all settings, defaults as well; `hgld train settings.yaml` does the same again
    run.json          versions, the machine, digests of the data; and whether the training came to its end
    history.jsonl     a line per step and per evaluation
    skipped.csv       the images that could not be read
    last.pt, best.pt  checkpoints
    tensorboard/      the history for TensorBoard
"""

from __future__ import annotations

import csv
import json
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from hgld.errors import ConfigurationError
from hgld.io.files import atomic_write
from hgld.io.settings import flatten
from hgld.version import __version__


class RunFolder:
    """The files of a run; one process writes to it.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last, self.best = path / "last.pt", path / "best.pt"
        self._settings, self._run = path / "settings.yaml", path / "run.json"
        self._history, self._skipped, self._tensorboard = (
            path / "history.jsonl",
            path / "skipped.csv",
            path / "tensorboard",
        )
        self._told_skipped: set[str] = set()
        self.n_lines = 0

    def prepare(self, *, resume: bool, force: bool) -> bool:
        """Make room for a run.

        Args:
            resume: go on with the run that is there, if there is one.
            force: delete it.

        Returns:
            Whether there is a checkpoint to go on with.

        Raises:
            ConfigurationError: there is a run, and neither is wanted, or both are.
        """
        if resume and force:
            raise ConfigurationError("--resume goes on with the run that is there, --force deletes it; choose one")
        there = [path for path in self._files() if path.exists()]
        if there and not (resume or force):
            raise ConfigurationError(
                f"{self.path}: there is a run already ({there[0].name}); go on with it (--resume), delete it "
                "(--force), or choose another folder"
            )
        if resume and self.last.exists():
            return True
        for path in there:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self.path.mkdir(parents=True, exist_ok=True)
        return False

    def begin(self, settings: str, run: Mapping[str, Any], *, n_lines: int = 0) -> None:
        """Write down what is to be done, and open the history.

        Args:
            settings: YAML.
            run: the digests of data, the machine, and whatever else is to be known of the run.
            n_lines: of the history that a run had which goes on; what it wrote after its checkpoint is dropped.
        """
        from torch.utils.tensorboard import SummaryWriter  # TensorBoard takes a second to import

        versions = {"hgld": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
        with atomic_write(self._settings) as draft:
            draft.write_text(settings, encoding="utf-8")
        self._tell_run({"versions": versions, **run, "finished": False})
        lines = self._history.read_text(encoding="utf-8").splitlines()[:n_lines] if n_lines else []
        with atomic_write(self._history) as draft:
            draft.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.n_lines = len(lines)
        if self._skipped.exists():
            with self._skipped.open(encoding="utf-8", newline="") as stream:
                self._told_skipped = {row["id"] for row in csv.DictReader(stream)}
        step = json.loads(lines[-1])["step"] + 1 if lines else None
        self._lines = self._history.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(self._tensorboard), purge_step=step)

    def finish(self) -> None:
        """Write down that the training came to its end."""
        self._tell_run({**json.loads(self._run.read_text(encoding="utf-8")), "finished": True})

    def recorded_run(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The settings of the run that is there, and what ``run.json`` says of it; None if there is no run."""
        if not (self._settings.is_file() and self._run.is_file()):
            return None
        settings = yaml.safe_load(self._settings.read_text(encoding="utf-8"))
        return settings, json.loads(self._run.read_text(encoding="utf-8"))

    @property
    def n_skipped(self) -> int:
        """How many images could not be read."""
        return len(self._told_skipped)

    def tell(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Add a line to the history: ``step`` or ``evaluation``, after how many steps, and numbers by name."""
        print(json.dumps({"kind": kind, "step": step, **values}), file=self._lines, flush=True)
        self.n_lines += 1
        for name, value in flatten(values).items():
            self._board.add_scalar(f"{kind}/{name}", value, step)

    def log_skipped(self, images: Mapping[str, str]) -> None:
        """Add images to the list of those that could not be read, by id with the reason, each once."""
        new = {name: reason for name, reason in images.items() if name not in self._told_skipped}
        if not new:
            return
        first = not self._skipped.exists()
        with self._skipped.open("a", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerows([["id", "reason"]] if first else [])
            writer.writerows(new.items())
        self._told_skipped.update(new)

    def history(self, kind: str) -> list[dict[str, Any]]:
        """What was told of a kind."""
        lines = map(json.loads, self._history.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if line["kind"] == kind]

    def close(self) -> None:
        """Close the history."""
        self._lines.close()
        self._board.close()

    def _tell_run(self, said: Mapping[str, Any]) -> None:
        with atomic_write(self._run) as draft:
            draft.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _files(self) -> list[Path]:
        return [
            self.last, self.best, self._settings, self._run, self._history, self._skipped, self._tensorboard
        ]  # fmt: skip

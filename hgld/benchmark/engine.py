"""What all comparisons have in common, whether of trained methods or of rejection scores.

A comparison has tasks, such as trainings, and reports of their results, such as tables and figures. Tasks that are
not done are launched, and then reports are written that are not up to date.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from hgld.figures.style import figure_files
from hgld.io.files import atomic_write, exclusive_lock
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance

Task = TypeVar("Task")
TaskIn = TypeVar("TaskIn", contravariant=True)
Result = TypeVar("Result")


class Launcher(Protocol[TaskIn]):
    """Runs the tasks of a comparison."""

    @property
    def n_processes(self) -> int:
        """Number of processes that work on a task together."""

    def launch(self, tasks: Sequence[TaskIn], out: Path, *, progress: Progress | None = None) -> None:
        """Run tasks, which start in this order, for a comparison in a folder.

        Raises:
            KeyboardInterrupt: A signal asked the process to stop.
            ConfigurationError: Tasks have failed; the others are done.
        """


@dataclass(frozen=True)
class InProcess:
    """Runs tasks one after another in this process; they report progress themselves."""

    n_processes: int = 1

    def launch(
        self, tasks: Sequence[Callable[[Progress], None]], out: Path, *, progress: Progress | None = None
    ) -> None:
        """Call each task with the progress."""
        for task in tasks:
            task(progress or NoProgress())


@dataclass(frozen=True)
class Report(Generic[Result]):
    """Results that are written together.

    Args:
        write: Writes them, and returns them with their files.
        record: File that lists the files and what they were made from, written last.
        provenance: What they are made from; None to write them every time, without a record.
    """

    write: Callable[[], tuple[Result, list[Path]]]
    record: Path | None = None
    provenance: Provenance | None = None

    def is_up_to_date(self) -> bool:
        """Return whether the results exist and would be the same if they were written again."""
        provenance, files = self._recorded()
        if self.provenance is None or provenance is None or not provenance.same_work(self.provenance):
            return False
        return all(each.is_file() for file in files for each in figure_files(file))

    def rewrite(self) -> tuple[Result, list[Path]]:
        """Delete earlier results, as some are not written again, such as figures of other methods, and write them."""
        for path in self._recorded()[1]:
            path.unlink(missing_ok=True)
        if self.record is None or self.provenance is None:
            return self.write()
        self.record.unlink(missing_ok=True)
        result, files = self.write()
        names = [file.relative_to(self.record.parent).as_posix() for file in files]
        write_text(self.record, json.dumps({"files": names, "provenance": asdict(self.provenance)}, indent=1))
        return result, files

    def _recorded(self) -> tuple[Provenance | None, list[Path]]:
        if self.record is None or not self.record.is_file():
            return None, []
        content = json.loads(self.record.read_text(encoding="utf-8"))
        return Provenance(**content["provenance"]), [self.record.parent / name for name in content["files"]]


class Study(Protocol[Task, Result]):
    """What is compared, and how its results are reported."""

    @property
    def out(self) -> Path:
        """Output folder."""

    def tasks(self, n_processes: int, *, force: bool) -> list[Task]:
        """Return the tasks that are not done, in order.

        Raises:
            ConfigurationError: A task was begun with other settings, and ``force`` is false.
            InputError: A file that tasks read is missing.
        """

    def reports(self) -> Iterable[Report[Result]]:
        """Yield the reports, once all tasks are done."""


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """Outcome of a comparison: number of tasks that were run, results that were written, and their files."""

    n_tasks: int
    results: list[Result]
    files: list[Path]


def run_study(
    study: Study[Task, Result], launcher: Launcher[Task], *, force: bool = False, progress: Progress | None = None
) -> Outcome[Result]:
    """Run the tasks of a comparison that are not done, and write the reports that are not up to date.

    With ``force``, tasks that were begun with other settings are repeated, and all reports rewritten.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; finished tasks are kept.
        ConfigurationError: Tasks have other settings or data, or have failed.
        InputError: A file cannot be read.
        BusyError: Another comparison is writing to the folder.
    """
    study.out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(study.out):
        tasks = study.tasks(launcher.n_processes, force=force)
        if tasks:
            launcher.launch(tasks, study.out, progress=progress)
        written = [report.rewrite() for report in study.reports() if force or not report.is_up_to_date()]
    return Outcome(len(tasks), [result for result, _ in written], [file for _, files in written for file in files])


def write_text(path: Path, text: str) -> None:
    """Write a text and a line break atomically."""
    with atomic_write(path) as draft:
        draft.write_text(f"{text}\n", encoding="utf-8")


def markdown_link(path: Path, folder: Path) -> str:
    """Return a link to a page, or the picture itself, from a text in a folder."""
    return f"{'!' * (path.suffix == '.png')}[{path.stem}]({path.relative_to(folder).as_posix()})"

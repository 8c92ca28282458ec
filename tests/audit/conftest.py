from contextvars import copy_context
from pathlib import Path

import pytest

from hgld.compute.executors import LocalExecutor, Task
from tests.commands import run_hgld


@pytest.fixture
def parts_run_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Blocks of eight images, and parts in this process; returns the parts that were run."""
    ran = list[str]()

    def run_here(self: LocalExecutor, tasks: list[Task], folder: Path, **options: object) -> list[object]:
        for task in tasks:
            copy_context().run(run_hgld, *task.arguments[1:])
            ran.append(task.name)
        return []

    monkeypatch.setattr(LocalExecutor, "run", run_here)
    monkeypatch.setattr("hgld.audit.parts.BLOCK", 8)
    return ran

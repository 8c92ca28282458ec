"""Parts of embeddings and of counts of distractors on each engine, with processes and nodes that are lost or slow."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hgld.cli import app
from hgld.compute.executors import LocalExecutor, Part, Slot, Task
from hgld.errors import ConfigurationError
from hgld.tables.embeddings import read_embeddings
from tests.compute.engine_world import World
from tests.compute.test_processes import TASK


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_killed_process_is_run_again_once_and_a_failed_one_is_reported(tmp_path: Path) -> None:
    script = (
        "import os, sys; print('error: none'); os.path.exists(sys.argv[1]) or (open(sys.argv[1], 'w'), os.abort())"
    )
    (tmp_path / "once.py").write_text(script)
    (tmp_path / "always.py").write_text("import os; os.abort()")
    (tmp_path / "failing.py").write_text("raise SystemExit('error: no such thing')")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        names = ("once", "always", "failing")
        tasks = [Task(f"{n}", (n, "mark"), tmp_path / f"{n}.log", lambda: False, retries=1) for n in names]
        failed = LocalExecutor([Slot(("cpu",), 1)]).run(tasks, tmp_path)
    assert {each.task.name: (each.outcome, each.last_line) for each in failed} == {
        "failing": ("exit code 1", "error: no such thing"),
        "always": ("exit code -6", "no output"),
    }


@pytest.mark.slow
def test_parts_are_the_same_command_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list[tuple[str, ...]]()

    def run_here(self: LocalExecutor, tasks: list[Task], folder: Path, **options: object) -> list[object]:
        lines.extend(tuple(task.arguments[1:]) for task in tasks)
        assert all(CliRunner().invoke(app, task.arguments[1:]).exit_code == 0 for task in tasks)
        return []

    monkeypatch.setattr(LocalExecutor, "run", run_here)
    engine = ["--executor", "local", "--parts"]
    for out in ("e.npy", "folder"):
        arguments = [*world.embed(out), *engine, "3"]
        assert CliRunner().invoke(app, [*arguments, "--part", "2/3"]).exit_code == 0
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        assert lines == [(*arguments, "--part", part) for part in ("1/3", "3/3")]
        lines.clear()
    whole, parts = (read_embeddings(world.folder / name) for name in ("e.npy", "folder"))
    assert torch.equal(whole.vectors[1000:2100], parts.vectors[1000:2100])
    assert np.array_equal(whole.ids, parts.ids)  # type: ignore[arg-type]
    (world.folder / "folder" / "2-of-3.safetensors").unlink()
    for options, message in [
        ((*world.embed("e.npy"), *engine, "2", "--force"), "choose one of --part, --merge and --force"),
        ((*world.embed("e.npy"), "--parts", "2"), "--executor and --parts need each other"),
        ((*world.embed("folder"), *engine, "2"), "folder has files of 3 parts; choose this number as --parts"),
        ((*world.embed("e.npy"), *engine, "0"), "--parts is 0; expected 1 or more"),
        ((*world.embed("e.npy"), *engine, "2", "--ray", "num_gpus=1"), "--ray for --executor ray"),
        ((*world.embed("other"), *engine, "4"), "4 parts of 2,100 images, which are 3 shards of 1,024"),
        (
            (*world.embed("other.npy"), "--executor", "ray", "--parts", "2", "--ray", "gpus=1"),
            "--ray is gpus=1; expected",
        ),
        (("evaluate", "--embeddings", str(world.folder / "folder")), "folder: 2 parts of 3; write the others"),
    ]:
        assert message in " ".join(CliRunner().invoke(app, list(options)).output.split())
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    refused = CliRunner().invoke(app, [*world.embed("e.npy"), *engine, "2"])
    assert "does not divide its work among them" in " ".join(refused.output.split())


@given(n_items=st.integers(0, 100), count=st.integers(1, 30))
def test_parts_have_each_item_once_in_order_and_nearly_the_same_size(n_items: int, count: int) -> None:
    items = range(n_items)
    parts = [Part(number, count).of(items) for number in range(1, count + 1)]
    assert list(chain.from_iterable(parts)) == list(items)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_text_of_a_part_is_parsed() -> None:
    assert Part.parse(str(Part(3, 16))) == Part(3, 16)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "3", "", "1/2/3", "-1/4", "a/b", "1.0/2"])
def test_text_that_names_no_part_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"`part` is .*expected"):
        Part.parse(text)

"""Launching child processes, played by small scripts that start, fail and stop."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hgld.benchmark.comparison import launch
from hgld.benchmark.runs import Run, read_benchmark, table_runs
from hgld.benchmark.worker import WorkerTask
from hgld.compute.executors import DEVICE, LocalExecutor, Slot, parse_slots
from hgld.errors import ConfigurationError
from tests.assertions import not_none
from tests.benchmark.comparisons import write_comparison, write_data

#: Beginning of each script: the folder of the run, and a function that waits for a file.
_PRELUDE = """
import os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1]).with_suffix("")
def wait_for(path):
    while not path.exists():
        time.sleep(0.01)
"""


RunAsScript = Callable[[str], None]


@pytest.fixture
def tasks(tmp_path: Path) -> list[WorkerTask]:
    write_data(tmp_path)
    benchmark = read_benchmark(write_comparison(tmp_path, seeds=(0, 1)))
    runs = table_runs(benchmark, tmp_path / "out")
    return [WorkerTask(benchmark=benchmark, run=run) for run in (*runs["roadmap"], *runs["happier"])]


@pytest.fixture
def run_as_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunAsScript:
    """Replace the worker by a script, which gets the task file as its argument."""
    path = tmp_path / "script.py"

    def set_script(script: str) -> None:
        path.write_text(_PRELUDE + script)
        monkeypatch.setattr(Slot, "command", lambda self, arguments: [sys.executable, "-S", str(path), arguments[1]])

    return set_script


class Counted:
    def __init__(self) -> None:
        self.total = self.done = 0
        self.details: dict[str, float] = {}

    def start(self, total: int, done: int = 0) -> None:
        self.total, self.done = total, done

    def advance(self, units: int = 1, **details: float) -> None:
        self.done += units
        self.details = details


def test_each_slot_takes_one_run_at_a_time(
    tasks: list[WorkerTask], tmp_path: Path, run_as_script: RunAsScript
) -> None:
    run_as_script(
        "others = [path for path in folder.parent.parent.glob('*/*.running')]\n"
        "mine = folder.with_suffix('.running')\n"
        "mine.touch()\n"
        "(folder.with_suffix('.saw')).write_text(str(len(others)))\n"
        "time.sleep(0.2)\n"
        "mine.unlink()\n"
    )
    for n_slots in (1, 2):
        progress = Counted()
        launch(LocalExecutor(parse_slots(",".join(["cpu"] * n_slots))), tasks, tmp_path, progress)
        assert progress.total == progress.done == 4
        assert progress.details == {"failed": 0}
        n_others = [int(path.read_text()) for path in (tmp_path / "out").rglob("*.saw")]
        assert len(n_others) == 4
        assert max(n_others) < n_slots


def test_two_slots_run_side_by_side(tasks: list[WorkerTask], tmp_path: Path, run_as_script: RunAsScript) -> None:
    run_as_script(
        "folder.with_suffix('.here').touch()\n"
        "for seed in '01':\n"
        "    wait_for(folder.with_name(f'seed{seed}.here'))\n"  # alone, it would wait forever
    )
    launch(LocalExecutor(parse_slots("cpu,cpu")), tasks[:2], tmp_path)


def test_failed_run_does_not_stop_the_others(
    tasks: list[WorkerTask], tmp_path: Path, run_as_script: RunAsScript
) -> None:
    run_as_script(
        "print('it begins')\n"
        "if 'happier' in str(folder):\n"
        "    print('error: the loss is nan\\n  at step 3', file=sys.stderr)\n"
        "    sys.exit(1)\n"
        "if folder.name == 'seed1':\n"
        "    raise RuntimeError('a bug')\n"
        "folder.with_suffix('.done').touch()\n"
    )
    progress = Counted()
    with pytest.raises(ConfigurationError) as failed:
        launch(LocalExecutor(parse_slots("cpu")), tasks, tmp_path, progress)
    assert progress.done == 4
    assert progress.details == {"failed": 3}
    assert [path.stem for path in (tmp_path / "out").rglob("*.done")] == ["seed0"]
    message = str(failed.value)
    assert message.startswith("3 of 4 runs failed")
    log = tmp_path / "out" / "runs" / "happier" / "seed0.log"
    assert f"happier, seed 0 (exit code 1, {log}):\n    error: the loss is nan\n      at step 3\n" in message
    assert "RuntimeError: a bug" in message
    assert "it begins" in log.read_text()
    assert message.count("it begins") == 1  # only in the end of the log that has no error message


def test_interrupt_waits_until_children_have_saved(
    tasks: list[WorkerTask], tmp_path: Path, run_as_script: RunAsScript
) -> None:
    run_as_script(
        "def save(*_):\n"
        "    time.sleep(0.3)\n"
        "    folder.with_suffix('.saved').touch()\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "folder.with_suffix('.here').touch()\n"
        "for seed in '01':\n"
        "    wait_for(folder.with_name(f'seed{seed}.here'))\n"
        "if folder.name == 'seed0':\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(KeyboardInterrupt):
        launch(LocalExecutor(parse_slots("cpu,cpu")), tasks, tmp_path)
    out = tmp_path / "out" / "runs"
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.saved")) == [
        "roadmap/seed0.saved",
        "roadmap/seed1.saved",
    ]
    assert not (out / "happier").exists()  # not started yet


def test_child_stops_when_its_parent_exits() -> None:
    script = (
        "import signal, sys, time\n"
        "from hgld.compute.machine import stop_with_parent\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "stop_with_parent()\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        assert not_none(child.stdout).readline() == b"ready\n"
        assert child.poll() is None
        not_none(child.stdin).close()
        assert child.wait(10) == 7


def test_task_round_trip(tasks: list[WorkerTask], tmp_path: Path) -> None:
    task = tasks[0].model_copy(update={"retrain": True})
    task.write(tmp_path / "task.json")
    read = WorkerTask.read(tmp_path / "task.json")
    assert read == task
    assert isinstance(read.run, Run)


def test_cpu_slots_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 9)
    assert parse_slots() == parse_slots("cpu") == (Slot(("cpu",), 9),)
    assert parse_slots("cpu,cpu") == (Slot(("cpu",), 4),) * 2
    assert parse_slots(per_run=2) == parse_slots("cpu,cpu", 2) == (Slot(("cpu", "cpu"), 4),)
    assert parse_slots(",".join(["cpu"] * 10))[0].threads == 1
    (slot,) = parse_slots("cpu")
    assert slot.environment()["OMP_NUM_THREADS"] == "9"
    assert slot.command(["worker", "task.json", DEVICE]) == [sys.executable, "-m", "worker", "task.json", "cpu"]


def test_gpu_slots_see_their_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [slot.devices for slot in parse_slots()] == [(f"cuda:{gpu}",) for gpu in range(4)]
    assert parse_slots("cuda") == parse_slots()
    assert [str(slot) for slot in parse_slots("cuda:0,cuda:3")] == ["cuda:0", "cuda:3"]
    first, second = parse_slots(per_run=2)
    assert (first.devices, second.devices) == (("cuda:0", "cuda:1"), ("cuda:2", "cuda:3"))
    assert second.environment()["CUDA_VISIBLE_DEVICES"] == "2,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert second.environment()["CUDA_VISIBLE_DEVICES"] == "6,7"
    command = " ".join(second.command(["worker", "task.json", DEVICE]))
    assert "-m torch.distributed.run --standalone --nproc-per-node=2 -m worker" in command
    assert command.endswith("task.json cuda")
    assert "distributed" not in " ".join(parse_slots("cuda:1")[0].command([]))


def test_invalid_devices_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for devices, per_run, message in [
        ("cuda:2", 1, 'there is no device "cuda:2"; expected cpu or a GPU (cuda:0 to cuda:1)'),
        ("gpu", 1, 'there is no device "gpu"'),
        ("cpu,cpu,cpu", 2, "3 devices cannot be divided into groups of 2"),
        ("cuda:0,cpu", 2, "different GPUs, or cpu only"),
        ("cuda:1,cuda:1", 2, "different GPUs, or cpu only"),
        ("cpu", 0, "expected 1 or more"),
    ]:
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            parse_slots(devices, per_run)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigurationError, match="there is no GPU"):
        parse_slots("cuda:0")
    with pytest.raises(ConfigurationError, match="0 devices"):
        parse_slots("cuda")

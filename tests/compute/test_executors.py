"""Parts of embeddings and of counts of distractors on each engine, with processes and nodes that are lost or slow."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from hgld.cli import app
from hgld.compute.compiled import is_compiled
from hgld.compute.executors import LocalExecutor, Slot, Task
from hgld.tables.embeddings import read_embeddings, write_embeddings
from tests.child_processes import run_child, single_thread_environment
from tests.compute.test_slurm import TASK
from tests.models.embedding import assert_same_output
from tests.slurm_cluster import SlurmCluster

#: A network that takes one of the faults in a folder at a batch of a part, not when it is loaded.
MODEL = """
import os, signal, sys, time
from pathlib import Path
import numpy as np

WEIGHTS = np.random.default_rng(0).normal(size=(192, 8)).astype(np.float32)

def fail(fault):
    fault.unlink()
    if fault.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.name == "node" and "RAY_RAYLET_PID" in os.environ:
        for process in (int(os.environ["RAY_RAYLET_PID"]), os.getppid()):
            os.kill(process, signal.SIGKILL)
    elif fault.name == "node":
        fault.with_name("lost.tmp").write_text(f"{os.environ['SLURMD_NODENAME']} {os.environ['SLURM_JOB_ID']}")
        fault.with_name("lost.tmp").rename(fault.parent.parent / "lost")
    time.sleep(3 if fault.name == "slow" else 600)

def model(images):
    if "--part" in sys.argv and len(images) == 32:
        for fault in (Path(__file__).parent / "faults").iterdir():
            try:
                fail(fault)
            except FileNotFoundError:
                continue  # another part has taken it
            break
    return images.reshape(len(images), -1) @ WEIGHTS
"""
#: Kills a process that counts a part of the distractors, once.
SITE = """
import os, signal, sys
if "--counts" in sys.orig_argv and "--part" in sys.orig_argv:
    try:
        os.unlink(os.path.join(os.path.dirname(__file__), "faults", "counting"))
        os.kill(os.getpid(), signal.SIGKILL)
    except FileNotFoundError:
        pass
"""


class World:
    """Images and embeddings in a folder, which is on the path of child processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        (folder / "images").mkdir()
        with tarfile.open(folder / "images" / "a.tar", "w") as tar:
            for n in range(2100):  # three shards
                data = io.BytesIO()
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(data, "PNG")
                member = tarfile.TarInfo(f"{n:04}.png")
                member.size = len(data.getvalue())
                tar.addfile(member, io.BytesIO(data.getvalue()))
        for name, count in (("q", 10), ("g", 50), ("others", 2000)):
            ids = [f"{name}{n}" for n in range(count)]
            write_embeddings(folder / f"{name}.npy", torch.from_numpy(rng.normal(size=(count, 8))).float(), ids)
        rows = [f"{name}{n},{n % 5}" for name, count in (("q", 10), ("g", 50)) for n in range(count)]
        (folder / "labels.csv").write_text("\n".join(["id,landmark", *rows]))
        (folder / "model.py").write_text(MODEL)
        (folder / "sitecustomize.py").write_text(SITE)
        self.environment = single_thread_environment()
        self.environment["PYTHONPATH"] = f"{folder}{os.pathsep}{self.environment['PYTHONPATH']}"

    def fail(self, *faults: str) -> None:
        (self.folder / "faults").mkdir(exist_ok=True)
        for fault in faults:
            (self.folder / "faults" / fault).touch()

    def embed(self, out: str) -> list[str]:
        model = f"python:{self.folder / 'model.py'}:model"
        options = ["--model", model, "--size", "8", "--resize", "8", "--workers", "0"]
        return ["embed-images", "--images", str(self.folder / "images"), *options, "-o", str(self.folder / out)]

    def evaluate(self, *options: str) -> list[str]:
        names = {"query": "q.npy", "gallery": "g.npy", "distractor": "others.npy"}
        files = [each for name, path in names.items() for each in (f"--{name}-embeddings", str(self.folder / path))]
        return ["evaluate", *files, "--labels", str(self.folder / "labels.csv"), "--json", *options]

    def run(self, arguments: list[str], *before: str) -> tuple[str, str]:
        child = run_child([*before, sys.executable, "-m", "hgld", *arguments], environment=self.environment)
        return child.stdout, child.stderr

    def require_same_results(self, *engine: str, before: tuple[str, ...] = ()) -> str:
        """Embed and evaluate by an engine and by one process; return the log of the former."""
        self.run(self.embed("whole/e.npy"))
        _, log = self.run([*self.embed("parts/e.npy"), *engine])
        assert_same_output(self.folder / "whole" / "e.npy", self.folder / "parts" / "e.npy")
        self.fail("counting")
        counts = ["--counts", str(self.folder / "counts")]
        assert self.run(self.evaluate(*counts, *engine), *before)[0] == self.run(self.evaluate())[0]
        assert not list((self.folder / "faults").iterdir())
        return log


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
        ((*world.embed("e.npy"), *engine, "2", "--ray", "num_gpus=1"), "--ray for --executor ray"),
        ((*world.embed("other"), *engine, "4"), "4 parts of 2,100 images, which are 3 shards of 1,024"),
        (
            (*world.embed("other.npy"), "--executor", "ray", "--parts", "2", "--ray", "gpus=1"),
            "--ray is gpus=1; expected",
        ),
        (world.evaluate(*engine, "2"), "--part writes to the folder of --counts; name one"),
        (("evaluate", "--embeddings", str(world.folder / "folder")), "folder: 2 parts of 3; write the others"),
    ]:
        assert message in " ".join(CliRunner().invoke(app, list(options)).output.split())
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    refused = CliRunner().invoke(app, [*world.embed("e.npy"), *engine, "2"])
    assert "does not divide its work among them" in " ".join(refused.output.split())


@pytest.mark.slow
@pytest.mark.skipif(not is_compiled(), reason="distractors are counted by compiled loops")
class TestEngines:
    def test_processes(self, world: World) -> None:
        world.fail("killed", "slow")
        log = world.require_same_results("--executor", "local", "--parts", "3", "--max-running", "2")
        assert "/3 was killed; it is run again" in log

    def test_slurm(self, world: World, cluster: SlurmCluster) -> None:
        world.environment |= cluster.variables

        def lose_node() -> None:
            while not (world.folder / "lost").exists():
                threading.Event().wait(0.1)
            node, job = (world.folder / "lost").read_text().split()
            cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
            cluster.start_again(job)
            cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)  # it may be already

        losing = threading.Thread(target=lose_node, daemon=True)
        losing.start()
        world.fail("killed", "node", "slow")
        engine = ("--executor", "slurm", "--parts", "3", "--sbatch", "--time=10")
        # A step sets variables that would be settings of the jobs: it has a node of its own, but they any.
        log = world.require_same_results(*engine, before=("srun", "--ntasks=1", "--time=5", "--nodelist=n0"))
        losing.join(60)
        assert "it is submitted again to resume" in log

    def test_ray(self, world: World, ray_nodes: str) -> None:
        world.fail("killed", "node", "slow")
        world.environment["RAY_ADDRESS"] = ray_nodes
        world.require_same_results("--executor", "ray", "--parts", "3", "--ray", "num_cpus=1")


@pytest.fixture
def ray_nodes(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a Ray cluster: a head that runs no task, and three nodes of a core each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(3):
            nodes.add_node(num_cpus=1)
        yield nodes.address
    finally:
        nodes.shutdown()

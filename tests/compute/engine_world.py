"""Work that engines do in parts: images to embed and distractors to count, with faults on the way."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from hgld.tables.embeddings import write_embeddings
from tests.child_processes import run_child, single_thread_environment
from tests.models.embedding import assert_same_output

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

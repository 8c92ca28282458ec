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

#: Module of each Python process, of which those that count a part of the distractors begin with a fault of a folder.
SITE = """
import os, signal, sys, time
from pathlib import Path

WORLD = Path(__file__).parent

def fail(faults):
    for fault in faults.iterdir():
        try:
            fault.unlink()
        except FileNotFoundError:
            continue  # another part has taken it
        break
    else:
        return
    if fault.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.name == "node" and "RAY_RAYLET_PID" in os.environ:
        for process in (int(os.environ["RAY_RAYLET_PID"]), os.getppid()):
            os.kill(process, signal.SIGKILL)
    elif fault.name == "node":
        (WORLD / "lost.tmp").write_text(f"{os.environ['SLURMD_NODENAME']} {os.environ['SLURM_JOB_ID']}")
        (WORLD / "lost.tmp").rename(WORLD / "lost")
    time.sleep(3 if fault.name == "slow" else 600)

if "--counts" in sys.orig_argv and "--part" in sys.orig_argv:
    fail(WORLD / "faults" / "counting")
"""
#: A network that has one of the faults in a folder at a batch of a part, not when it is loaded.
MODEL = """
import sys
import numpy as np

WEIGHTS = np.random.default_rng(0).normal(size=(192, 8)).astype(np.float32)

def model(images):
    if "--part" in sys.argv and len(images) == 32:
        from sitecustomize import WORLD, fail

        fail(WORLD / "faults" / "embedding")
    return images.reshape(len(images), -1) @ WEIGHTS
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
        """Let each of these faults happen once while parts embed, and once while parts count."""
        for work in ("embedding", "counting"):
            (self.folder / "faults" / work).mkdir(parents=True)
            for fault in faults:
                (self.folder / "faults" / work / fault).touch()

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

    def require_same_results(self, *engine: str, before: tuple[str, ...] = ()) -> tuple[str, str]:
        """Embed and evaluate by an engine and by one process; return the logs of the former."""
        self.run(self.embed("whole/e.npy"))
        _, log = self.run([*self.embed("parts/e.npy"), *engine])
        assert_same_output(self.folder / "whole" / "e.npy", self.folder / "parts" / "e.npy")
        counts = ["--counts", str(self.folder / "counts")]
        results, counting_log = self.run(self.evaluate(*counts, *engine), *before)
        assert results == self.run(self.evaluate())[0]
        assert not list((self.folder / "faults").glob("*/*"))
        return log, counting_log

    def require_same_audit(self, *engine: str) -> None:
        """Find copies by an engine, which runs each part twice, and by one process; they write the same bytes."""
        with tarfile.open(self.folder / "images" / "a.tar") as tar:
            places = [f"images/a.tar,{member.offset_data},{member.size}" for member in tar.getmembers()[:50]]
        rows = [f"{copy}{number},{place},all,x" for copy in "ab" for number, place in enumerate(places)]
        manifest = self.folder / "copies.csv"
        manifest.write_text("\n".join(["id,path,offset,size,split,landmark", *rows]))
        one, parts = (self.folder / name / "copies.parquet" for name in ("whole", "parts"))
        for out, options in ((one, ()), (parts, engine)):
            shown = self.run(["audit", "duplicates", str(manifest), "-o", str(out), *options])[0]
            assert "100 of them in 50 groups of copies" in shown
        assert one.read_bytes() == parts.read_bytes()
        assert not [*parts.parent.glob("*.logs"), *parts.parent.glob(".copies*")]

"""Work that is done in parts on several machines, with processes and nodes that are lost on the way."""

from __future__ import annotations

import io
import os
import shlex
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.benchmark.comparisons import write_comparison, write_data
from tests.child_processes import run_child, single_thread_environment

#: Module of each Python process: a process has a fault of the folder ``faults/NAME`` when it writes a file NAME.
SITE = """
import os, signal, sys
from pathlib import Path

FAULTS = Path(__file__).parent / "faults"

def fail(event, arguments):
    if event != "open" or not isinstance(arguments[0], (str, Path)):
        return
    folder = FAULTS / os.path.basename(arguments[0])
    if folder.parent != FAULTS or not folder.is_dir():
        return
    for fault in folder.iterdir():
        try:
            fault.unlink()
        except FileNotFoundError:
            continue  # another process has taken it
        if fault.name == "node":
            os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(fail)
"""

#: Commands, the drafts that their parts write, and patterns of the files that hold no times.
COMMANDS = {
    "embed-images": (
        "embed-images --model test_resnet --pretrained none --size 32 --resize 32 --images images --workers 1"
        " -o {out}/e.npy"
    ),
    "repack": "repack manifest.csv --size 4 --workers 1 -o {out}",
    "benchmark": "benchmark comparison.yaml --seeds 0,1 --device cpu -o {out}",
}
DRAFTS = {
    "embed-images": ".part_000001.part.safetensors",
    "repack": ".images_00001.part.tar",
    "benchmark": ".last.part.pt",
}
OUTPUTS = {
    "embed-images": ["e.npy", "e.ids.txt", "e.skipped.csv"],
    "repack": ["*"],
    "benchmark": ["results.tex", "runs/*/seed*/*.pt", "runs/*/seed*/evaluation/*"],
}


class Work:
    """Inputs of the commands in a folder, which is the working folder and on the path of their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._write_images()
        write_data(folder)
        write_comparison(folder, pictures=False)
        (folder / "sitecustomize.py").write_text(SITE)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "hgld").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hgld "$@"\n')
        (programs / "hgld").chmod(0o755)
        self.environment = single_thread_environment()
        self.environment["PATH"] = f"{programs}{os.pathsep}{self.environment['PATH']}"
        self.environment["PYTHONPATH"] = f"{folder}{os.pathsep}{self.environment['PYTHONPATH']}"

    def _write_images(self) -> None:
        """Write images in a tar file, which are three shards, and a manifest of three tar files."""
        rng = np.random.default_rng(0)
        (self.folder / "images").mkdir()
        with tarfile.open(self.folder / "images" / "a.tar", "w") as tar:
            for number in range(2100):
                data = io.BytesIO()
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(data, "PNG")
                member = tarfile.TarInfo(f"{number:04}.png")
                member.size = len(data.getvalue())
                tar.addfile(member, io.BytesIO(data.getvalue()))
        with tarfile.open(self.folder / "images" / "a.tar") as tar:
            places = [f"images/a.tar,{member.offset_data},{member.size}" for member in tar]
        rows = [f"{copy}{number},{place},all,x" for copy in range(10) for number, place in enumerate(places)]
        (self.folder / "manifest.csv").write_text("\n".join(["id,path,offset,size,split,landmark", *rows]))

    def fail(self, name: str, *faults: str) -> None:
        """Let parts of a command have each of these faults once: ``killed`` or ``node``."""
        folder = self.folder / "faults" / DRAFTS[name]
        folder.mkdir(parents=True)
        for fault in faults:
            (folder / fault).touch()

    def run(self, command: str, *options: str) -> None:
        """Run a command of hgld."""
        words: Sequence[str] = [sys.executable, "-m", "hgld", *shlex.split(command), *options]
        run_child(words, cwd=self.folder, environment=self.environment, timeout_s=600)

    def require_same_files(self, name: str, first: str, second: str) -> None:
        """Compare two outputs of a command; raise unless all faults have happened."""
        assert not list((self.folder / "faults").glob("*/*"))
        contents = []
        for out in (first, second):
            files = [
                path for pattern in OUTPUTS[name] for path in (self.folder / out).glob(pattern) if path.is_file()
            ]
            contents.append({path.relative_to(self.folder / out): path.read_bytes() for path in files})
        assert contents[0].keys() == contents[1].keys()
        for path in contents[0]:
            assert contents[0][path] == contents[1][path], path
        assert contents[0]

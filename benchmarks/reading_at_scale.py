"""Open files and memory of processes that read photographs of a manifest of GLDv2's size, from 1 to 500 tar files.

The tar files hold a few small pictures each, to which all rows of the manifest point; ids, paths, labels and the
random order of reading are those of a real training set::

    python benchmarks/reading_at_scale.py --rows 4132914 --tars 1,100,500 --workers 2

Memory is what a worker process has for itself (USS, Linux only): it is forked, and shares the rest with the others.
Openings are calls of ``open`` for a tar file, each of which is a request to the server of a shared file system.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from report import table

from hgld.compute.machine import usable_cores
from hgld.datasets.image_dataset import ImageDataset
from hgld.datasets.loading import BatchReader
from hgld.datasets.manifest import Manifest
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.gldv2 import tar_images
from hgld.io.text_array import TextArray

#: Pictures per tar file, and their width and height in pixels.
N_PICTURES, SIDE = 8, 64
BATCH_SIZE = 256


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_132_914, help="rows of the manifest")
    parser.add_argument("--tars", default="1,100,500", help="numbers of tar files, separated by commas")
    parser.add_argument("--workers", default="1,2", help="numbers of worker processes, separated by commas")
    parser.add_argument("--images", type=int, default=20_000, help="images read in random order")
    parser.add_argument("--once", nargs=3, metavar=("FOLDER", "TARS", "WORKERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        folder, n_tars, workers = arguments.once
        print(json.dumps(measure(Path(folder), int(n_tars), int(workers), arguments.rows, arguments.images)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for n_tars in map(int, arguments.tars.split(",")):
            folder = Path(name) / str(n_tars)
            write_tars(folder, n_tars)
            for workers in map(int, arguments.workers.split(",")):
                command = [sys.executable, __file__, "--rows", str(arguments.rows), "--images", str(arguments.images)]
                run = subprocess.run(
                    [*command, "--once", str(folder), str(n_tars), str(workers)],
                    stdout=subprocess.PIPE, text=True, check=True,
                )  # fmt: skip
                result = json.loads(run.stdout)
                print(result, file=sys.stderr, flush=True)
                rows.append([f"{n_tars}", f"{workers}", *(str(value) for value in result.values())])
    columns = [
        "tar files",
        "workers",
        "open tar files of a worker",
        "all open files of a worker",
        "of the main process",
    ]
    columns += ["openings per 1,000 images", "MB of a worker", "MB of the main process"]
    print(table(columns, rows))


def write_tars(folder: Path, n_tars: int) -> None:
    """Write tar files of small pictures."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(n_tars):
        with tarfile.open(folder / f"images_{number:03}.tar", "w") as archive:
            for picture in range(N_PICTURES):
                content = BytesIO()
                Image.fromarray(generator.integers(256, size=(SIDE, SIDE, 3), dtype=np.uint8)).save(content, "JPEG")
                member = tarfile.TarInfo(f"{number}-{picture}.jpg")
                member.size = content.tell()
                content.seek(0)
                archive.addfile(member, content)


def manifest(folder: Path, n_tars: int, n_rows: int) -> Manifest:
    """Return a manifest whose rows take turns among the pictures."""
    names = [f"images_{number:03}.tar" for number in range(n_tars)]
    members = []
    for number, name in enumerate(names):
        with tarfile.open(folder / name) as archive:
            members += [(number, member.offset_data, member.size) for member in archive]
    tar, offset, size = np.array(members).T
    picks = np.arange(n_rows) % len(members)
    landmarks = np.arange(n_rows) // 20
    classes = tuple(map(str, range(int(landmarks[-1]) + 1)))
    return Manifest(
        ids=TextArray([f"{row:016x}" for row in range(n_rows)]),
        paths=TextArray(names, tar[picks]),
        offsets=offset[picks],
        sizes=size[picks],
        splits=TextArray(["train"], np.zeros(n_rows)),
        labelling=landmarks[:, None],
        level_names=("landmark",),
        class_names=(classes,),
    )


def measure(folder: Path, n_tars: int, workers: int, n_rows: int, n_images: int) -> dict[str, float]:
    """Read images in random order, and return the largest numbers of any worker process."""
    assert workers <= usable_cores(), "more workers than cores are never started"
    opened = Path(tempfile.mkdtemp(dir=folder))
    count_openings(opened)
    transform = evaluation_transform(ImageSettings(size=32, resize=32))
    dataset = ImageDataset(manifest(folder, n_tars, n_rows), folder, transform)
    order = np.random.default_rng(0).integers(n_rows, size=n_images)
    reader = BatchReader(dataset, workers)
    for _ in reader.evaluation([order], batch_size=BATCH_SIZE):
        pass
    pids = children()
    files = [open_files(pid) for pid in pids]
    result = {
        "tars": max(sum(name.endswith(".tar") for name in names) for names in files),
        "files": max(map(len, files)),
        "main": len(open_files(os.getpid())),
        "openings": round(1000 * sum(path.stat().st_size for path in opened.iterdir()) / n_images),
        "worker_mb": max(memory_mb(pid, "Private_Clean", "Private_Dirty") for pid in pids),
        "main_mb": memory_mb(os.getpid(), "Rss"),
    }
    reader.close()
    return result


def count_openings(folder: Path) -> None:
    """Let each process append a byte to a file of its own whenever it opens a tar file."""
    original = tar_images._OpenTarFile.__init__

    def counted(*given: Any, **named: Any) -> None:
        with (folder / str(os.getpid())).open("ab") as file:
            file.write(b".")
        original(*given, **named)

    tar_images._OpenTarFile.__init__ = counted  # type: ignore[method-assign]


def children() -> list[int]:
    """Return the processes that this one has started."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def open_files(pid: int) -> list[str]:
    """Return the names of the open files of a process."""
    return [os.path.realpath(link) for link in Path(f"/proc/{pid}/fd").iterdir()]


def memory_mb(pid: int, *kinds: str) -> int:
    """Return the memory of a process, the sum of these kinds of it, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.split(":")[0] in kinds) * 1024 // 10**6


if __name__ == "__main__":
    main()

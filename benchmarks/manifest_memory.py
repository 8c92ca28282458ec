"""Peak memory of the commands that read a manifest of GLDv2's size: ``python benchmarks/manifest_memory.py FOLDER``.

The manifest has 4,132,914 images of 203,094 landmarks in 78 groups of 2 roots; ids and paths are those of GLDv2's own
layout, ``a/b/c/abc….jpg``. Its first images are there, and all of those in a second manifest, whose rows point to a
few pictures in 500 tar files. All that a command does is read its input, but for a little of its own work: a part of
the images is embedded, ten queries are evaluated, one step is trained. The step with a proxy of each landmark has
work of its own: proxies, their gradients and moments, and logits. Own memory is anonymous memory (Linux only),
sampled every 5 ms; all that is resident also has the pages of libraries (350 MB with torch) and of memory-mapped
files. The folder, of 1 GB, is kept and used again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

#: Landmarks, groups and roots; images that are files; tar files, and pictures in each.
LANDMARKS, GROUPS, ROOTS, FILES, TARS, PICTURES = 203_094, 78, 2, 1024, 500, 8
MODEL = "--model python:model.py:embed"
QUERIES = "--query-embeddings queries.npy --gallery-embeddings gallery.npy"
SETTINGS = (
    "model.backbone=test_resnet model.pretrained=false image.size=64 image.resize=64 epochs=null steps=1 workers=0 "
    "model.dim=null frozen=[]"
)
TRAINING = f"--manifest tars.parquet -o run --force --device cpu --set {' --set '.join(SETTINGS.split())}"
COMMANDS = {
    "no command": "--version",
    "help of embed-images": "embed-images --help",
    "manifest gldv2": "manifest gldv2 . --labels train.csv --hierarchy hierarchy.parquet -o written.parquet --force",
    "manifest leave-out": "manifest leave-out files.parquet out.csv -o kept.parquet --force",
    "stats": "stats hierarchy.parquet --images train.csv",
    "embed-images": f"embed-images --images files.parquet {MODEL} --size 64 --part 1/4037 --workers 0 -o part.npy",
    "evaluate": f"evaluate {QUERIES} --labels files.parquet --metric mAP@R",
    "search": "search a/b/c/picture.jpg --embeddings gallery.npy --labels files.parquet --images files.parquet "
    f"{MODEL}",
    "repack --plan": "repack files.parquet --plan --size 64 -o repacked",
    "train --plan": "train happier --manifest files.parquet --plan",
    "train": f"train smooth_ap {TRAINING}",
    "train, 203,094 proxies": f"train happier {TRAINING}",
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=4_132_914, help="rows of the manifest")
    parser.add_argument("--only", default="", help="part of the names of the commands to measure")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write_data(arguments.folder, arguments.rows)
        return
    # In another process: a process that is started counts as large as the one that starts it.
    subprocess.run(
        [sys.executable, __file__, str(arguments.folder), "--rows", str(arguments.rows), "--write"], check=True
    )
    print("| command | own MB | resident MB | processor s |\n| --- | --- | --- | --- |")
    for name, command in COMMANDS.items():
        if arguments.only in name:
            code, own, resident, seconds = run(command.split(), arguments.folder)
            cells = [name, f"{own:,.0f}", f"{resident:,.0f}", f"{seconds:.0f}"]
            print(f"| {' | '.join(cells)} |" + f" exit code {code}" * bool(code), flush=True)


def run(command: list[str], folder: Path) -> tuple[int, float, float, float]:
    """Run hgld in the folder, and return its exit code, peaks of memory in MB, and processor time in seconds."""
    with (folder / "log.txt").open("a") as log:
        log.write(f"\n{time.asctime()} hgld {' '.join(command)}\n")
        log.flush()
        process = subprocess.Popen([sys.executable, "-m", "hgld", *command], cwd=folder, stdout=log, stderr=log)
        peak, finished = 0.0, 0
        while not finished:
            peak = max(peak, anonymous_mb(process.pid))
            time.sleep(0.005)
            finished, status, usage = os.wait4(process.pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status), peak, usage.ru_maxrss / 1e3, usage.ru_utime + usage.ru_stime


def anonymous_mb(pid: int) -> float:
    """Return the memory of a process that no file backs, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("RssAnon"))


def write_data(folder: Path, n: int) -> None:
    """Write the inputs of all commands, unless they are there."""
    if (folder / "out.csv").exists():
        return
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    from PIL import Image
    from reading_at_scale import write_tars

    from hgld.gldv2.tar_images import index_images
    from hgld.tables import HIERARCHY, MANIFEST, Provenance, write_table

    rng = np.random.default_rng(0)
    ids = [f"{number:016x}" for number in rng.permutation(n).astype(np.uint64) * np.uint64(2**64 // n)]
    landmarks = np.append(np.arange(LANDMARKS), rng.integers(LANDMARKS, size=n))[:n]
    group = landmarks % GROUPS
    levels = {
        "landmark": pa.array(landmarks).cast(pa.string()),
        "hierarchical_label": pa.array([f"group {code}" for code in range(GROUPS)]).take(pa.array(group)),
        "natural_or_human_made": pa.array(["natural", "human-made"]).take(pa.array(group % ROOTS)),
    }
    split = np.where(landmarks < 50, "test", "train")
    folder.mkdir(parents=True, exist_ok=True)

    def write_manifest(name: str, paths: pa.Array, places: dict[str, pa.Array]) -> None:
        columns = {"id": pa.array(ids), "path": paths, **places, "split": pa.array(split), **levels}
        write_table(folder / name, MANIFEST, pa.table(columns), Provenance("manifest"))

    paths = [f"{image[0]}/{image[1]}/{image[2]}/{image}.jpg" for image in ids]
    write_manifest("files.parquet", pa.array(paths), {name: pa.nulls(n, pa.int64()) for name in ("offset", "size")})
    for path in ["a/b/c/picture.jpg", *paths[:FILES]]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(64, 64, 3), dtype=np.uint8)).save(folder / path)
    write_tars(folder / "tars", TARS)
    index_images(folder, folder / "images.parquet", workers=1)
    import pyarrow.parquet as pq

    index = pq.read_table(folder / "images.parquet").take(pa.array(np.arange(n) % (TARS * PICTURES))).combine_chunks()
    places = {name: index[name].combine_chunks() for name in ("offset", "size")}
    write_manifest("tars.parquet", index["shard"].combine_chunks(), places)
    pa_csv.write_csv(pa.table({"id": ids, "landmark_id": landmarks}), folder / "train.csv")
    codes = np.arange(LANDMARKS)
    hierarchy = {
        "split": pa.repeat("train", LANDMARKS),
        "landmark_id": codes,
        "category": [f"http://commons.wikimedia.org/wiki/Category:Landmark_{code}" for code in codes],
        "supercategory": [f"label {code % 3000}" for code in codes],
        "hierarchical_label": [f"group {code % GROUPS}" for code in codes],
        "natural_or_human_made": [["natural", "human-made"][code % GROUPS % ROOTS] for code in codes],
    }
    write_table(folder / "hierarchy.parquet", HIERARCHY, pa.table(hierarchy), Provenance("build"))
    vectors = rng.standard_normal((n, 8), np.float32)
    for name, rows in (("gallery", n), ("queries", 10)):
        np.save(folder / f"{name}.npy", vectors[:rows])
        (folder / f"{name}.ids.txt").write_text("\n".join([*ids[:rows], ""]))
    (folder / "model.py").write_text("def embed(images):\n    return images.reshape(len(images), -1)[:, :8]\n")
    (folder / "out.csv").write_text("\n".join(["id", *ids[-100_000:], ""]))


if __name__ == "__main__":
    main()

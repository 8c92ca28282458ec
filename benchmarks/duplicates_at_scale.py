"""Measure hgld audit duplicates on as many made-up images as GLDv2's index has, with an index of faiss.

Usage: python benchmarks/duplicates_at_scale.py FOLDER [--images 760000] [--copies 2000]

Images are small JPEG files of smooth noise in one tar file, embeddings of 512 dimensions in float16 lie around 20,000
centres. Copies are re-encoded and get the embedding of their original with a little noise. The folder, of about 3 GB,
is kept and used again.
"""

from __future__ import annotations

import argparse
import io
import resource
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

DIM, CENTRES, BLOCK = 512, 20_000, 20_000


def write_images(folder: Path, n: int, n_copies: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Write the tar file and its manifest, the copies last; return the originals of the copies."""
    originals = rng.permutation(n - n_copies)[:n_copies]
    kept: dict[int, NDArray[np.uint8]] = {}
    wanted = set(originals.tolist())
    rows = []
    with tarfile.open(folder / "images.tar", "w") as archive:
        for number in range(n):
            if number < n - n_copies:
                noise = rng.integers(0, 256, (12, 12), dtype=np.uint8)
                if number in wanted:
                    kept[number] = noise
            else:
                noise = kept[int(originals[number - n + n_copies])]
            file = io.BytesIO()
            image = Image.fromarray(noise).resize((48, 48), Image.Resampling.BICUBIC)
            image.save(file, "JPEG", quality=90 if number < n - n_copies else 60)
            entry = tarfile.TarInfo(f"{number}.jpg")
            entry.size = file.tell()
            file.seek(0)
            archive.addfile(entry, file)
            offset = archive.offset - -(-entry.size // 512) * 512
            rows.append((str(number), offset, entry.size))
    ids, offsets, sizes = zip(*rows, strict=True)
    classes = [f"c{number % CENTRES}" for number in range(n)]
    columns = {"id": ids, "path": ["images.tar"] * n, "offset": offsets, "size": sizes, "split": ["index"] * n}
    pq.write_table(pa.table({**columns, "class": classes}), folder / "images.parquet")
    return originals


def write_embeddings(folder: Path, n: int, originals: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Write embeddings around the centres of the classes, those of copies near their originals."""
    centres = rng.normal(size=(CENTRES, DIM)).astype(np.float32)
    vectors = np.lib.format.open_memmap(folder / "images.npy", "w+", np.float16, (n, DIM))
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        vectors[rows] = centres[rows % CENTRES] + rng.normal(size=(len(rows), DIM)).astype(np.float32)
    copies = np.arange(n - len(originals), n)
    vectors[copies] = vectors[originals] + 0.2 * rng.normal(size=(len(copies), DIM))
    vectors.flush()
    (folder / "images.ids.txt").write_text("".join(f"{number}\n" for number in range(n)))


def run(*arguments: object) -> str:
    """Run a command of hgld, and return what it prints with the processor time and the peak of memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "hgld", *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (
        f"$ hgld {' '.join(map(str, arguments))}\n{done.stdout}{seconds:,.0f} s, {after.ru_maxrss / 2**20:.1f} GB\n"
    )


def main() -> None:
    """Write the files unless they are there, run both commands, and print what they took and how many were found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=760_000)
    parser.add_argument("--copies", type=int, default=2_000)
    arguments = parser.parse_args()
    folder, n = arguments.folder, arguments.images
    if not (folder / "originals.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        originals = write_images(folder, n, arguments.copies, rng)
        write_embeddings(folder, n, originals, rng)
        np.save(folder / "originals.npy", originals)
    originals = np.load(folder / "originals.npy")
    embeddings, index, table = folder / "images.npy", folder / "images.faiss", folder / "copies.parquet"
    print(run("export-embeddings", embeddings, "-o", index, "--index", "ivf"))
    print(
        run(
            "audit",
            "duplicates",
            folder / "images.parquet",
            "--embeddings",
            embeddings,
            "--index",
            index,
            "-o",
            table,
        )
    )
    groups = pq.read_table(table, columns=["copy_group", "id"]).to_pandas().set_index("id")["copy_group"]
    pairs = zip(originals.tolist(), range(n - len(originals), n), strict=True)
    found = sum(groups.get(str(first), -1) == groups.get(str(second), -2) for first, second in pairs)
    print(f"{found:,} of {len(originals):,} copies found, {len(groups):,} images in groups")


if __name__ == "__main__":
    main()

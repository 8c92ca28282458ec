"""Images that are read for training and evaluation per second of processor time, now and in another version of hgld.

The photographs of a folder with tar files are read as they are; and as mosaics of 800 x 600 and 1600 x 1200, pasted
at their own resolution, so that they are as hard to decode as real ones of that size, JPEG of quality 90::

    git worktree add ../before REVISION
    python benchmarks/loading.py data/washington --before ../before

Each measurement runs in a process of its own with two workers, in turns; the table holds medians. All is read from
the system's cache. Both versions have to give the same inputs of a model, bit by bit. The setting
``reduced_decoding`` does not; the difference of its pixels is measured, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from report import table

from hgld.datasets.image_dataset import EncodedImages, manifest_of_images, open_images
from hgld.datasets.image_folders import find_images
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.io.images import open_image, upright_rgb

CHECKOUT = Path(__file__).parents[1]
HEADER = ["images", "transform", "before, ms", "now, ms", "ratio", "reduced decoding, ms", "ratio", "now, images/s"]
#: Width and height of mosaics, and how many times as many photographs are read.
SHAPES = {(800, 600): 5, (1600, 1200): 10}
QUALITY = 90
REDUCED = {"reduced_decoding": True}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path, help="folder with tar files of photographs")
    parser.add_argument("--before", type=Path, required=True, help="checkout of another version of hgld")
    parser.add_argument(
        "--images", type=int, default=1920, help="number of photographs; of mosaics a fifth and a tenth"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        sources = [("as they are", options.photographs, options.images)]
        for shape, divisor in SHAPES.items():
            mosaics = Path(name, "{}x{}".format(*shape))
            write_mosaics(options.photographs, mosaics, shape, options.images // divisor)
            sources.append(("{} x {}".format(*shape), mosaics, options.images // divisor))
        for text, folder, n_images in sources:
            for kind in ("training", "evaluation"):
                jobs: dict[str, tuple[Path, dict[str, Any]]] = {
                    "before": (options.before, {}),
                    "now": (CHECKOUT, {}),
                    "reduced": (CHECKOUT, REDUCED),
                }
                costs: dict[str, list[dict[str, Any]]] = {job: [] for job in jobs}
                for _ in range(options.repeats):
                    for job, (checkout, changes) in jobs.items():
                        costs[job].append(run_once(checkout, folder, kind, changes, n_images, options.workers))
                        print(text, kind, job, costs[job][-1], file=sys.stderr, flush=True)
                require_same(costs["before"] + costs["now"])
                rows.append([text, kind, *cells(costs)])
        differences = {text: reduced_differences(folder) for text, folder, _ in sources[1:]}
    print(table(HEADER, rows) + "\n")
    for text, values in differences.items():
        print(
            f"Reduced decoding changes the pixels of {text} in evaluation by {values.mean():.2f} of 255 on average; "
            f"99 % of them by at most {np.percentile(values, 99):.0f}."
        )


def run_once(
    checkout: Path, folder: Path, kind: str, changes: dict[str, Any], n_images: int, workers: int
) -> dict[str, Any]:
    """Return the seconds per image of one measurement, and the digest of the inputs."""
    script = str(Path(__file__).with_name("loading_once.py"))
    arguments = [str(folder.resolve()), kind, json.dumps(changes), str(n_images), str(workers)]
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, script, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    cost: dict[str, Any] = json.loads(run.stdout)
    return cost


def require_same(costs: Iterable[dict[str, Any]]) -> None:
    """Check that all measurements read the same."""
    if len({cost["digest"] for cost in costs}) != 1:
        raise SystemExit("the two versions give different inputs of a model")


def cells(costs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the medians of milliseconds of processor time per image, and images per second of the clock."""
    processor = {job: statistics.median(cost["processor_s"] for cost in each) for job, each in costs.items()}
    seconds = statistics.median(cost["seconds"] for cost in costs["now"])
    values = [f"{1e3 * processor['before']:.2f}", f"{1e3 * processor['now']:.2f}"]
    values += [f"{processor['before'] / processor['now']:.1f}", f"{1e3 * processor['reduced']:.2f}"]
    return [*values, f"{processor['before'] / processor['reduced']:.1f}", f"{1 / seconds:,.0f}"]


def write_mosaics(photographs: Path, folder: Path, shape: tuple[int, int], n_images: int) -> None:
    """Write mosaics of photographs of 224 x 224 or so as JPEG files."""
    folder.mkdir()
    manifest = manifest_of_images(find_images(photographs))
    encoded = EncodedImages(manifest, photographs)
    side, number = 224, 0
    for n in range(n_images):
        mosaic = Image.new("RGB", shape)
        for top in range(0, shape[1], side):
            for left in range(0, shape[0], side):
                mosaic.paste(upright_rgb(open_image(encoded.read(number % len(manifest)))), (left, top))
                number += 1
        mosaic.save(folder / f"{n}.jpg", quality=QUALITY)


def reduced_differences(folder: Path) -> np.ndarray:
    """Return the absolute differences between pixels of reduced decoding and of the full one, in evaluation."""
    exact, reduced = (
        open_images(folder, evaluation_transform(ImageSettings.model_validate(changes))) for changes in ({}, REDUCED)
    )
    pairs = [(exact[row].image.numpy(), reduced[row].image.numpy()) for row in range(min(len(exact), 100))]
    return np.abs(np.stack([first.astype(int) - second for first, second in pairs]))


if __name__ == "__main__":
    main()

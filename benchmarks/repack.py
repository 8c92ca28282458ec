"""When ``hgld repack`` pays: processor time of reading images before and after, and of repacking them once.

Photographs of several megapixels are mosaics of the photographs of a folder with tar files, pasted at their own
resolution, so that they are as hard to decode as real ones of that size; JPEG of quality 90::

    python benchmarks/repack.py data/washington --images 100 --repeats 3

All is read from the system's cache and by one process, so the table has no waiting for disks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from report import table

from hgld.datasets.image_dataset import EncodedImages, ImageDataset, manifest_of_images
from hgld.datasets.image_folders import find_images
from hgld.datasets.loading import evaluation_batches
from hgld.datasets.manifest import read_manifest
from hgld.datasets.repack import RepackConfig, repack_images
from hgld.datasets.transforms import ImageSettings, Transform, evaluation_transform, training_transform
from hgld.io.images import open_image, upright_rgb

#: Widths and heights of the mosaics.
SHAPES = ((800, 600), (1600, 1200), (4000, 3000))
SIZES = (560, 256)
SETTINGS = ImageSettings(size=224, resize=256)
QUALITY = 90


class Reading(NamedTuple):
    """Cost of images in one form.

    Args:
        kilobytes: Mean size of a file in kB.
        training_ms: Processor time of reading one for training, with random crops, in milliseconds.
        evaluation_ms: The same for evaluation.
        repack_ms: Processor time of making this form of one; NaN for the originals.
    """

    kilobytes: float
    training_ms: float
    evaluation_ms: float
    repack_ms: float = np.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path, help="folder of photographs, or of tar files of them")
    parser.add_argument("--images", type=int, default=100, help="number of mosaics of each size")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions, of which the fastest counts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_mosaics(arguments.photographs, folder, shape, arguments.images)
            rows += measure(folder, shape, arguments.repeats)
    print(table(["images", "kB", "training, ms", "evaluation, ms", "repacking, ms", "pays after"], rows))


def write_mosaics(photographs: Path, folder: Path, shape: tuple[int, int], n_images: int) -> None:
    """Write mosaics as image files, and a table that is a manifest of them."""
    manifest, rng = manifest_of_images(find_images(photographs)), np.random.default_rng(0)
    encoded = EncodedImages(manifest, photographs)
    width, height = shape
    for number in range(n_images):
        mosaic, left, top, row_height = Image.new("RGB", shape), 0, 0, 0
        while top < height:
            tile = upright_rgb(open_image(encoded.read(int(rng.integers(len(manifest))))))
            mosaic.paste(tile, (left, top))
            left, row_height = left + tile.width, max(row_height, tile.height)
            if left >= width:
                left, top, row_height = 0, top + row_height, 0
        mosaic.save(folder / f"{number:05}.jpg", quality=QUALITY)
    lines = [f"{number:05}.jpg,train,a\n" for number in range(n_images)]
    (folder / "images.csv").write_text("path,split,class\n" + "".join(lines))


def measure(folder: Path, shape: tuple[int, int], repeats: int) -> list[list[str]]:
    """Return the rows of the table for images of one shape: the originals, and each smaller size."""
    name = f"{shape[0]} x {shape[1]}"
    original = reading(folder / "images.csv", repeats)
    rows = [row(name, original, original)]
    for size in SIZES:
        out = folder / str(size)
        start = time.process_time()
        # Without the estimate of the plan, whose images are read twice.
        summary = repack_images(folder / "images.csv", out, RepackConfig(size=size, workers=0))
        seconds = time.process_time() - start
        assert summary is not None
        n_read = summary.images + min(summary.images, 64)
        repacked = reading(out / "manifest.parquet", repeats)._replace(repack_ms=1000 * seconds / n_read)
        rows.append(row(f"{name}, repacked to {size}", repacked, original))
    return rows


def reading(path: Path, repeats: int) -> Reading:
    """Measure the images of a manifest, which stand beside it."""
    manifest = read_manifest(path, path.parent)
    encoded = EncodedImages(manifest, path.parent)
    transforms = training_transform(SETTINGS), evaluation_transform(SETTINGS)
    times = np.min([[milliseconds(path, transform) for transform in transforms] for _ in range(repeats)], axis=0)
    return Reading(np.mean([len(encoded.read(row)) for row in range(len(manifest))]) / 1000, *times)


def milliseconds(path: Path, transform: Transform) -> float:
    """Return the processor time of reading one image of a manifest in batches, in milliseconds."""
    torch.manual_seed(0)
    dataset = ImageDataset(read_manifest(path, path.parent), path.parent, transform)
    start = time.process_time()
    for _ in evaluation_batches(dataset, np.arange(len(dataset)), batch_size=32, workers=0):
        pass
    return 1000 * (time.process_time() - start) / len(dataset)


def row(name: str, form: Reading, original: Reading) -> list[str]:
    """Return a row of the table; repacking pays after as many readings as save what it costs."""
    saved = original.training_ms - form.training_ms
    pays = "" if np.isnan(form.repack_ms) else f"{form.repack_ms / saved:.1f} epochs" if saved > 0 else "never"
    repacking = "" if np.isnan(form.repack_ms) else f"{form.repack_ms:.1f}"
    cells = [f"{form.kilobytes:.0f}", f"{form.training_ms:.1f}", f"{form.evaluation_ms:.1f}", repacking, pays]
    return [name, *cells]


if __name__ == "__main__":
    main()

"""Measure how many planted copies hgld audit duplicates finds, by kind, and what it takes labelled natural pairs for.

Usage: python benchmarks/planted_copies.py MANIFEST --images DIR [--embeddings FILE] [--pairs DATASET] [--seeds 5]

Each seed alters 40 images in each way, with random strength, places and colours, and saves the copies as JPEG. A copy
is found if the search pairs it with its original and the comparison takes the two for copies. The natural pairs of
natural_pairs.csv were labelled by eye; DATASET is washington or grocery. Ids of the manifest are then those of
GLDv2, or paths.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from hgld.audit import DuplicatesConfig, compare, measure_recall
from hgld.audit.grey_thumbnails import grey_thumbnail
from hgld.audit.planted_copies import Alter
from hgld.datasets.encoded_images import EncodedImages
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.io.images import open_image, upright_rgb
from hgld.io.markdown import markdown_table
from hgld.search.query_model import load_query_model
from hgld.tables.embeddings import read_embeddings, rows_of

N_IMAGES = 40
PAIRS = Path(__file__).parent / "natural_pairs.csv"

RandomAlter = Callable[[Image.Image, np.random.Generator], Image.Image]


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    """Return what a JPEG file keeps."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def resize(image: Image.Image, factor: float) -> Image.Image:
    """Return a smaller or larger copy."""
    return image.resize(
        (round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC
    )


def crop(
    image: Image.Image, rng: np.random.Generator, width_share: float, height_share: float
) -> Image.Image:
    """Return a part at a random place."""
    width, height = round(image.width * width_share), round(image.height * height_share)
    left, top = (
        int(rng.integers(image.width - width + 1)),
        int(rng.integers(image.height - height + 1)),
    )
    return image.crop((left, top, left + width, top + height))


def shrink(image: Image.Image, size: int) -> Image.Image:
    """Return a thumbnail."""
    small = image.copy()
    small.thumbnail((size, size))
    return small


def border(image: Image.Image, share: float, colour: tuple[int, int, int]) -> Image.Image:
    """Return a copy with a border on all sides."""
    return ImageOps.expand(
        image, (round(share * image.width), round(share * image.height)), fill=colour
    )


def recolour(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return a copy of other brightness, contrast and saturation."""
    for enhancer in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhancer(image).enhance(rng.uniform(0.7, 1.4))
    return image


def random_colour(rng: np.random.Generator) -> tuple[int, int, int]:
    """Return the colour of a border."""
    red, green, blue = rng.integers(0, 256, 3).tolist()
    return red, green, blue


KINDS: Mapping[str, RandomAlter] = {
    "re-encoded, quality 20 to 90": lambda image, rng: as_jpeg(image, int(rng.integers(20, 91))),
    "half the size": lambda image, _: resize(image, 0.5),
    "resized to 30 to 150 %": lambda image, rng: resize(image, rng.uniform(0.3, 1.5)),
    "thumbnail of 64 pixels": lambda image, _: shrink(image, 64),
    "thumbnail of 96 pixels": lambda image, _: shrink(image, 96),
    "thumbnail of 128 pixels": lambda image, _: shrink(image, 128),
    "cropped to 95 % of both sides": lambda image, rng: crop(image, rng, 0.95, 0.95),
    "cropped to 90 %": lambda image, rng: crop(image, rng, 0.9, 0.9),
    "cropped to 80 %": lambda image, rng: crop(image, rng, 0.8, 0.8),
    "sides cropped to 80 to 98 %": lambda image, rng: crop(
        image, rng, rng.uniform(0.8, 0.98), rng.uniform(0.8, 0.98)
    ),
    "mirrored": lambda image, _: ImageOps.mirror(image),
    "upside down": lambda image, _: ImageOps.flip(image),
    "turned by 90 degrees": lambda image, _: image.transpose(Image.Transpose.ROTATE_90),
    "turned by 180 degrees": lambda image, _: image.transpose(Image.Transpose.ROTATE_180),
    "turned by 270 degrees": lambda image, _: image.transpose(Image.Transpose.ROTATE_270),
    "brightness 130 to 150 %": lambda image, rng: ImageEnhance.Brightness(image).enhance(
        rng.uniform(1.3, 1.5)
    ),
    "recoloured": recolour,
    "grey": lambda image, _: image.convert("L").convert("RGB"),
    "black border of 5 %": lambda image, _: border(image, 0.05, (0, 0, 0)),
    "black border of 10 %": lambda image, _: border(image, 0.1, (0, 0, 0)),
    "white border of 5 %": lambda image, _: border(image, 0.05, (255, 255, 255)),
    "white border of 10 %": lambda image, _: border(image, 0.1, (255, 255, 255)),
    "coloured border of 5 %": lambda image, rng: border(image, 0.05, random_colour(rng)),
    "coloured border of 10 %": lambda image, rng: border(image, 0.1, random_colour(rng)),
}


def saved_copy(image: Image.Image, alter: RandomAlter, rng: np.random.Generator) -> Image.Image:
    """Return an altered copy as it is read from a file."""
    return as_jpeg(alter(image, rng), quality=90)


def found_copies(
    manifest: Manifest, root: Path, embeddings: Path | None, n_seeds: int, first_seed: int
) -> dict[str, list[int]]:
    """Return the number of copies that were found, of N_IMAGES, by kind and seed."""
    vectors = embed = None
    if embeddings is not None:
        embedded = read_embeddings(embeddings)
        vectors = embedded.vectors[rows_of(embedded, manifest.ids, "images")]
        embed = load_query_model(embeddings, embedded.dim).embed
    found: dict[str, list[int]] = {name: [] for name in KINDS}
    for seed in range(first_seed, first_seed + n_seeds):
        rng = np.random.default_rng(seed)
        alterations: dict[str, Alter] = {
            name: partial(saved_copy, alter=alter, rng=rng) for name, alter in KINDS.items()
        }
        shares = measure_recall(
            manifest, root, vectors, embed, alterations=alterations, n_images=N_IMAGES, seed=seed
        )
        for name, share in shares.items():
            found[name].append(round(share * N_IMAGES))
    return found


def natural_pairs(manifest: Manifest, root: Path, dataset: str) -> Counter[tuple[str, str]]:
    """Count the labelled pairs of a data set by their label and by what the comparison takes them for."""
    rows = {image: row for row, image in enumerate(manifest.ids)}
    encoded, config = EncodedImages(manifest, root), DuplicatesConfig()
    counts: Counter[tuple[str, str]] = Counter()
    with PAIRS.open(newline="") as file:
        for pair in csv.DictReader(file):
            if pair["dataset"] == dataset:
                first, second = (
                    grey_thumbnail(upright_rgb(open_image(encoded.read(rows[pair[side]])), 128))
                    for side in ("first", "second")
                )
                counts[pair["label"], config.relation(compare(first, second)) or "other"] += 1
    return counts


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--embeddings", type=Path)
    parser.add_argument("--pairs", choices=("washington", "grocery"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    manifest = read_manifest(arguments.manifest, arguments.images)
    if arguments.pairs is not None:
        counts = natural_pairs(manifest, arguments.images, arguments.pairs)
        labels = ("copy", "near view", "other")
        table = [[label, *(f"{counts[label, taken]:,}" for taken in labels)] for label in labels]
        print(
            markdown_table(
                ["labelled", "taken for copies", "for near views", "for neither"],
                table,
                n_numeric=3,
            )
        )
    found = found_copies(
        manifest, arguments.images, arguments.embeddings, arguments.seeds, arguments.first_seed
    )
    table = [[name, f"{min(counts)}", f"{np.mean(counts):.1f}"] for name, counts in found.items()]
    print(markdown_table(["copies", f"found of {N_IMAGES}, fewest", "mean"], table, n_numeric=2))


if __name__ == "__main__":
    main()

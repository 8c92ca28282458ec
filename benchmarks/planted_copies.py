"""Plant altered copies of images across splits and labels, and measure how many of them hgld audit duplicates finds.

Usage: python benchmarks/planted_copies.py MANIFEST EMBEDDINGS --root DIR [--seeds 5] [--share 0.03]

A copy is altered in one of six ways with random strength, and gets the split and the labels of a random image of
another split. Precision is the share of planted pairs among those that were found across labels; photographs of one
class that resemble each other are not counted, as nobody knows which of these are copies.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from hgld.audit import find_duplicates
from hgld.datasets.image_dataset import EncodedImages
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.io.images import open_image, upright_rgb
from hgld.io.markdown import markdown_table
from hgld.io.text_array import TextArray
from hgld.search.query_model import load_query_model
from hgld.tables.embeddings import read_embeddings, rows_of

Alter = Callable[[Image.Image, np.random.Generator], Image.Image]


def re_encode(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return what a JPEG file of random quality keeps."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=int(rng.integers(20, 91)))
    return Image.open(file).convert("RGB")


def resize(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return a smaller or larger copy."""
    factor = rng.uniform(0.3, 1.5)
    return image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC)


def crop(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return a part, each side of which is cropped by its own share."""
    width, height = (round(side * rng.uniform(0.85, 0.98)) for side in image.size)
    left, top = int(rng.integers(image.width - width + 1)), int(rng.integers(image.height - height + 1))
    return image.crop((left, top, left + width, top + height))


ALTERATIONS: dict[str, Alter] = {
    "re-encoded, quality 20 to 90": re_encode,
    "resized to 30 to 150 %": resize,
    "sides cropped to 85 to 98 %, each its own": crop,
    "cropped and re-encoded": lambda image, rng: re_encode(crop(image, rng), rng),
    "mirrored": lambda image, _: ImageOps.mirror(image),
    "brightness and colour 60 to 150 %": lambda image, rng: ImageEnhance.Color(
        ImageEnhance.Brightness(image).enhance(rng.uniform(0.6, 1.5))
    ).enhance(rng.uniform(0.6, 1.5)),
}


def planted(
    manifest: Manifest, root: Path, share: float, rng: np.random.Generator, folder: Path
) -> tuple[Manifest, list[int], list[str], list[Image.Image]]:
    """Return a manifest of all images and the copies, the rows of the originals, the alterations and the copies."""
    rows = rng.permutation(len(manifest))[: round(share * len(manifest))]
    encoded, names = EncodedImages(manifest, root), rng.choice([*ALTERATIONS], len(rows))
    copies = [
        ALTERATIONS[name](upright_rgb(open_image(encoded.read(row))), rng)
        for row, name in zip(rows.tolist(), names.tolist(), strict=True)
    ]
    hosts = []
    for number, (row, image) in enumerate(zip(rows.tolist(), copies, strict=True)):
        image.save(folder / f"copy_{number}.png")
        hosts.append(rng.choice(np.flatnonzero(manifest.splits != manifest.splits[row])))
    whole = manifest.take(np.concatenate([np.arange(len(manifest)), hosts]))
    new = [f"copy_{number}" for number in range(len(rows))]
    ids = [*manifest.ids.tolist(), *new]
    paths = [str(root.absolute() / path) for path in manifest.paths] + [str(folder / f"{name}.png") for name in new]
    offsets, sizes = whole.offsets.copy(), whole.sizes.copy()
    offsets[len(manifest) :], sizes[len(manifest) :] = -1, -1
    whole = replace(whole, ids=TextArray(ids), paths=TextArray(paths), offsets=offsets, sizes=sizes)
    return whole, rows.tolist(), names.tolist(), copies


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("embeddings", type=Path)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.03)
    arguments = parser.parse_args()
    manifest, embedded = read_manifest(arguments.manifest), read_embeddings(arguments.embeddings)
    vectors = embedded.vectors[torch.from_numpy(rows_of(embedded, manifest.ids.tolist(), "images"))]
    model = load_query_model(arguments.embeddings, embedded.dim)
    outcomes: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    wrong = {True: 0, False: 0}
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as name:
            rng = np.random.default_rng(seed)
            whole, rows, alterations, copies = planted(manifest, arguments.root, arguments.share, rng, Path(name))
            all_vectors = torch.cat([vectors, model.embed(copies)])
            expected = {(row, len(manifest) + number): alterations[number] for number, row in enumerate(rows)}
            for with_embeddings in (True, False):
                found = find_duplicates(whole, Path("/"), all_vectors if with_embeddings else None)
                pairs = set(map(tuple, found.pairs.tolist()))
                for pair, alteration in expected.items():
                    outcomes[alteration, with_embeddings].append(pair in pairs)
                origin = [*range(len(manifest)), *rows]
                for first, second in set(map(tuple, found.pairs[found.across_labels].tolist())) - expected.keys():
                    # A copy also resembles what its original resembles.
                    originals = tuple(sorted((origin[first], origin[second])))
                    wrong[with_embeddings] += originals[0] != originals[1] and (
                        second < len(manifest) or originals not in pairs
                    )
    hits = {way: [hit for name in ALTERATIONS for hit in outcomes[name, way]] for way in (True, False)}
    rows_of_table = [(name, {way: outcomes[name, way] for way in (True, False)}) for name in ALTERATIONS]
    table = [
        [name, *(f"{100 * np.mean(found_of[way]):.1f}" for way in (True, False)), f"{len(found_of[True]):,}"]
        for name, found_of in [*rows_of_table, ("all", hits)]
    ]
    shares = (f"{100 * sum(hits[way]) / max(sum(hits[way]) + wrong[way], 1):.1f}" for way in (True, False))
    table.append(["*precision*", *shares, ""])
    print(markdown_table(["copies", "found by embeddings, %", "by thumbnails, %", "number"], table, n_numeric=3))


if __name__ == "__main__":
    main()

"""How far retrieval moves when the same photographs come as other files, such as thumbnails of Wikimedia Commons.

GLDv2's photographs and Commons' thumbnails of them differ in size, in compression and in shape, of which a centre
crop and a squashed square show different parts. Each of these is applied here to photographs of a folder that
``hgld fetch gldv2 --ids washington`` wrote, which a network that was never trained on landmarks then embeds::

    python benchmarks/photograph_forms.py data/washington --photographs 1000

The photographs of the folder may already be squashed: then only their known pixels are changed, and the shapes that
stand for thumbnails are assumptions.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from report import table

import hgld
from hgld.datasets.transforms import Fit
from hgld.gldv2.tar_images import ImageReader, index_images
from hgld.io.images import open_image, upright_rgb
from hgld.tables.image_landmarks import read_image_landmarks

METRICS = ("mAP@100", "R@1", "H-AP", "NDCG", "ASI")
#: Quality of Commons' thumbnails: https://www.mediawiki.org/wiki/Manual:$wgJpegQuality is 80 by default.
QUALITY = 80
SIZE = 224


@dataclass(frozen=True)
class Form:
    """A form of a photograph, and how the model sees it.

    Args:
        name: Name for the table.
        shape: Width and height that it is stretched to. Default: its own.
        is_compressed: Whether it is then compressed again.
        fit: See :class:`hgld.datasets.ImageSettings`.
    """

    name: str
    shape: tuple[int, int] | None = None
    is_compressed: bool = True
    fit: Fit = "squash"

    def apply(self, image: Image.Image) -> Image.Image:
        """Return a photograph in this form."""
        if self.shape is not None:
            image = image.resize(self.shape, Image.Resampling.BICUBIC)
        if not self.is_compressed:
            return image
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=QUALITY)
        return Image.open(stream).convert("RGB")


FORMS = (
    Form("as they are", is_compressed=False),
    Form("compressed again"),
    Form("500 x 375, squashed", (500, 375)),
    Form("500 x 375, centre crop", (500, 375), fit="crop"),
    Form("640 x 320, squashed", (640, 320)),
    Form("640 x 320, centre crop", (640, 320), fit="crop"),
)


def main() -> None:
    """Embed the photographs in each form, and print how results differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photographs", type=int, default=1_000, help="of landmarks drawn at random, about")
    arguments = parser.parse_args()
    ids, labels = sample(arguments.folder, arguments.photographs)
    index = arguments.folder / "images.parquet"
    index_images(arguments.folder, index)
    reader = ImageReader(index, arguments.folder)
    rows, original = [], None
    for form in FORMS:
        model = hgld.load_model("efficientnet-lite0", size=SIZE, resize=SIZE, fit=form.fit)
        vectors = np.concatenate([model.embed(batch) for batch in batches(reader, ids, form)])
        original = vectors if original is None else original
        means = hgld.evaluate_retrieval(vectors, labels).means
        cosine = float((vectors * original).sum(1).mean())
        rows.append([form.name, f"{cosine:.3f}", *(f"{100 * means[metric]:.2f}" for metric in METRICS)])
    print(f"{len(ids):,} photographs of {len(set(labels[:, 0].tolist())):,} landmarks\n")
    print(table(["photographs", "cosine to the same", *METRICS], rows))


def sample(folder: Path, n: int) -> tuple[list[str], NDArray[np.int64]]:
    """Return the photographs of landmarks drawn at random until there are ``n``, and their labels."""
    ids, landmark_ids = read_image_landmarks(folder / "train.csv")
    hierarchy = hgld.load_hierarchy(folder / "train_label_to_hierarchical.csv")
    chosen: list[int] = []
    for landmark_id in np.random.default_rng(0).permutation(np.unique(landmark_ids)):
        members = np.flatnonzero(landmark_ids == landmark_id)
        if len(chosen) < n and len(members) >= 4 and hierarchy.contains(landmark_ids[members[:1]]).all():
            chosen += members.tolist()
    return [ids[row].as_py() for row in chosen], hierarchy.labels_of(landmark_ids[chosen])


def batches(reader: ImageReader, ids: list[str], form: Form, size: int = 64) -> Iterator[list[Image.Image]]:
    """Yield the photographs in a form, in lists."""
    for start in range(0, len(ids), size):
        yield [form.apply(upright_rgb(open_image(reader.read(image_id)))) for image_id in ids[start : start + size]]


if __name__ == "__main__":
    main()

"""Tar files of small photographs, their index, and the list of their landmarks."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from hgld.gldv2.image_index import index_images
from hgld.review.photographs import LabelPhotographs, open_photographs
from hgld.tables import CLEAN, Provenance, write_table
from tests.assertions import not_none
from tests.gldv2.test_image_index import write_tar
from tests.review.conftest import Label, clean_table


def jpeg(colour: str = "teal", size: tuple[int, int] = (320, 200)) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", size, colour).save(data, "JPEG")
    return data.getvalue()


def label_photographs(
    folder: Path, labels: Sequence[Label], counts: Mapping[int, int], replaced: Mapping[str, bytes]
) -> LabelPhotographs:
    """Write clean.parquet of some labels and photographs of their landmarks, and open the photographs."""
    write_table(folder / "clean.parquet", CLEAN, clean_table(labels), Provenance("test"))
    return not_none(open_photographs(write_photographs(folder / "gldv2", counts, replaced), folder / "clean.parquet"))


def write_photographs(
    folder: Path, counts: Mapping[int, int], replaced: Mapping[str, bytes] | None = None, *, split: str = "train"
) -> Path:
    """Write photographs of landmarks into one tar file; return the path of their index.

    Args:
        folder: Folder for the tar file, the index and the list of landmarks.
        counts: Number of photographs by landmark id; their ids are ``LANDMARK-NUMBER`` with one digit each.
        replaced: Content of single photographs by id, instead of a small JPEG.
        split: Split of the landmarks.
    """
    photograph = jpeg()
    ids = [(f"{landmark}-{n}", landmark) for landmark, count in counts.items() for n in range(count)]
    write_tar(folder / split / "0.tar", {f"a/{key}.jpg": (replaced or {}).get(key, photograph) for key, _ in ids})
    name = {"train": "train.csv", "index": "index_image_to_landmark.csv"}[split]
    lines = ["id,landmark_id", *(f"{key},{landmark}" for key, landmark in ids)]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    index_images(folder, folder / "images.parquet")
    return folder / "images.parquet"

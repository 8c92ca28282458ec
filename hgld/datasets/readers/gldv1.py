"""Google Landmarks Dataset v1 (Noh et al., Large-Scale Image Retrieval with Attentive Deep Local Features, 2017)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hgld.datasets.image_folders import FoundImages, find_images
from hgld.datasets.manifest import LANDMARK_LEVEL
from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import found_image_manifest
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.csv_files import parse_whole_number, read_rows

#: Landmark of images that were withdrawn after the publication of the list.
_WITHDRAWN = "None"


@dataclass(frozen=True)
class Gldv1:
    """Reader of ``train.csv`` and of the images that were downloaded from its URLs; the only level is the landmark.

    The list has the columns id, url and landmark_id. It was published without images, which everybody downloaded, and
    many of them are gone. Images are those named by their ids, ``….jpg``, in any folder or tar file; those of the
    list that are not there are excluded and counted, as are rows whose landmark_id is None. All images have the split
    train.

    The Kaggle version of 2018 lists 1.2 million images of 14,951 landmarks. The Recall@k paper (Table 1) gives
    1,060,709 images of 12,894 landmarks, the numbers of the dataset's paper, and does not publish its list. It trains
    on landmarks with four images or more.

    Args:
        labels: List of the images. By default, train.csv in the folder.
        min_images: Exclude landmarks with fewer images.

    Raises:
        ConfigurationError: ``min_images`` is below 1.
    """

    labels: Path | None = None
    min_images: int = 1

    def __post_init__(self) -> None:
        if self.min_images < 1:
            raise ConfigurationError(f"`min_images` is {self.min_images}; expected 1 or more")

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {"labels": self.labels or root / "train.csv", "images": root}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        path = self.files(root)["labels"]
        landmark_of = _read_list(path)
        found = find_images(root)
        row_of = _rows_by_id(root, found, landmark_of)
        labelled = [image for image in row_of if landmark_of[image] != _WITHDRAWN]
        n_images = Counter(landmark_of[image] for image in labelled)
        kept = [image for image in labelled if n_images[landmark_of[image]] >= self.min_images]
        if not kept:
            raise InputError(
                f"{path}: none of its {len(landmark_of):,} images remains: {len(row_of):,} are in {root}, where "
                f"images are named like {found.names[0]}, and no landmark has {self.min_images} of them"
            )
        manifest = found_image_manifest(
            path,
            kept,
            found,
            [row_of[image] for image in kept],
            ["train"] * len(kept),
            {LANDMARK_LEVEL: [landmark_of[image] for image in kept]},
        )
        excluded = {
            "that are not there": len(landmark_of) - len(row_of),
            "without a landmark": len(row_of) - len(labelled),
            f"of landmarks with fewer than {self.min_images} images": len(labelled) - len(kept),
        }
        return ReaderResult(manifest, {reason: count for reason, count in excluded.items() if count})


def _read_list(path: Path) -> dict[str, str]:
    """Return the landmark of each image of a list by its id."""
    landmark_of: dict[str, str] = {}

    def parse(line: int, values: Mapping[str, str]) -> None:
        image, landmark = values["id"].strip(), values["landmark_id"].strip()
        if landmark != _WITHDRAWN:
            parse_whole_number("landmark_id", landmark)
        if landmark_of.setdefault(image, landmark) != landmark:
            raise ValueError(f"the image {image} has the landmarks {landmark_of[image]} and {landmark}")

    read_rows(path, ("id", "landmark_id"), parse)
    return landmark_of


def _rows_by_id(root: Path, found: FoundImages, listed: Mapping[str, str]) -> dict[str, int]:
    """Return the positions of those images that are listed and found, by their ids and in the order of the list."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(found.names):
        rows.setdefault(PurePosixPath(name).stem, []).append(row)
    if several := [found.names[row] for image in listed if len(rows.get(image, [])) > 1 for row in rows[image]]:
        raise InputError(f"{root}: images of the list are there several times:\n{indented_list(several, limit=6)}")
    return {image: rows[image][0] for image in listed if image in rows}

"""PKU VehicleID (Liu et al., CVPR 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.datasets.readers.text_lists import read_text_list


@dataclass(frozen=True)
class VehicleId:
    """Reader of ``train_test_split/train_list.txt`` and a list of test images; vehicles are the only level.

    Lines have the name of an image, without folder and suffix, and the number of its vehicle; images are
    ``image/{name}.jpg``. Test lists have 800, 1,600 or 2,400 vehicles (small, medium and large), or more.

    Args:
        test_list: Number of vehicles in the test list, which is part of its file name.
    """

    test_list: int = 800

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        names = {"train": "train_list", "test": f"test_list_{self.test_list}"}
        return {split: root / "train_test_split" / f"{name}.txt" for split, name in names.items()}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        paths, splits, vehicles = [], [], []
        for split, path in self.files(root).items():
            images, numbers = read_text_list(path, ("image", "vehicle"))
            paths += [f"image/{name}.jpg" for name in images]
            vehicles += numbers
            splits += [split] * len(images)
        return ReaderResult(image_file_manifest(root, paths, splits, {"vehicle": vehicles}))

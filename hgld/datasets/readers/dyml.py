"""DyML-Vehicle, -Animal and -Product (Sun et al., Dynamic Metric Learning, CVPR 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hgld.datasets.dyml_files import LEVELS, PRODUCT, read_label_csv, read_test_set
from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.errors import InputError


@dataclass(frozen=True)
class Dyml:
    """Reader of one part of a dataset; training and test sets number their classes independently.

    ``train`` is ``train/label.csv``, whose images are in ``train/imgs``, with the levels fine, middle and coarse.
    ``fine``, ``middle`` and ``coarse`` are test sets of Vehicle and Animal, with the splits query and gallery and
    that level alone; ``test`` is the test set of Product, with all three levels. Images have the ids of
    :mod:`hgld.datasets.dyml_files`, which documents the files.

    Args:
        part: The training set, a level's test set (Vehicle, Animal), or the test set (Product).
    """

    part: Literal["train", "fine", "middle", "coarse", "test"] = "train"

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        if self.part in LEVELS:
            return {split: root / f"bmk_{self.part}" / f"{split}.csv" for split in ("query", "gallery")}
        return {"labels": root / ("train" if self.part == "train" else PRODUCT) / "label.csv"}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return self._read_single_level(root) if self.part in LEVELS else self._read_all_levels(root)

    def _read_all_levels(self, root: Path) -> ReaderResult:
        (path,) = self.files(root).values()
        images, labels = read_label_csv(path, [f"{level}_id" for level in LEVELS])
        paths = [f"{path.parent.name}/imgs/{image}" for image in images]
        levels = {level: [str(label) for label in labels[:, n].tolist()] for n, level in enumerate(LEVELS)}
        return ReaderResult(image_file_manifest(root, paths, [self.part] * len(paths), levels))

    def _read_single_level(self, root: Path) -> ReaderResult:
        if not (root / f"bmk_{self.part}").is_dir():
            raise InputError(
                f'{root}: no folder bmk_{self.part}; for the test set of DyML-Product, set `part` to "test"'
            )
        test_set = read_test_set(root)[self.part]
        paths = [*test_set.query_ids, *test_set.gallery_ids]
        splits = ["query"] * len(test_set.query_ids) + ["gallery"] * len(test_set.gallery_ids)
        labels = [str(label) for label in [*test_set.query_labels.tolist(), *test_set.gallery_labels.tolist()]]
        return ReaderResult(image_file_manifest(root, paths, splits, {str(self.part): labels}))

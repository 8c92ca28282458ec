"""DyML-Vehicle, -Animal and -Product (Sun et al., Dynamic Metric Learning, CVPR 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hgld.datasets.dyml_files import LEVELS, PRODUCT, read_label_csv, read_test_set
from hgld.datasets.readers.text_lists import Reading, pictures
from hgld.errors import InputError


@dataclass(frozen=True)
class Dyml:
    """A part of one of the data sets; training and test sets number their classes each for itself.

    ``train`` is ``train/label.csv``, whose images are in ``train/imgs``, with the levels fine, middle and coarse.
    ``fine``, ``middle`` and ``coarse`` are test sets of Vehicle and Animal, with the splits query and gallery and
    that level alone; ``test`` is that of Product, with all three. See :mod:`hgld.datasets.dyml_files` for their
    files, whose ids these are, too.

    Args:
        part: which of them.
    """

    part: Literal["train", "fine", "middle", "coarse", "test"] = "train"

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`Reader`."""
        if self.part in LEVELS:
            return {split: root / f"bmk_{self.part}" / f"{split}.csv" for split in ("query", "gallery")}
        return {"labels": root / ("train" if self.part == "train" else PRODUCT) / "label.csv"}

    def read(self, root: Path) -> Reading:
        """See :class:`Reader`."""
        if self.part not in LEVELS:
            (path,) = self.files(root).values()
            images, labels = read_label_csv(path, [f"{level}_id" for level in LEVELS])
            paths = [f"{path.parent.name}/imgs/{image}" for image in images]
            levels = {level: [str(label) for label in labels[:, n].tolist()] for n, level in enumerate(LEVELS)}
            return Reading(pictures(root, paths, [self.part] * len(paths), levels))
        if not (root / f"bmk_{self.part}").is_dir():
            raise InputError(f"{root}: no folder bmk_{self.part}; the test set of DyML-Product is --part test")
        found = read_test_set(root)[self.part]
        splits = ["query"] * len(found.query_ids) + ["gallery"] * len(found.gallery_ids)
        own = [str(label) for label in [*found.query_labels.tolist(), *found.gallery_labels.tolist()]]
        return Reading(pictures(root, [*found.query_ids, *found.gallery_ids], splits, {str(self.part): own}))

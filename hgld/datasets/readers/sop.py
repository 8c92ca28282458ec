"""Stanford Online Products (Song et al., CVPR 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.datasets.readers.text_lists import read_text_list


@dataclass(frozen=True)
class StanfordOnlineProducts:
    """Reader of ``Ebay_train.txt`` and ``Ebay_test.txt``; the levels are the 22,634 products and 12 categories.

    After a header, each line has image_id, class_id, super_class_id and path.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {split: root / f"Ebay_{split}.txt" for split in ("train", "test")}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        paths, splits, products, categories = [], [], [], []
        for split, path in self.files(root).items():
            columns = read_text_list(path, ("image_id", "class_id", "super_class_id", "path"), header_lines=1)
            products += columns[1]
            categories += columns[2]
            paths += columns[3]
            splits += [split] * len(columns[3])
        levels = {"product": products, "category": categories}
        return ReaderResult(image_file_manifest(root, paths, splits, levels))

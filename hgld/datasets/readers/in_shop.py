"""In-Shop Clothes Retrieval (Liu et al., DeepFashion, CVPR 2016)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import disambiguate, image_file_manifest
from hgld.datasets.readers.text_lists import read_text_list
from hgld.errors import InputError, indented_list

log = logging.getLogger(__name__)

_PARTITION = "list_eval_partition.txt"
_SPLITS = ("train", "query", "gallery")


@dataclass(frozen=True)
class InShop:
    """Reader of ``list_eval_partition.txt``, in the folder or in ``Eval``; the levels are item, category and gender.

    After the number of images and a header, each line has image_name, item_id and evaluation_status (train, query or
    gallery). The category and the gender are folders of the image: ``img/WOMEN/Dresses/id_00000002/02_1_front.jpg``.
    An item in several categories belongs to the first one listed.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        in_root = root / _PARTITION
        return {"partition": in_root if in_root.is_file() else root / "Eval" / _PARTITION}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        (path,) = self.files(root).values()
        paths, items, splits = read_text_list(path, ("image_name", "item_id", "evaluation_status"), header_lines=2)
        folders = [image.split("/") for image in paths]
        problems = [
            f"line {number}: {image} ({split})"
            for number, (image, parts, split) in enumerate(zip(paths, folders, splits, strict=True), 3)
            if len(parts) < 4 or split not in _SPLITS
        ]
        if problems:
            raise InputError(
                f"{path}: expected images such as img/WOMEN/Dresses/id_00000002/02_1_front.jpg, and train, query or "
                f"gallery:\n{indented_list(problems)}"
            )
        categories_and_genders = [(parts[2], parts[1]) for parts in folders]
        first: dict[str, tuple[str, str]] = {}
        for item, names in zip(items, categories_and_genders, strict=True):
            first.setdefault(item, names)
        ambiguous = {item for item, names in zip(items, categories_and_genders, strict=True) if first[item] != names}
        if ambiguous:
            log.warning(
                "%s: %d items are in several categories and belong to the first, such as %s",
                path,
                len(ambiguous),
                min(ambiguous),
            )
        categories, genders = zip(*(first[item] for item in items), strict=True)
        levels = disambiguate({"item": items, "category": categories, "gender": genders})
        return ReaderResult(image_file_manifest(root, paths, splits, levels))

"""Stanford Online Products (Song et al., CVPR 2016) and In-Shop Clothes Retrieval (Liu et al., CVPR 2016)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.readers.text_lists import Reading, nested, pictures, read_list
from hgld.errors import InputError, indented_list

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StanfordOnlineProducts:
    """``Ebay_train.txt`` and ``Ebay_test.txt``; the levels are the 22,634 products and 12 categories.

    After a header, their lines have image_id, class_id, super_class_id and path.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`Reader`."""
        return {split: root / f"Ebay_{split}.txt" for split in ("train", "test")}

    def read(self, root: Path) -> Reading:
        """See :class:`Reader`."""
        paths, splits, products, categories = [], [], [], []
        for split, path in self.files(root).items():
            columns = read_list(path, ("image_id", "class_id", "super_class_id", "path"), header_lines=1)
            products += columns[1]
            categories += columns[2]
            paths += columns[3]
            splits += [split] * len(columns[3])
        return Reading(pictures(root, paths, splits, {"product": products, "category": categories}))


@dataclass(frozen=True)
class InShop:
    """``list_eval_partition.txt``, in the folder or in ``Eval``; the levels are item, category and gender.

    After the number of images and a header, its lines have image_name, item_id and evaluation_status (train, query or
    gallery). The category and the gender are folders of the image: ``img/WOMEN/Dresses/id_00000002/02_1_front.jpg``.
    An item that lies in several categories counts as of the first.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`Reader`."""
        name = "list_eval_partition.txt"
        return {"partition": root / name if (root / name).is_file() else root / "Eval" / name}

    def read(self, root: Path) -> Reading:
        """See :class:`Reader`."""
        (path,) = self.files(root).values()
        paths, items, splits = read_list(path, ("image_name", "item_id", "evaluation_status"), header_lines=2)
        folders = [image.split("/") for image in paths]
        problems = [
            f"line {number}: {image} ({split})"
            for number, (image, parts, split) in enumerate(zip(paths, folders, splits, strict=True), 3)
            if len(parts) < 4 or split not in ("train", "query", "gallery")
        ]
        if problems:
            raise InputError(
                f"{path}: expected images such as img/WOMEN/Dresses/id_00000002/02_1_front.jpg, and train, query or "
                f"gallery:\n{indented_list(problems)}"
            )
        first: dict[str, tuple[str, str]] = {}
        for item, parts in zip(items, folders, strict=True):
            first.setdefault(item, (parts[2], parts[1]))
        elsewhere = {item for item, parts in zip(items, folders, strict=True) if first[item] != (parts[2], parts[1])}
        if elsewhere:
            log.warning(
                "%s: %d items lie in several categories and count as of the first, such as %s",
                path,
                len(elsewhere),
                min(elsewhere),
            )
        categories, genders = zip(*(first[item] for item in items), strict=True)
        return Reading(
            pictures(root, paths, splits, nested({"item": items, "category": categories, "gender": genders}))
        )

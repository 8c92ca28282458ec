"""CUB-200-2011 (Wah et al., 2011)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.cub_families import FAMILY, ORDER
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.datasets.readers.text_lists import read_text_list
from hgld.errors import InputError, indented_list

_CLASS_IN_PATH = re.compile(r"([0-9]{3})\.[^/]+/[^/]+")


@dataclass(frozen=True)
class Cub:
    """Reader of ``images.txt`` and ``image_class_labels.txt``; the first 100 species are for training.

    Lines of the first file have the id of an image and its path below ``images``, those of the second the id and the
    number of the class. The levels are species, family and order; see :mod:`hgld.datasets.readers.cub_families`.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {name: root / f"{name}.txt" for name in ("images", "image_class_labels")}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        files = self.files(root)
        images, paths = read_text_list(files["images"], ("image_id", "image_name"))
        labelled, classes = read_text_list(files["image_class_labels"], ("image_id", "class_id"))
        class_of = dict(zip(labelled, classes, strict=True))
        species, problems = [], []
        for image, path in zip(images, paths, strict=True):
            match = _CLASS_IN_PATH.fullmatch(path)
            if match is None or class_of.get(image) != str(int(match[1])) or int(match[1]) not in FAMILY:
                problems.append(f"image {image}: {path}, class {class_of.get(image)}")
            else:
                species.append(path.split("/")[0])
        if problems:
            raise InputError(
                f"{root}: the class of {len(problems):,} images differs from the one that their folder names, or is "
                f"none of the {len(FAMILY)}:\n{indented_list(problems)}"
            )
        numbers = [int(name.split(".")[0]) for name in species]
        families = [FAMILY[number] for number in numbers]
        levels = {"species": species, "family": families, "order": [ORDER[family] for family in families]}
        splits = ["train" if number <= len(FAMILY) // 2 else "test" for number in numbers]
        return ReaderResult(image_file_manifest(root, [f"images/{path}" for path in paths], splits, levels))

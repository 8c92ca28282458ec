"""Parts of GLDv2 whose lists come with hgld, so that results on them can be repeated."""

from __future__ import annotations

import shutil
from pathlib import Path

from hgld.io.files import atomic_write
from hgld.resources import subset_file

#: Names of the parts.
SUBSETS = ("washington",)
_FILES = ("train.csv", "train_label_to_category.csv", "train_label_to_hierarchical.csv")


def subset_list(name: str) -> Path:
    """Return the list of photographs of a part, with the columns of GLDv2's train.csv."""
    return subset_file(f"{name}/{_FILES[0]}")


def copy_subset(name: str, out: Path) -> None:
    """Write the lists of a part to a folder, where the dataset has lists of the same names.

    Args:
        name: Name of the part.
        out: Folder of the dataset; files of these names are replaced.
    """
    for file in _FILES:
        with atomic_write(out / file) as draft:
            shutil.copyfile(subset_file(f"{name}/{file}"), draft)

"""iNaturalist-2018 (Van Horn et al., CVPR 2018)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import disambiguate, image_file_manifest
from hgld.datasets.readers.text_lists import read_text_list
from hgld.errors import InputError, indented_list

_RANKS = ("genus", "family", "order", "class", "phylum", "kingdom")
_SUPER_CATEGORY_AND_SPECIES = re.compile(r"(?:[^/]+/)*([^/]+)/([0-9]+)/[^/]+")


@dataclass(frozen=True)
class INaturalist:
    """Reader of the splits of Smooth-AP, ``Inat_dataset_splits/Inaturalist_{train,test}_set1.txt``.

    The splits are from Brown et al., Smooth-AP, ECCV 2020. Each line is a path such as
    ``train_val2018/Aves/2761/0a1b.jpg``, with the super-category and the number of the species. The ranks above each
    species are in ``train2018.json``. A name with several parents, as some genera have, is extended by its parent,
    since levels are nested.

    Args:
        levels: Species and super-category (base), or the seven ranks of taxonomy (full).
    """

    levels: Literal["base", "full"] = "base"

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        lists = {split: root / "Inat_dataset_splits" / f"Inaturalist_{split}_set1.txt" for split in ("train", "test")}
        return lists if self.levels == "base" else lists | {"categories": root / "train2018.json"}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        files = self.files(root)
        paths, splits = [], []
        for split in ("train", "test"):
            (split_paths,) = read_text_list(files[split], ("path",))
            paths += split_paths
            splits += [split] * len(split_paths)
        matches = [_SUPER_CATEGORY_AND_SPECIES.fullmatch(path) for path in paths]
        if problems := [path for path, match in zip(paths, matches, strict=True) if match is None]:
            raise InputError(
                f"{root}: {len(problems):,} paths name no species; expected paths such as "
                f"train_val2018/Aves/2761/0a1b.jpg:\n{indented_list(problems)}"
            )
        species = [match[2] for match in matches if match]
        if self.levels == "base":
            levels = {"species": species, "super_category": [match[1] for match in matches if match]}
        else:
            ranks = _read_ranks(files["categories"], species)
            above = {name: [ranks[number][column] for number in species] for column, name in enumerate(_RANKS)}
            levels = disambiguate({"species": species, **above})
        return ReaderResult(image_file_manifest(root, paths, splits, levels))


def _read_ranks(path: Path, species: Sequence[str]) -> dict[str, list[str]]:
    """Read the names above each species, from the genus up, by the number of the species."""
    if not path.is_file():
        raise InputError(f'{path}: no such file; it is part of the dataset, and only `levels` "base" does without it')
    try:
        categories = json.loads(path.read_bytes())["categories"]
        ranks = {str(category["id"]): [str(category[rank]) for rank in _RANKS] for category in categories}
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{path}: expected categories with id, {', '.join(_RANKS)} ({type(error).__name__}: {error})"
        ) from error
    unknown = sorted(set(species) - set(ranks))
    if unknown:
        raise InputError(f"{path}: {len(unknown):,} species are not among its categories:\n{indented_list(unknown)}")
    return ranks

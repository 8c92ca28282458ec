"""iNaturalist-2018 (Van Horn et al., CVPR 2018) and CUB-200-2011 (Wah et al., 2011)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hgld.datasets.readers.cub_families import FAMILY, ORDER
from hgld.datasets.readers.text_lists import Reading, nested, pictures, read_list
from hgld.errors import InputError, indented_list

_RANKS = ("genus", "family", "order", "class", "phylum", "kingdom")
_SPECIES_IN_PATH = re.compile(r"(?:[^/]+/)*([^/]+)/([0-9]+)/[^/]+")
_CLASS_OF_BIRD = re.compile(r"([0-9]{3})\.[^/]+/[^/]+")


@dataclass(frozen=True)
class INaturalist:
    """The splits of Brown et al. (Smooth-AP, ECCV 2020): ``Inat_dataset_splits/Inaturalist_{train,test}_set1.txt``.

    Each line is a path such as ``train_val2018/Aves/2761/0a1b.jpg``, with the super-category and the number of the
    species. The levels ``base`` are these two; ``full`` are species, genus, family, order, class, phylum and kingdom,
    as ``train2018.json`` says for each number. A name that has several above it, as some genera have, is told apart
    by the one above, since levels are nested.

    Args:
        levels: which of the two.
    """

    levels: Literal["base", "full"] = "base"

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`Reader`."""
        lists = {split: root / "Inat_dataset_splits" / f"Inaturalist_{split}_set1.txt" for split in ("train", "test")}
        return lists if self.levels == "base" else lists | {"categories": root / "train2018.json"}

    def read(self, root: Path) -> Reading:
        """See :class:`Reader`."""
        files = self.files(root)
        paths, splits = [], []
        for split in ("train", "test"):
            (found,) = read_list(files[split], ("path",))
            paths += found
            splits += [split] * len(found)
        places = [_SPECIES_IN_PATH.fullmatch(path) for path in paths]
        if problems := [path for path, place in zip(paths, places, strict=True) if place is None]:
            raise InputError(
                f"{root}: {len(problems):,} paths tell no species; expected such as "
                f"train_val2018/Aves/2761/0a1b.jpg:\n{indented_list(problems)}"
            )
        species = [place[2] for place in places if place]
        if self.levels == "base":
            groups = [place[1] for place in places if place]
            return Reading(pictures(root, paths, splits, {"species": species, "super_category": groups}))
        ranks = _read_ranks(files["categories"], species)
        levels = {name: [ranks[one][column] for one in species] for column, name in enumerate(_RANKS)}
        return Reading(pictures(root, paths, splits, nested({"species": species, **levels})))


@dataclass(frozen=True)
class Cub:
    """``images.txt`` and ``image_class_labels.txt``; the first 100 species are for training.

    The lines of the one have an image's number and its path below ``images``, those of the other its number and that
    of its class. The levels are species, family and order; see :mod:`hgld.datasets.readers.cub_families`.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`Reader`."""
        return {name: root / f"{name}.txt" for name in ("images", "image_class_labels")}

    def read(self, root: Path) -> Reading:
        """See :class:`Reader`."""
        files = self.files(root)
        images, paths = read_list(files["images"], ("image_id", "image_name"))
        labelled, classes = read_list(files["image_class_labels"], ("image_id", "class_id"))
        class_of = dict(zip(labelled, classes, strict=True))
        species, problems = [], []
        for image, path in zip(images, paths, strict=True):
            name = _CLASS_OF_BIRD.fullmatch(path)
            if name is None or class_of.get(image) != str(int(name[1])) or int(name[1]) not in FAMILY:
                problems.append(f"image {image}: {path}, class {class_of.get(image)}")
            else:
                species.append(path.split("/")[0])
        if problems:
            raise InputError(
                f"{root}: {len(problems):,} images are not of the class that their folder names, or of none of the "
                f"{len(FAMILY)}:\n{indented_list(problems)}"
            )
        numbers = [int(name.split(".")[0]) for name in species]
        families = [FAMILY[number] for number in numbers]
        levels = {"species": species, "family": families, "order": [ORDER[family] for family in families]}
        splits = ["train" if number <= len(FAMILY) // 2 else "test" for number in numbers]
        return Reading(pictures(root, [f"images/{path}" for path in paths], splits, levels))


def _read_ranks(path: Path, species: Sequence[str]) -> dict[str, list[str]]:
    """The names above each species, from the genus up, by its number."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; it comes with the data set, and --levels base does without it")
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

"""Readers of datasets of products, animals and vehicles."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.readers.base import (
    ReaderResult,
    build_manifest,
    disambiguate,
    match_texts,
    read_text_list,
    read_text_lists,
)
from hgld.datasets.readers.settings import INaturalistSettings, VehicleIdSettings
from hgld.errors import InputError, indented_list

log = logging.getLogger(__name__)

_RANKS = ("genus", "family", "order", "class", "phylum", "kingdom")

# The groups of the classes of CUB-200-2011 and Cars196 come from Chang et al. (Your "Flamingo" is My
# "Bird", CVPR 2021); the authors of H-GLDv2 adopted them. For the birds, their copy swaps the
# red-legged kittiwake (84), a gull, with the white-breasted kingfisher (83), one of the Halcyonidae;
# this is corrected here.

#: Class numbers of the birds of each family, by order.
_BIRDS: Mapping[str, Mapping[str, str]] = {
    "Anseriformes": {"Anatidae": "46 87 89-90"},
    "Apodiformes": {"Trochilidae": "67-70"},
    "Caprimulgiformes": {"Caprimulgidae": "22 92 105"},
    "Charadriiformes": {
        "Alcidae": "5-8 58 106",
        "Laridae": "59-66 84 141-147",
        "Stercorariidae": "71-72",
    },
    "Coraciiformes": {"Alcedinidae": "79-82", "Halcyonidae": "83"},
    "Cuculiformes": {"Cuculidae": "4 31-33 110"},
    "Gaviiformes": {"Gaviidae": "86"},
    "Passeriformes": {
        "Alaudidae": "85",
        "Bombycillidae": "185-186",
        "Cardinalidae": "14-17 54 57 139-140",
        "Certhiidae": "28",
        "Corvidae": "29-30 73-75 93 107-108",
        "Fringillidae": "34-35 47-48 55-56",
        "Hirundinidae": "135-138",
        "Icteridae": "9-13 26-27 49 88 95-98",
        "Icteriidae": "20",
        "Laniidae": "111-112",
        "Mimidae": "19 91 149-150",
        "Motacillidae": "104",
        "Parulidae": "99 109 158-184 200",
        "Passerellidae": "21 76 113-117 119-133 148",
        "Passeridae": "118",
        "Ptilonorhynchidae": "18",
        "Sittidae": "94",
        "Sturnidae": "134",
        "Troglodytidae": "193-199",
        "Tyrannidae": "37-43 77-78 102-103",
        "Vireonidae": "151-157",
    },
    "Pelecaniformes": {"Pelecanidae": "100-101"},
    "Piciformes": {"Picidae": "36 187-192"},
    "Podicipediformes": {"Podicipedidae": "50-53"},
    "Procellariiformes": {"Diomedeidae": "1-3", "Procellariidae": "45"},
    "Suliformes": {"Phalacrocoracidae": "23-25", "Fregatidae": "44"},
}

#: Class numbers of the cars of each type. Most model names contain the type.
_CARS = {
    "cab": "53-54 65 69-70 74-75 86-87 90-91 106 111 113-114 122 124-125",
    "convertible": "8 10 12 21 27 31 36 38-39 45 55 59 77 80-81 100 102-103 107 123 157-158 161 175 179 196",
    "coupe": "6 9 11 13-15 22 25 28 34 42-43 46 56-57 66 72 93 99 101 104 112 128 141 144 150-153 160 163 171-172 "
    "180",
    "hatchback": "7 19 98 130 139 168 170 178 183 190-193",
    "minivan": "60 78 85 108 126-127 174",
    "sedan": "2-5 16-17 20 23-24 26 29 35 40-41 44 47 49 51 61 63 67 73 79 96-97 105 115 117 129 134-138 140 156 "
    "162 164-165 167 173 176-177 181-182 184-185 187-188 194",
    "SUV": "1 32-33 37 48 50 52 58 62 68 76 89 94-95 109-110 118 120-121 131-133 142-143 145-149 154-155 159 186 "
    "189 195",
    "van": "64 71 88 119 166 169",
    "wagon": "18 30 82-84 92 116",
}


def _by_class(groups: Mapping[str, str]) -> dict[int, str]:
    """Return the group of each class number.

    >>> _by_class({"cab": "1 4-6"})
    {1: 'cab', 4: 'cab', 5: 'cab', 6: 'cab'}
    """
    group_by_class = {}
    for group, text in groups.items():
        for item in text.split():
            first, _, last = item.partition("-")
            for number in range(int(first), int(last or first) + 1):
                group_by_class[number] = group
    return group_by_class


#: Order of each family of birds.
ORDER: dict[str, str] = {}
#: Family of each bird, by class number.
FAMILY: dict[int, str] = {}
for _order, _families in _BIRDS.items():
    ORDER.update(dict.fromkeys(_families, _order))
    FAMILY.update(_by_class(_families))
#: Type of each car, by class number.
CAR_TYPE = _by_class(_CARS)


@dataclass(frozen=True)
class StanfordOnlineProducts:
    """Reader of Stanford Online Products (Song et al., CVPR 2016).

    It reads ``Ebay_train.txt`` and ``Ebay_test.txt``.

    The levels are the 22,634 products and 12 categories.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"train": root / "Ebay_train.txt", "test": root / "Ebay_test.txt"}

    def read(self, root: Path) -> ReaderResult:
        columns = ("image_id", "class_id", "super_class_id", "path")
        rows = read_text_lists(self.files(root), columns, header_lines=1)
        levels = {"product": rows["class_id"], "category": rows["super_class_id"]}
        return ReaderResult(build_manifest(root, rows, levels))


@dataclass(frozen=True)
class VehicleId(VehicleIdSettings):
    """Reader of PKU VehicleID (Liu et al., CVPR 2016).

    It reads ``train_test_split/train_list.txt`` and a test list.

    The only level is the vehicle. Test lists have 800, 1,600 or 2,400 vehicles (small, medium and
    large), or more.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        folder = root / "train_test_split"
        return {
            "train": folder / "train_list.txt",
            "test": folder / f"test_list_{self.test_list}.txt",
        }

    def read(self, root: Path) -> ReaderResult:
        rows = read_text_lists(self.files(root), ("image", "vehicle"))
        rows["path"] = [f"image/{image}.jpg" for image in rows["image"]]
        return ReaderResult(build_manifest(root, rows, {"vehicle": rows["vehicle"]}))


@dataclass(frozen=True)
class InShop:
    """Reader of In-Shop Clothes Retrieval (Liu et al., DeepFashion, CVPR 2016).

    It reads ``list_eval_partition.txt``.

    The file is in the folder or in ``Eval``, and begins with the number of images and a header. The
    levels are item, category and gender; category and gender are folders of the image. An item in
    several categories belongs to the first category listed.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        path = root / "list_eval_partition.txt"
        return {"partition": path if path.is_file() else root / "Eval" / path.name}

    def read(self, root: Path) -> ReaderResult:
        path = self.files(root)["partition"]
        rows = read_text_list(path, ("image_name", "item_id", "evaluation_status"), header_lines=2)
        statuses = rows["evaluation_status"]
        match_texts(path, statuses, "train|query|gallery", "train, query or gallery")
        pattern = "[^/]+/(?P<gender>[^/]+)/(?P<category>[^/]+)/.+"
        images = match_texts(
            path, rows["image_name"], pattern, "img/WOMEN/Dresses/id_00000002/02_1_front.jpg"
        )
        items = rows["item_id"]
        first_groups: dict[str, tuple[str, str]] = {}
        ambiguous = set()
        for item, image in zip(items, images, strict=True):
            group = (image["category"], image["gender"])
            if first_groups.setdefault(item, group) != group:
                ambiguous.add(item)
        if ambiguous:
            log.warning(
                "%s: %d items are in several categories and belong to the first, such as %s",
                path,
                len(ambiguous),
                min(ambiguous),
            )
        categories = [first_groups[item][0] for item in items]
        genders = [first_groups[item][1] for item in items]
        levels = disambiguate({"item": items, "category": categories, "gender": genders})
        columns = {"path": rows["image_name"], "split": statuses}
        return ReaderResult(build_manifest(root, columns, levels))


@dataclass(frozen=True)
class INaturalist(INaturalistSettings):
    """Reader of iNaturalist-2018 (Van Horn et al., CVPR 2018) with the splits of Smooth-AP.

    Smooth-AP is Brown et al., ECCV 2020.

    The lists, ``Inat_dataset_splits/Inaturalist_{train,test}_set1.txt``, have paths with the
    super-category and the number of the species. The ranks above each species are in
    ``train2018.json``. A name with several parents, as some genera have, is extended by its parent,
    since levels are nested.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        files = self._lists(root)
        if self.levels == "full":
            files["categories"] = root / "train2018.json"
        return files

    def read(self, root: Path) -> ReaderResult:
        rows = read_text_lists(self._lists(root), ("path",))
        pattern = "(?:[^/]+/)*(?P<super_category>[^/]+)/(?P<species>[0-9]+)/[^/]+"
        images = match_texts(root, rows["path"], pattern, "train_val2018/Aves/2761/0a1b.jpg")
        levels = {"species": [image["species"] for image in images]}
        if self.levels == "full":
            ranks = _read_ranks(root / "train2018.json", levels["species"])
            for column, name in enumerate(_RANKS):
                levels[name] = [ranks[number][column] for number in levels["species"]]
            levels = disambiguate(levels)
        else:
            levels["super_category"] = [image["super_category"] for image in images]
        return ReaderResult(build_manifest(root, rows, levels))

    def _lists(self, root: Path) -> dict[str, Path]:
        folder = root / "Inat_dataset_splits"
        return {
            "train": folder / "Inaturalist_train_set1.txt",
            "test": folder / "Inaturalist_test_set1.txt",
        }


def _read_ranks(path: Path, species: Sequence[str]) -> dict[str, list[str]]:
    """Read the names above each species, from the genus up, by the number of the species."""
    if not path.is_file():
        raise InputError(
            f'{path}: no such file; it is part of the dataset, and only `levels` "base" does without it'
        )
    try:
        ranks = {}
        for category in json.loads(path.read_bytes())["categories"]:
            ranks[str(category["id"])] = [str(category[rank]) for rank in _RANKS]
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{path}: expected categories with id, {', '.join(_RANKS)} ({type(error).__name__}: {error})"
        ) from error
    unknown = sorted(set(species) - set(ranks))
    if unknown:
        raise InputError(
            f"{path}: {len(unknown):,} species are not among its categories:\n{indented_list(unknown)}"
        )
    return ranks


@dataclass(frozen=True)
class Cub:
    """Reader of CUB-200-2011 (Wah et al., 2011): ``images.txt`` and ``image_class_labels.txt``.

    Lines of ``images.txt`` have the id of an image and its path below ``images``, lines of
    ``image_class_labels.txt`` the id and the number of the class. The levels are species, family and
    order. The first 100 species are for training.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        return {
            "images": root / "images.txt",
            "image_class_labels": root / "image_class_labels.txt",
        }

    def read(self, root: Path) -> ReaderResult:
        files = self.files(root)
        rows = read_text_list(files["images"], ("image_id", "image_name"))
        labels = read_text_list(files["image_class_labels"], ("image_id", "class_id"))
        classes = dict(zip(labels["image_id"], labels["class_id"], strict=True))
        image_names = rows["image_name"]
        matches = match_texts(
            files["images"], image_names, r"([0-9]{3})\.[^/]+/[^/]+", "001.Tern/1.jpg"
        )
        numbers = [int(match[1]) for match in matches]
        problems = []
        for image, name, number in zip(rows["image_id"], image_names, numbers, strict=True):
            if classes.get(image) != str(number) or number not in FAMILY:
                problems.append(f"image {image}: {name}, class {classes.get(image)}")
        if problems:
            raise InputError(
                f"{root}: the class of {len(problems):,} images differs from the one that their folder names, or is "
                f"none of the {len(FAMILY)}:\n{indented_list(problems)}"
            )
        families = [FAMILY[number] for number in numbers]
        levels = {
            "species": [name.split("/")[0] for name in image_names],
            "family": families,
            "order": [ORDER[family] for family in families],
        }
        columns = {
            "path": [f"images/{name}" for name in image_names],
            "split": _halves(numbers, len(FAMILY)),
        }
        return ReaderResult(build_manifest(root, columns, levels))


@dataclass(frozen=True)
class Cars196:
    """Reader of Cars196 (Krause et al., 2013); the first 98 models are for training.

    The file has ``annotations`` with ``relative_im_path`` and ``class``, and ``class_names``. The levels are model
    and type.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"annotations": root / "cars_annos.mat"}

    def read(self, root: Path) -> ReaderResult:
        from scipy.io import loadmat

        path = self.files(root)["annotations"]
        if not path.is_file():
            raise InputError(f"{path}: no such file; is this the folder of the dataset?")
        try:
            contents = loadmat(path, simplify_cells=True)
            names = [str(name) for name in contents["class_names"]]
            paths = [str(image["relative_im_path"]) for image in contents["annotations"]]
            classes = [int(image["class"]) for image in contents["annotations"]]
            levels = {
                "model": [names[number - 1] for number in classes],
                "type": [CAR_TYPE[number] for number in classes],
            }
        # scipy raises NotImplementedError for files of MATLAB 7.3.
        except (ValueError, LookupError, TypeError, NotImplementedError) as error:
            raise InputError(
                f"{path}: expected annotations with relative_im_path and class, and class_names of {len(CAR_TYPE)} "
                f"models ({type(error).__name__}: {error})"
            ) from error
        columns = {"path": paths, "split": _halves(classes, len(CAR_TYPE))}
        return ReaderResult(build_manifest(root, columns, levels))


def _halves(classes: Sequence[int], n_classes: int) -> list[str]:
    """Return the split of each image: train for the first half of the classes, test for the others."""
    return ["train" if number <= n_classes // 2 else "test" for number in classes]

"""Readers of datasets of products, animals and vehicles."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hgld.arrays import Integers
from hgld.datasets.readers.base import (
    ReaderResult,
    build_manifest,
    disambiguate,
    match_texts,
    read_text_list,
    read_text_lists,
)
from hgld.datasets.readers.settings import DymlSettings, INaturalistSettings, VehicleIdSettings
from hgld.errors import InputError, indented_list
from hgld.io.table_rows import parse_whole_number, read_rows

log = logging.getLogger(__name__)

_RANKS = ("genus", "family", "order", "class", "phylum", "kingdom")

# Groups of the classes of CUB-200-2011 and Cars196 are those of Chang et al. (Your "Flamingo" is My "Bird", CVPR
# 2021), which the authors of H-GLDv2 adopted. For the birds, their copy swaps the red-legged kittiwake (84), a gull,
# with the white-breasted kingfisher (83), one of the Halcyonidae; this is corrected here.

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
#: Order of each family.
ORDER = {family: order for order, families in _BIRDS.items() for family in families}
#: Names of the levels, finest first as in a label matrix.
LEVELS = ("fine", "middle", "coarse")
#: Folder of DyML-Product's test set.
PRODUCT = "mini-bmk_all_in_one"
_LABEL = "label"
#: The last name of the header, joined with the first image.
_JOINED = re.compile(r"\s*([A-Za-z_]+)([0-9].*)")


def _by_class(groups: Mapping[str, str]) -> dict[int, str]:
    """Return the group of each class number.

    >>> _by_class({"cab": "1 4-6"})
    {1: 'cab', 4: 'cab', 5: 'cab', 6: 'cab'}
    """
    ranges = [
        (group, item.partition("-")) for group, text in groups.items() for item in text.split()
    ]
    return {
        n: group
        for group, (first, _, last) in ranges
        for n in range(int(first), int(last or first) + 1)
    }


#: Family of each bird, by class number.
FAMILY = {
    number: family for families in _BIRDS.values() for number, family in _by_class(families).items()
}
#: Type of each car, by class number.
CAR_TYPE = _by_class(_CARS)


@dataclass(frozen=True)
class StanfordOnlineProducts:
    """Reader of Stanford Online Products (Song et al., CVPR 2016): ``Ebay_train.txt`` and ``Ebay_test.txt``.

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
    """Reader of PKU VehicleID (Liu et al., CVPR 2016): ``train_test_split/train_list.txt``, and a test list.

    Vehicles are the only level. Test lists have 800, 1,600 or 2,400 vehicles (small, medium and large), or more.
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
    """Reader of In-Shop Clothes Retrieval (Liu et al., DeepFashion, CVPR 2016): ``list_eval_partition.txt``.

    The file is in the folder or in ``Eval``, and begins with the number of images and a header. The levels are item,
    category and gender, of which the latter two are folders of the image. An item in several categories belongs to
    the first one listed.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        path = root / "list_eval_partition.txt"
        return {"partition": path if path.is_file() else root / "Eval" / path.name}

    def read(self, root: Path) -> ReaderResult:
        path = self.files(root)["partition"]
        rows = read_text_list(path, ("image_name", "item_id", "evaluation_status"), header_lines=2)
        match_texts(
            path, rows["evaluation_status"], "train|query|gallery", "train, query or gallery"
        )
        pattern = "[^/]+/(?P<gender>[^/]+)/(?P<category>[^/]+)/.+"
        images = match_texts(
            path, rows["image_name"], pattern, "img/WOMEN/Dresses/id_00000002/02_1_front.jpg"
        )
        items = rows["item_id"]
        groups = [(image["category"], image["gender"]) for image in images]
        first: dict[str, tuple[str, str]] = {}
        for item, group in zip(items, groups, strict=True):
            first.setdefault(item, group)
        if ambiguous := {
            item for item, group in zip(items, groups, strict=True) if first[item] != group
        }:
            log.warning(
                "%s: %d items are in several categories and belong to the first, such as %s",
                path,
                len(ambiguous),
                min(ambiguous),
            )
        categories, genders = zip(*(first[item] for item in items), strict=True)
        levels = disambiguate({"item": items, "category": categories, "gender": genders})
        columns = {"path": rows["image_name"], "split": rows["evaluation_status"]}
        return ReaderResult(build_manifest(root, columns, levels))


@dataclass(frozen=True)
class INaturalist(INaturalistSettings):
    """Reader of iNaturalist-2018 (Van Horn et al., CVPR 2018) with the splits of Smooth-AP (Brown et al., ECCV 2020).

    The lists, ``Inat_dataset_splits/Inaturalist_{train,test}_set1.txt``, have paths with the super-category and the
    number of the species. The ranks above each species are in ``train2018.json``. A name with several parents, as
    some genera have, is extended by its parent, since levels are nested.
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
        species = [image["species"] for image in images]
        if self.levels == "full":
            ranks = _read_ranks(root / "train2018.json", species)
            above = {
                name: [ranks[number][column] for number in species]
                for column, name in enumerate(_RANKS)
            }
            levels = disambiguate({"species": species, **above})
        else:
            levels = {
                "species": species,
                "super_category": [image["super_category"] for image in images],
            }
        return ReaderResult(build_manifest(root, rows, levels))

    def _lists(self, root: Path) -> dict[str, Path]:
        return {
            split: root / f"Inat_dataset_splits/Inaturalist_{split}_set1.txt"
            for split in ("train", "test")
        }


def _read_ranks(path: Path, species: Sequence[str]) -> dict[str, list[str]]:
    """Read the names above each species, from the genus up, by the number of the species."""
    if not path.is_file():
        raise InputError(
            f'{path}: no such file; it is part of the dataset, and only `levels` "base" does without it'
        )
    try:
        categories = json.loads(path.read_bytes())["categories"]
        ranks = {
            str(category["id"]): [str(category[rank]) for rank in _RANKS] for category in categories
        }
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{path}: expected categories with id, {', '.join(_RANKS)} ({type(error).__name__}: {error})"
        ) from error
    if unknown := sorted(set(species) - set(ranks)):
        raise InputError(
            f"{path}: {len(unknown):,} species are not among its categories:\n{indented_list(unknown)}"
        )
    return ranks


@dataclass(frozen=True)
class Cub:
    """Reader of CUB-200-2011 (Wah et al., 2011): ``images.txt`` and ``image_class_labels.txt``.

    Lines of the first file have the id of an image and its path below ``images``, those of the second the id and the
    number of the class. The levels are species, family and order. The
    first 100 species are for training.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        return {name: root / f"{name}.txt" for name in ("images", "image_class_labels")}

    def read(self, root: Path) -> ReaderResult:
        files = self.files(root)
        rows = read_text_list(files["images"], ("image_id", "image_name"))
        labels = read_text_list(files["image_class_labels"], ("image_id", "class_id"))
        class_of = dict(zip(labels["image_id"], labels["class_id"], strict=True))
        names = match_texts(
            files["images"], rows["image_name"], r"([0-9]{3})\.[^/]+/[^/]+", "001.Tern/1.jpg"
        )
        numbers = [int(name[1]) for name in names]
        images = zip(rows["image_id"], rows["image_name"], numbers, strict=True)
        problems = [
            f"image {image}: {path}, class {class_of.get(image)}"
            for image, path, number in images
            if class_of.get(image) != str(number) or number not in FAMILY
        ]
        if problems:
            raise InputError(
                f"{root}: the class of {len(problems):,} images differs from the one that their folder names, or is "
                f"none of the {len(FAMILY)}:\n{indented_list(problems)}"
            )
        families = [FAMILY[number] for number in numbers]
        levels = {
            "species": [path.split("/")[0] for path in rows["image_name"]],
            "family": families,
            "order": [ORDER[family] for family in families],
        }
        paths = [f"images/{path}" for path in rows["image_name"]]
        return ReaderResult(
            build_manifest(root, {"path": paths, "split": _halves(numbers, len(FAMILY))}, levels)
        )


@dataclass(frozen=True)
class Cars196:
    """Reader of Cars196 (Krause et al., 2013): ``cars_annos.mat``; the first 98 models are for training.

    The file has ``annotations`` with ``relative_im_path`` and ``class``, and ``class_names``. The levels are model
    and type.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"annotations": root / "cars_annos.mat"}

    def read(self, root: Path) -> ReaderResult:
        from scipy.io import loadmat

        (path,) = self.files(root).values()
        if not path.is_file():
            raise InputError(f"{path}: no such file; is this the folder of the dataset?")
        try:
            contents = loadmat(path, simplify_cells=True)
            names = [str(name) for name in contents["class_names"]]
            paths = [str(image["relative_im_path"]) for image in contents["annotations"]]
            classes = [int(image["class"]) for image in contents["annotations"]]
            levels = {
                "model": [names[n - 1] for n in classes],
                "type": [CAR_TYPE[n] for n in classes],
            }
        # scipy raises NotImplementedError for files of MATLAB 7.3.
        except (ValueError, LookupError, TypeError, NotImplementedError) as error:
            raise InputError(
                f"{path}: expected annotations with relative_im_path and class, and class_names of {len(CAR_TYPE)} "
                f"models ({type(error).__name__}: {error})"
            ) from error
        return ReaderResult(
            build_manifest(root, {"path": paths, "split": _halves(classes, len(CAR_TYPE))}, levels)
        )


def _halves(classes: Sequence[int], n_classes: int) -> list[str]:
    """Return the split of each image: train for the first half of the classes, test for the others."""
    return ["train" if number <= n_classes // 2 else "test" for number in classes]


@dataclass(frozen=True)
class Dyml(DymlSettings):
    """Reader of a part of DyML-Vehicle, -Animal or -Product (Sun et al., Dynamic Metric Learning, CVPR 2021).

    ``train`` is ``train/label.csv``, whose images are in ``train/imgs``, with the levels fine, middle and coarse.
    ``fine``, ``middle`` and ``coarse`` are test sets of Vehicle and Animal, with the splits query and gallery and
    that level alone; ``test`` is the test set of Product, with all three levels. Training and test sets number their
    classes independently.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        if self.part in LEVELS:
            return {
                split: root / f"bmk_{self.part}" / f"{split}.csv" for split in ("query", "gallery")
            }
        return {"labels": root / ("train" if self.part == "train" else PRODUCT) / "label.csv"}

    def read(self, root: Path) -> ReaderResult:
        if self.part not in LEVELS:
            (path,) = self.files(root).values()
            images, labels = read_label_csv(path, [f"{level}_id" for level in LEVELS])
            columns = {
                "path": [f"{path.parent.name}/imgs/{image}" for image in images],
                "split": [self.part] * len(images),
            }
            return ReaderResult(
                build_manifest(root, columns, dict(zip(LEVELS, labels.T.astype(str), strict=True)))
            )
        if not (root / f"bmk_{self.part}").is_dir():
            raise InputError(
                f'{root}: no folder bmk_{self.part}; for the test set of DyML-Product, set `part` to "test"'
            )
        test_set = read_test_set(root)[self.part]
        columns = {
            "path": [*test_set.query_ids, *test_set.gallery_ids],
            "split": ["query"] * len(test_set.query_ids) + ["gallery"] * len(test_set.gallery_ids),
        }
        levels = {
            str(self.part): [*map(str, test_set.query_labels), *map(str, test_set.gallery_labels)]
        }
        return ReaderResult(build_manifest(root, columns, levels))


@dataclass(frozen=True)
class DymlLevel:
    """The test set of a level; relevant are the gallery images with the query's label, except the query itself.

    Args:
        gallery_ids: Paths of the gallery images, relative to the folder of the dataset.
        self_positions: int64, shape (n_query,): position of each query in the gallery; -1 if it is not there.
    """

    query_ids: tuple[str, ...]
    query_labels: Integers
    gallery_ids: tuple[str, ...]
    gallery_labels: Integers
    self_positions: Integers


def read_test_set(folder: Path) -> dict[str, DymlLevel]:
    """Read and validate the test set in a folder of DyML-Vehicle, -Animal or -Product.

    Vehicle and Animal have a folder per level, such as ``bmk_fine``, with ``query.csv`` and ``gallery.csv`` (image,
    label) and the image folders ``query`` and ``gallery``; the gallery includes the queries. Product has one folder,
    ``mini-bmk_all_in_one``, with ``label.csv`` (image and its label at each level) and ``imgs``; each image is a
    query against all others.

    Returns:
        The levels by name, those of ``LEVELS``; in DyML-Product they share their images.

    Raises:
        InputError: There is no test set in the folder, a file is malformed, or a query has another label than the
            gallery image of the same name, so that names do not identify the query.
    """
    if (folder / PRODUCT).is_dir():
        return _read_product(folder)
    if not (folder / f"bmk_{LEVELS[0]}").is_dir():
        raise InputError(
            f"{folder}: neither bmk_{LEVELS[0]} (DyML-Vehicle and -Animal) nor {PRODUCT} (DyML-Product) in this "
            "folder; unpack the dataset here, or name the folder that holds these"
        )
    return {level: _read_level(folder, f"bmk_{level}") for level in LEVELS}


def label_files(folder: Path) -> list[Path]:
    """Return the files with the labels of a test set."""
    if (folder / PRODUCT).is_dir():
        return [folder / PRODUCT / "label.csv"]
    return [
        folder / f"bmk_{level}" / f"{part}.csv" for level in LEVELS for part in ("query", "gallery")
    ]


def _read_product(folder: Path) -> dict[str, DymlLevel]:
    columns = [f"{level}_id" for level in LEVELS]
    images, labels = read_label_csv(folder / PRODUCT / "label.csv", columns)
    ids = _ids(f"{PRODUCT}/imgs", images)
    return {
        level: DymlLevel(ids, column, ids, column, np.arange(len(ids)))
        for level, column in zip(LEVELS, labels.T.copy(), strict=True)
    }


def _read_level(folder: Path, name: str) -> DymlLevel:
    queries, query_labels = read_label_csv(folder / name / "query.csv", [_LABEL])
    gallery, gallery_labels = read_label_csv(folder / name / "gallery.csv", [_LABEL])
    position_of = {image: n for n, image in enumerate(gallery)}
    self_positions = np.array([position_of.get(image, -1) for image in queries])
    differs = (self_positions >= 0) & (query_labels != gallery_labels[self_positions]).any(axis=1)
    if differs.any():
        first = int(differs.argmax())
        raise InputError(
            f"{folder / name}: {differs.sum():,} queries have another label than the gallery image of the same name, "
            f"first {queries[first]} ({query_labels[first, 0]} and {gallery_labels[self_positions[first], 0]}); the "
            "name must identify the query in the gallery: rename the images, also in the CSV files"
        )
    return DymlLevel(
        _ids(f"{name}/query", queries),
        query_labels[:, 0],
        _ids(f"{name}/gallery", gallery),
        gallery_labels[:, 0],
        self_positions,
    )


def _ids(folder: str, images: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{folder}/{image}" for image in images)


def read_label_csv(path: Path, columns: Sequence[str]) -> tuple[list[str], Integers]:
    """Read a file such as ``label.csv``.

    In the published files, as the authors' own reader shows, there is no line break after the header: the first image
    is on the same line, as in ``fname, labels0.jpg, 17``. Readers that discard this line as the header lose the
    image; this one reads it as a row.

    Returns:
        The images, and their labels: int64, shape (n_images, n_columns).
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> list[int]:
        image = row["fname"].strip()
        if not image:
            raise ValueError("the fname is empty")
        if image in lines:
            raise ValueError(
                f"{image} is already in line {lines[image]}; expected one row per image"
            )
        lines[image] = line
        return [parse_whole_number(column, row[column].strip()) for column in columns]

    labels = read_rows(
        path, ["fname", *columns], parse, parse_header=partial(_split_first_line, columns)
    )
    return list(lines), np.array(labels, np.int64)


def _split_first_line(columns: Sequence[str], values: list[str]) -> list[list[str]]:
    """Split the first line into the header and, if it is on the same line, the first row.

    >>> _split_first_line(["label"], ["fname", " labels0.jpg", " 17"])
    [['fname', 'label'], ['0.jpg', ' 17']]
    """
    width = 1 + len(columns)
    names, rest = values[:width], values[width:]
    images = []
    for n, name in enumerate(names):
        if joined := _JOINED.fullmatch(name):
            names[n] = joined[1]
            images.append(joined[2])
    # With a single label, its column has various names.
    header = ["fname", _LABEL] if len(names) == width == 2 else names
    return [header, [*images, *rest]] if rest else [header]

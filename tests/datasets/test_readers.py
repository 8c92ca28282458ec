"""Readers of published layouts, on small datasets written in them."""

import json
import logging
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from scipy.io import savemat

from hgld.cli.images import format_manifest
from hgld.datasets.image_dataset import ImageDataset
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.manifest_files import make_manifest
from hgld.datasets.readers.base import Reader, disambiguate
from hgld.datasets.readers.dyml import Dyml
from hgld.datasets.readers.fine_grained import (
    CAR_TYPE,
    FAMILY,
    ORDER,
    Cars196,
    Cub,
    INaturalist,
    InShop,
    StanfordOnlineProducts,
    VehicleId,
)
from hgld.datasets.readers.landmarks import Gldv1, Sfm120k
from hgld.datasets.readers.revisited import Revisited
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.errors import ConfigurationError, InputError
from tests.assertions import not_none
from tests.datasets.pictures import assert_readable, picture, rows_of, save_pictures
from tests.gldv2.test_image_index import write_tar


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def make_and_read_manifest(reader: Reader, root: Path) -> Manifest:
    """Write the manifest, read it back, and check that every image is readable at its path."""
    out = root / "manifest.parquet"
    assert make_manifest(reader, root, out) is not None
    assert make_manifest(reader, root, out) is None, "it is up to date"
    manifest = read_manifest(out)
    assert manifest.ids.tolist() == manifest.paths.tolist()
    save_pictures(root, *manifest.paths)
    assert_readable(manifest, root)
    return manifest


def expect_error(reader: Reader, root: Path, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_manifest(reader, root, root / "manifest.parquet")
    assert not (root / "manifest.parquet").exists()


SOP_HEADER = "image_id class_id super_class_id path\n"


def test_stanford_online_products(tmp_path: Path) -> None:
    train = "1 1 1 bicycle_final/111085122871_0.JPG\n2 1 1 bicycle_final/111085122871_1.JPG\n"
    test = "59552 11319 1 bicycle_final/251952414262_0.JPG\n59553 11320 2 cabinet_final/2_0.JPG\n"
    write(tmp_path, {"Ebay_train.txt": SOP_HEADER + train, "Ebay_test.txt": SOP_HEADER + test})
    manifest = make_and_read_manifest(StanfordOnlineProducts(), tmp_path)
    assert manifest.level_names == ("product", "category")
    assert rows_of(manifest) == [
        ("bicycle_final/111085122871_0.JPG", "train", ("1", "1")),
        ("bicycle_final/111085122871_1.JPG", "train", ("1", "1")),
        ("bicycle_final/251952414262_0.JPG", "test", ("11319", "1")),
        ("cabinet_final/2_0.JPG", "test", ("11320", "2")),
    ]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            SOP_HEADER + "1 1 1 a.JPG\n2 1 a.JPG\n",
            r"Ebay_train.txt: 1 bad row:\n  line 3: 3 values, expected 4 \(image_",
        ),
        (SOP_HEADER, "Ebay_train.txt: no rows"),
        (
            SOP_HEADER + "1 1 1 a.JPG\n2 1 2 b.JPG\n",
            r'product "1" has several category: "1" in image 1 \(a.JPG\), "2"',
        ),
        (SOP_HEADER + "1 1 1 a.JPG\n2 1 1 a.JPG\n", r"image 2 \(a.JPG\): the id is already used by image 1"),
    ],
)
def test_malformed_product_lists_are_refused(tmp_path: Path, train: str, message: str) -> None:
    write(tmp_path, {"Ebay_train.txt": train, "Ebay_test.txt": SOP_HEADER + "9 9 1 z.JPG\n"})
    expect_error(StanfordOnlineProducts(), tmp_path, message)


def test_missing_files_and_binary_files_are_refused(tmp_path: Path) -> None:
    expect_error(
        StanfordOnlineProducts(), tmp_path, "Ebay_train.txt: no such file; .*is this the folder of the dataset"
    )
    (tmp_path / "Ebay_train.txt").write_bytes(b"\xff\xfe\n")
    expect_error(StanfordOnlineProducts(), tmp_path, "Ebay_train.txt: not UTF-8")
    with pytest.raises(InputError, match="absent: no such folder"):
        make_manifest(StanfordOnlineProducts(), tmp_path / "absent", tmp_path / "manifest.parquet")


@pytest.mark.parametrize("folder", ["", "Eval/"])
def test_in_shop(tmp_path: Path, folder: str, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        "img/WOMEN/Dresses/id_00000002/02_1_front.jpg              id_00000002   train",
        "img/WOMEN/Shorts/id_00000003/02_1_front.jpg id_00000003 query",
        "img/MEN/Shorts/id_00000004/01_7_additional.jpg id_00000004 gallery",
        "img/MEN/Denim/id_00000004/01_1_front.jpg id_00000004 gallery",
    ]
    text = "\n".join(["4", "image_name item_id evaluation_status", *lines, ""])
    write(tmp_path, {f"{folder}list_eval_partition.txt": text})
    manifest = make_and_read_manifest(InShop(), tmp_path)
    assert manifest.level_names == ("item", "category", "gender")
    assert [row[1:] for row in rows_of(manifest)] == [
        ("train", ("id_00000002", "Dresses", "WOMEN")),
        ("query", ("id_00000003", "Shorts (WOMEN)", "WOMEN")),
        ("gallery", ("id_00000004", "Shorts (MEN)", "MEN")),
        ("gallery", ("id_00000004", "Shorts (MEN)", "MEN")),
    ]
    assert "1 items are in several categories and belong to the first, such as id_00000004" in caplog.text


def test_in_shop_images_need_a_category_and_a_known_split(tmp_path: Path) -> None:
    write(tmp_path, {"list_eval_partition.txt": "1\nimage_name item_id evaluation_status\na.jpg id_1 test\n"})
    expect_error(InShop(), tmp_path, "test; expected one such as train, query or gallery")


def inat(root: Path, *, categories: object = None) -> None:
    ranks = ("kingdom", "phylum", "class", "order", "family", "genus")
    taxa = {
        0: ("Animalia", "Chordata", "Aves", "Passeriformes", "Muscicapidae", "Oenanthe"),
        7: ("Plantae", "Tracheophyta", "Magnoliopsida", "Apiales", "Apiaceae", "Oenanthe"),
        8: ("Plantae", "Tracheophyta", "Magnoliopsida", "Apiales", "Apiaceae", "Daucus"),
    }
    known = [
        {"id": n, "name": f"s {n}", "supercategory": "?"} | dict(zip(ranks, names, strict=True))
        for n, names in taxa.items()
    ]
    lists = {
        "train": "train_val2018/Aves/0/a.jpg\ntrain_val2018/Plantae/7/b.jpg\n",
        "test": "train_val2018/Plantae/8/c.jpg\n",
    }
    write(root, {f"Inat_dataset_splits/Inaturalist_{split}_set1.txt": text for split, text in lists.items()})
    write(root, {"train2018.json": json.dumps({"categories": categories or known})})


def test_inaturalist(tmp_path: Path) -> None:
    inat(tmp_path)
    base = make_and_read_manifest(INaturalist(), tmp_path)
    assert base.level_names == ("species", "super_category")
    assert rows_of(base) == [
        ("train_val2018/Aves/0/a.jpg", "train", ("0", "Aves")),
        ("train_val2018/Plantae/7/b.jpg", "train", ("7", "Plantae")),
        ("train_val2018/Plantae/8/c.jpg", "test", ("8", "Plantae")),
    ]
    full = make_and_read_manifest(INaturalist("full"), tmp_path)
    assert full.level_names == ("species", "genus", "family", "order", "class", "phylum", "kingdom")
    assert [names[:3] for _, _, names in rows_of(full)] == [
        ("0", "Oenanthe (Muscicapidae)", "Muscicapidae"),
        ("7", "Oenanthe (Apiaceae)", "Apiaceae"),
        ("8", "Daucus", "Apiaceae"),
    ]
    assert full.n_classes == (3, 3, 2, 2, 2, 2, 2)


def test_inaturalist_taxonomy_must_be_complete(tmp_path: Path) -> None:
    inat(tmp_path, categories=[{"id": 0, "name": "s"}])
    expect_error(
        INaturalist("full"), tmp_path, r"train2018.json: expected categories with id, genus, .* \(KeyError: 'genus'\)"
    )
    ranks = dict.fromkeys(("genus", "family", "order", "class", "phylum", "kingdom"), "x")
    write(tmp_path, {"train2018.json": json.dumps({"categories": [{"id": 0} | ranks]})})
    expect_error(INaturalist("full"), tmp_path, r"train2018.json: 2 species are not among its categories:\n  7\n  8")
    (tmp_path / "train2018.json").unlink()
    expect_error(INaturalist("full"), tmp_path, 'train2018.json: no such file; .*`levels` "base" does without it')
    write(tmp_path, {"Inat_dataset_splits/Inaturalist_test_set1.txt": "Aves/x.jpg\n"})
    expect_error(INaturalist(), tmp_path, "Aves/x.jpg; expected one such as train_val2018/Aves/")


def test_names_with_several_parents_get_the_parent_appended() -> None:
    levels = disambiguate({"a": ["1", "2", "3"], "b": ["x", "x", "x"], "c": ["u", "u", "v"], "d": ["p", "q", "p"]})
    assert levels["d"] == ["p", "q", "p"]
    assert levels["c"] == ["u (p)", "u (q)", "v"]
    assert levels["b"] == ["x (u (p))", "x (u (q))", "x (v)"]
    assert levels["a"] == ["1", "2", "3"]


def cub(root: Path) -> None:
    images = [
        "001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg",
        "100.Brown_Pelican/Brown_Pelican_0001_94432.jpg",
        "101.White_Pelican/White_Pelican_0001_96422.jpg",
        "084.Red_legged_Kittiwake/Red_Legged_Kittiwake_0001_795417.jpg",
    ]
    numbers = list(enumerate(images, 1))
    write(root, {"images.txt": "".join(f"{n} {image}\n" for n, image in numbers)})
    write(root, {"image_class_labels.txt": "".join(f"{n} {int(image[:3])}\n" for n, image in numbers)})


def test_cub(tmp_path: Path) -> None:
    cub(tmp_path)
    manifest = make_and_read_manifest(Cub(), tmp_path)
    assert manifest.level_names == ("species", "family", "order")
    assert rows_of(manifest)[0][0] == "images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg"
    assert [row[1:] for row in rows_of(manifest)] == [
        ("train", ("001.Black_footed_Albatross", "Diomedeidae", "Procellariiformes")),
        ("train", ("100.Brown_Pelican", "Pelecanidae", "Pelecaniformes")),
        ("test", ("101.White_Pelican", "Pelecanidae", "Pelecaniformes")),
        ("train", ("084.Red_legged_Kittiwake", "Laridae", "Charadriiformes")),
    ]
    write(tmp_path, {"image_class_labels.txt": "1 1\n2 100\n3 100\n4 84\n"})
    (tmp_path / "manifest.parquet").unlink()
    expect_error(Cub(), tmp_path, r"the class of 1 images differs .*\n  image 3: 101.White_Pelican/.*, class 100")


def test_every_bird_has_a_family_and_an_order() -> None:
    assert sorted(FAMILY) == list(range(1, 201))
    assert set(FAMILY.values()) == set(ORDER)
    assert (len(ORDER), len(set(ORDER.values()))) == (38, 13)


def cars(root: Path, classes: list[int], n_names: int = 196) -> None:
    annotations = np.array(
        [(f"car_ims/{n:06}.jpg", 1.0, 2.0, 3.0, 4.0, number, 0) for n, number in enumerate(classes, 1)],
        dtype=[
            (name, object)
            for name in ("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test")
        ],
    )
    names = np.array([f"Make {n} Sedan 2012" for n in range(1, n_names + 1)], object)
    savemat(root / "cars_annos.mat", {"annotations": annotations[None], "class_names": names[None]})


def test_cars196(tmp_path: Path) -> None:
    cars(tmp_path, [1, 98, 99, 18])
    manifest = make_and_read_manifest(Cars196(), tmp_path)
    assert manifest.level_names == ("model", "type")
    assert rows_of(manifest) == [
        ("car_ims/000001.jpg", "train", ("Make 1 Sedan 2012", "SUV")),
        ("car_ims/000002.jpg", "train", ("Make 98 Sedan 2012", "hatchback")),
        ("car_ims/000003.jpg", "test", ("Make 99 Sedan 2012", "coupe")),
        ("car_ims/000004.jpg", "train", ("Make 18 Sedan 2012", "wagon")),
    ]
    assert sorted(CAR_TYPE) == list(range(1, 197))
    assert len(set(CAR_TYPE.values())) == 9


def test_malformed_cars196_annotations_are_refused(tmp_path: Path) -> None:
    expect_error(Cars196(), tmp_path, "cars_annos.mat: no such file")
    cars(tmp_path, [1, 197])
    expect_error(Cars196(), tmp_path, "expected annotations with .*IndexError")
    (tmp_path / "cars_annos.mat").write_bytes(b"MATLAB?" * 100)
    expect_error(Cars196(), tmp_path, "expected annotations with")


def test_vehicle_id(tmp_path: Path) -> None:
    lists = {
        "train_list": "0002033 15\n0002034 15\n",
        "test_list_800": "0000001 1\n",
        "test_list_1600": "0000002 2\n",
    }
    write(tmp_path, {f"train_test_split/{name}.txt": text for name, text in lists.items()})
    assert rows_of(make_and_read_manifest(VehicleId(), tmp_path)) == [
        ("image/0002033.jpg", "train", ("15",)),
        ("image/0002034.jpg", "train", ("15",)),
        ("image/0000001.jpg", "test", ("1",)),
    ]
    assert rows_of(make_and_read_manifest(VehicleId(1600), tmp_path))[2] == ("image/0000002.jpg", "test", ("2",))


#: As in the published files, there is no line break after the header.
LABELS = "fname, fine_id, middle_id, coarse_id0.jpg, 7, 3, 1\n1.jpg, 8, 3, 1\n"
GLUED = "fname, fine_id0.jpg, middle_id, coarse_id, 7, 3, 1\n1.jpg, 8, 3, 1\n"


@pytest.mark.parametrize("text", [LABELS, GLUED])
@pytest.mark.parametrize(("part", "folder"), [("train", "train"), ("test", "mini-bmk_all_in_one")])
def test_dyml_sets_with_all_levels(tmp_path: Path, part: Literal["train", "test"], folder: str, text: str) -> None:
    write(tmp_path, {f"{folder}/label.csv": text})
    manifest = make_and_read_manifest(Dyml(part), tmp_path)
    assert manifest.level_names == ("fine", "middle", "coarse")
    assert rows_of(manifest) == [
        (f"{folder}/imgs/0.jpg", part, ("7", "3", "1")),
        (f"{folder}/imgs/1.jpg", part, ("8", "3", "1")),
    ]


def test_dyml_test_set_of_a_single_level(tmp_path: Path) -> None:
    for level in ("fine", "middle", "coarse"):
        write(
            tmp_path / f"bmk_{level}",
            {"query.csv": "fname, labels0.jpg, 17\n", "gallery.csv": "fname, labels0.jpg, 17\n1.jpg, 18\n"},
        )
    manifest = make_and_read_manifest(Dyml("middle"), tmp_path)
    assert manifest.level_names == ("middle",)
    assert rows_of(manifest) == [
        ("bmk_middle/query/0.jpg", "query", ("17",)),
        ("bmk_middle/gallery/0.jpg", "gallery", ("17",)),
        ("bmk_middle/gallery/1.jpg", "gallery", ("18",)),
    ]
    (tmp_path / "manifest.parquet").unlink()
    expect_error(Dyml("train"), tmp_path, "label.csv: no such file")
    product = tmp_path / "product"
    write(product, {"mini-bmk_all_in_one/label.csv": LABELS})
    expect_error(Dyml("fine"), product, 'no folder bmk_fine; for the test set of DyML-Product, set `part` to "test"')


@pytest.mark.parametrize("arrays", [True, False])
def test_sfm120k(tmp_path: Path, arrays: bool) -> None:
    cids = ["00a2b4c6d8e0f1a2b3c4d5e6f7abcdef", "00a2b4c6d8e0f1a2b3c4d5e6f7123456"]
    train = {
        "cids": cids,
        "cluster": np.array([3, 4]) if arrays else [3, 4],
        "qidxs": [0],
        "pidxs": [1],
        "bbxs": [None],
    }
    val = {"cids": ["ffffff"], "cluster": np.array([5]) if arrays else [5]}
    (tmp_path / "retrieval-SfM-120k.pkl").write_bytes(pickle.dumps({"train": train, "val": val}, protocol=2))
    manifest = make_and_read_manifest(Sfm120k(), tmp_path)
    assert manifest.level_names == ("cluster",)
    assert rows_of(manifest) == [
        (f"ims/ef/cd/ab/{cids[0]}", "train", ("3",)),
        (f"ims/56/34/12/{cids[1]}", "train", ("4",)),
        ("ims/ff/ff/ff/ffffff", "val", ("5",)),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"train": {"cids": [], "cluster": []}}, "KeyError: 'val'"),
        ({"train": {"cids": ["abcdef"], "cluster": []}}, "1 cids, but 0 values of cluster, in train"),
        ([], "TypeError"),
        (Path, "asks for|names"),
    ],
)
def test_malformed_sfm120k_pickles_are_refused(tmp_path: Path, content: object, message: str) -> None:
    (tmp_path / "retrieval-SfM-120k.pkl").write_bytes(pickle.dumps(content))
    expect_error(Sfm120k(), tmp_path, message)


def test_manifest_is_made_again_when_settings_or_files_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    inat(tmp_path)
    out = tmp_path / "manifest.parquet"
    summary = not_none(make_manifest(INaturalist(), tmp_path, out))
    counts = "3 images (1 test, 2 train) with labels at 2 levels (3 species, 2 super_category)"
    assert format_manifest(summary) == counts
    assert make_manifest(INaturalist(), tmp_path, out) is None
    assert make_manifest(INaturalist(), tmp_path, out, force=True) == summary
    assert make_manifest(INaturalist("full"), tmp_path, out) is not None
    assert make_manifest(INaturalist("full"), tmp_path, out) is None
    write(tmp_path, {"Inat_dataset_splits/Inaturalist_test_set1.txt": "train_val2018/Plantae/8/d.jpg\n"})
    assert make_manifest(INaturalist("full"), tmp_path, out) is not None
    assert "d.jpg" in read_manifest(out).paths[2]


def revisited(root: Path, name: str = "gnd_roxford5k.pkl", box: Sequence[float] = (2, 1, 12.4, 10)) -> None:
    entry = {"easy": [0], "hard": [], "junk": [1], "bbx": list(box)}
    truth = {"imlist": ["all_souls_000001", "paris_general_2"], "qimlist": ["ashmolean_000003"], "gnd": [entry]}
    root.mkdir(exist_ok=True)
    (root / name).write_bytes(pickle.dumps(truth, 2))


def test_revisited(tmp_path: Path) -> None:
    revisited(tmp_path)
    manifest = make_and_read_manifest(Revisited(), tmp_path)
    assert rows_of(manifest) == [
        ("jpg/ashmolean_000003.jpg", "query", ("ashmolean",)),
        ("jpg/all_souls_000001.jpg", "gallery", ("all_souls",)),
        ("jpg/paris_general_2.jpg", "gallery", ("paris_general",)),
    ]
    assert [manifest.box(row) for row in range(3)] == [(2, 1, 12.4, 10), None, None]
    assert manifest.select_split("gallery").box(0) is None
    transform = evaluation_transform(ImageSettings(fit="longest", size=1024))
    dataset = ImageDataset(manifest, tmp_path, transform)
    shapes = [tuple(dataset[row].image.shape) for row in range(3)]  # type: ignore[union-attr]
    assert shapes == [(3, 9, 10), (3, 16, 20), (3, 16, 20)]
    revisited(tmp_path, "gnd_other.pkl")
    with pytest.raises(InputError, match="has gnd_other.pkl, gnd_roxford5k.pkl; name one as `ground_truth`"):
        Revisited().read(tmp_path)
    Revisited(tmp_path / "gnd_other.pkl").read(tmp_path)


def test_empty_boxes_and_missing_ground_truth_are_refused(tmp_path: Path) -> None:
    expect_error(Revisited(), tmp_path, "gnd_roxford5k.pkl: no such file")
    revisited(tmp_path, box=(12, 1, 2, 10))
    expect_error(
        Revisited(), tmp_path, r"query ashmolean_000003: bbx is \[12.0, 1.0, 2.0, 10.0\]; expected left, top"
    )


GLDV1 = "\n".join(['"id","url","landmark_id"', *(f'"{n:04x}","http://a/{n}","{n // 3}"' for n in range(9)), ""])


def test_gldv1(tmp_path: Path) -> None:
    write(tmp_path, {"train.csv": GLDV1.replace('"http://a/4","1"', '"http://a/4","None"')})
    there = ["0/0000.jpg", "0/0002.jpg", "1/0004.jpg", "1/0003.jpg", "0007.jpg", "0008.jpg", "0006.jpg"]
    save_pictures(tmp_path, *there, "other/ffff.jpg")
    result = Gldv1(min_images=2).read(tmp_path)
    manifest = result.manifest
    assert rows_of(manifest) == [
        ("0/0000.jpg", "train", ("0",)),
        ("0/0002.jpg", "train", ("0",)),
        ("0006.jpg", "train", ("2",)),
        ("0007.jpg", "train", ("2",)),
        ("0008.jpg", "train", ("2",)),
    ]
    assert manifest.ids.tolist() == ["0000", "0002", "0006", "0007", "0008"]
    assert manifest.landmark_ids() is not None
    assert result.excluded == {
        "that are not there": 2,
        "without a landmark": 1,
        "of landmarks with fewer than 2 images": 1,
    }
    assert_readable(manifest, tmp_path)
    write(tmp_path, {"clean.csv": "landmark_id,id\n5,0000\n"})
    assert rows_of(Gldv1(tmp_path / "clean.csv").read(tmp_path).manifest) == [("0/0000.jpg", "train", ("5",))]


def test_gldv1_images_in_tar_files(tmp_path: Path) -> None:
    write(tmp_path, {"train.csv": GLDV1})
    write_tar(tmp_path / "images_0.tar", {f"x/{n:04x}.jpg": picture(str(n)) for n in (1, 5)})
    manifest = Gldv1().read(tmp_path).manifest
    assert (manifest.ids.tolist(), manifest.paths.tolist()) == (["0001", "0005"], ["images_0.tar"] * 2)
    assert_readable(manifest, tmp_path)


def test_malformed_gldv1_is_refused(tmp_path: Path) -> None:
    save_pictures(tmp_path, "0000.jpg")
    expect_error(Gldv1(), tmp_path, "train.csv: no such file; expected a CSV file with the columns id,landmark_id")
    write(tmp_path, {"train.csv": GLDV1})
    expect_error(Gldv1(min_images=2), tmp_path, "none of its 9 images remains: 1 are in .*, and no landmark has 2 of")
    write(tmp_path, {"train.csv": "id,landmark_id\n0000,x\n"})
    expect_error(Gldv1(), tmp_path, 'line 2: the landmark_id is "x"')
    write(tmp_path, {"train.csv": "id,landmark_id\n0000,1\n0000,2\n"})
    expect_error(Gldv1(), tmp_path, "line 3: the image 0000 has the landmarks 1 and 2")
    write(tmp_path, {"train.csv": GLDV1})
    save_pictures(tmp_path, "again/0000.jpg")
    expect_error(Gldv1(), tmp_path, "there several times:\n  0000.jpg\n  again/0000.jpg")
    with pytest.raises(ConfigurationError, match="`min_images` is 0"):
        Gldv1(min_images=0)

"""Small data sets of generated pictures, in their published layouts.

Each function writes the files of one data set below the working folder, where the settings of its methods expect it.
"""

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from hgld.datasets.readers.fine_grained import FAMILY
from hgld.tables import HIERARCHY, Provenance, write_table
from tests.datasets.pictures import picture, save_pictures
from tests.datasets.pixel_files import write_cifar10, write_cifar100
from tests.datasets.test_readers import cars
from tests.gldv2.test_image_index import write_tar

#: Number of training and of test classes, and of images of each: metrics at rank 100 need more than 100 test images.
N_TRAIN, N_TEST, PER_CLASS = 12, 28, 4
#: Landmarks of the queries of ROxford and RParis.
LANDMARKS = ("all_souls", "bodleian", "magdalen")


def images_of_classes(first: int = 0, n_classes: int = N_TRAIN) -> Iterator[tuple[int, int]]:
    """Yield the class and the number of each image."""
    for label in range(first, first + n_classes):
        for number in range(PER_CLASS):
            yield label, number


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def write_sop() -> None:
    root, image = Path("Stanford_Online_Products"), 0
    for split, first, n_classes in (("train", 1, N_TRAIN), ("test", N_TRAIN + 1, N_TEST)):
        lines, paths = ["image_id class_id super_class_id path"], []
        for product, number in images_of_classes(first, n_classes):
            image, kind = image + 1, product % 3 + 1
            paths.append(f"kind{kind}_final/{product}_{number}.JPG")
            lines.append(f"{image} {product} {kind} {paths[-1]}")
        write_lines(root / f"Ebay_{split}.txt", lines)
        save_pictures(root, *paths)


def write_small_cifar10() -> None:
    write_cifar10(Path("cifar-10-batches-py"), per_batch=PER_CLASS * 10, n_test=PER_CLASS * 10)


def write_small_cifar100() -> None:
    write_cifar100(Path("cifar-100-python"), n_train=PER_CLASS * 100, n_test=PER_CLASS * 100)


def write_inat() -> None:
    root, ranks = Path("inat2018"), ("genus", "family", "order", "class", "phylum", "kingdom")
    for split, first, n_classes in (("train", 0, N_TRAIN), ("test", N_TRAIN, N_TEST)):
        paths = [
            f"train_val2018/Kind{species % 4}/{species}/{number}.jpg"
            for species, number in images_of_classes(first, n_classes)
        ]
        write_lines(root / "Inat_dataset_splits" / f"Inaturalist_{split}_set1.txt", paths)
        save_pictures(root, *paths)
    categories = [
        {"id": species} | {rank: f"{rank}{species % (2 * n)}" for n, rank in enumerate(reversed(ranks), 1)}
        for species in range(N_TRAIN + N_TEST)
    ]
    (root / "train2018.json").write_text(json.dumps({"categories": categories}))


def write_cub() -> None:
    root, classes, names = Path("CUB_200_2011"), [], []
    species = [*range(1, 1 + N_TRAIN), *range(len(FAMILY) // 2 + 1, len(FAMILY) // 2 + 1 + N_TEST)]
    for number, picture_number in ((number, n) for number in species for n in range(PER_CLASS)):
        names.append(f"{number:03}.Bird/{picture_number}.jpg")
        classes.append(number)
    write_lines(root / "images.txt", [f"{n} {name}" for n, name in enumerate(names, 1)])
    write_lines(root / "image_class_labels.txt", [f"{n} {label}" for n, label in enumerate(classes, 1)])
    save_pictures(root / "images", *names)


def write_cars196() -> None:
    root = Path("cars196")
    root.mkdir()
    models = [*range(1, 1 + N_TRAIN), *range(99, 99 + N_TEST)]
    classes = [model for model in models for _ in range(PER_CLASS)]
    cars(root, classes)
    save_pictures(root, *(f"car_ims/{number:06}.jpg" for number in range(1, 1 + len(classes))))


def write_vehicle_id() -> None:
    root = Path("VehicleID")
    for name, first, n_classes in (
        ("train_list", 0, N_TRAIN),
        *((f"test_list_{size}", size, N_TEST) for size in (800, 1600, 2400)),
    ):
        images = {f"{vehicle:05}{number:02}": vehicle for vehicle, number in images_of_classes(first, n_classes)}
        lines = [f"{image} {vehicle}" for image, vehicle in images.items()]
        write_lines(root / "train_test_split" / f"{name}.txt", lines)
        save_pictures(root, *(f"image/{image}.jpg" for image in images))


def write_in_shop() -> None:
    root, lines = Path("in_shop"), []
    for item, number in images_of_classes(0, N_TRAIN + N_TEST):
        path = f"img/{('WOMEN', 'MEN')[item % 2]}/Kind{item % 4}/id_{item:08}/{number:02}_1_front.jpg"
        split = "train" if item < N_TRAIN else "query" if number == 0 else "gallery"
        save_pictures(root, path)
        lines.append(f"{path} id_{item:08} {split}")
    write_lines(root / "list_eval_partition.txt", [str(len(lines)), "image_name item_id evaluation_status", *lines])


def write_sfm120k() -> None:
    root, contents = Path("sfm120k"), {}
    for split, first, n_classes in (("train", 0, N_TRAIN), ("val", N_TRAIN, N_TEST)):
        images = [(f"{cluster:028x}{number:04x}", cluster) for cluster, number in images_of_classes(first, n_classes)]
        contents[split] = {"cids": [name for name, _ in images], "cluster": [cluster for _, cluster in images]}
        save_pictures(root, *(f"ims/{name[-2:]}/{name[-4:-2]}/{name[-6:-4]}/{name}" for name, _ in images))
    (root / "retrieval-SfM-120k.pkl").write_bytes(pickle.dumps(contents, protocol=2))
    write_revisited()


def write_gldv1() -> None:
    root = Path("gldv1")
    images = [(f"{landmark:08x}{n:08x}", landmark) for landmark, n in images_of_classes(0, N_TRAIN + N_TEST)]
    lines = [f"{name},https://example.org/{name}.jpg,{landmark}" for name, landmark in images]
    write_lines(root / "train.csv", ["id,url,landmark_id", *lines])
    save_pictures(root, *(f"images/{name}.jpg" for name, _ in images))
    write_revisited()


def write_revisited() -> None:
    """Write ROxford and RParis."""
    for name in ("roxford5k", "rparis6k"):
        write_queries_and_gallery(Path(name), f"gnd_{name}.pkl")


def write_queries_and_gallery(root: Path, ground_truth: str) -> tuple[list[str], list[str]]:
    """Write a query for each landmark, a part of its image, and a gallery with positives of all kinds."""
    gallery = [f"{landmark}_{n:06}" for landmark in LANDMARKS for n in range(1, 7)]
    queries = [f"{landmark}_000000" for landmark in LANDMARKS]
    kinds = [{"easy": [6 * n, 6 * n + 1], "hard": [6 * n + 2], "junk": [6 * n + 3]} for n in range(len(queries))]
    entries = [{**kind, "bbx": [1.0, 1.0, 15.0, 12.0]} for kind in kinds]
    save_pictures(root, *(f"jpg/{image}.jpg" for image in (*queries, *gallery)))
    truth = {"imlist": gallery, "qimlist": queries, "gnd": entries}
    (root / ground_truth).write_bytes(pickle.dumps(truth, protocol=2))
    return queries, gallery


def write_dyml(root: Path, *, product: bool = False) -> None:
    def rows(first: int, n_classes: int) -> list[tuple[str, int]]:
        return [(f"{label}_{n}.jpg", label) for label, n in images_of_classes(first, n_classes)]

    def all_levels(folder: Path, images: Sequence[tuple[str, int]]) -> None:
        lines = [f"{name}, {label}, {label % 6}, {label % 3}" for name, label in images]
        write_lines(folder / "label.csv", ["fname, fine_id, middle_id, coarse_id", *lines])
        save_pictures(folder / "imgs", *(name for name, _ in images))

    all_levels(root / "train", rows(0, N_TRAIN))
    if product:
        all_levels(root / "mini-bmk_all_in_one", rows(0, 6))
        return
    for level in ("fine", "middle", "coarse"):
        gallery = rows(0, 6)
        for part, images in (("gallery", gallery), ("query", gallery[::PER_CLASS])):
            lines = [f"{name}, {label}" for name, label in images]
            write_lines(root / f"bmk_{level}" / f"{part}.csv", ["fname, labels", *lines])
            save_pictures(root / f"bmk_{level}" / part, *(name for name, _ in images))


def write_gldv2_train(root: Path) -> None:
    """Write four photographs each of fifty lakes, one of which is held out, and of five churches."""
    ids = [f"{n:016x}" for n in range(0xA000, 0xA000 + 4 * 55)]
    write_tar(root / "train" / "images_000.tar", {f"{name}.jpg": picture(name, file_format="JPEG") for name in ids})
    images = [f"{landmark},{' '.join(ids[4 * landmark : 4 * landmark + 4])}" for landmark in range(55)]
    write_lines(root / "train_clean.csv", ["landmark_id,images", *images])
    _write_official(root / "train_label_to_hierarchical.csv", ["lake,natural"] * 50 + ["church,human-made"] * 5)


def write_h_gldv2() -> None:
    from tests.benchmark.test_gldv2_pictures import generated, write_gldv2

    write_gldv2_train(Path("data/gldv2"))
    write_gldv2(Path("data/gldv2"), *generated())


def write_washington() -> None:
    """Write the photographs that ``hgld fetch --ids washington`` would fetch, of half as many landmarks to test."""
    root, n_landmarks = Path("data/washington"), 2 * N_TEST
    landmark_of = {f"{0xB000 + n:016x}": label for n, (label, _) in enumerate(images_of_classes(0, n_landmarks))}
    pictures = {f"{name}.jpg": picture(name, file_format="JPEG") for name in landmark_of}
    write_tar(root / "images_000.tar", pictures)
    lines = [f"{name},https://example.org/{name}.jpg,{landmark}" for name, landmark in landmark_of.items()]
    write_lines(root / "train.csv", ["id,url,landmark_id", *lines])
    groups = ["lake,natural", "church,human-made", "park,human-made", "mountain,natural"]
    labels = [groups[landmark % 4] for landmark in range(n_landmarks)]
    _write_official(root / "train_label_to_hierarchical.csv", labels)
    rows = [
        dict(zip(HIERARCHY.schema.names, ("train", landmark, "x", "y", *label.split(",")), strict=True))
        for landmark, label in enumerate(labels)
    ]
    write_table(
        Path("hierarchy.parquet"), HIERARCHY, pa.Table.from_pylist(rows, HIERARCHY.schema), Provenance("test")
    )


def _write_official(path: Path, groups: Sequence[str]) -> None:
    header = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made"
    write_lines(path, [header, *(f"{landmark},x,y,{group}" for landmark, group in enumerate(groups))])


def write_products(table: Path, root: Path) -> None:
    """Write photographs of one's own, and the table of their labels."""
    names = {f"{label}/{number}.jpg": label for label, number in images_of_classes(0, 2 * N_TEST)}
    save_pictures(root, *names)
    lines = [f"{name},p{label},g{label % 8},k{label % 2}" for name, label in names.items()]
    write_lines(table, ["path,product,group,kind", *lines])


#: Functions that write data sets by name: the end of the name of a folder of methods, or the start of a comparison's.
DATASETS: Mapping[str, Callable[[], None]] = {
    "cars196": write_cars196,
    "cifar10": write_small_cifar10,
    "cifar100": write_small_cifar100,
    "cub": write_cub,
    "dyml_animal": lambda: write_dyml(Path("dyml_animal")),
    "dyml_product": lambda: write_dyml(Path("dyml_product"), product=True),
    "dyml_vehicle": lambda: write_dyml(Path("dyml_vehicle")),
    "grocery": lambda: write_products(Path("data/grocery/images.csv"), Path("data/grocery")),
    "h-gldv2": write_h_gldv2,
    "in_shop": write_in_shop,
    "inat": write_inat,
    "landmarks": write_gldv1,
    "own_images": lambda: write_products(Path("labels.csv"), Path("photographs")),
    "sfm120k": write_sfm120k,
    "sop": write_sop,
    "vehicle_id": write_vehicle_id,
    "washington": write_washington,
}

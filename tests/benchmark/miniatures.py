"""Small data sets of generated pictures in their published layouts, on which any comparison runs in seconds.

``write_dataset`` writes the files of one data set below the working folder, where the settings of its methods expect
them, and ``make_manifests`` then runs the commands that the comments of these settings name. To add a data set, write
a function of ``DATASETS`` under the name of its folder in ``pipelines/benchmarks``.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import yaml
from typer.testing import CliRunner

from hgld.benchmark.runs import read_benchmark
from hgld.benchmark.worker import WorkerTask, work
from hgld.cli import app
from hgld.datasets.readers.cub_families import FAMILY
from hgld.io.preset_files import training_file
from hgld.tables import HIERARCHY, Provenance, write_table
from hgld.training.run import read_training_settings
from tests.datasets.pictures import picture, save_pictures
from tests.gldv2.test_image_index import write_tar

#: Number of training and of test classes, and of images of each: metrics at rank 100 need more than 100 test images.
N_TRAIN, N_TEST, PER_CLASS = 12, 28, 4
#: Changes that make any training one of seconds.
SMALL: tuple[str, ...] = ("batch_size=8", "steps=2", "epochs=null", "warm_up_epochs=0", "workers=0", "loggers=[]")
SMALL = (*SMALL, "model.dim=8", "mixed_precision=off")
#: Further changes for models that embed images.
SMALL_MODEL: tuple[str, ...] = ("model.backbone=test_resnet", "model.pretrained=false", "frozen=[]")
SMALL_MODEL = (*SMALL_MODEL, "image.size=32", "image.resize=32")
#: Values of sweeps over settings that SMALL changes; of the others, the first and the last.
SMALL_VALUES: Mapping[str, Sequence[int]] = {"batch_size": (8, 16)}


def small_settings(trainings: Sequence[str | Path]) -> list[str]:
    """Return the changes that make these trainings small; a head upon features keeps its model."""
    settings = read_training_settings(trainings[0], ["data.manifest=given.parquet"])
    split = ["data.random_split.test_share=0.5"] if settings.data.random_split else []
    return [*SMALL, *split, *(() if settings.data.features else SMALL_MODEL)]


def run_in_process(tasks: Sequence[WorkerTask], slots: object, *, progress: object = None) -> None:
    """Train and evaluate runs without child processes, each of which would import PyTorch."""
    for task in tasks:
        work(task)


def invoke(*arguments: object) -> str:
    """Run a command of hgld; return what it prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


# Data sets


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
        {"id": species} | {rank: f"{rank}{species % (12 - 2 * n)}" for n, rank in enumerate(reversed(ranks), 1)}
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
    from tests.benchmark.test_run_evaluation import write_gldv2

    write_gldv2_train(Path("data/gldv2"))
    write_gldv2(Path("data/gldv2"))


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


#: Functions that write data sets, by the folder of the methods (or the comparison) whose comments name the commands.
DATASETS: Mapping[str, Callable[[], None]] = {
    "cub": write_cub,
    "dyml_animal": lambda: write_dyml(Path("dyml_animal")),
    "dyml_product": lambda: write_dyml(Path("dyml_product"), product=True),
    "dyml_vehicle": lambda: write_dyml(Path("dyml_vehicle")),
    "sop": write_sop,
    "inat": write_inat,
    "h-gldv2": write_h_gldv2,
    "washington": write_washington,
    "washington_head": lambda: None,
    "grocery": lambda: write_products(Path("data/grocery/images.csv"), Path("data/grocery")),
    "own_images": lambda: write_products(Path("labels.csv"), Path("photographs")),
}
#: Data sets whose files and commands come first.
REQUIRES: Mapping[str, Sequence[str]] = {"washington_head": ["washington"]}


class MiniatureFolder:
    """A folder in which data sets are written once each.

    Args:
        root: The folder, to be the working folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: set[str] = set()

    def add(self, name: str) -> None:
        """Write a data set, and run the commands in the comments of its settings."""
        if name in self._written:
            return
        self._written.add(name)
        for required in REQUIRES.get(name, ()):
            self.add(required)
        DATASETS[name]()
        for words in documented_commands(settings_file(name)):
            invoke(*words)


def settings_file(name: str) -> Path:
    """Return the settings file whose comments name the commands: ``NAME/base.yaml``, or ``NAME.yaml`` of a comparison."""
    presets = training_file("h-gldv2/happier").parents[1]
    return next(path for path in (presets / name / "base.yaml", presets / f"{name}.yaml") if path.is_file())


def documented_commands(path: Path) -> list[list[str]]:
    r"""Return the commands in the comments of a settings file that make manifests and features; ``\`` continues."""
    comments = [line[1:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(comments))
    lines = [shlex.split(line, comments=True) for line in re.findall(r"^   hgld (.*)$", text, re.MULTILINE)]
    features = [words for words in lines if words[0] == "embed-images"][:1]  # the others are for other backbones
    return [words for words in lines if words[0] in ("index-images", "manifest")] + features


def datasets_of(comparison: str) -> list[str]:
    """Return the data sets of a comparison: those of its methods, or one with commands of its own."""
    trainings = [method.training for method in read_benchmark(comparison).methods.values()]
    names = dict.fromkeys(path.parent.name for path in trainings)
    own = [name for name in DATASETS if comparison.startswith(name) and name not in names]
    return own or list(names)


def small_sweeps(comparison: Path, out: Path) -> Path:
    """Write a comparison whose sweeps have values that small data sets allow."""
    sweeps = {
        name: {"values": list(SMALL_VALUES.get(sweep.key, (sweep.values[0], sweep.values[-1])))}
        for name, sweep in read_benchmark(comparison).sweeps.items()
    }
    out.write_text(yaml.safe_dump({"base": str(comparison), "seeds": [0], "sweeps": sweeps}))
    return out

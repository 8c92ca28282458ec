import csv
import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from hgld.datasets.manifest import read_manifest
from hgld.datasets.pixel_arrays import extract_images
from hgld.errors import InputError
from tests.commands import run_hgld
from tests.datasets.pixel_files import pictures, rows, write_cifar10, write_cifar100, write_svhn


def extracted(out: Path) -> tuple[list[dict[str, str]], list[NDArray[np.uint8]]]:
    with (out / "images.csv").open(encoding="utf-8", newline="") as lines:
        table = list(csv.DictReader(lines))
    with tarfile.open(out / "images.tar") as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        images = [np.asarray(Image.open(io.BytesIO(files[row["path"]].read()))) for row in table]  # type: ignore[union-attr]
    assert len(files) == len(table)
    return table, images


def test_pixels_splits_and_labels_of_cifar10_are_kept(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "cifar-10-batches-py", per_batch=4, n_test=12)
    summary = extract_images(folder, tmp_path / "out")
    assert (summary.images, summary.levels) == ({"train": 20, "test": 12}, ("class",))
    table, images = extracted(tmp_path / "out")
    expected = np.concatenate([pictures(4, seed, 10)[0] for seed in range(5)] + [pictures(12, 5, 10)[0]])
    np.testing.assert_array_equal(images, expected)
    assert table[5] == {"path": "train/00005.png", "split": "train", "class": "class 1"}
    assert table[-1] == {"path": "test/00011.png", "split": "test", "class": "class 1"}


def test_cifar100_has_superclasses_and_the_manifest_reads_the_tar_file(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path / "cifar-100-python", n_train=100, n_test=7)
    out, manifest = tmp_path / "out", tmp_path / "out" / "manifest.parquet"
    first = run_hgld("extract-images", folder, "-o", out)
    assert first.stdout == (f"107 images (100 train, 7 test) with labels: class, superclass\n{out / 'images.csv'}\n")
    command = ["manifest", "table", str(out / "images.csv"), "--images", str(out), "--levels", "class,superclass"]
    run_hgld(*command, "--split", "split", "-o", manifest)
    made = read_manifest(manifest)
    assert (made.n_classes, sorted(made.split_names)) == ((100, 20), ["test", "train"])
    assert made.labels.shape == (107, 2)


def test_digits_of_svhn_are_those_of_their_labels(tmp_path: Path) -> None:
    assert extract_images(write_svhn(tmp_path / "svhn", n_test=11), tmp_path / "out").images == {"test": 11}
    table, images = extracted(tmp_path / "out")
    assert [row["class"] for row in table] == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "1"]
    np.testing.assert_array_equal(images, pictures(11, 20, 10)[0])


def test_the_same_images_give_the_same_files(tmp_path: Path) -> None:
    folder = write_svhn(tmp_path / "svhn", n_test=2)
    for name in ("one", "two"):
        extract_images(folder, tmp_path / name)
    for file in ("images.tar", "images.csv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


class Harmful:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("harmed",)


IMAGES = rows(pictures(2, 0, 2)[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": IMAGES, "labels": [0]}, r"test_batch: not a batch of CIFAR \(2 images and 1 labels\)"),
        ({"data": IMAGES, "labels": [0, 10]}, "labels 0 to 10 of 10 names"),
        ({"data": IMAGES[:, 1:], "labels": [0, 1]}, "no uint8 array of 3,072 columns"),
        ({"data": [1, 2], "labels": [0, 1]}, "no uint8 array"),
        ({"data": IMAGES}, "expected a dictionary with data, labels"),
        ({"data": IMAGES, "labels": Harmful()}, "refused: the pickle asks for"),
    ],
)
def test_wrong_batches_are_refused_and_leave_nothing(
    content: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_cifar10(tmp_path / "cifar", per_batch=1, n_test=1)
    (folder / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(InputError, match=message):
        extract_images(folder, tmp_path / "out")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != folder]
    assert not (tmp_path / "harmed").exists()


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing of them; expected batches\.meta"):
        extract_images(tmp_path, tmp_path / "out")
    with pytest.raises(InputError, match="no such folder"):
        extract_images(tmp_path / "none", tmp_path / "out")
    (tmp_path / "test_32x32.mat").write_bytes(b"no such thing")
    with pytest.raises(InputError, match=r"test_32x32\.mat: not a file of SVHN's cropped digits"):
        extract_images(tmp_path, tmp_path / "out")
    folder = write_cifar10(tmp_path / "cifar", per_batch=1, n_test=1)
    (folder / "data_batch_3").unlink()
    with pytest.raises(InputError, match="data_batch_3: no such file"):
        extract_images(folder, tmp_path / "out")

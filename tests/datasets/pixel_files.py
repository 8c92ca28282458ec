"""Small files in the layouts in which CIFAR-10, CIFAR-100 and SVHN are published."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat


def pictures(n: int, seed: int, n_classes: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Return pictures of as many colours as there are classes, (n, 32, 32, 3), and the class of each in turn."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % n_classes
    colours = np.random.default_rng(99).integers(0, 256, (n_classes, 3))[classes]
    noisy = colours[:, None, None] + rng.integers(-30, 31, (n, 32, 32, 3))
    return noisy.clip(0, 255).astype(np.uint8), classes.tolist()


def write_cifar10(folder: Path, *, per_batch: int, n_test: int) -> Path:
    """Write five training batches and a test batch of CIFAR-10, with its ten classes in turn."""
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        images, labels = pictures(n_test if name == "test_batch" else per_batch, number, 10)
        _dump(folder / name, {"data": rows(images), "labels": labels, "batch_label": name})
    _dump(folder / "batches.meta", {"label_names": [f"class {n}" for n in range(10)], "num_vis": 3072})
    return folder


def write_cifar100(folder: Path, *, n_train: int, n_test: int) -> Path:
    """Write the training and test images of CIFAR-100, with 100 classes in turn, of 20 superclasses."""
    folder.mkdir(parents=True)
    for seed, (name, n) in enumerate({"train": n_train, "test": n_test}.items(), 10):
        images, fine = pictures(n, seed, 100)
        _dump(folder / name, {"data": rows(images), "fine_labels": fine, "coarse_labels": [n // 5 for n in fine]})
    names = {"fine_label_names": [f"fine {n}" for n in range(100)]}
    _dump(folder / "meta", {**names, "coarse_label_names": [f"coarse {n}" for n in range(20)]})
    return folder


def write_svhn(folder: Path, *, n_test: int) -> Path:
    """Write the test digits of SVHN, 1 to 10 in turn."""
    folder.mkdir(parents=True)
    images, classes = pictures(n_test, 20, 10)
    labels = np.array(classes)[:, None] + 1
    savemat(folder / "test_32x32.mat", {"X": images.transpose(1, 2, 3, 0), "y": labels.astype(np.uint8)})
    return folder


def rows(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return pictures as CIFAR has them: a row each, its red values first, then the green and the blue ones."""
    return np.stack([np.concatenate([image[..., channel].ravel() for channel in range(3)]) for image in images])


def _dump(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))

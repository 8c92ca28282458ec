"""CIFAR-10 and -100 in miniature: the documented commands, from the published layout to the table of scores."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from hgld.benchmark.rejection.comparison import RejectionComparison, compare_rejection
from hgld.benchmark.rejection.settings import read_rejection_settings
from hgld.rejection.registry import build_detector
from hgld.training.run import read_training_settings
from tests.commands import run_hgld
from tests.datasets.pixel_files import pictures, write_cifar10, write_cifar100, write_svhn

PIPELINES = Path(__file__).parent.parent.parent / "pipelines"
#: What a miniature overrides in the training.
SMALL = {"epochs": 1, "workers": 0, "loggers": "[]", "evaluation.every": 1, "image.size": 16, "image.resize": 16}
#: What it overrides in the trainings of HEAT, and in ViM, which needs more images than directions.
SMALL_HEAT = {"epochs": 1, "batch_size": 64, "hidden_dim": 8, "steps": 2, "shrinkage": 0.5, "per_prior": None}
SMALL_VIM = {"n_principal": 50}


#: Options in the authors' code (MarcLafon/heatood, commit 2b68ccd): HP_SCORERS of heat/eval_scorers.py, and
#: heat/config/ebm/heat_*_c100.yaml.
PUBLISHED: Mapping[int, Mapping[str, Mapping[str, Any]]] = {
    10: {"knn": {"k": 50}, "vim": {"n_principal": 256}, "dice": {"sparsity": 0.9}},
    100: {
        "knn": {"k": 200},
        "vim": {"n_principal": 400},
        "dice": {"sparsity": 0.05},
        "heat_code": {
            "variant": "code",
            "per_prior": {
                "energy": {"epochs": 8, "steps": 200, "noise": 1e-2, "l2": 1, "learning_rate": 5e-6},
                "gmm": {"epochs": 20, "steps": 20, "step_size": 2e-4, "noise": 1e-3, "l2": 20},
                "gmm_std": {"epochs": 20, "steps": 20, "step_size": 2e-4, "noise": 1e-3, "l2": 20},
            },
        },
    },
}


def commands(path: Path) -> list[str]:
    return re.findall(r"^#   hgld (.*)", path.read_text(), re.MULTILINE)


def settings_of(n: int) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = yaml.safe_load((PIPELINES / f"rejection/cifar{n}.yaml").read_text())
    return settings


def run(command: str) -> None:
    run_hgld(*shlex.split(command))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny images in the published layouts, in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_cifar10(tmp_path / "cifar-10-batches-py", per_batch=48, n_test=20)
    write_cifar100(tmp_path / "cifar-100-python", n_train=200, n_test=20)
    write_svhn(tmp_path / "SVHN", n_test=20)
    for seed, folder in enumerate(
        ["tiny-imagenet-200/test/images", "lsun_val/bridge", "places365_val/a", "dtd_test/b"]
    ):
        (tmp_path / folder).mkdir(parents=True)
        for number, picture in enumerate(pictures(6, 30 + seed, 3)[0]):
            Image.fromarray(np.kron(picture, np.ones((2, 2, 1), np.uint8))).save(tmp_path / folder / f"{number}.png")
    return tmp_path


def test_settings_name_the_sets_of_the_thesis() -> None:
    for n, other in ((10, 100), (100, 10)):
        settings = settings_of(n)
        near = [name for name, images in settings["unknown"].items() if images["kind"] == "near"]
        far = [name for name, images in settings["unknown"].items() if images["kind"] == "far"]
        assert near == [f"cifar{other}", "tiny_imagenet"]
        assert far == ["lsun", "places", "textures", "svhn"]
        for name, score in settings["scores"].items():
            build_detector(score.get("score", name), score.get("options"))
        for name, published in PUBLISHED[n].items():
            options = read_rejection_settings(PIPELINES / f"rejection/cifar{n}.yaml").scores[name].options
            assert {key: options.get(key) for key in published} == published, name
        assert settings["embeddings"]["cross_entropy"]["files"].keys() == {"index", *near, *far}
        training = read_training_settings(f"cifar{n}/cross_entropy")
        assert (training.epochs, training.model.small_images, training.image.size) == (200, True, 32)
        assert training.loss.options()["label_smoothing"] == 0
        assert training.optimiser.proxies == training.optimiser.backbone


@pytest.mark.parametrize("path", sorted((PIPELINES / "rejection").glob("*.yaml")), ids=lambda path: path.stem)
def test_rows_are_scores_with_their_options(path: Path) -> None:
    assert read_rejection_settings(path).scores
    assert f"hgld compare-rejection {path.stem} -o" in path.read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has a positive in the gallery")  # there are few images
@pytest.mark.parametrize("n", [10, 100])
def test_documented_commands_make_the_table(n: int, data: Path) -> None:
    for command in commands(PIPELINES / f"benchmarks/cifar{n}.yaml"):
        overrides = "".join(f" --set {key}={value}" for key, value in SMALL.items())
        run(command + overrides if command.startswith("train") else command)
    made = commands(PIPELINES / f"rejection/cifar{n}.yaml")
    for command in made:
        if not command.startswith("compare-rejection"):
            run(command)
    # The comments name the first of these commands; the other sets are embedded alike.
    settings = settings_of(n)
    files = settings["embeddings"]["cross_entropy"]["files"]
    for name, images in settings["unknown"].items():
        if not Path(files[name]).exists():
            root = f" --images {images['root']}" if "root" in images else ""
            model = f"--model runs/cifar{n}/cross_entropy --with-std"
            run(f"embed-images {model} --manifest {images['manifest']}{root} -o {files[name]}")
    small = dict(settings)
    small["n_resamples"] = 20
    overrides_of: Mapping[str, Mapping[str, Any]] = {"heat": SMALL_HEAT, "vim": SMALL_VIM}
    small["scores"] = {
        name: {**score, "options": {**score.get("options", {}), **overrides_of.get(name.partition("_")[0], {})}}
        for name, score in settings["scores"].items()
    }
    path = data / "small.yaml"
    path.write_text(yaml.safe_dump(small, sort_keys=False))
    study = RejectionComparison(read_rejection_settings(path), data / "out")
    compare_rejection(study)
    assert study.failure_lines == []
    shown = {(row.score, row.unknown) for row in pd.read_parquet(data / "out/values.parquet").itertuples()}
    assert {score for score, _ in shown} == set(settings["scores"])
    assert {unknown for _, unknown in shown} >= set(settings["unknown"])

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from hgld.training.run_folder import training_request
from hgld.training.trainer import Trainer
from tests.child_processes import run_hgld_without_torch
from tests.commands import run_hgld
from tests.training import toy


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the settings of a training with a model of timm, without its weights."""
    folder = tmp_path_factory.mktemp("command")
    manifest = toy.write_images(folder / "images", n_classes=6, per_class=4)
    settings = toy.SETTINGS | {
        "model": {
            "backbone": "test_resnet",
            "pretrained": False,
            "pooling": "gem",
            "dim": 8,
            "frozen_batch_norm": True,
        },
        "data": {"manifest": str(manifest), "test": "test"},
        "image": {"size": 32, "resize": 32},
        "frozen": ["backbone.conv1"],
        "epochs": 3,
    }
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_train_prints_evaluations_and_gain(config: Path, tmp_path: Path) -> None:
    command = ["train", str(config), "-o", str(tmp_path / "run"), "--set", "loss.lambda=0.3", "--device", "cpu"]
    result = run_hgld(*command)
    assert "mean in %" in result.stdout
    assert "6 steps; H-AP " in result.stdout
    assert "from epoch 0 to epoch 3, the last: there is no split val" in result.stdout
    assert "lambda: 0.3" in (tmp_path / "run" / "settings.yaml").read_text()
    again = run_hgld(*command, code=1)
    assert "there is a run already" in again.stderr
    assert "resume it (--resume), delete it (--force)" in again.stderr
    assert run_hgld_without_torch(*command, "--resume") == result.stdout
    # The default seed by name is another request, for which torch is imported once.
    resuming = [*command, "--resume", "--set", "seed=0"]
    assert run_hgld(*resuming).stdout == result.stdout
    assert run_hgld_without_torch(*resuming) == result.stdout
    checkpoint = tmp_path / "run" / "last.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    assert "last.pt: not a readable checkpoint" in run_hgld(*resuming, code=1).stderr


def test_requests_differ_with_settings_and_data(config: Path, tmp_path: Path) -> None:
    request = training_request(config)
    assert request is not None
    assert training_request(config, ["workers=3"]) == request  # does not affect the result
    assert training_request(config, ["epochs=4"]) != request
    table = tmp_path / "manifest.csv"
    table.write_text("id,path\n")
    of_table = training_request(config, [f"data.manifest={table}"])
    assert of_table not in (request, None)
    table.write_text("id,path,split\n")
    assert training_request(config, [f"data.manifest={table}"]) != of_table
    assert training_request(config, ["data.manifest=absent.csv"]) is None


def test_interrupted_training_says_how_to_resume(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer.train_step

    def interrupted(self: Trainer, *args: Any) -> float | None:
        os.kill(os.getpid(), signal.SIGINT)
        return step(self, *args)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    assert "interrupted; continue with --resume" in run_hgld("train", config, "-o", tmp_path / "run", code=130).stderr
    assert (tmp_path / "run" / "last.pt").exists()


def test_plan_writes_nothing(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_hgld("train", config, "--plan", "--set", "steps=7", "--set", "epochs=null")
    assert "batches per epoch, 7 steps" in result.stdout
    assert not list(tmp_path.iterdir())


def test_preset_is_trained_on_images_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    images = config.parent / "images"
    shutil.copy(images / "manifest.parquet", "a: table.parquet")  # a name that YAML would read as a mapping
    small = ["model={backbone: test_resnet, pretrained: false}", "image.size=32", "image.resize=32", "frozen=[]"]
    small += ["warm_up_epochs=0", "steps=1", "epochs=null", "batch_size=8", "workers=0"]
    options = [word for setting in small for word in ("--set", setting)]
    command = ["train", "happier", "--manifest", "a: table.parquet", "--images", str(images), "-o", "run", *options]
    assert "1 steps; H-AP" in run_hgld(*command, "--device", "cpu").stdout
    written = yaml.safe_load(Path("run/settings.yaml").read_text())
    assert written["data"]["root"] == str(images)
    # The folder of a preset's own images does not apply to another manifest.
    other = run_hgld("train", "sop/happier", "--manifest", "a: table.parquet", "--plan", code=0)
    assert "Stanford_Online_Products" not in other.output


def test_error_messages(config: Path, tmp_path: Path) -> None:
    def error(*options: str) -> str:
        return run_hgld("train", config, *options, code=1).stderr

    assert "no folder for the run; name one with --out" in error()
    assert "--set: epochz: there is no such setting; did you mean epochs?" in error("--set", "epochz=3")
    assert "data.manifest: is missing" not in error(
        "-o", str(tmp_path / "run"), "--set", "data.manifest=nowhere.parquet"
    )
    wrong = error("-o", str(tmp_path / "run"), "--set", "frozen=[backbone.layer9]")
    assert 'no module or parameter of the model is called "backbone.layer9"; there are backbone.' in wrong

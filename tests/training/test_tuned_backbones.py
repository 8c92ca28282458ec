"""How much of a backbone is trained: nothing, some modules, or changes of low rank."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hgld.errors import ConfigurationError
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_loading import load_model, read_checkpoint, read_model, write_model
from hgld.models.model_settings import ModelSettings
from hgld.training import run
from hgld.training.optimisation import freeze_parameters
from hgld.training.training_settings import TrainingSettings
from tests.training import toy
from tests.training.test_trainer import ActionAfterStep, Killed, kill

MODEL = {"backbone": "test_vit", "pretrained": False, "dim": 8}
LORA = {"rank": 2, "alpha": 4}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write_images(tmp_path_factory.mktemp("images"), n_classes=8)


@pytest.fixture
def settings(manifest: Path) -> partial[TrainingSettings]:
    return partial(toy.settings, manifest, model=MODEL, image={"size": 32, "resize": 32}, memory=None)


def changed_parameters(settings: TrainingSettings, out: Path) -> set[str]:
    """Train, and return the names of the parameters and statistics that differ from those of the first step."""
    run.train(toy.changed(settings, steps=0, epochs=None), out / "before")
    run.train(settings, out / "after")
    before, after = (read_checkpoint(out / name / "last.pt")["model"] for name in ("before", "after"))
    assert before.keys() == after.keys()
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_a_linear_layer_is_trained_on_a_frozen_backbone(settings: Any, tmp_path: Path) -> None:
    assert changed_parameters(settings(frozen=["backbone"]), tmp_path) == {"projection.weight", "projection.bias"}
    nothing = settings(frozen=["backbone"], model={**MODEL, "dim": None}, loss={"name": "smooth_ap"})
    with pytest.raises(ConfigurationError, match="there is nothing to train: all of the backbone is frozen"):
        run.train(nothing, tmp_path / "nothing")


def test_the_last_stage_alone_is_trained(settings: Any, tmp_path: Path) -> None:
    changed = changed_parameters(settings(trained=["backbone.blocks.5"]), tmp_path)
    assert {name.rpartition(".")[0] for name in changed if not name.startswith("backbone.blocks.5.")} == {
        "projection"
    }
    assert any(name.startswith("backbone.blocks.5.") for name in changed)
    with pytest.raises(
        ConfigurationError, match='trained: no module or parameter of the model is called "backbone.block"; there are'
    ):
        run.train(settings(trained=["backbone.block"]), tmp_path / "unknown")


def test_a_block_is_not_that_of_a_longer_number(settings: Any) -> None:
    model = EmbeddingModel(nn.Sequential(*(nn.Linear(2, 2) for _ in range(12))), 2, ModelSettings(backbone="toy"))

    def trained(**changes: Any) -> list[int]:
        freeze_parameters(model, settings(**changes), epoch=0)
        return [n for n, layer in enumerate(model.backbone.children()) if layer.weight.requires_grad]

    assert trained(frozen=["backbone.1", "backbone.2."]) == [0, *range(3, 12)]
    assert trained(trained=["backbone.1", "backbone.11"]) == [1, 11]
    assert trained(trained=["backbone.1", "backbone.11"], frozen=["backbone.1"]) == [11]
    assert trained(trained=[]) == []


def test_lora_trains_its_changes_alone(settings: Any, tmp_path: Path) -> None:
    changed = changed_parameters(settings(lora=LORA, frozen=["backbone.blocks.0", "backbone.blocks.1"]), tmp_path)
    of_backbone = {name for name in changed if name.startswith("backbone.")}
    assert {name.rpartition(".")[2] for name in of_backbone} == {"lora_a", "lora_b"}
    assert {name.split(".")[2] for name in of_backbone} == {"2", "3", "4", "5"}
    assert changed - of_backbone == {"projection.weight", "projection.bias"}


def test_lora_resumes_bit_identically_and_is_merged_for_use(settings: Any, tmp_path: Path) -> None:
    lora = settings(lora=LORA)
    run.train(lora, tmp_path / "run")
    with pytest.raises(Killed):
        run.train(lora, tmp_path / "killed", progress=ActionAfterStep(3, kill))
    run.train(lora, tmp_path / "killed", resume=True)
    assert (tmp_path / "killed" / "last.pt").read_bytes() == (tmp_path / "run" / "last.pt").read_bytes()

    trained = run.model_for_checkpoint(lora)
    trained.load_state_dict(read_checkpoint(tmp_path / "run" / "last.pt")["model"])
    images = torch.from_numpy(np.random.default_rng(0).random((4, 3, 32, 32), np.float32))
    expected = trained.eval()(images)
    loaded = load_model(tmp_path / "run")
    write_model(loaded, tmp_path)
    for model in (loaded, read_model(tmp_path, "published")):
        torch.testing.assert_close(model.network.eval()(images), expected)
        assert not any("lora" in name for name in model.network.state_dict())
    without = {name: value * ("lora_b" not in name) for name, value in trained.state_dict().items()}
    trained.load_state_dict(without)
    assert not torch.allclose(trained(images), expected, rtol=1e-2)
    with pytest.raises(ConfigurationError, match="lora.rank: 2 then, 3 now"):
        run.train(settings(lora={**LORA, "rank": 3}), tmp_path / "run", resume=True)

"""Models from checkpoints and by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hgld.datasets.transforms import ImageSettings
from hgld.errors import ConfigurationError, InputError
from hgld.models.embedding_model import build_model
from hgld.models.model_loading import CHECKPOINT_FORMAT, load_checkpoint_model, load_model, read_checkpoint
from hgld.models.model_settings import ModelSettings
from tests.models.test_embedding_model import images, tiny


def checkpoint(**changes: Any) -> dict[str, Any]:
    """Return the part of a checkpoint that model loading needs; its initial backbone weights no longer exist."""
    model = tiny(pooling="gem", dim=7)
    settings = {
        "model": {**model.settings.model_dump(mode="json"), "pretrained": "weights/that/no/longer/exist.pth"},
        "image": ImageSettings(size=64, resize=70).model_dump(mode="json"),
        "loss": {"name": "happier"},
    }
    state = {
        "format": CHECKPOINT_FORMAT,
        "settings": settings,
        "model": model.state_dict(),
        "optimiser": {},
        "epoch": 3,
    }
    return state | changes


def test_trained_model_is_loaded_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    torch.save(checkpoint(), path)
    assert read_checkpoint(path)["epoch"] == 3
    model = load_checkpoint_model(path)
    assert (model.image_settings.size, model.image_settings.resize) == (64, 70)
    assert (model.dim, model.network.training, model.settings.pooling) == (7, False, "gem")
    with torch.no_grad():
        torch.testing.assert_close(model.network(images()), tiny(pooling="gem", dim=7)(images()), rtol=0, atol=0)
    changed = load_model(path, size=32).image_settings
    assert (changed.size, changed.resize, changed.fit) == (32, 70, "crop")
    assert load_model(path, fit="squash").image_settings.fit == "squash"


def test_the_best_checkpoint_of_a_run_is_loaded_else_the_last(tmp_path: Path) -> None:
    best = checkpoint()
    best["settings"]["image"]["size"] = 32
    torch.save(checkpoint(), tmp_path / "last.pt")
    assert load_model(str(tmp_path)).image_settings.size == 64
    torch.save(best, tmp_path / "best.pt")
    assert load_model(str(tmp_path)).image_settings.size == load_model(tmp_path).image_settings.size == 32
    with pytest.raises(InputError, match=r"contains no model; expected the folder of a training"):
        load_model(tmp_path.parent)


def test_files_other_than_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"

    def expect_error(content: object, message: str) -> None:
        torch.save(content, path)
        with pytest.raises(InputError, match=message):
            load_checkpoint_model(path)

    with pytest.raises(InputError, match=r"last.pt: no such file; expected a checkpoint of hgld train"):
        load_checkpoint_model(path)
    expect_error({"a": 1}, "but it names no format")
    expect_error([1], "but it names no format")
    expect_error(checkpoint(format="hgld.checkpoint/9"), 'but its format is "hgld.checkpoint/9"')
    expect_error(checkpoint(settings={}), "the checkpoint lacks 'model'")
    expect_error(checkpoint(model={}), "does not fit this version of hgld or of timm: .*Missing key")
    expect_error(checkpoint(settings={"model": {"backbone": 3}, "image": {}}), "does not fit this version")
    expect_error(build_model, "not a readable checkpoint")  # code
    torch.save(checkpoint(), path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match="an incomplete one"):
        load_checkpoint_model(path)


def test_a_name_gives_a_preset_or_timm_model_without_head() -> None:
    model = load_model("resnet34", "none", size=64, resize=64)
    assert (model.dim, model.network.projection, model.settings.pooling) == (512, None, "average")
    assert (model.image_settings.size, model.image_settings.mean) == (64, (0.485, 0.456, 0.406))
    assert model.settings == ModelSettings.model_validate("resnet34").without_head().model_copy(
        update={"pretrained": False}
    )
    model = load_model("test_vit", "none")
    assert (model.settings.pooling, model.image_settings.mean) == ("own", (0.5, 0.5, 0.5))


def test_random_weights_are_reproducible_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    first = load_model("test_resnet", "none").network
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    other = load_model("test_resnet", "none").network
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_names_of_models_take_precedence_over_folders_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_resnet").mkdir()
    torch.save(checkpoint(), "test_resnet/best.pt")
    assert load_model("test_resnet", "none").dim == 96
    assert load_model("./test_resnet").dim == load_model(Path("test_resnet")).dim == 7


@pytest.mark.parametrize(
    ("arguments", "sizes", "message"),
    [
        (("resnet5O",), {}, "timm knows no model 'resnet5O'; is resnet50 "),
        ((Path("x"), "none"), {}, "`pretrained` is for models given by name; x has its own weights"),
        (
            ("test_resnet", "none"),
            {"size": 300, "resize": 256},
            "resize is 256, less than size, 300.*set `size`, `resize` or `fit`",
        ),
        (("test_resnet", "none"), {"size": 0}, "size Input should be greater"),
        (
            ("test_resnet", "none"),
            {"fit": "stretch"},
            "image settings: fit Input should be 'crop', 'squash', 'pad' or",
        ),
        ((torch.nn.Identity(),), {}, "`model` is a Identity; expected the name or the place of a model"),
        (("test_resnet", "x.pth"), {}, "`pretrained` is x.pth, but there is no such file"),
    ],
)
def test_invalid_arguments_are_explained(arguments: tuple[Any, ...], sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_model(*arguments, **sizes)

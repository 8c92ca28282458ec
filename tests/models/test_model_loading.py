"""Models by name, and those in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hgld.datasets.transforms import ImageSettings
from hgld.errors import ConfigurationError, InputError
from hgld.models.checkpoint_files import CHECKPOINT_FORMAT, read_checkpoint
from hgld.models.embedding_model import build_model
from hgld.models.model_loading import load_checkpoint_model, load_model
from hgld.models.model_settings import ModelSettings
from tests.models.test_embedding_model import images, tiny


def checkpoint(**changes: Any) -> dict[str, Any]:
    """As hgld train writes it, in what models need of it; without the weights that the backbone began with."""
    model = tiny(pooling="gem", dim=7)
    settings = {
        "model": {**model.settings.model_dump(mode="json"), "pretrained": "weights/that/are/gone.pth"},
        "image": ImageSettings(size=64, resize=70).model_dump(mode="json"),
        "loss": {"name": "happier"},
    }
    said = {
        "format": CHECKPOINT_FORMAT,
        "settings": settings,
        "model": model.state_dict(),
        "optimiser": {},
        "epoch": 3,
    }
    return said | changes


def test_a_trained_model_comes_out_of_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    torch.save(checkpoint(), path)
    assert read_checkpoint(path)["epoch"] == 3
    model, image_settings = load_checkpoint_model(path)
    assert (image_settings.size, image_settings.resize, model.dim, model.training) == (64, 70, 7, False)
    with torch.no_grad():
        torch.testing.assert_close(model(images()), tiny(pooling="gem", dim=7)(images()), rtol=0, atol=0)
    _, changed = load_model(path, None, size=32)
    assert (changed.size, changed.resize) == (32, 70)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"

    def refused(content: object, message: str) -> None:
        torch.save(content, path)
        with pytest.raises(InputError, match=message):
            load_checkpoint_model(path)

    with pytest.raises(InputError, match=r"last.pt: no such file; expected a checkpoint of hgld train"):
        load_checkpoint_model(path)
    refused({"a": 1}, "but it names no format")
    refused([1], "but it names no format")
    refused(checkpoint(format="hgld.checkpoint/9"), 'but its format is "hgld.checkpoint/9"')
    refused(checkpoint(settings={}), "the checkpoint lacks 'model'")
    refused(checkpoint(model={}), "does not fit this version of hgld or of timm: .*Missing key")
    refused(checkpoint(settings={"model": {"backbone": 3}, "image": {}}), "does not fit this version")
    refused(build_model, "not a readable checkpoint")  # code
    torch.save(checkpoint(), path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match="an incomplete one"):
        load_checkpoint_model(path)


def test_a_name_is_a_preset_or_a_model_of_timm_without_a_head() -> None:
    model, image_settings = load_model(None, "resnet34", "none", size=64, resize=64)
    assert (model.dim, model.projection, model.settings.pooling) == (512, None, "average")
    assert (image_settings.size, image_settings.mean) == (64, (0.485, 0.456, 0.406))
    assert model.settings == ModelSettings.model_validate("resnet34").without_head()
    model, image_settings = load_model(None, "test_vit", "none")
    assert (model.settings.pooling, image_settings.mean) == ("own", (0.5, 0.5, 0.5))


def test_random_weights_are_the_same_every_time_and_draw_from_nobody() -> None:
    torch.manual_seed(1)
    one = load_model(None, "test_resnet", "none")[0]
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    other = load_model(None, "test_resnet", "none")[0]
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("arguments", "sizes", "message"),
    [
        ((None, None), {}, "expected either `checkpoint` or `model`; found neither"),
        ((Path("x"), "resnet50"), {}, "expected either `checkpoint` or `model`; found both"),
        ((Path("x"), None, "none"), {}, "`pretrained` applies to `model`"),
        (
            (None, "test_resnet", "none"),
            {"size": 300},
            "resize is 256, less than size, 300.*set `size` and `resize`",
        ),
        ((None, "test_resnet", "none"), {"size": 0}, "size Input should be greater"),
        ((None, "test_resnet", "x.pth"), {}, "pretrained is x.pth, but there is no such file"),
    ],
)
def test_a_wrong_choice_is_explained(arguments: tuple[Any, ...], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_model(*arguments, **sizes)

"""Embeddings that are up to date are found before torch is imported, and whatever decides them is noticed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hgld.models.embedding_files import embedding_request, is_made_by, record_request
from hgld.models.model_loading import load_model, write_model
from hgld.models.settings import EmbedImagesConfig
from tests.child_processes import run_hgld_without_torch
from tests.commands import run_hgld
from tests.datasets.pictures import picture
from tests.models.embedding import PATHS

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = ["--size", "32", "--workers", "0"]
FUNCTION = "def embed(images):\n    return images.mean((2, 3)) + 1\n"


def published(folder: Path) -> Callable[[], object]:
    """Write a model as ``hgld push-model`` does; return a function that writes other weights."""
    model = load_model("test_resnet", "none", size=32)
    folder.mkdir()
    write_model(model, folder)

    def change() -> None:
        with torch.no_grad():
            next(model.network.parameters()).add_(0.1)
        write_model(model, folder)

    return change


def weights_file(path: Path) -> Callable[[], object]:
    """Write weights of a backbone; return a function that writes other weights."""
    torch.save(load_model("test_resnet", "none").network.backbone.state_dict(), path)
    state = torch.load(path)
    return lambda: torch.save({name: value * 2 for name, value in state.items()}, path)


def function_file(path: Path) -> Callable[[], object]:
    """Write a function that embeds images; return a function that changes its file."""
    path.write_text(FUNCTION)
    return lambda: path.write_text(FUNCTION.replace("1", "10"))


@pytest.mark.parametrize("kind", ["published", "weights", "function"])
def test_up_to_date_without_torch_until_a_file_of_the_model_changes(kind: str, folder: Path, tmp_path: Path) -> None:
    place = tmp_path / {"published": "model", "weights": "w.pth", "function": "net.py"}[kind]
    change = {"published": published, "weights": weights_file, "function": function_file}[kind](place)
    models = {
        "published": [str(place)],
        "weights": ["test_resnet", "--pretrained", str(place)],
        "function": [f"python:{place}:embed"],
    }
    out = tmp_path / "e.npy"
    command = ["embed-images", "--images", folder, "-o", out, *OPTIONS, "--model", *models[kind]]
    assert "images embedded" in run_hgld(*command).stdout
    assert run_hgld_without_torch(*command) == f"{out}: up to date\n"
    before = out.read_bytes()
    change()
    assert "images embedded" in run_hgld(*command).stdout
    assert out.read_bytes() != before
    assert run_hgld_without_torch(*command) == f"{out}: up to date\n"


def test_an_image_of_a_folder_that_changes_is_noticed(folder: Path, tmp_path: Path) -> None:
    command = ["embed-images", "--images", folder, "-o", tmp_path / "e.npy", *OPTIONS, "--model", "test_resnet"]
    command += ["--pretrained", "none"]
    run_hgld(*command)
    (folder / PATHS[0]).write_bytes(picture("other"))
    assert "22 of them in this run" in run_hgld(*command).stdout


def test_a_folder_of_parts_is_up_to_date_part_by_part(folder: Path, tmp_path: Path) -> None:
    command = ["embed-images", "--images", folder, "-o", tmp_path / "parts", *OPTIONS, "--model", "test_resnet"]
    command += ["--pretrained", "none", "--part", "1/1"]
    run_hgld(*command)
    assert run_hgld_without_torch(*command).endswith("1-of-1.safetensors: up to date\n")


def test_request_is_recorded_where_only_the_provenance_was(folder: Path, tmp_path: Path) -> None:
    """As of outputs of earlier versions, or of the library."""
    out = tmp_path / "e.npy"
    arguments = ["embed-images", "--images", folder, "-o", out, *OPTIONS, "--model", "test_resnet"]
    run_hgld(*arguments, "--pretrained", "none")
    record = out.with_suffix(".made.json")
    values = json.loads(record.read_text())
    del values["request"]
    record.write_text(json.dumps(values))
    request = embedding_request(folder, "test_resnet", "none", {}, EmbedImagesConfig())
    assert request is not None
    assert not is_made_by(out, request)
    record_request(out, request)
    assert is_made_by(out, request)
    assert f"{out}: up to date" in run_hgld(*arguments, "--pretrained", "none").stdout
    assert json.loads(record.read_text()) == {**values, "request": json.loads(record.read_text())["request"]}


@pytest.mark.parametrize("model", ["hf:ada/landmarks", "python:numpy:array", "absent.pt", "python:absent.py:embed"])
def test_models_whose_files_are_unknown_have_to_be_loaded(model: str, folder: Path) -> None:
    assert embedding_request(folder, model, None, {}, EmbedImagesConfig()) is None

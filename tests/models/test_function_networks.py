"""Functions in Python as networks, beside the same computed without hgld."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

import hgld
from hgld.errors import ConfigurationError, HgldError
from hgld.models.image_embedding import embed_images
from hgld.models.settings import EmbedImagesConfig
from hgld.search.query_model import load_query_model
from hgld.tables.embeddings import read_embeddings
from hgld.training.publish_model import push_model
from tests.commands import run_hgld

PHOTOGRAPHS = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
CONFIG = EmbedImagesConfig(workers=0)


FUNCTIONS = """
import numpy as np
import torch

def colours(images):
    assert images.dtype == np.float32 and images.flags.c_contiguous and images.flags.writeable
    assert 0 <= images.min() and images.max() <= 1
    return images.mean((2, 3), dtype=np.float64)

def tensor(images):
    return torch.from_numpy(images).mean((2, 3)).requires_grad_()

def failing(images):
    return {}["a key\\nof two lines"]

def one_row(images):
    return images.mean((2, 3))[:1] if len(images) > 1 else images.mean((2, 3))

value = 3
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    (tmp_path / "own_functions.py").write_text(FUNCTIONS)
    return f"python:{tmp_path}/own_functions.py"


def test_a_function_gets_pixels_of_0_to_1(functions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = hgld.load_model(f"{functions}:colours", size=60)
    assert repr(model) == "ImageEmbedder(python:own_functions.py:colours, 3 dimensions, images of 60 x 60)"
    square = [image.crop((0, 0, 400, 400)).resize((60, 60), Image.Resampling.BILINEAR) for image in PHOTOGRAPHS]
    expected = np.stack([np.asarray(image).mean((0, 1)) for image in square])
    embedded = model.embed([image.crop((0, 0, 400, 400)) for image in PHOTOGRAPHS])
    np.testing.assert_allclose(embedded, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-5)
    monkeypatch.syspath_prepend(tmp_path)
    for name in (f"{functions}:tensor", "python:own_functions:tensor"):
        other = hgld.load_model(name, size=60)
        np.testing.assert_allclose(other.embed(PHOTOGRAPHS), model.embed(PHOTOGRAPHS), rtol=1e-5)


def test_functions_that_fail_are_explained_in_a_line(functions: str, tmp_path: Path) -> None:
    def expect(model: str, message: str) -> None:
        with pytest.raises(HgldError, match=message) as caught:
            hgld.load_model(model).embed(PHOTOGRAPHS)
        assert "\n" not in str(caught.value)

    expect(f"{functions}:failing", r"^python:own_functions.py:failing cannot embed images: KeyError: 'a key\\nof two")
    expect(f"{functions}:one_row", r"one_row returns the shape \(1, 3\) for 2 images; expected \(2, d\), a row for")
    expect(f"{functions}:value", r"value: .*own_functions.py has no function value$")
    expect(f"{functions}:absent", r"absent: .*own_functions.py has no function absent$")
    expect(f"python:{tmp_path}/absent.py:f", r"absent.py: no such file; expected a model$")
    expect("python:absent_module:f", r"cannot be imported: ModuleNotFoundError: No module named 'absent_module'; a")
    expect(
        "python:own_functions", r"python:own_functions: expected python:MODULE:FUNCTION or python:FILE.py:FUNCTION"
    )
    (tmp_path / "broken.py").write_text("def f(:")
    expect(f"python:{tmp_path}/broken.py:f", r"python:broken.py:f cannot be imported: SyntaxError: invalid syntax")
    with pytest.raises(ConfigurationError, match=r"`pretrained` is for models given by name; python:.* has its own"):
        hgld.load_model(f"{functions}:colours", "none")
    with pytest.raises(ConfigurationError, match=r"python:.*colours: runs outside hgld, which cannot publish it"):
        push_model(f"{functions}:colours", out=tmp_path / "published")


def test_embeddings_are_up_to_date_until_the_function_changes(functions: str, folder: Path, tmp_path: Path) -> None:
    def run() -> object:
        return embed_images(folder, tmp_path / "e.npy", hgld.load_model(f"{functions}:colours", size=32), CONFIG)

    assert run() is not None
    assert run() is None
    (tmp_path / "own_functions.py").write_text(FUNCTIONS + "# changed\n")
    assert run() is not None


def test_a_search_runs_code_only_if_it_is_named(functions: str, folder: Path, tmp_path: Path) -> None:
    """The record beside embeddings may come from anyone."""
    name, out = f"{functions}:colours", tmp_path / "e.npy"
    options = ["--size", "32", "--mean", "0.5", "0.5", "0.5", "--std", "1", "1", "1", "--workers", "0"]
    (tmp_path / "own_functions.py").write_text(FUNCTIONS.replace("0 <= images.min()", "-0.5 <= images.min()"))
    run_hgld("embed-images", "--model", name, "--images", folder, "-o", out, *options)
    with pytest.raises(
        ConfigurationError, match=r"e.npy: made by the code of python:.*colours; if you trust it, give"
    ):
        load_query_model(out, 3)
    model = load_query_model(out, 3, name)
    assert model.embedder.image_settings.mean == (0.5, 0.5, 0.5)
    paths = sorted(path for path in folder.rglob("*.jpg"))
    torch.testing.assert_close(model.embed(paths), read_embeddings(out).vectors)

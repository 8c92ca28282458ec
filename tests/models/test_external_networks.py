"""Networks of ONNX and LiteRT, and functions in Python, beside the same computed without hgld."""

import json
import sys
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import nn
from torch.nn.functional import normalize

import hgld
from hgld.errors import ConfigurationError, HgldError, InputError
from hgld.models.image_embedding import EmbedImagesConfig, embed_images
from hgld.search.query_model import load_query_model
from hgld.tables.embeddings import read_embeddings
from hgld.training.publish_model import push_model
from tests.commands import run_hgld

PHOTOGRAPHS = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
CONFIG = EmbedImagesConfig(workers=0)


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("test_resnet", num_classes=0).eval()  # type: ignore[no-any-return]


class Pixels(nn.Module):
    """A network of integer pixels, colours last, with features at positions as a second output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images = pixels.permute(0, 3, 1, 2).float() / 255
        return self.network(images), self.network.forward_features(images)  # type: ignore[operator]


def export(network: nn.Module, path: Path, example: torch.Tensor, **options: Any) -> str:
    pytest.importorskip("onnxruntime")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no further package is deprecated
        torch.onnx.export(network, (example,), path, dynamo=False, input_names=["images"], **options)
    return f"onnx:{path}"


@pytest.fixture
def exported(resnet: nn.Module, tmp_path: Path) -> str:
    axes = {"images": {0: "n", 2: "h", 3: "w"}}
    return export(resnet, tmp_path / "net.onnx", torch.zeros(1, 3, 48, 48), dynamic_axes=axes)


@pytest.mark.parametrize("size", [48, 80])
def test_a_network_of_onnx_embeds_as_the_module_that_it_was_exported_from(
    exported: str, resnet: nn.Module, size: int
) -> None:
    model = hgld.load_model(exported, size=size)
    assert (model.dim, model.image_settings.size, model.image_settings.resize) == (96, size, size)
    assert model.image_settings.mean == (0.485, 0.456, 0.406)
    with torch.no_grad():
        expected = normalize(resnet(torch.stack([model.preprocess(image) for image in PHOTOGRAPHS])))
    np.testing.assert_allclose(model.embed(PHOTOGRAPHS), expected.numpy(), atol=1e-5)
    half = hgld.load_model(exported, size=size, mean=(0.5, 0.5, 0.5), std=[0.5, 0.5, 0.5])
    assert half.image_settings.std == (0.5, 0.5, 0.5)
    assert not np.allclose(half.embed(PHOTOGRAPHS), model.embed(PHOTOGRAPHS), atol=1e-3)


def test_a_network_of_onnx_states_its_size_type_and_layout(resnet: nn.Module, tmp_path: Path) -> None:
    pixels = torch.zeros(1, 48, 48, 3, dtype=torch.uint8)
    name = export(Pixels(resnet), tmp_path / "pixels.onnx", pixels, output_names=["vector", "map"])
    plain = export(resnet, tmp_path / "fixed.onnx", torch.zeros(1, 3, 48, 48))
    with pytest.raises(ConfigurationError, match=r"pixels.onnx: has 2 outputs; choose one: #vector, #map$"):
        hgld.load_model(name)
    with pytest.raises(ConfigurationError, match=r"pixels.onnx: has no output token; choose one: #vector, #map$"):
        hgld.load_model(f"{name}#token")
    expected = hgld.load_model(plain, mean=(0, 0, 0), std=(1, 1, 1)).embed(PHOTOGRAPHS)
    model = hgld.load_model(f"{name}#vector")
    assert repr(model) == "ImageEmbedder(onnx:pixels.onnx#vector, 96 dimensions, images of 48 x 48)"
    np.testing.assert_allclose(model.embed(PHOTOGRAPHS), expected, atol=1e-6)
    # The average over positions is what the network pools.
    np.testing.assert_allclose(hgld.load_model(f"{name}#map").embed(PHOTOGRAPHS), expected, atol=1e-6)
    with pytest.raises(ConfigurationError, match=r"onnx:fixed.onnx takes no images of 64 x 64; set `size` to 48"):
        hgld.load_model(plain, size=64)


def test_unusable_networks_of_onnx_are_explained(exported: str, tmp_path: Path) -> None:
    def expect(kind: type[HgldError], model: str, message: str) -> None:
        with pytest.raises(kind, match=message) as caught:
            hgld.load_model(model)
        assert "\n" not in str(caught.value)

    expect(InputError, f"onnx:{tmp_path}/absent.onnx", r"absent.onnx: no such file; expected a model$")
    (tmp_path / "broken.onnx").write_bytes((tmp_path / "net.onnx").read_bytes()[:1000])
    expect(InputError, f"onnx:{tmp_path}/broken.onnx", "broken.onnx: not a network of ONNX, or an incomplete one: ")
    grey = export(nn.Conv2d(1, 8, 3), tmp_path / "grey.onnx", torch.zeros(1, 1, 48, 48))
    expect(ConfigurationError, grey, r"grey.onnx: takes float \[1, 1, 48, 48\]; expected a network of square images")
    flat = export(nn.Flatten(0), tmp_path / "flat.onnx", torch.zeros(1, 3, 8, 8))
    expect(
        ConfigurationError, flat, r"onnx:flat.onnx returns the shape \(192,\) for 1 images; expected \(1, d\), a row"
    )
    with pytest.raises(ConfigurationError, match=r"`pretrained` is for models given by name; onnx:.* has its own"):
        hgld.load_model(exported, "none")
    with pytest.raises(ConfigurationError, match=r"onnx:.*net.onnx: runs outside hgld, which cannot publish it"):
        push_model(exported, out=tmp_path / "published")


@pytest.mark.parametrize(("module", "name"), [("onnxruntime", "onnx"), ("ai_edge_litert", "litert")])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    (tmp_path / "net").write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "ai_edge_litert.interpreter", raising=False)
    with pytest.raises(ConfigurationError, match=rf"^{name}: needs the package {module}.*install '.\[{name}\]' in a"):
        hgld.load_model(f"{name}:{tmp_path}/net")


def test_weights_beside_a_file_of_onnx_count_as_weights(
    exported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest() -> object:
        return hgld.load_model(exported).network.state_dict()["backbone.sha256"].tolist()

    alone = digest()
    (tmp_path / "net.onnx.data").write_bytes(b"weights")
    first = digest()
    (tmp_path / "net.onnx.data").write_bytes(b"others")
    assert len({str(each) for each in (alone, first, digest())}) == 3
    monkeypatch.chdir(tmp_path)  # the folder is no part of what a network is
    assert hgld.load_model("onnx:net.onnx").settings == hgld.load_model(exported).settings


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


# LiteRT, with networks that others trained


@pytest.fixture(scope="module")
def networks(shared: Path) -> Path:
    pytest.importorskip("ai_edge_litert")
    return shared / "models"


SMALL = "mobilenet_v1_0.25_128_quant.tflite"


def plain_features(path: Path, tensor: int) -> Callable[[Image.Image], NDArray[np.float64]]:
    """Return a function that embeds a photograph by LiteRT's own example: resize, convert, run, read."""
    from ai_edge_litert.interpreter import Interpreter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = Interpreter(str(path), num_threads=1, experimental_preserve_all_tensors=True)
    network.allocate_tensors()
    expected = network.get_input_details()[0]
    (details,) = (each for each in network.get_tensor_details() if each["index"] == tensor)

    def features(image: Image.Image) -> NDArray[np.float64]:
        pixels = np.asarray(image.resize(expected["shape"][1:3], Image.Resampling.BILINEAR))[None]
        is_float = expected["dtype"] == np.float32
        network.set_tensor(expected["index"], pixels.astype(np.float32) / 127.5 - 1 if is_float else pixels)
        network.invoke()
        scale, zero_point = details["quantization"]
        values = network.get_tensor(tensor).astype(float)
        values = (values - zero_point) * scale if scale else values
        vector = values.reshape(-1, values.shape[-1]).mean(0)
        return vector / np.linalg.norm(vector)  # type: ignore[no-any-return]

    return features


@pytest.mark.parametrize(
    ("name", "tensor", "dim"), [(SMALL, 84, 256), (SMALL, 83, 256), ("ssd_mobilenetv2_oidv4_fp16.tflite", 213, 1280)]
)
def test_a_network_of_litert_embeds_as_a_plain_script_does(networks: Path, name: str, tensor: int, dim: int) -> None:
    model = hgld.load_model(f"litert:{networks / name}#{tensor}", fit="squash")
    assert model.dim == dim
    plain = plain_features(networks / name, tensor)
    expected = np.stack([plain(image) for image in PHOTOGRAPHS])
    np.testing.assert_allclose(model.embed(PHOTOGRAPHS), expected, atol=1e-5)


def test_a_tensor_of_litert_is_given_by_index_or_name(networks: Path) -> None:
    by_index = hgld.load_model(f"litert:{networks / SMALL}#84")
    by_name = hgld.load_model(f"litert:{networks / SMALL}#MobilenetV1/Logits/AvgPool_1a/AvgPool")
    np.testing.assert_array_equal(by_index.embed(PHOTOGRAPHS), by_name.embed(PHOTOGRAPHS))
    output = hgld.load_model(f"litert:{networks / SMALL}")
    assert (output.dim, output.image_settings.size, output.image_settings.resize) == (1001, 128, 128)
    assert output.embed(PHOTOGRAPHS).shape == (2, 1001)


def test_unusable_networks_of_litert_are_explained(networks: Path, tmp_path: Path) -> None:
    def expect(kind: type[HgldError], model: object, message: str) -> None:
        with pytest.raises(kind, match=message) as caught:
            hgld.load_model(f"litert:{model}")
        assert "\n" not in str(caught.value)

    likely = r"#84 \(1 x 1 x 1 x 256, MobilenetV1/Logits/AvgPool_1a/AvgPool\), #83 \(1 x 4 x 4 x 256, .*\)$"
    expect(
        ConfigurationError, networks / f"{SMALL}#999", rf"the tensor 999 does not exist; choose another one: {likely}"
    )
    expect(ConfigurationError, networks / f"{SMALL}#82", rf"the tensor 82 does not exist; .*{likely}")  # weights
    two = networks / "ssd_mobilenetv2_oidv4_fp16.tflite"
    expect(
        ConfigurationError, two, r"has 2 outputs; choose one, or a tensor: #213 \(1 x 10 x 10 x 1280, .*Conv_1/Relu6"
    )
    expect(ConfigurationError, f"{two}#241", r"the tensor 241 has the shape 1 x 1917 x 4; choose another one: #213 ")
    expect(InputError, tmp_path / "absent.tflite", r"absent.tflite: no such file; expected a model$")
    (tmp_path / "broken.tflite").write_bytes((networks / SMALL).read_bytes()[:100_000])
    expect(
        InputError, tmp_path / "broken.tflite", r"broken.tflite: not a network of LiteRT, or an incomplete one: Val"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tensor"),
    [("mobilenet_v1_1.0_224_quant_embedding_extractor.tflite", 82), ("ssd_mobilenetv2_oidv4_fp16.tflite", 213)],
)
def test_landmarks_are_found_as_by_a_plain_script(
    networks: Path, shared: Path, tmp_path: Path, name: str, tensor: int
) -> None:
    """The commands on every eighth photograph of Washington, and a loop over the photographs."""
    labels = shared / "wa_gldv2" / "train.csv"
    landmark_of = pd.read_csv(labels).set_index("id")["landmark_id"]
    plain, vectors, landmarks = plain_features(networks / name, tensor), [], []
    for path in sorted((shared / "wa_gldv2" / "train").glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in [each for each in archive if each.name.endswith(".jpg")][::8]:
                archive.extract(member, tmp_path / "photographs", filter="data")
                vectors.append(plain(Image.open(tmp_path / "photographs" / member.name).convert("RGB")))
                landmarks.append(landmark_of[Path(member.name).stem])
    centred = np.stack(vectors) - np.mean(vectors, axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    scores = centred @ centred.T
    np.fill_diagonal(scores, -np.inf)
    same = np.equal.outer(landmarks, landmarks)
    has_positive = same.sum(axis=1) > 1
    expected = same[np.arange(len(same)), scores.argmax(axis=1)][has_positive].mean()

    def invoke(*arguments: object) -> str:
        return run_hgld(*arguments).stdout

    images, out = ["--images", tmp_path / "photographs"], tmp_path / "embeddings.npy"
    invoke("embed-images", "--model", f"litert:{networks / name}#{tensor}", *images, "--center", "-o", out)
    report = invoke("evaluate", "--embeddings", out, "--labels", labels, "--metric", "R@1", "--json")
    (result,) = json.loads(report)["results"]
    assert len(same) > 500
    assert result["means"]["R@1"] == pytest.approx(expected, abs=0.005)
    assert expected > 0.3

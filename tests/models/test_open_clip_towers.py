"""Towers of open_clip: those of images as backbones, those of texts as queries.

open_clip is imported by the tests: each process that collects them would wait for seconds.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

import hgld
from hgld.cli import app
from hgld.datasets.manifest import read_manifest, write_manifest
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.labels.embed import EmbedConfig
from hgld.models import EmbedImagesConfig, embed_images, embed_texts
from hgld.models.backbones import image_settings_for
from hgld.models.image_embedder import ImageEmbedder, ModelSource
from hgld.models.model_settings import ModelSettings
from hgld.models.text_embedding import text_encoder_of
from hgld.tables import Provenance
from hgld.tables.embeddings import read_embeddings
from hgld.training.publish_model import push_model

TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 24, "heads": 2, "layers": 1},
}
PHOTOGRAPH = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of a CLIP model that is made known to open_clip as "tiny-tower"."""
    import open_clip

    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny-tower.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(folder / "tiny-tower.json")
    torch.manual_seed(0)
    save_file(open_clip.create_model("tiny-tower").state_dict(), folder / "weights.safetensors")
    return folder / "weights.safetensors"


@pytest.fixture(scope="module")
def model(weights: Path) -> ImageEmbedder:
    return hgld.load_model("open_clip:tiny-tower", str(weights))


def test_a_tower_embeds_as_open_clip_does(model: ImageEmbedder, weights: Path) -> None:
    import open_clip

    theirs, _, preprocess = open_clip.create_model_and_transforms("tiny-tower", pretrained=str(weights))
    theirs.eval()
    torch.testing.assert_close(model.preprocess(PHOTOGRAPH), preprocess(PHOTOGRAPH), atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        expected = theirs.encode_image(preprocess(PHOTOGRAPH)[None], normalize=True)
    np.testing.assert_allclose(model.embed([PHOTOGRAPH]), expected.numpy(), atol=1e-5)
    assert (model.dim, model.image_settings.size, model.image_settings.interpolation) == (16, 32, "bicubic")
    named = hgld.load_model(f"open_clip:tiny-tower/{weights}")
    assert named.settings == model.settings
    np.testing.assert_array_equal(named.embed([PHOTOGRAPH]), model.embed([PHOTOGRAPH]))


@pytest.mark.parametrize(
    ("name", "tag"),
    [("ViT-B-32", "laion2b_s34b_b79k"), ("ViT-B-16-SigLIP", "webli"), ("MobileCLIP-S1", "datacompdr")],
)
def test_images_are_transformed_as_a_tag_says(name: str, tag: str) -> None:
    """No weights are needed to know the transform: crops, squashed images and bilinear interpolation."""
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict

    settings = ModelSettings(backbone=f"open_clip:{name}", pretrained=tag)
    ours = evaluation_transform(image_settings_for(settings, ImageSettings()))
    expected: dict[str, Any] = merge_preprocess_dict(PreprocessCfg(), open_clip.get_pretrained_cfg(name, tag))
    expected["size"] = open_clip.get_model_config(name)["vision_cfg"]["image_size"]
    theirs = image_transform_v2(PreprocessCfg(**expected), is_train=False)
    torch.testing.assert_close(ours(PHOTOGRAPH), theirs(PHOTOGRAPH), atol=1e-6, rtol=1e-5)


def test_a_tower_is_published_and_loaded_without_its_weights_file(
    model: ImageEmbedder, weights: Path, tmp_path: Path
) -> None:
    push_model("open_clip:tiny-tower", out=tmp_path / "model", pretrained=str(weights))
    loaded = hgld.load_model(tmp_path / "model")
    assert loaded.image_settings == model.image_settings
    np.testing.assert_array_equal(loaded.embed([PHOTOGRAPH]), model.embed([PHOTOGRAPH]))


def test_folders_of_open_clip_are_loaded_as_the_model_of_that_architecture(
    model: ImageEmbedder, weights: Path, tmp_path: Path
) -> None:
    images = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bilinear", "resize_mode": "squash"}
    config = {"model_cfg": TINY, "preprocess_cfg": images}
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')  # that of transformers
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"has no open_clip_model.safetensors"):
        hgld.load_model(tmp_path)
    (tmp_path / "open_clip_model.safetensors").write_bytes(weights.read_bytes())
    loaded = hgld.load_model(tmp_path)
    assert (loaded.settings.backbone, loaded.image_settings.fit) == ("open_clip:tiny-tower", "squash")
    pixels = model.preprocess(PHOTOGRAPH)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded.network(pixels), model.network(pixels), rtol=0, atol=0)
    (tmp_path / "open_clip_config.json").write_text(json.dumps({**config, "model_cfg": {**TINY, "embed_dim": 8}}))
    with pytest.raises(ConfigurationError, match="open_clip knows no model of this architecture by name"):
        hgld.load_model(tmp_path)


def test_unusable_towers_are_explained(model: ImageEmbedder, weights: Path, tmp_path: Path) -> None:
    def expect(name: str, pretrained: str | None, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            hgld.load_model(f"open_clip:{name}", pretrained)

    expect("ViT-Q-14", "none", 'open_clip has no model "ViT-Q-14"')
    expect(
        "ViT-B-32/laion", None, r'"laion" is neither a file nor a tag of the open_clip model ViT-B-32 \(its tags: '
    )
    expect(
        "ViT-B-32", None, r"set `pretrained` to the weights of open_clip:ViT-B-32: a tag \(openai, .*\), a file, or"
    )
    expect(
        "ViT-B-32", "x.pt", r'"x.pt" is neither a file nor a tag of the open_clip model ViT-B-32 \(its tags: openai'
    )
    (tmp_path / "broken.pt").write_bytes(b"no weights")
    expect("tiny-tower", str(tmp_path / "broken.pt"), r"open_clip:tiny-tower cannot be created with .*broken.pt")
    with pytest.raises(ConfigurationError, match="takes no images of 48 x 48; set `size` to 32"):
        hgld.load_model("open_clip:tiny-tower", str(weights), size=48, resize=48).embed([PHOTOGRAPH])
    alone = hgld.load_model("open_clip:tiny-tower", str(weights), size=48).image_settings
    assert alone.resize == 48, "a centre crop must fit into the resized picture"
    with pytest.raises(ValidationError, match="towers of open_clip pool by themselves"):
        ModelSettings(backbone="open_clip:tiny-tower", pooling="gem")


def test_weights_of_another_activation_name_the_model_that_has_it(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgld.io.hub._download", lambda *_: weights)
    with pytest.raises(
        ConfigurationError, match="activation than ViT-B-32; the model is open_clip:ViT-B-32-quickgelu"
    ):
        hgld.load_model("open_clip:ViT-B-32", "openai")


def test_weights_that_cannot_be_downloaded_are_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SourceError, match="the weights laion2b_s34b_b79k of ViT-B-32 are not on this machine, and"):
        hgld.load_model("open_clip:ViT-B-32", "laion2b_s34b_b79k")


@pytest.fixture
def folder(model: ImageEmbedder, weights: Path, tmp_path: Path) -> Path:
    """Four images with their manifest, and their embeddings."""
    rng = np.random.default_rng(0)
    labels = ("Red_Apple,Fruit", "Lemon,Fruit", "Milk,Carton", "7,Carton")
    rows = ["path,split,kind,group", *(f"{number}.png,test,{label}" for number, label in enumerate(labels))]
    (tmp_path / "images.csv").write_text("\n".join(rows))
    for number in range(4):
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    write_manifest(tmp_path / "manifest.parquet", read_manifest(tmp_path / "images.csv"), Provenance("test"))
    embed_images(tmp_path / "manifest.parquet", tmp_path / "images.npy", model, EmbedImagesConfig(center=True))
    return tmp_path


def encode(weights: Path, *texts: str) -> np.ndarray:
    import open_clip

    theirs = open_clip.create_model("tiny-tower", pretrained=str(weights)).eval()
    with torch.no_grad():
        return np.asarray(theirs.encode_text(open_clip.get_tokenizer("tiny-tower")(texts), normalize=True))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_names_of_labels_are_embedded_as_open_clip_does(folder: Path, weights: Path) -> None:
    options = ("--encoder", f"open_clip:tiny-tower/{weights}", "--template", "a photo of {}")
    result = run("embed-texts", folder / "manifest.parquet", "-o", folder / "texts.parquet", *options)
    assert result.stdout == f"5 texts embedded\n{folder / 'texts.parquet'}\n", result.stderr
    texts = read_embeddings(folder / "texts.parquet")
    assert texts.ids is not None
    assert texts.ids.tolist() == ["Lemon", "Milk", "Red_Apple", "Carton", "Fruit"], "numbers say nothing"
    np.testing.assert_allclose(texts.vectors[2], encode(weights, "a photo of Red Apple")[0], atol=1e-5)

    (folder / "names.csv").write_text("id,text\n7,carton of oat milk\nMilk,carton of milk\n")
    assert embed_texts(folder / "names.csv", folder / "texts.npy", EmbedConfig(options[1], ("{}",))) == 2
    expected = encode(weights, "carton of oat milk", "carton of milk")
    np.testing.assert_allclose(np.load(folder / "texts.npy"), expected, atol=1e-5)

    (folder / "core" / "milk_000" / "query").mkdir(parents=True)
    for name, text in (("T000.txt", "carton of oat milk\n"), ("Q000_00_url.txt", "http://a/b")):
        (folder / "core" / "milk_000" / "query" / name).write_text(text)
    assert embed_texts(folder / "core", folder / "texts.npy", EmbedConfig(options[1], ("{}",))) == 1, "as of ILIAS"
    np.testing.assert_allclose(np.load(folder / "texts.npy"), expected[:1], atol=1e-5)
    assert (folder / "texts.ids.txt").read_text() == "milk_000/query/T000.txt\n"


def test_texts_search_images_that_were_centred(folder: Path, weights: Path) -> None:
    record = folder / "images.made.json"
    mean = json.loads(record.read_text())["mean"]
    page = folder / "page.html"
    result = run("search", "--embeddings", folder / "images.npy", "--text", "lemon", "--json", "--page", page)
    assert result.exit_code == 0, result.stderr
    query = encode(weights, "lemon")[0] - mean
    scores = np.load(folder / "images.npy") @ (query / np.linalg.norm(query))
    (answer,) = json.loads(result.stdout)["queries"]
    assert answer["id"] == "lemon"
    assert [float(each["score"]) for each in answer["results"]] == pytest.approx(
        sorted(scores, reverse=True), abs=1e-4
    )
    assert "1 queries in 4 photographs" in page.read_text()


def test_texts_that_cannot_be_embedded_are_explained(folder: Path) -> None:
    (folder / "names.csv").write_text("id,text\n7,milk\n7,cream\n")
    with pytest.raises(InputError, match="names.csv: 1 ids are repeated; give each label one text"):
        embed_texts(folder / "names.csv", folder / "texts.npy", EmbedConfig("ngrams"))
    (folder / "names.csv").write_text("path,split,kind\n0.png,test,7\n")
    with pytest.raises(InputError, match="has no names of labels that are words; give a table with"):
        embed_texts(folder / "names.csv", folder / "texts.npy", EmbedConfig("ngrams"))
    (folder / "names.csv").write_text("a,b\n")
    with pytest.raises(InputError, match="the columns are a, b; expected a manifest, or id and text"):
        embed_texts(folder / "names.csv", folder / "texts.npy", EmbedConfig("ngrams"))
    for source, name in ((None, "a model of unknown origin"), (ModelSource("open_clip:x", "none"), "open_clip:x")):
        with pytest.raises(ConfigurationError, match=f"{name} has no text tower; texts are for images embedded by"):
            text_encoder_of(source)
    both = run("search", folder / "0.png", "--embeddings", folder / "images.npy", "--text", "lemon")
    assert "expected a QUERY, an image or a folder, or --text, or --serve; found a QUERY and --text" in both.stderr

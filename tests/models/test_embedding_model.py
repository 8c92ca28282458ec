"""timm models with pooling, norms and a projection."""

import copy
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import nn

from hgld.errors import ConfigurationError
from hgld.models.embedding_model import EmbeddingModel, GeM, build_model
from hgld.models.model_settings import PRESETS, ModelSettings
from tests.assertions import not_none


def tiny(backbone: str = "test_resnet", /, **settings: object) -> EmbeddingModel:
    torch.manual_seed(0)
    return build_model(ModelSettings.model_validate({"backbone": backbone, "pretrained": False, **settings})).eval()


def images(n: int = 2, size: int = 64, seed: int = 1) -> torch.Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


#: timm's feature layouts: (B, C, h, w), (B, h, w, C), tokens with a class token, a head with a convolution.
BACKBONES = (
    "test_resnet",
    "test_convnext",
    "test_mambaout",
    "test_vit",
    "test_efficientnet",
    "mobilenetv3_small_050",
)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("pooling", ["own", "average", "max", "gem"])
def test_any_backbone_gives_unit_embeddings(backbone: str, pooling: str) -> None:
    model = tiny(backbone, pooling=pooling)
    with torch.no_grad():
        embeddings = model(images())
    assert embeddings.shape == (2, model.dim)
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))
    assert not torch.allclose(embeddings[0], embeddings[1], atol=1e-4)


@pytest.mark.parametrize("scales", [(1.0,), (1.0, 0.5)])
def test_images_of_unequal_shape_are_embedded_as_each_alone(scales: tuple[float, ...]) -> None:
    model = tiny(pooling="gem", layer_norm=True, dim=16)
    rng = torch.Generator().manual_seed(0)
    several = [torch.rand(3, h, w, generator=rng) for h, w in [(64, 48), (48, 64), (64, 48), (40, 40), (48, 64)]]
    with torch.no_grad():
        alone = torch.cat([model.multi_scale(image[None], scales) for image in several])
        torch.testing.assert_close(model.multi_scale(several, scales), alone, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(model(several), torch.cat([model(image[None]) for image in several]))


def test_pooling_excludes_the_class_token() -> None:
    model, own = tiny("test_vit", pooling="average"), tiny("test_vit")
    with torch.no_grad():
        tokens = model.backbone(images())
        torch.testing.assert_close(model.features(images()), tokens[:, 1:].mean(1))
        torch.testing.assert_close(own.features(images()), tokens[:, 0])


def test_channels_last_features_are_pooled_over_positions() -> None:
    model = tiny("test_mambaout", pooling="max")
    with torch.no_grad():
        features = model.backbone(images())
        assert features.shape[-1] == model.dim != features.shape[1]
        torch.testing.assert_close(model.features(images()), features.amax((1, 2)))


def test_own_pooling_of_a_resnet_is_average_pooling() -> None:
    model, own = tiny(pooling="average"), tiny()
    with torch.no_grad():
        torch.testing.assert_close(model(images()), own(images()))


def test_embeddings_match_the_formulas() -> None:
    """GeM -> L2 -> projection -> L2, and average -> LayerNorm -> projection -> L2, by their formulas in numpy."""
    for settings in (
        {"pooling": "gem", "gem_p": 2.5, "l2_norm": True, "dim": 7},
        {"pooling": "average", "layer_norm": True, "dim": 7},
    ):
        model = tiny(**settings)
        with torch.no_grad():
            x = model.backbone(images()).flatten(2).double().numpy()
            embeddings = model(images()).numpy()
        if model.settings.pooling == "gem":
            x = (np.maximum(x, 1e-6) ** 2.5).mean(-1) ** (1 / 2.5)
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        else:
            x = x.mean(-1)
            x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        assert model.projection is not None
        y = x @ model.projection.weight.detach().numpy().T + model.projection.bias.detach().numpy()
        np.testing.assert_allclose(embeddings, y / np.linalg.norm(y, axis=1, keepdims=True), atol=1e-6)


def test_gem_is_differentiable_in_features_and_p() -> None:
    gem = GeM(3.0).double()
    features = torch.rand(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1

    def pooled(features: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.func.functional_call(gem, {"p": p}, (features,))
        return output

    assert torch.autograd.gradcheck(pooled, (features.requires_grad_(), gem.p))


def test_gem_of_zeros_and_negative_features_has_finite_gradients() -> None:
    features = torch.tensor([[[0.0, 0.0], [-1.0, 2.0]]], requires_grad=True)
    gem = GeM()
    gem(features).sum().backward()
    for grad in (gem.p.grad, features.grad):
        assert not_none(grad).isfinite().all()


def test_gem_p_is_a_parameter_only_if_learnt() -> None:
    learnt, fixed = tiny(pooling="gem"), tiny(pooling="gem", gem_learnt=False)
    assert [name for name, _ in learnt.named_parameters() if "pooling" in name] == ["pooling.p"]
    assert not [name for name, _ in fixed.named_parameters() if "pooling" in name]
    assert set(learnt.state_dict()) == set(fixed.state_dict())


def test_head_ignores_autocast() -> None:
    model = tiny(pooling="gem", l2_norm=True, dim=7)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        embeddings = model(images())
        assert model.backbone(images()).dtype == torch.bfloat16
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("settings", [{}, {"pooling": "gem", "dim": 5}, {"pooling": "gem", "gem_learnt": False}])
def test_parameter_groups_hold_every_parameter_once(settings: dict[str, object]) -> None:
    model = tiny(**settings)
    groups = model.parameter_groups()
    assert list(groups) == ["backbone", "head"]
    together = [id(parameter) for group in groups.values() for parameter in group]
    assert sorted(together) == sorted(id(parameter) for parameter in model.parameters())
    assert {id(parameter) for parameter in groups["backbone"]} == {id(p) for p in model.backbone.parameters()}


def batch_norm(model: EmbeddingModel) -> nn.BatchNorm2d:
    layer = model.backbone.bn1
    assert isinstance(layer, nn.BatchNorm2d)
    return layer


def statistics(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batch_norm_keeps_its_statistics_and_learns_its_weights(frozen: bool) -> None:
    model = tiny(frozen_batch_norm=frozen, dim=5).train()
    before, weights = statistics(model), copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(images())[:, 0].sum().backward()
    optimiser.step()
    after = statistics(model)
    assert all(torch.equal(before[name], after[name]) for name in before) is frozen
    assert not torch.equal(model.state_dict()["backbone.bn1.weight"], weights["backbone.bn1.weight"])
    assert model.backbone.training
    assert batch_norm(model).training is not frozen


def test_frozen_backbone_is_unchanged_until_unfrozen() -> None:
    model = tiny(dim=5).train()
    model.freeze_backbone(True)
    before = copy.deepcopy(model.state_dict())
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(parameters) == len(model.parameter_groups()["head"])
    model.train()
    model(images())[:, 0].sum().backward()
    torch.optim.SGD(parameters, lr=0.1).step()
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"projection.weight", "projection.bias"}
    model.freeze_backbone(False)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert batch_norm(model).training


def test_parameters_frozen_by_the_backbone_stay_frozen() -> None:
    backbone = timm.create_model("test_resnet", num_classes=0)
    backbone.bn1.bias.requires_grad_(False)
    model = EmbeddingModel(backbone, 96, ModelSettings(backbone="test_resnet"))
    model.freeze_backbone(True)
    model.freeze_backbone(False)
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == {"backbone.bn1.bias"}


@pytest.mark.parametrize(
    ("settings", "p"), [({"pooling": "gem"}, 3.0), ({"pooling": "gem", "dim": 5}, 1.0), ({"pooling": "average"}, 1.0)]
)
def test_scales_are_averaged_or_combined_by_gem(settings: dict[str, object], p: float) -> None:
    model = tiny(**settings)
    small = nn.functional.interpolate(images(), scale_factor=0.5, mode="bilinear")
    with torch.no_grad():
        both = torch.stack([model(images()), model(small)]).double()
        combined = model.multi_scale(images(), (1, 0.5))
        torch.testing.assert_close(model.multi_scale(images(), (1,)), model(images()))
    expected = ((both**p).mean(0)) ** (1 / p) if p != 1 else both.mean(0)
    torch.testing.assert_close(combined, (expected / expected.norm(dim=1, keepdim=True)).float())


def test_transformers_support_other_image_sizes() -> None:
    model = tiny("test_vit")
    with torch.no_grad():
        assert model(images(size=96)).shape == model(images(size=160)).shape


def test_unsupported_image_size_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="test_vit takes no images of 70 x 70: .*; set the size of images"):
        tiny("test_vit")(images(size=70))


def test_projection_cannot_have_more_dimensions_than_the_features() -> None:
    with pytest.raises(ConfigurationError, match="`dim` is 97, but the features of test_resnet have 96 numbers"):
        tiny(dim=97)


class PublishedHead(nn.Module):
    """The layers after the backbone as suprank/models/retrieval_net.py and src/netlib.py of Recall@k build them."""

    def __init__(self, n: int, pooling: str, norm: str, dim: int | None) -> None:
        super().__init__()
        self.pooling = pooling
        self.p = nn.Parameter(torch.full((1,), 3.0))
        self.norm: nn.Module = nn.Identity()
        if norm in ("fixed", "learnt"):
            self.norm = nn.LayerNorm(n, elementwise_affine=norm == "learnt")
        self.l2_norm = norm == "l2"
        self.fc = nn.Linear(n, dim) if dim else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.pooling == "gem":
            x = nn.functional.avg_pool2d(x.clamp(min=1e-6).pow(self.p), x.shape[-2:]).pow(1 / self.p).flatten(1)
        elif self.pooling == "max":
            x = nn.functional.adaptive_max_pool2d(x, 1).flatten(1)
        elif self.pooling == "average":
            x = nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)
        x = nn.functional.normalize(x, dim=-1) if self.l2_norm else self.norm(x)
        return nn.functional.normalize(self.fc(x), dim=-1)


#: Preset, timm model, number of features, pooling ("" for the class token), norm, dimension of the projection, and
#: whether batch-norm statistics are frozen.
PUBLISHED_MODELS: list[tuple[str, str, int, str, str, int | None, bool]] = [
    ("resnet50", "resnet50", 2048, "average", "fixed", 512, True),
    ("resnet50-gem", "resnet50", 2048, "gem", "fixed", 512, True),
    ("resnet50-max", "resnet50", 2048, "max", "fixed", 512, True),
    ("resnet50-plain", "resnet50", 2048, "average", "", 512, True),
    ("resnet50-recall", "resnet50", 2048, "gem", "learnt", 512, True),
    ("resnet34", "resnet34", 512, "average", "fixed", 512, False),
    ("resnet34-pretrained", "resnet34", 512, "average", "fixed", 512, True),
    ("resnet34-small", "resnet34", 512, "average", "", None, False),
    ("resnet50-gem-pca", "resnet50", 2048, "gem", "l2", 2048, True),
    ("resnet101-gem-pca", "resnet101", 2048, "gem", "l2", 2048, True),
    ("deit-small", "deit_small_patch16_224", 384, "", "", None, False),
    ("deit-base", "deit_base_patch16_224", 768, "", "fixed", None, False),
    ("vit-base", "vit_base_patch16_224", 768, "", "", None, False),
    ("vit-base-512", "vit_base_patch16_224", 768, "", "", 512, False),
    ("vit-base-recall", "vit_base_patch16_224", 768, "", "learnt", 512, False),
    ("vit-base32-recall", "vit_base_patch32_224", 768, "", "learnt", 512, False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backbone", "n"), [row[:3] for row in PUBLISHED_MODELS])
def test_backbones_of_presets_have_the_published_width(name: str, backbone: str, n: int) -> None:
    model = build_model(ModelSettings.model_validate({"preset": name, "pretrained": False}))
    assert model._n_channels == n
    assert model.dim == (model.settings.dim or n)
    assert model.eval()(torch.zeros(1, 3, 224, 224)).shape == (1, model.dim)


@pytest.mark.parametrize(("name", "backbone", "n", "pooling", "norm", "dim", "frozen"), PUBLISHED_MODELS)
def test_presets_are_the_published_models(
    name: str, backbone: str, n: int, pooling: str, norm: str, dim: int | None, frozen: bool
) -> None:
    """A tiny backbone of the same kind takes the place of each, as only the layers after it are compared."""
    settings = ModelSettings.model_validate(name)
    assert settings.backbone.partition(".")[0] == backbone
    assert (settings.dim, settings.frozen_batch_norm) == (dim, frozen)
    small = "test_resnet" if pooling else "test_vit"
    changes: dict[str, object] = {"backbone": small, "pretrained": False, "small_images": False, "dim": dim and 7}
    model = build_model(settings.model_copy(update=changes)).eval()
    published = PublishedHead(model._n_channels, pooling, norm, dim and 7)
    head = {key: value for key, value in model.state_dict().items() if not key.startswith("backbone")}
    names = {"pooling.p": "p", "layer_norm.weight": "norm.weight", "layer_norm.bias": "norm.bias"}
    names |= {"projection.weight": "fc.weight", "projection.bias": "fc.bias"}
    state = {names[key]: value.reshape(published.state_dict()[names[key]].shape) for key, value in head.items()}
    assert set(published.state_dict()) - set(state) <= ({"p"} if pooling != "gem" else set())
    if "norm.weight" in state:
        state |= {"norm.weight": torch.rand(model._n_channels), "norm.bias": torch.rand(model._n_channels)}
        not_none(model.layer_norm).load_state_dict({"weight": state["norm.weight"], "bias": state["norm.bias"]})
    published.load_state_dict(state, strict=False)
    with torch.no_grad():
        features = model.backbone(images())
        torch.testing.assert_close(model(images()), published(features))


def test_small_images_are_not_reduced_before_the_blocks_of_a_resnet() -> None:
    """As in heatood: the four stages divide the size by 8, where those of other images divide it by 32."""
    settings: dict[str, Any] = {"pooling": "average"}
    model, other = tiny("resnet18", small_images=True, **settings), tiny("resnet18", **settings)
    first: Any = model.backbone.conv1
    assert (first.kernel_size, first.stride, first.padding, first.bias) == ((3, 3), (1, 1), (1, 1), None)
    pixels = images(1, 32)
    with torch.no_grad():
        assert model.backbone(pixels).shape == (1, 512, 4, 4)
        assert other.backbone(pixels).shape == (1, 512, 1, 1)
    with pytest.raises(ConfigurationError, match="`small_images` is for ResNets, and test_vit is none"):
        tiny("test_vit", small_images=True)


def test_layer_norm_is_computed_in_float32_and_learnt_in_the_head() -> None:
    model = tiny(layer_norm=True, layer_norm_learnt=True, dim=5)
    assert {name for name, _ in model.named_parameters() if not name.startswith("backbone")} == {
        "layer_norm.weight", "layer_norm.bias", "projection.weight", "projection.bias",
    }  # fmt: skip
    assert len(model.parameter_groups()["head"]) == 4
    assert not list(tiny(layer_norm=True).layer_norm.parameters())  # type: ignore[union-attr]
    with torch.autocast("cpu", torch.bfloat16):
        assert model.features(images()).dtype == torch.float32


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_settings_of_timm_models(name: str) -> None:
    settings = ModelSettings.model_validate(name)
    assert timm.is_model(settings.backbone)
    assert settings == ModelSettings.model_validate(settings.model_dump())
    assert ModelSettings.model_validate({"preset": name, "gem_p": 2}).gem_p == 2
    assert settings.without_head().dim is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("resnet51", "there is no preset 'resnet51'; is resnet50 meant"),
        ({"preset": 3}, "there is no preset 3"),
        ({"backbone": "resnet50", "pool": "gem"}, "pool"),
        ({"backbone": "resnet50", "projection": "pca"}, "projection is pca, but the model has no projection"),
        ({"backbone": "resnet50", "layer_norm": True, "l2_norm": True}, "a model has at most one of them"),
        ({"backbone": "resnet50", "layer_norm_learnt": True}, "the model has no LayerNorm; set layer_norm"),
        ({"backbone": "resnet50", "gem_p": 0}, "gem_p"),
        ({"backbone": "resnet50", "dim": 0}, "dim"),
        ({"backbone": "resnet50", "pretrained": ""}, "is an empty text"),
        ({"backbone": "resnet50", "small_images": True}, "no weights fit; set pretrained: false"),
    ],
)
def test_invalid_model_settings_are_refused(values: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelSettings.model_validate(values)


@pytest.mark.parametrize("pooling", ["own", "average", "gem"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_deviations_are_those_of_the_feature_maps(backbone: str, pooling: str) -> None:
    model = tiny(backbone, pooling=pooling)
    with torch.no_grad():
        embeddings, deviations = model.embed_with_deviations(images())
        torch.testing.assert_close(embeddings, model(images()))
        network: Any = model.backbone
        maps = network.forward_features(images()) if pooling == "own" else network(images())
    maps = maps.double().numpy()
    if maps.ndim == 3:
        expected = maps[:, 1:].std(1, ddof=1)  # without the class token
    else:
        n_channels = network.num_features if pooling == "own" else model.dim
        expected = maps.std((2, 3) if maps.shape[1] == n_channels else (1, 2), ddof=1)
    np.testing.assert_allclose(deviations.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_deviations_of_images_of_unequal_shape_are_those_of_each_alone() -> None:
    model = tiny(pooling="gem", dim=16)
    several = [torch.rand(3, h, w) for h, w in [(64, 96), (96, 64), (64, 96)]]
    with torch.no_grad():
        together = model.embed_with_deviations(several)
        alone = [model.embed_with_deviations(image[None]) for image in several]
    for values, expected in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(values, torch.cat(expected), rtol=1e-4, atol=1e-6)


def test_models_without_feature_maps_have_no_deviations() -> None:
    features = build_model(ModelSettings(backbone="features", n_features=4))
    with pytest.raises(ConfigurationError, match="the backbone features gives no feature maps"):
        features.embed_with_deviations(torch.ones(2, 4))
    with pytest.raises(ConfigurationError, match="have one position for images of 32 x 32.*larger size"):
        tiny().embed_with_deviations(images(size=32))

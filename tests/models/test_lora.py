"""LoRA against its formula, what it trains, and merging it into the weights."""

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.models.embedding_model import build_model
from hgld.models.lora import add_lora, merge_lora
from hgld.models.model_settings import ModelSettings

RANK, ALPHA = 3, 6.0
#: Networks with linear layers, with convolutions of 1 x 1, and with an attention that reads the weight of its layer.
NETWORKS = ("test_vit", "test_resnet", "test_convnext", "beit_base_patch16_224")


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    depth = {"depth": 1, "embed_dim": 24, "num_heads": 2} if name.startswith("beit") else {}
    network: nn.Module = timm.create_model(name, num_classes=0, **depth).eval()
    for parameter in network.parameters():
        if parameter.ndim == 1:  # branches that begin with a factor of zero or nearly so
            nn.init.uniform_(parameter, 0.5, 1)
    return network


def adapted(name: str) -> nn.Module:
    """Return a network whose B are not zero."""
    adapted = network(name)
    for parameter in add_lora(adapted, RANK, ALPHA):
        nn.init.normal_(parameter, std=0.2)
    return adapted


def images(name: str) -> torch.Tensor:
    size = timm.get_pretrained_cfg_value(name, "input_size")[1]
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))


def is_adaptable(layer: nn.Module) -> bool:
    is_pointwise = isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.groups == 1
    return isinstance(layer, nn.Linear) or is_pointwise


def test_layers_compute_the_formula() -> None:
    layer, convolution = nn.Linear(5, 4).double(), nn.Conv2d(5, 4, 1, stride=2).double()
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    convolution.load_state_dict({"weight": weight[..., None, None], "bias": bias})
    both = nn.ModuleList([layer, convolution])
    a, b, a2, b2 = add_lora(both, RANK, ALPHA)
    nn.init.normal_(b)
    a2.data, b2.data = a.data, b.data
    pixels = torch.rand(2, 5, 3, 3, dtype=torch.float64)
    maps = convolution(pixels)
    for n, x in enumerate(pixels):
        for row in (0, 1):
            for column in (0, 1):
                vector = x[:, 2 * row, 2 * column]
                expected = weight @ vector + bias + (ALPHA / RANK) * (b @ (a @ vector))  # Eq. 3
                torch.testing.assert_close(layer(vector), expected)
                torch.testing.assert_close(maps[n, :, row, column], expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_only_changes_of_layers_are_trained_and_they_begin_at_zero(name: str) -> None:
    plain, lora = network(name), network(name)
    added = add_lora(lora, RANK, ALPHA)
    torch.testing.assert_close(lora(images(name)), plain(images(name)))
    lora = adapted(name)
    lora(images(name)).square().sum().backward()
    trained = {key: parameter for key, parameter in lora.named_parameters() if parameter.grad is not None}
    assert all(parameter.grad.abs().max() > 0 for parameter in trained.values() if parameter.grad is not None)
    layers = [layer for layer in plain.modules() if is_adaptable(layer)]
    assert len(trained) == len(added) == 2 * len(layers)
    shapes = [layer.get_parameter("weight").shape for layer in layers]
    assert sum(map(torch.numel, added)) == sum(RANK * (shape[0] + shape[1]) for shape in shapes)
    assert {key.rpartition(".")[2] for key in trained} == {"lora_a", "lora_b"}


@pytest.mark.parametrize("name", NETWORKS)
def test_merged_network_computes_the_same_without_lora(name: str) -> None:
    lora, plain = adapted(name), network(name)
    before = plain(images(name))
    plain.load_state_dict(merge_lora(lora.state_dict()))
    torch.testing.assert_close(plain(images(name)), lora(images(name)), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain(images(name)), before, rtol=1e-2)
    assert merge_lora(plain.state_dict()).keys() == plain.state_dict().keys()


def test_weight_that_is_read_has_the_change() -> None:
    layer = nn.Linear(5, 4)
    nn.init.normal_(add_lora(layer, RANK, ALPHA)[1])
    vectors = torch.rand(3, 5)
    torch.testing.assert_close(functional.linear(vectors, layer.weight, layer.bias), layer(vectors))


def test_half_precision_is_kept() -> None:
    lora = nn.Sequential(nn.Linear(5, 4))
    add_lora(lora, RANK, ALPHA)
    with torch.autocast("cpu", torch.bfloat16):
        assert lora(torch.rand(3, 5)).dtype == torch.bfloat16


def test_network_without_layers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lora: the backbone has no linear layers"):
        add_lora(nn.Identity(), RANK, ALPHA)


@pytest.mark.parametrize("preset", ["dinov3-large", "pe-core-large", "siglip2-large"])
def test_large_backbones_exist_and_take_lora(preset: str) -> None:
    settings = ModelSettings.model_validate({"preset": preset, "pretrained": False})
    assert settings.backbone in timm.list_pretrained()
    with torch.device("meta"):  # neither memory nor time for random numbers
        model = build_model(settings)
        model.add_lora(8, 16)
    assert model.dim == 1024
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    blocks = {name.partition("blocks.")[2].partition(".")[0] for name in names if "blocks." in name}
    assert len(blocks) == 24
    n_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    n_all = sum(parameter.numel() for parameter in model.parameters())
    assert 0.01 < n_trained / n_all < 0.02

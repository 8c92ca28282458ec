"""LoRA, the low-rank adaptation of a frozen network (Hu et al., ICLR 2022, arXiv 2106.09685).

A layer with the frozen weight W computes W x + (alpha / r) B A x (Eq. 3), where only A, shape (r, n_in), and B, shape
(n_out, r), are trained. A begins with random numbers and B with zeros, so that the network begins as it is. Layers
are linear ones and convolutions of 1 x 1 pixels, which are linear at each position. :func:`merge_lora` adds the
product to the weight, so that the network for use has its own layers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from hgld.errors import ConfigurationError

_A, _B, _SCALE = "lora_a", "lora_b", "lora_scale"


class _Lora(nn.Module):
    lora_a: nn.Parameter
    lora_b: nn.Parameter
    lora_scale: Tensor

    @property
    def own_weight(self) -> nn.Parameter:
        """The frozen weight W."""
        weight = self._parameters["weight"]
        assert weight is not None
        return weight

    @property
    def weight(self) -> Tensor:
        """W + (alpha / r) B A: some attentions, such as BEiT's, read it instead of calling the layer."""
        change = self.lora_scale * self.lora_b @ self.lora_a
        return self.own_weight + change.view_as(self.own_weight)


class _LoraLinear(_Lora, nn.Linear):  # type: ignore[override]  # the weight is read-only
    def forward(self, values: Tensor) -> Tensor:
        change = functional.linear(functional.linear(values, self.lora_a), self.lora_b)
        return functional.linear(values, self.own_weight, self.bias) + self.lora_scale * change


class _LoraConv2d(_Lora, nn.Conv2d):  # type: ignore[override]
    def forward(self, values: Tensor) -> Tensor:
        reduced = functional.conv2d(values, self.lora_a[..., None, None], stride=self.stride)
        change = functional.conv2d(reduced, self.lora_b[..., None, None])
        frozen = functional.conv2d(values, self.own_weight, self.bias, self.stride)
        return frozen + self.lora_scale * change


def add_lora(network: nn.Module, rank: int, alpha: float) -> list[nn.Parameter]:
    """Freeze a network, and let all its linear layers and convolutions of 1 x 1 have a trained change of low rank.

    Layers keep their names and weights. The attention of torch, which only CLIP's own towers have, stays frozen.

    Args:
        rank: Number r of rows of A.
        alpha: The change is scaled by alpha / r. The entries of A are normal with variance 1 / n_in.

    Returns:
        The new parameters, all that is trained.
    """
    network.requires_grad_(False)
    added = []
    layer: Any
    for layer in network.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = _LoraLinear  # keeps its weights, hooks and place
        elif _is_pointwise(layer):
            layer.__class__ = _LoraConv2d
        else:
            continue
        weight = layer.own_weight
        n_out, n_in = weight.shape[:2]
        layer.lora_a = nn.Parameter(weight.new_empty(rank, n_in).normal_(std=n_in**-0.5))
        layer.lora_b = nn.Parameter(weight.new_zeros(n_out, rank))
        layer.register_buffer(_SCALE, weight.new_tensor(alpha / rank))
        added += [layer.lora_a, layer.lora_b]
    if not added:
        raise ConfigurationError(
            "lora: the backbone has no linear layers or convolutions of 1 x 1; omit it"
        )
    return added


def _is_pointwise(layer: nn.Module) -> bool:
    """Return whether a layer is a convolution of 1 x 1, which is linear at each position."""
    if type(layer) is not nn.Conv2d:
        return False
    return layer.kernel_size == (1, 1) and layer.padding == (0, 0) and layer.groups == 1


def merge_lora(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of a network without LoRA that computes the same: its weights are W + (alpha / r) B A.

    >>> layer = nn.Sequential(nn.Linear(3, 2))
    >>> len(add_lora(layer, rank=1, alpha=1)), list(merge_lora(layer.state_dict()))
    (2, ['0.weight', '0.bias'])
    """
    merged = dict(state)
    for name in state:
        layer, _, parameter = name.rpartition(".")
        if parameter != _A:
            continue
        lora_a = merged.pop(name)
        lora_b = merged.pop(f"{layer}.{_B}")
        change = merged.pop(f"{layer}.{_SCALE}") * lora_b @ lora_a
        weight = merged[f"{layer}.weight"]
        merged[f"{layer}.weight"] = weight + change.reshape(weight.shape)
    return merged

"""The residual energy: a multi-layer perceptron from features to one number."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

_SLOPE = 0.2


class ResidualEnergy(nn.Module):
    """E_theta(z), a perceptron with LeakyReLU of slope 0.2 and one output.

    With four hidden layers it has six linear layers, as in the thesis. With ``shared_hidden``, one hidden layer is
    applied that many times, with the same weights: so does the published code, perhaps by accident. For 512 inputs
    and 1,024 hidden units that leaves 1,575,937 of 4,724,737 parameters.

    Args:
        dim: Number of features d.
        hidden_dim: Number of hidden units.
        n_hidden: Number of layers between the first and the last one.
        shared_hidden: Whether these are one layer.
        generator: Generator of the initial weights, on the CPU; they are those of :class:`torch.nn.Linear`, uniform
            within ``1 / sqrt(inputs)``. Default: zeros, to be loaded into.
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        n_hidden: int = 4,
        *,
        shared_hidden: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_hidden = n_hidden
        self.first = _linear(dim, hidden_dim, generator)
        n_own = min(n_hidden, 1) if shared_hidden else n_hidden
        self.hidden = nn.ModuleList(_linear(hidden_dim, hidden_dim, generator) for _ in range(n_own))
        self.last = _linear(hidden_dim, 1, generator)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the energy of features, shape (n, d) -> (n,)."""
        values = functional.leaky_relu(self.first(features), _SLOPE)
        for layer in range(self.n_hidden):
            values = functional.leaky_relu(self.hidden[min(layer, len(self.hidden) - 1)](values), _SLOPE)
        energies: torch.Tensor = self.last(values)
        return energies.squeeze(1)


def _linear(n_inputs: int, n_outputs: int, generator: torch.Generator | None) -> nn.Linear:
    layer = nn.Linear(n_inputs, n_outputs)
    bound = 0.0 if generator is None else 1 / math.sqrt(n_inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer

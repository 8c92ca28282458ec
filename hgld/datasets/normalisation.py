"""Normalise pixels on the device of the model, so that worker processes pass on a byte a value instead of four."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Normalisation:
    """Map of pixel values x of a colour to (x / 255 - mean) / std, computed as x * (1 / (255 std)) - mean / std.

    Args:
        mean: Mean of red, green and blue, for values of 0 to 1.
        std: Standard deviation of red, green and blue.

    >>> white = torch.full((3, 1, 1), 255, dtype=torch.uint8)
    >>> Normalisation((0.0, 0.0, 0.5), (1.0, 0.5, 0.5))(white).flatten().tolist()
    [1.0, 2.0, 1.0]
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, pixels: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normalise pixels.

        Args:
            pixels: uint8, shape (..., 3, h, w), on any device.
            dtype: Type of the result, to which values computed in float32 are rounded.

        Returns:
            Shape (..., 3, h, w), with the colours of a pixel side by side in memory, as in torch's ``channels_last``.
        """
        std = np.array(self.std, np.float32)
        colours_last = pixels.movedim(-3, -1)
        *shape, width, n_colours = colours_last.shape
        # For a whole row, as operations on three values at a time take several times as long.
        factors = np.tile(1 / (255 * std), width)
        offsets = np.tile(np.array(self.mean, np.float32) / std, width)
        values = colours_last.reshape(*shape, width * n_colours).to(torch.float32)
        values *= torch.from_numpy(factors).to(pixels.device)
        values -= torch.from_numpy(offsets).to(pixels.device)
        return values.to(dtype).reshape(*shape, width, n_colours).movedim(-1, -3)

"""Values and gradients of losses from independent implementations, made for the batch ``B64``.

Sources: ``paper``, our own reading of the equations in float64; ``paper_selfout``, the same with the query excluded
from its retrieval set; ``official``, the published code in float32; ``official_f64``, the published code in float64.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Arrays = dict[str, npt.NDArray[Any]]


def read_golden(shared: Path) -> Arrays:
    """Return all arrays of ``losses.npz`` by name, those of the batch without its prefix."""
    with np.load(shared / "golden" / "losses.npz") as arrays:
        return {name.removeprefix("B64/"): arrays[name] for name in arrays.files}


def tensor(array: npt.NDArray[Any], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return an array as a tensor, of another dtype where one is given."""
    return torch.from_numpy(array).to(dtype)


def references(golden: Arrays, dtype: torch.dtype, columns: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the embeddings and labels of the memory."""
    return tensor(golden["memory"], dtype), tensor(golden["memory_labels"])[:, :columns]


def expect_close(actual: torch.Tensor, expected: npt.NDArray[Any], atol: float) -> None:
    """Compare a tensor with an array."""
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=0, atol=atol)


def newer_losses(shared: Path) -> Arrays:
    """Return all arrays of ``newer_losses.npz`` by name: of HMLC, Hyp and HIER."""
    with np.load(shared / "golden_beyond" / "newer_losses.npz") as arrays:
        return dict(arrays)


def newer_cases(golden: Arrays, prefix: str) -> list[tuple[str, str, str]]:
    """Return the cases below a prefix: their key, the source of their numbers, and their name."""
    keys = [key.removesuffix("/value") for key in golden if key.startswith(prefix) and key.endswith("/value")]
    return [(key, *key.split("/")[1:3]) for key in keys]  # type: ignore[misc]

"""The subspace in which the embeddings of an index hardly vary, and how far others reach into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from hgld.errors import ConfigurationError, InputError
from hgld.rejection.linear_classifier import LinearClassifier, row_blocks

#: Squared singular values of the weights below this share of the largest count as 0: weights that sum to 0 over the
#: classes have such ones, of nothing but rounding.
_RANK_TOLERANCE = 1e-10
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class ResidualSpace:
    """The orthogonal complement of the principal subspace, about the origin of a classifier (ViM, Sec. 4.1).

    Args:
        origin: float, shape (d,): ``u = - pinv(W) b``, where the logits are nearest to 0.
        directions: float, shape (d, d - D): orthonormal columns.
    """

    origin: torch.Tensor
    directions: torch.Tensor

    def norms(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the length of the residual of each embedding, shape (n,)."""
        norms: torch.Tensor = torch.linalg.vector_norm((embeddings - self.origin) @ self.directions, dim=1)
        return norms

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by name."""
        return {"origin": self.origin, "directions": self.directions}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> ResidualSpace:
        """Build it from a mapping that has its :meth:`tensors` among others."""
        return cls(tensors["origin"], tensors["directions"])


def fit_residual_space(
    embeddings: torch.Tensor, classifier: LinearClassifier, n_principal: int | None, *, centred: bool = False
) -> ResidualSpace:
    """Find the directions of all but the largest eigenvalues of ``(1/n) (X - u)^T (X - u)``.

    Args:
        embeddings: float, shape (n, d); may be memory-mapped.
        classifier: Classifier of the embeddings.
        n_principal: Number D of dropped directions. Default: half the dimensions, and half the images at most.
        centred: Whether to use the covariance about the mean instead.

    Raises:
        ConfigurationError: D is not from 1 to d - 1.
        InputError: The images have no residual, for they span D dimensions or fewer.
    """
    n, dim = embeddings.shape
    if n_principal is None:
        n_principal = max(1, min(dim // 2, n // 2))
    if not 1 <= n_principal < dim:
        raise ConfigurationError(
            f"`n_principal` is {n_principal}, and the embeddings have {dim} dimensions; expected 1 to {dim - 1}"
        )
    origin = _origin(classifier)
    sums, products = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dim, dtype=torch.float64)
    for rows in row_blocks(n, dim):
        block = embeddings[rows].double() - origin
        sums += block.sum(dim=0)
        products += block.T @ block
    products /= n
    if centred:
        products -= torch.outer(sums / n, sums / n)
    eigenvalues, vectors = torch.linalg.eigh(products)
    n_residual = dim - n_principal
    if eigenvalues[:n_residual].clamp(min=0).sum() <= _ROUNDING**2 * eigenvalues.sum():
        raise InputError(
            f"{n:,} images span {n_principal} dimensions or fewer, so nothing remains without the {n_principal} "
            "largest; lower `n_principal`, or fit on more images"
        )
    dtype = classifier.weight.dtype
    return ResidualSpace(origin.to(dtype), vectors[:, :n_residual].to(dtype).contiguous())


def _origin(classifier: LinearClassifier) -> torch.Tensor:
    """Return ``- pinv(W) b`` from ``W^T W``, which has d rows however many classes there are: float64, shape (d,)."""
    weight, bias = classifier.weight.double(), classifier.bias.double()
    eigenvalues, vectors = torch.linalg.eigh(weight.T @ weight)
    kept = eigenvalues > _RANK_TOLERANCE * eigenvalues[-1]
    basis = vectors[:, kept]
    solution: torch.Tensor = basis @ ((basis.T @ (weight.T @ bias)) / eigenvalues[kept])
    return -solution

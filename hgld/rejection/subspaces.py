"""Rejection scores from the subspace in which the embeddings of an index hardly vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from hgld.errors import ConfigurationError, InputError, require_choice
from hgld.rejection.classifiers import LinearClassifier, row_blocks
from hgld.rejection.logit_scores import ClassifierDetector

#: Squared singular values of the weights below this share of the largest count as 0: weights that
#: sum to 0 over the classes have such values from rounding.
_RANK_TOLERANCE = 1e-10
_ROUNDING = 1e-6
VimVariant = Literal["paper", "code"]


@dataclass(frozen=True, eq=False)
class ResidualSpace:
    """The orthogonal complement of the principal subspace, about an origin (ViM, Sec. 4.1).

    Args:
        origin: float, shape (d,): ``u = - pinv(W) b``, where the logits are nearest to 0.
        directions: float, shape (d, d - D): orthonormal columns.
    """

    origin: Tensor
    directions: Tensor

    def norms(self, embeddings: Tensor) -> Tensor:
        """Return the length of the residual of each embedding, shape (n,)."""
        residuals = (embeddings - self.origin) @ self.directions
        norms: Tensor = torch.linalg.vector_norm(residuals, dim=1)
        return norms


def fit_residual_space(
    embeddings: Tensor,
    classifier: LinearClassifier,
    n_principal: int | None,
    *,
    centred: bool = False,
) -> ResidualSpace:
    """Find the directions of all but the D largest eigenvalues of ``(1/n) (X - u)^T (X - u)``.

    Args:
        embeddings: Embeddings X, shape (n, d).
        classifier: Classifier that determines the origin u.
        n_principal: Number D of dropped directions. Default: half the dimensions, and at most half
            the images.
        centred: Whether to take the covariance about the mean instead.

    Raises:
        ConfigurationError: D is not from 1 to d - 1.
        InputError: The images span D dimensions or fewer, so they have no residual.
    """
    n, dim = embeddings.shape
    if n_principal is None:
        n_principal = max(1, min(dim // 2, n // 2))
    if not 1 <= n_principal < dim:
        raise ConfigurationError(
            f"`n_principal` is {n_principal}, and the embeddings have {dim} dimensions; expected 1 to {dim - 1}"
        )
    origin = _origin(classifier)
    sums = torch.zeros(dim, dtype=torch.float64)
    products = torch.zeros(dim, dim, dtype=torch.float64)
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


def _origin(classifier: LinearClassifier) -> Tensor:
    """Return ``- pinv(W) b``, float64, shape (d,), from ``W^T W``, shape (d, d)."""
    weight = classifier.weight.double()
    bias = classifier.bias.double()
    eigenvalues, vectors = torch.linalg.eigh(weight.T @ weight)
    is_kept = eigenvalues > _RANK_TOLERANCE * eigenvalues[-1]
    basis = vectors[:, is_kept]
    coordinates = basis.T @ (weight.T @ bias)
    solution: Tensor = basis @ (coordinates / eigenvalues[is_kept])
    return -solution


@dataclass(eq=False)
class Residual(ClassifierDetector):
    """The length of an embedding outside the principal subspace (Wang et al., CVPR 2022).

    ``|R^T (z - u)|``, with R the eigenvectors of ``(1/n) (X - u)^T (X - u)`` except the D largest,
    and the origin ``u = -pinv(W) b`` of the classifier. The score rejects images of other kinds
    (far), but not landmarks that the index lacks (near).

    Args:
        n_principal: Number D of dropped directions. Default: half the dimensions, and at most half
            the images; the paper uses 1000 of 2048 or 1500, and 512 of 768.
    """

    name: ClassVar[str] = "residual"
    n_principal: int | None = None

    def _fit_to_index(self, embeddings: Tensor) -> None:
        self.space = fit_residual_space(embeddings, self.head, self.n_principal)

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        return self.space.norms(embeddings)


@dataclass(eq=False)
class Vim(ClassifierDetector):
    """Virtual-logit matching, ViM: ``alpha r - log sum_c exp(l_c)`` (Wang et al., CVPR 2022).

    r is the length of the residual (see :class:`Residual`). The factor alpha scales residuals to
    logits: the mean over the index of the largest logit, divided by the mean of the residuals. Near
    images are rejected by their logits, far images by their residuals.

    Args:
        n_principal: Number D of principal directions. Default: half the dimensions, and at most
            half the images.
        variant: ``paper``; or ``code`` for the computation of heatood, which takes logits of ``z -
            u`` in place of z and the residual space of the centred covariance, and rejects worse.
    """

    name: ClassVar[str] = "vim"
    n_principal: int | None = None
    variant: VimVariant = "paper"

    def __post_init__(self) -> None:
        require_choice(VimVariant, variant=self.variant)

    def _fit_to_index(self, embeddings: Tensor) -> None:
        self.space = fit_residual_space(
            embeddings, self.head, self.n_principal, centred=self.variant == "code"
        )
        dtype = self.head.weight.dtype
        logit_sum = 0.0
        residual_sum = 0.0
        for rows in row_blocks(len(embeddings), self.head.n_classes):
            block = embeddings[rows].to(dtype)
            logit_sum += self.head.logits(block).amax(dim=1).sum(dtype=torch.float64).item()
            residual_sum += self.space.norms(block).sum(dtype=torch.float64).item()
        if logit_sum <= 0:
            raise InputError(
                f"the mean of the largest logits of the index is {logit_sum / len(embeddings):.3g}; ViM expects "
                "positive logits, so shift the biases of the classifier"
            )
        self.alpha = torch.tensor(logit_sum / residual_sum, dtype=dtype)

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        virtual_logits = self.alpha * self.space.norms(embeddings)
        if self.variant == "code":
            embeddings = embeddings - self.space.origin
        return virtual_logits - self.head.logits(embeddings).logsumexp(dim=1)

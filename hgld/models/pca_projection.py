r"""PCA initialisation of the projection.

Let m be the mean and C = sum (x - m)(x - m)^T / (N - 1) the covariance of the features of N images, with the d
largest eigenvalues l_i and their eigenvectors v_i. Row i of the projection and its bias are, without and with
whitening,

    w_i = v_i    or    w_i = v_i / sqrt(max(l_i, 1e-6 l_1)),    b_i = -w_i . m

The projected features have mean 0 and, with whitening, covariance 1 except for eigenvalues below the floor; the floor
keeps directions without variance near 0 instead of amplifying noise.

Whitening gives all directions the same weight. Landmarks are separated better, and their common features worse, as
these are in the directions of large variance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from hgld.compute.processes import Processes
from hgld.datasets.loading import Images
from hgld.errors import ConfigurationError, InputError
from hgld.models.embedding_model import EmbeddingModel

_RELATIVE_FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and scatter matrix of vectors, accumulated over batches in float64.

    Args:
        mean: float64, shape (C,).
        scatter: Sum of (x - mean)(x - mean)^T; float64, shape (C, C).

    >>> first, second = torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 1.0]])
    >>> (Moments.from_vectors(first) + Moments.from_vectors(second)).scatter.tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """

    count: int
    mean: Tensor
    scatter: Tensor

    @classmethod
    def from_vectors(cls, vectors: Tensor) -> Moments:
        """Compute the moments of a batch: float, shape (B, C), B at least 1."""
        vectors = vectors.double()
        mean = vectors.mean(0)
        return cls(len(vectors), mean, (vectors - mean).T @ (vectors - mean))

    def to(self, device: torch.device | str) -> Moments:
        """Return a copy on a device."""
        return Moments(self.count, self.mean.to(device), self.scatter.to(device))

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the union (Chan et al., 1983)."""
        count = self.count + other.count
        step = other.mean - self.mean
        between = torch.outer(step, step) * (self.count * other.count / count)
        scatter = self.scatter + other.scatter + between
        return Moments(count, self.mean + step * (other.count / count), scatter)


def pca(moments: Moments, dim: int, *, whitened: bool) -> tuple[Tensor, Tensor]:
    """Compute the weight and bias of the projection by the formulas of this module.

    The sign of each eigenvector is chosen so that its entry of largest magnitude is positive.

    Returns:
        Weight and bias, float64, shapes (d, C) and (d,).

    Raises:
        InputError: There are no more than d images, or their features are all the same or not finite.
    """
    if moments.count <= dim:
        raise InputError(
            f"PCA to {dim:,} dimensions needs more than {dim:,} images; found {moments.count:,}. Choose a smaller "
            "`dim`, or set `projection` to random"
        )
    if not moments.scatter.isfinite().all() or not moments.scatter.any():
        raise InputError(
            f"the features of {moments.count:,} images are all the same, or not finite, and have no PCA; "
            "check the images and the weights of the backbone"
        )
    eigenvalues, vectors = torch.linalg.eigh(moments.scatter / (moments.count - 1))
    eigenvalues, rows = eigenvalues.flip(0)[:dim], vectors.T.flip(0)[:dim]
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    weight = rows * largest.sign()
    if whitened:
        weight /= eigenvalues.clamp(min=_RELATIVE_FLOOR * eigenvalues[0].item()).sqrt()[:, None]
    return weight, -weight @ moments.mean


@torch.no_grad()
def initialise_projection(
    model: EmbeddingModel, batches: Iterable[Images], processes: Processes | None = None
) -> None:
    """Initialise the projection layer by PCA of features, whitened if the model's settings say so.

    Args:
        model: Model with a projection. Features are computed in evaluation mode; its mode and device are kept.
        batches: Batches of images, or of features for a model without backbone; this process's share.
    """
    if model.projection is None:
        raise ConfigurationError("the model has no projection to initialise by PCA; set `dim`")
    processes = processes or Processes()
    moments: Moments | None = None
    for process_moments in processes.gather(_feature_moments(model, batches)):
        moments = _union(moments, process_moments)
    if moments is None:
        raise InputError("there are no images to compute the PCA from")
    whitened = model.settings.projection == "whitening"
    weight, bias = pca(moments, model.dim, whitened=whitened)
    model.projection.weight.copy_(weight)
    model.projection.bias.copy_(bias)


def _feature_moments(model: EmbeddingModel, batches: Iterable[Images]) -> Moments | None:
    """Return the moments of the features on the CPU; None if there are no images."""
    training = model.training
    model.eval()
    moments: Moments | None = None
    for images in batches:
        if len(images):
            features = model.features(model.to_device(images))
            moments = _union(moments, Moments.from_vectors(features))
    model.train(training)
    if moments is None:
        return None
    return moments.to("cpu")


def _union(first: Moments | None, second: Moments | None) -> Moments | None:
    """Return the moments of both sets of vectors; None stands for no vectors."""
    if first is None or second is None:
        return first or second
    return first + second

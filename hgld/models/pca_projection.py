r"""PCA of features, as what a projection begins with.

With the mean m and the covariance C = sum (x - m)(x - m)^T / (N - 1) of the features of N images, and the d largest
eigenvalues l_i of C with their eigenvectors v_i, row i of the projection and its bias are, without and with
whitening,

    w_i = v_i    or    w_i = v_i / sqrt(max(l_i, 1e-6 l_1)),    b_i = -w_i . m

so that the projected features have mean 0 and, with whitening, but for eigenvalues below the floor, covariance 1.
Directions without variance stay near 0 instead of growing without bounds.

Whitening makes all directions equally loud: it tells landmarks apart better, and what they have in common worse, as
that is in the loudest ones.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch

from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError, InputError
from hgld.models.embedding_model import EmbeddingModel

_FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class Moments:
    """What is known of the distribution of vectors; exact, in batches, in float64.

    Args:
        count: how many vectors there were.
        mean: float64, shape (C,).
        scatter: the sum of (x - mean)(x - mean)^T, float64, shape (C, C).
    """

    count: int
    mean: torch.Tensor
    scatter: torch.Tensor

    @classmethod
    def of(cls, vectors: torch.Tensor) -> Moments:
        """Of a batch, float, shape (B, C), B at least 1."""
        vectors = vectors.double()
        mean = vectors.mean(0)
        return cls(len(vectors), mean, (vectors - mean).T @ (vectors - mean))

    def to(self, device: torch.device | str) -> Moments:
        """The same on another device."""
        return Moments(self.count, self.mean.to(device), self.scatter.to(device))

    def __add__(self, other: Moments) -> Moments:
        """Of both together (Chan et al., 1983)."""
        count = self.count + other.count
        step = other.mean - self.mean
        scatter = self.scatter + other.scatter + torch.outer(step, step) * (self.count * other.count / count)
        return Moments(count, self.mean + step * (other.count / count), scatter)


def pca(moments: Moments, dim: int, *, whitened: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the projection, by the formulas above.

    The sign of an eigenvector is that which makes its largest number positive.

    Args:
        moments: of the features.
        dim: d, at most C.
        whitened: whether directions are scaled.

    Returns:
        float64, shapes (d, C) and (d,).

    Raises:
        InputError: there are not more images than d, so that some directions are unknown, or the features of all of
            them are the same or not finite.
    """
    if moments.count <= dim:
        raise InputError(
            f"PCA to {dim:,} dimensions needs more than {dim:,} images; found {moments.count:,}. Choose a smaller "
            "dim, or set projection to random"
        )
    if not moments.scatter.isfinite().all() or not moments.scatter.any():
        raise InputError(
            f"the features of {moments.count:,} images are all the same, or not finite, and have no PCA; "
            "look at the images and at the weights of the backbone"
        )
    eigenvalues, vectors = torch.linalg.eigh(moments.scatter / (moments.count - 1))
    eigenvalues, rows = eigenvalues.flip(0)[:dim], vectors.T.flip(0)[:dim]
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    weight = rows * largest.sign()
    if whitened:
        weight /= eigenvalues.clamp(min=_FLOOR * eigenvalues[0].item()).sqrt()[:, None]
    return weight, -weight @ moments.mean


@torch.no_grad()
def initialise_projection(
    model: EmbeddingModel, batches: Iterable[torch.Tensor], processes: Processes | None = None
) -> None:
    """Let the projection of a model begin as its settings say: as PCA of the features of images, or whitened.

    Args:
        model: with a projection; its mode and device stay as they are, features are taken in evaluation.
        batches: what the model takes; those of this process's part.
        processes: that share the images; all of them get the same projection.

    Raises:
        ConfigurationError: the model has no projection.
        InputError: there are not more images than dimensions, or their features do not vary or are not finite.
    """
    if model.projection is None:
        raise ConfigurationError("the model has no projection that could begin as PCA; set dim")
    weight = model.projection.weight
    training = model.training
    model.eval()
    own: Moments | None = None
    for images in batches:
        if len(images):
            found = Moments.of(model.features(images.to(weight.device)))
            own = own + found if own else found
    model.train(training)
    parts = (processes or Processes()).gather(own and own.to("cpu"))
    known = [part for part in parts if part]
    if not known:
        raise InputError("there are no images to take the PCA of")
    rows, bias = pca(reduce(operator.add, known), model.dim, whitened=model.settings.projection == "whitening")
    weight.copy_(rows)
    model.projection.bias.copy_(bias)

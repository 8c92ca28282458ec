"""Class Gaussians with a shared covariance, and Mahalanobis distances to them.

Class means and the covariance within classes are accumulated in float64 in two passes over blocks
of images. Besides the embeddings, this takes O(C d + d^2) memory for C classes and d dimensions.
Embeddings are then whitened, ``(z - origin) A`` with ``A A^T`` the inverse of the covariance, which
turns Mahalanobis distances into Euclidean distances. These are computed for a block of images and a
block of classes at a time.

With C landmarks and n images, the rank of the covariance within landmarks is at most n - C;
landmarks with one image do not contribute. A singular covariance is shrunk. For an index where most
landmarks have one or two images, fit on labels of a coarser level, such as the super-category.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hgld.arrays import Integers
from hgld.compute.scoring import at_least_float32
from hgld.errors import InputError, require

#: Number of images per block while fitting.
_ROWS = 8192
#: Number of distances computed at once.
_DISTANCES = 2**24
#: Largest ratio of the smallest to the largest eigenvalue of a singular covariance: directions with
#: a standard deviation of less than 1e-5 of the largest one are dominated by the rounding of
#: float32 embeddings.
_SINGULAR = 1e-10


@dataclass(frozen=True, eq=False)
class ClassGaussians:
    """One Gaussian per class, all with the same covariance.

    Methods are differentiable with respect to the embeddings.

    Args:
        origin: float, shape (d,): mean of all images, subtracted before whitening to keep the
            precision of float32.
        whitening: float, shape (d, d): A, with ``A A^T`` the inverse of the covariance.
        means: float, shape (C, d): whitened means of the classes.
        log_frequencies: float, shape (C,): logarithm of the share of images in each class.
        log_determinant: float, shape (): logarithm of the determinant of the covariance.
        shrinkage: float, shape (): weight of the scaled identity in the covariance; see
            :func:`fit_gaussians`.
    """

    origin: Tensor
    whitening: Tensor
    means: Tensor
    log_frequencies: Tensor
    log_determinant: Tensor
    shrinkage: Tensor

    @property
    def dim(self) -> int:
        """Dimension d of the embeddings."""
        return len(self.origin)

    def to(self, device: torch.device) -> ClassGaussians:
        """Return the Gaussians on a device."""
        return ClassGaussians(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def whiten(self, embeddings: Tensor) -> Tensor:
        """Return whitened embeddings, whose covariance is the identity, shape (n, d)."""
        return (embeddings.to(self.origin.dtype) - self.origin) @ self.whitening

    def nearest_squared_distances(self, embeddings: Tensor) -> Tensor:
        """Return the squared Mahalanobis distance to the nearest class, shape (n,)."""
        smallest = [block.amin(dim=1) for block in self._distance_blocks(embeddings)]
        return torch.stack(smallest).amin(dim=0)

    def mixture_energies(self, embeddings: Tensor, *, temperature: float = 1.0) -> Tensor:
        """Return ``-T log sum_c exp(-d_c^2 / (2T))``, shape (n,), in blocks of classes.

        With temperature 1, it is the energy of Sec. 5.2.2 of the thesis, whose Gaussians have equal
        weights and no constants.
        """
        terms = []
        for block in self._distance_blocks(embeddings):
            terms.append(block.div(-2 * temperature).logsumexp(dim=1))
        return -temperature * torch.stack(terms).logsumexp(dim=0)

    def negative_log_likelihoods(self, embeddings: Tensor) -> Tensor:
        """Return ``-log sum_c pi_c N(z; mu_c, Sigma)``, pi_c the class frequency, shape (n,)."""
        terms = []
        start = 0
        for block in self._distance_blocks(embeddings):
            stop = start + block.shape[1]
            terms.append((self.log_frequencies[start:stop] - block / 2).logsumexp(dim=1))
            start = stop
        constant = (self.dim * math.log(2 * math.pi) + self.log_determinant) / 2
        return constant - torch.stack(terms).logsumexp(dim=0)

    def _distance_blocks(self, embeddings: Tensor) -> Iterator[Tensor]:
        """Yield squared distances to blocks of c classes, shape (n, c)."""
        whitened = self.whiten(embeddings)
        lengths = whitened.square().sum(dim=1, keepdim=True)
        width = max(1, _DISTANCES // max(len(whitened), 1))
        for means in torch.split(self.means, width):
            products = whitened @ means.T
            yield (lengths + means.square().sum(dim=1) - 2 * products).clamp(min=0)


def fit_gaussians(
    embeddings: Tensor,
    classes: Integers,
    *,
    unit_length: bool = False,
    shrinkage: float | None = None,
) -> ClassGaussians:
    """Fit one Gaussian per class with a shared covariance.

    ::

        Sigma = (1/n) sum_i (z_i - mu_{y_i}) (z_i - mu_{y_i})^T

    A class with one image has a mean, but does not contribute to the covariance.

    Args:
        embeddings: float, shape (n, d); may be memory-mapped.
        classes: int64, shape (n,): class of each image; images with negative classes are excluded.
        unit_length: Whether to scale each embedding to length 1 first.
        shrinkage: Weight s, from 0 to 1, in the covariance ``(1 - s) Sigma + s (tr Sigma / d) I``.
            Default: 0 for an invertible covariance. For a singular covariance, such as with fewer
            images than dimensions or constant features, the weight of Ledoit and Wolf (A
            well-conditioned estimator for large-dimensional covariance matrices, 2004).

    Raises:
        ConfigurationError: The shrinkage is out of range.
        InputError: No image has a class, the images of each class are identical, the covariance is
            singular even with the given shrinkage, or an embedding to be scaled has only zeros.

    >>> embeddings = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0], [1.0, 1.0], [1.0, 3.0]])
    >>> gaussians = fit_gaussians(embeddings, np.array([0, 0, 1, 1, 2, 2]))
    >>> gaussians.nearest_squared_distances(torch.tensor([[1.0, 2.0], [4.0, 2.0]])).round(decimals=3).tolist()
    [0.0, 13.5]
    """
    require(shrinkage is None or 0 <= shrinkage <= 1, "a number from 0 to 1", shrinkage=shrinkage)
    indices, counts = number_classes(classes)
    n = int(counts.sum())
    means = torch.zeros(len(counts), embeddings.shape[1], dtype=torch.float64)
    for block, block_classes in _blocks(embeddings, indices, unit_length):
        means.index_add_(0, block_classes, block)
    means /= counts[:, None]
    covariance = torch.zeros(means.shape[1], means.shape[1], dtype=torch.float64)
    second_moment = 0.0
    fourth_moment = 0.0
    for block, block_classes in _blocks(embeddings, indices, unit_length):
        second_moment += block.square().sum().item()
        deviations = block - means[block_classes]
        covariance += deviations.T @ deviations
        fourth_moment += deviations.square().sum(dim=1).square().sum().item()
    covariance /= n
    if covariance.trace() <= 1e-12 * second_moment / n:
        raise InputError(
            f"the images of each of {len(counts):,} classes are identical, or single ones, so there is no covariance "
            "within classes; fit on labels of a coarser level, or use the score knn"
        )
    if shrinkage is None:
        shrinkage = 0.0
        if _is_singular(covariance):
            shrinkage = _ledoit_wolf(covariance, fourth_moment / n, n)
    dtype = at_least_float32(embeddings[:0]).dtype
    return gaussians_from_moments(means, covariance, counts, shrinkage=shrinkage, dtype=dtype)


def gaussians_from_moments(
    means: Tensor,
    covariance: Tensor,
    counts: Tensor,
    *,
    shrinkage: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> ClassGaussians:
    """Return Gaussians of C classes with given means and covariance, computed in float64.

    Args:
        means: Means of the classes, shape (C, d).
        covariance: Covariance within classes, shape (d, d).
        counts: Number of images of each class, shape (C,).
        shrinkage: See :func:`fit_gaussians`.
        dtype: Dtype of the result.

    Raises:
        InputError: The covariance is singular.
    """
    means = means.double()
    covariance = covariance.double()
    counts = counts.double()
    dim = len(covariance)
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    shrunk = (1 - shrinkage) * eigenvalues + shrinkage * covariance.trace() / dim
    if shrunk[0] <= _SINGULAR * shrunk[-1]:
        rank = int((eigenvalues > _SINGULAR * eigenvalues[-1]).sum())
        raise InputError(
            f"the covariance of {int(counts.sum()):,} images within {len(counts):,} classes is singular: it has the "
            f"rank {rank} in {dim} dimensions; set `shrinkage`, such as 0.1, or fit on more images"
        )
    whitening = (vectors / shrunk.sqrt()).contiguous()  # LAPACK returns column-major matrices
    frequencies = counts / counts.sum()
    origin = frequencies @ means
    return ClassGaussians(
        origin=origin.to(dtype),
        whitening=whitening.to(dtype),
        means=((means - origin) @ whitening).to(dtype),
        log_frequencies=frequencies.log().to(dtype),
        log_determinant=shrunk.log().sum().to(dtype),
        shrinkage=torch.tensor(shrinkage, dtype=dtype),
    )


def number_classes(labels: Integers) -> tuple[Tensor, Tensor]:
    """Number the classes of images from 0, in the order of their labels.

    Args:
        labels: int64, shape (n,); negative for unlabelled images.

    Returns:
        Class number of each image, int64, shape (n,), with -1 for unlabelled images; and the number
        of images of each class, float64, shape (C,).

    Raises:
        InputError: No image is labelled.

    >>> number_classes(np.array([7, -1, 3, 7]))
    (tensor([ 1, -1,  0,  1]), tensor([1., 2.], dtype=torch.float64))
    """
    is_labelled = labels >= 0
    if not is_labelled.any():
        raise InputError(
            "no image has a label of 0 or more; give the landmarks of the index as `labels`"
        )
    indices = np.full(len(labels), -1)
    _, indices[is_labelled] = np.unique(labels[is_labelled], return_inverse=True)
    counts = np.bincount(indices[is_labelled])
    return torch.from_numpy(indices), torch.from_numpy(counts).double()


def unit_length(embeddings: Tensor) -> Tensor:
    """Return embeddings scaled to length 1, float32 or float64.

    Raises:
        InputError: An embedding has only zeros.

    >>> unit_length(torch.tensor([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    embeddings = at_least_float32(embeddings)
    lengths: Tensor = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
    if not lengths.all():
        n_zero = int((lengths == 0).sum())
        raise InputError(
            f"{n_zero:,} embeddings have only zeros, which have no direction; embed these images again"
        )
    return embeddings / lengths


def _blocks(
    embeddings: Tensor, indices: Tensor, is_scaled: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield float64 embeddings and classes of the images with a class, in blocks of images."""
    for start in range(0, len(embeddings), _ROWS):
        block_classes = indices[start : start + _ROWS]
        has_class = block_classes >= 0
        block = embeddings[start : start + _ROWS][has_class].double()
        if is_scaled:
            block = unit_length(block)
        yield block, block_classes[has_class]


def _is_singular(covariance: Tensor) -> bool:
    eigenvalues = torch.linalg.eigvalsh(covariance)
    return bool(eigenvalues[0] <= _SINGULAR * eigenvalues[-1])


def _ledoit_wolf(covariance: Tensor, fourth_moment: float, n: int) -> float:
    """Return the shrinkage of Ledoit and Wolf (2004), Lemmas 3.2 to 3.4, for means of 0."""
    scale = covariance.diagonal().mean()
    squares = covariance.square().sum()
    dispersion = (squares - len(covariance) * scale**2).item()
    if dispersion <= 0:
        return 1.0
    error = (fourth_moment - squares.item()) / n
    return min(max(error, 0.0) / dispersion, 1.0)

"""The margin loss with distance-weighted sampling of negatives."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.autograd import inner_products
from hgld.losses.kernels.class_losses import ClassLoss, check_classes, euclidean_distances

#: Distances between which negatives are weighted by their density.
_NEAREST, _FARTHEST = 0.5, 1.4


class MarginLoss(ClassLoss):
    """[D_ap - beta + margin]_+ + [beta - D_an + margin]_+ over sampled triplets (Wu et al., ICCV 2017).

    D are Euclidean distances, and beta is a learnt boundary of the query's class. Each pair of a query a and a
    positive p gets one negative n of the query, drawn with a probability inverse to the density of its distance among
    random unit vectors (Eqs. 5 and 6 there), with torch's global generator. The sum is divided by the number of terms
    that are positive. A query is not its own positive.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        margin: Margin alpha between the boundary and the distances, above 0.
        beta: Initial boundary, a distance, 0 to 2.

    Raises:
        ConfigurationError: A number is out of range.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> MarginLoss(n_classes=2)(embeddings, torch.tensor([[0], [0], [1]])).isfinite()
    tensor(True)
    """

    def __init__(self, n_classes: int, margin: float = 0.2, beta: float = 1.2) -> None:
        super().__init__()
        if n_classes < 1:
            raise ConfigurationError(f"`n_classes` is {n_classes}; expected at least 1")
        if not (margin > 0 and 0 <= beta <= 2):
            raise ConfigurationError(f"`margin` is {margin} and `beta` {beta}; expected above 0, and 0 to 2")
        self.n_classes = n_classes
        self.margin = margin
        self.boundaries = nn.Parameter(torch.full((n_classes,), float(beta)))

    def forward_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.ClassLoss.forward_classes`."""
        check_classes(classes, self.n_classes)
        references = embeddings if reference_embeddings is None else reference_embeddings
        same = classes[:, None] == (classes if reference_classes is None else reference_classes)
        negatives = ~same
        if reference_embeddings is None:
            same.fill_diagonal_(False)
        distances = euclidean_distances(inner_products(embeddings, references))
        queries, positives, sampled = self._triplets(distances.detach(), same, negatives, embeddings.shape[1])
        beta = self.boundaries.to(embeddings.dtype)[classes[queries]]
        terms = torch.stack(
            [
                functional.relu(distances[queries, positives] - beta + self.margin),
                functional.relu(beta - distances[queries, sampled] + self.margin),
            ]
        )
        return terms.sum() / (terms > 0).sum().clamp(min=1)

    def _triplets(
        self, distances: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor, dim: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return query, positive and sampled negative of each triplet, int64 tensors of the same length."""
        weights = sampling_weights(distances, negatives, dim)
        queries, partners = (positives & (weights.sum(1, keepdim=True) > 0)).nonzero().unbind(1)
        if not len(queries):
            return queries, partners, partners
        return queries, partners, torch.multinomial(weights[queries], 1)[:, 0]


def sampling_weights(distances: torch.Tensor, negatives: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the weights of distance-weighted sampling (Wu et al., Eqs. 5 and 6).

    Below a distance of 0.5 they are those of this distance, and from 1.4 on 0.

    Args:
        distances: Float tensor of shape (B, N).
        negatives: Boolean mask of the same shape.
        dim: Dimension d of the embeddings: distances D of random unit vectors have a density proportional to
            D^(d-2) (1 - D^2 / 4)^((d-3)/2).

    Returns:
        Tensor of the same shape: inverse densities relative to the largest of each row.

    >>> distances = torch.tensor([[0.3, 0.5, 1.0, 1.5]])
    >>> sampling_weights(distances, torch.ones(1, 4).bool(), 8)
    tensor([[1.0000, 1.0000, 0.0273, 0.0000]])
    """
    drawn = negatives & (distances < _FARTHEST)
    clamped = distances.clamp(min=_NEAREST, max=_FARTHEST)
    log_density = (dim - 2) * clamped.log() + (dim - 3) / 2 * (1 - clamped.square() / 4).clamp(min=1e-6).log()
    log_weights = (-log_density).masked_fill(~drawn, -torch.inf)
    highest = log_weights.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)
    return (log_weights - highest).exp()

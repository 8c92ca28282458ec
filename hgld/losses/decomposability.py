"""The two decomposability losses, which keep scores comparable between batches (paper, section III-C).

A rank loss only orders the scores of a batch. Comparable scores narrow the gap between the mean loss of the batches
and the loss of the whole set.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from hgld.errors import require, require_choice
from hgld.losses.kernels.class_losses import PairLoss, ProxyBasedLoss, uniform_proxies
from hgld.losses.kernels.steps import check_temperature

#: How the pairs of L_DG are averaged.
PairReduction = Literal["query_mean", "violating"]


class DecomposabilityLoss(PairLoss):
    """L_DG, which pulls positives above one score and pushes negatives below another in every batch (paper, Eq. 7).

    ::

        L_DG = 1/|Omega^+| sum over positives of [alpha - s]_+  +  1/|Omega^-| sum over negatives of [s - beta]_+

    averaged over queries. It is the calibration loss of ROADMAP (NeurIPS 2021, Eq. 7).

    Args:
        alpha: Cosine below which positives are penalised, -1 to 1.
        beta: Cosine above which negatives are penalised, -1 to 1.
        reduction: ``query_mean`` averages over the pairs of each query (Eq. 7). ``violating`` averages over all pairs
            of the batch with a positive term, as the published code does, which keeps the gradient large when few
            such pairs are left.
        include_query: Count the query as one of its own positives when there are no references; ``violating`` never
            does.

    Raises:
        ConfigurationError: A score is not a cosine, or there is no such reduction.

    >>> loss = DecomposabilityLoss(include_query=False)
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0], [0]]))
    tensor(0.1000)
    """

    def __init__(
        self,
        alpha: float = 0.9,
        beta: float = 0.6,
        reduction: PairReduction = "query_mean",
        *,
        include_query: bool = True,
    ) -> None:
        super().__init__(include_query and reduction != "violating")
        require(-1 <= alpha <= 1 and -1 <= beta <= 1, "cosines, -1 to 1", alpha=alpha, beta=beta)
        require_choice(PairReduction, reduction=reduction)
        self.alpha = alpha
        self.beta = beta
        self.reduction = reduction

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.PairLoss.forward_pairs`."""
        positive_terms = torch.where(positives, functional.relu(self.alpha - scores), 0)
        negative_terms = torch.where(negatives, functional.relu(scores - self.beta), 0)
        if self.reduction == "violating":
            positive_mean = positive_terms.sum() / (positive_terms > 0).sum().clamp(min=1)
            return positive_mean + negative_terms.sum() / (negative_terms > 0).sum().clamp(min=1)
        query_losses = positive_terms.sum(dim=1) / positives.sum(dim=1).clamp(min=1)
        query_losses = query_losses + negative_terms.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)
        return query_losses.mean()


class ProxyLoss(ProxyBasedLoss):
    """L*_DG, cross entropy of the cosines with one learnt proxy per class (paper, Eq. 8).

    ::

        L*_DG = -log( exp(v . p_y / eta) / sum over proxies z of exp(v . p_z / eta) )

    averaged over the batch, with normalised proxies. This is NormSoftMax (Zhai and Wu, BMVC 2019). Proxies are
    initialised uniformly between -1 / sqrt(d) and 1 / sqrt(d), as there.

    The term of an image with several labels is the mean of its labels' terms, that is the cross entropy with the same
    target 1/n for each of its n classes (Mahajan et al., ECCV 2018, section 2.1, for images with several hashtags).

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        eta: Temperature, at least 1e-8.

    Raises:
        ConfigurationError: A number is out of range.

    >>> loss = ProxyLoss(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    takes_label_sets = True

    def __init__(self, n_classes: int, dim: int, eta: float = 0.05) -> None:
        super().__init__(n_classes, dim)
        check_temperature("eta", eta)
        self.eta = eta
        self.proxies = uniform_proxies(n_classes, dim)

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.ProxyBasedLoss.forward_proxies`."""
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        logits = embeddings @ proxies.T / self.eta
        if classes.ndim == 1:
            return functional.cross_entropy(logits, classes)
        is_label = classes >= 0
        log_probabilities = functional.log_softmax(logits, dim=1).gather(1, classes.clamp(min=0))
        return -((log_probabilities * is_label).sum(1) / is_label.sum(1)).mean()

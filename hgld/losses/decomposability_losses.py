"""The two losses that keep scores comparable between batches, so that rank losses of batches add up (III-C)."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.binary import PairLoss, ProxyBasedLoss, new_proxies

#: How the pairs of L_DG are averaged.
PairReduction = Literal["query_mean", "violating"]


class DecomposabilityLoss(PairLoss):
    """L_DG, which wants positives above a score and negatives below another, whatever the batch (paper, Eq. 7).

    ::

        L_DG = 1/|Omega^+| sum over positives of [alpha - s]_+  +  1/|Omega^-| sum over negatives of [s - beta]_+

    averaged over queries. It is the calibration loss of ROADMAP (NeurIPS 2021, Eq. 7). The published code takes each
    of the two means not over the pairs of a query but over all pairs of the batch with a loss above 0, which keeps
    the gradient large when few are left; the reduction ``violating`` does so.

    Args:
        alpha: the score that positives are to reach, -1 to 1.
        beta: the score that negatives are to stay below, -1 to 1.
        reduction: ``query_mean`` for Eq. 7, ``violating`` for the published code.
        include_query: without references, count the query as one of its own positives; ``violating`` never does.

    Raises:
        ConfigurationError: a score is no cosine, or there is no such reduction.

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
        if not (-1 <= alpha <= 1 and -1 <= beta <= 1):
            raise ConfigurationError(f"alpha is {alpha} and beta {beta}; expected cosines, -1 to 1")
        if reduction not in ("query_mean", "violating"):
            raise ConfigurationError(f'there is no reduction "{reduction}"; choose query_mean or violating')
        self.alpha = alpha
        self.beta = beta
        self.reduction = reduction

    def of_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.PairLoss`."""
        near = torch.where(positives, functional.relu(self.alpha - scores), 0)
        far = torch.where(negatives, functional.relu(scores - self.beta), 0)
        if self.reduction == "violating":
            return near.sum() / (near > 0).sum().clamp(min=1) + far.sum() / (far > 0).sum().clamp(min=1)
        per_query = near.sum(dim=1) / positives.sum(dim=1).clamp(min=1)
        per_query = per_query + far.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)
        return per_query.mean()


class ProxyLoss(ProxyBasedLoss):
    """L*_DG, cross entropy of the cosines with one learnt proxy per class (paper, Eq. 8).

    ::

        L*_DG = -log( exp(v . p_y / eta) / sum over proxies z of exp(v . p_z / eta) )

    averaged over the batch; proxies are normalised here. This is NormSoftMax (Zhai and Wu, BMVC 2019), whose proxies
    begin as these do, uniform between -1 / sqrt(d) and 1 / sqrt(d).

    Args:
        n_classes: how many classes column 0 has.
        dim: d, the dimension of embeddings.
        eta: the temperature, above 0.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    def __init__(self, n_classes: int, dim: int, eta: float = 0.05) -> None:
        super().__init__(n_classes, dim)
        if not eta > 0:
            raise ConfigurationError(f"eta is {eta}; expected more than 0")
        self.eta = eta
        self.proxies = new_proxies(n_classes, dim)

    def of_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.ProxyBasedLoss`."""
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        return functional.cross_entropy(embeddings @ proxies.T / self.eta, classes)

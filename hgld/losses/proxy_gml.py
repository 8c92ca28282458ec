"""ProxyGML, several proxies per class of which each image sees the nearest."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.class_losses import ProxyBasedLoss


class ProxyGML(ProxyBasedLoss):
    """Cross entropy over the classes of the nearest proxies (Zhu et al., Fewer is More, NeurIPS 2020).

    Each embedding keeps the scores of ``share`` of all proxies: those of its own class first, then the highest. The
    logit of a class is the sum of its kept scores; classes without any drop out of the softmax. With the weight
    ``proxy_weight`` is added the cross entropy of the proxies themselves, whose logits are the sums of their scores
    with the proxies of each class.

    Args:
        n_classes: Number of classes in column 0 of the labels, C.
        dim: Dimension d of the embeddings.
        proxies_per_class: Number of proxies per class, N; the authors' settings have 12 on CUB and Cars196, 1 on SOP.
        share: Share r of all proxies that an embedding keeps, above 0 to 1. At least one of another class is kept,
            without which there is no gradient.
        proxy_weight: Weight lambda of the proxies' own loss, 0 or more; 0 on SOP. It takes O(C^2 N^2) memory.

    Raises:
        ConfigurationError: A number is out of range.

    >>> loss = ProxyGML(n_classes=3, dim=2, proxies_per_class=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(
        self, n_classes: int, dim: int, proxies_per_class: int = 12, share: float = 0.05, proxy_weight: float = 0.3
    ) -> None:
        super().__init__(n_classes, dim)
        if not (proxies_per_class >= 1 and 0 < share <= 1 and proxy_weight >= 0):
            raise ConfigurationError(
                f"`proxies_per_class` is {proxies_per_class}, `share` {share} and `proxy_weight` {proxy_weight}; "
                "expected at least 1, above 0 to 1, and 0 or more"
            )
        self.proxies_per_class = proxies_per_class
        self.proxy_weight = proxy_weight
        n_proxies = n_classes * proxies_per_class
        self.n_kept = min(n_proxies, max(proxies_per_class + 1, math.ceil(share * n_proxies)))
        bound = n_proxies**-0.5  # as the authors' initialisation has it
        self.proxies = nn.Parameter(torch.empty(n_proxies, dim).uniform_(-bound, bound))

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.ProxyBasedLoss.forward_proxies`."""
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        owners = torch.arange(self.n_classes, device=classes.device).repeat_interleave(self.proxies_per_class)
        scores = embeddings @ proxies.T
        first = scores.detach() + 3 * (classes[:, None] == owners)  # scores of others are at most 2 above
        kept = torch.zeros_like(scores).scatter_(1, first.topk(self.n_kept, dim=1).indices, 1)
        in_sum = self._per_class(kept) > 0
        logits = self._per_class(kept * scores).masked_fill(~in_sum, -torch.inf)
        loss = functional.cross_entropy(logits, classes)
        if self.proxy_weight:
            loss = loss + self.proxy_weight * functional.cross_entropy(self._per_class(proxies @ proxies.T), owners)
        return loss

    def _per_class(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sums over the proxies of each class, shape (n, n_classes)."""
        return values.reshape(len(values), self.n_classes, self.proxies_per_class).sum(2)

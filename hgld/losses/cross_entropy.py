"""Cross entropy of a linear classifier of the embeddings."""

from __future__ import annotations

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.proxies import ProxyBasedLoss


class CrossEntropy(ProxyBasedLoss):
    """Cross entropy of a linear classifier with bias, and label smoothing (Boudiaf et al., ECCV 2020).

    Logits are W x + b with free lengths of the rows of W, unlike the cosines of NormSoftMax
    (:class:`~hgld.losses.ProxyLoss`). Boudiaf et al. classify features before normalisation; here x is the embedding,
    of length 1, so that W alone carries the scale of the logits. Weights are initialised as those of
    ``torch.nn.Linear``.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        label_smoothing: Share of the target that is spread evenly over all classes, 0 to below 1; 0.1 in the authors'
            code, 0 for a plain softmax.

    Raises:
        ConfigurationError: A number is out of range.

    >>> loss = CrossEntropy(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(self, n_classes: int, dim: int, label_smoothing: float = 0.1) -> None:
        super().__init__(n_classes, dim)
        if not 0 <= label_smoothing < 1:
            raise ConfigurationError(f"`label_smoothing` is {label_smoothing}; expected 0 to below 1")
        self.label_smoothing = label_smoothing
        self.classifier = torch.nn.Linear(dim, n_classes)

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.proxies.ProxyBasedLoss.forward_proxies`."""
        weight, bias = (
            parameter.to(embeddings.dtype) for parameter in (self.classifier.weight, self.classifier.bias)
        )
        logits = functional.linear(embeddings, weight, bias)
        return functional.cross_entropy(logits, classes, label_smoothing=self.label_smoothing)

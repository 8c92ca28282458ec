"""Cross entropy over classes: of a linear classifier, and of cosines with an angular margin (ArcFace)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.class_losses import ProxyBasedLoss


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
        """See :meth:`~hgld.losses.kernels.class_losses.ProxyBasedLoss.forward_proxies`."""
        weight, bias = (
            parameter.to(embeddings.dtype) for parameter in (self.classifier.weight, self.classifier.bias)
        )
        logits = functional.linear(embeddings, weight, bias)
        return functional.cross_entropy(logits, classes, label_smoothing=self.label_smoothing)


class ArcFace(ProxyBasedLoss):
    """Cross entropy of scaled cosines with proxies, with a margin on the angle to the own class.

    Deng et al., CVPR 2019, Eq. 3. Where the widened angle would exceed pi, the cosine is lowered by
    margin sin(margin) instead. Proxies are initialised as those of NormSoftMax.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        scale: Scale of the cosines, above 0.
        margin: Angular margin in radians, 0 to pi / 2; the paper uses 0.3 on SOP and H-GLDv2.

    Raises:
        ConfigurationError: A number is out of range.

    >>> loss = ArcFace(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(self, n_classes: int, dim: int, scale: float = 30.0, margin: float = 0.5) -> None:
        from pytorch_metric_learning import losses

        super().__init__(n_classes, dim)
        if not (scale > 0 and 0 <= margin <= math.pi / 2):
            raise ConfigurationError(
                f"`scale` is {scale} and `margin` {margin}; expected above 0, and 0 to pi / 2 radians"
            )
        initialise = partial(nn.init.uniform_, a=-(dim**-0.5), b=dim**-0.5)
        self._loss = losses.ArcFaceLoss(
            n_classes, dim, margin=math.degrees(margin), scale=scale, weight_init_func=initialise
        )

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.ProxyBasedLoss.forward_proxies`."""
        value: torch.Tensor = self._loss(embeddings, classes)
        return value

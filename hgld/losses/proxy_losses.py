"""Losses of proxies: softmax, ArcFace, ProxyNCA, ProxyNCA++, ProxyGML and CSL."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from hgld.errors import ConfigurationError, InputError, require
from hgld.losses.base import Loss
from hgld.losses.kernels.class_losses import ProxyBasedLoss, check_proxies, uniform_proxies

#: The authors' margins by number of levels, finest level first.
CSL_MARGINS = {
    1: (0.25,),
    2: (0.25, 0.45),
    3: (0.25, 0.35, 0.45),
    7: (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75),
}


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

    >>> loss = CrossEntropy(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(self, n_classes: int, dim: int, label_smoothing: float = 0.1) -> None:
        super().__init__(n_classes, dim)
        require(0 <= label_smoothing < 1, "0 to below 1", label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing
        self.classifier = torch.nn.Linear(dim, n_classes)

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        weight, bias = (
            parameter.to(embeddings.dtype)
            for parameter in (self.classifier.weight, self.classifier.bias)
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

    >>> loss = ArcFace(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(self, n_classes: int, dim: int, scale: float = 30.0, margin: float = 0.5) -> None:
        from pytorch_metric_learning import losses

        super().__init__(n_classes, dim)
        is_valid = scale > 0 and 0 <= margin <= math.pi / 2
        require(is_valid, "above 0, and 0 to pi / 2 radians", scale=scale, margin=margin)
        initialise = partial(nn.init.uniform_, a=-(dim**-0.5), b=dim**-0.5)
        self._loss = losses.ArcFaceLoss(
            n_classes, dim, margin=math.degrees(margin), scale=scale, weight_init_func=initialise
        )

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        value: Tensor = self._loss(embeddings, classes)
        return value


class ProxyNCA(ProxyBasedLoss):
    """ProxyNCA with one proxy per class (Movshovitz-Attias et al., ICCV 2017, Eq. 6).

    ::

        scale^2 ||x - p_y||^2 + log sum over proxies z of other classes of exp(-scale^2 ||x - p_z||^2)

    averaged over the batch, with normalised proxies. The own proxy is not in the sum, unlike in
    :class:`~hgld.losses.ProxyNCAPP`, so the loss has no lower bound at 0. With a single class it is the first term
    alone.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        scale: Length that embeddings and proxies are scaled to, above 0; 3 as in the implementation that Smooth-AP's
            Table 3 compares with (Roth et al., ICML 2020), as is the initialisation of the proxies.

    >>> loss = ProxyNCA(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(self, n_classes: int, dim: int, scale: float = 3.0) -> None:
        super().__init__(n_classes, dim)
        require(scale > 0, "more than 0", scale=scale)
        self.scale = scale
        self.proxies = torch.nn.Parameter(torch.randn(n_classes, dim) / 8)

    def squared_distances(self, embeddings: Tensor) -> Tensor:
        """Return scale^2 ||x - p||^2 for unit vectors x of shape (B, d) and each proxy: (B, n_classes)."""
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        return 2 * self.scale**2 * (1 - embeddings @ proxies.T)

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        distances = self.squared_distances(embeddings)
        own = distances.gather(1, classes.unsqueeze(1))[:, 0]
        if self.n_classes == 1:
            return own.mean()
        is_own = functional.one_hot(classes, self.n_classes).bool()
        return (own + (-distances).masked_fill(is_own, -torch.inf).logsumexp(dim=1)).mean()


class ProxyNCAPP(ProxyNCA):
    """ProxyNCA++: cross entropy of -scale^2 ||x - p||^2 over normalised proxies p (Teh et al., ECCV 2020).

    Proxies are initialised with a normal distribution of standard deviation 1/8, as in the authors' code.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        scale: Square root of the inverse temperature, above 0.

    >>> loss = ProxyNCAPP(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        return functional.cross_entropy(-self.squared_distances(embeddings), classes)


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

    >>> loss = ProxyGML(n_classes=3, dim=2, proxies_per_class=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(
        self,
        n_classes: int,
        dim: int,
        proxies_per_class: int = 12,
        share: float = 0.05,
        proxy_weight: float = 0.3,
    ) -> None:
        super().__init__(n_classes, dim)
        numbers = {
            "proxies_per_class": proxies_per_class,
            "share": share,
            "proxy_weight": proxy_weight,
        }
        is_valid = proxies_per_class >= 1 and 0 < share <= 1 and proxy_weight >= 0
        require(is_valid, "at least 1, above 0 to 1, and 0 or more", **numbers)
        self.proxies_per_class = proxies_per_class
        self.proxy_weight = proxy_weight
        n_proxies = n_classes * proxies_per_class
        self.n_kept = min(n_proxies, max(proxies_per_class + 1, math.ceil(share * n_proxies)))
        bound = n_proxies**-0.5  # as the authors' initialisation has it
        self.proxies = nn.Parameter(torch.empty(n_proxies, dim).uniform_(-bound, bound))

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        owners = torch.arange(self.n_classes, device=classes.device).repeat_interleave(
            self.proxies_per_class
        )
        scores = embeddings @ proxies.T
        first = scores.detach() + 3 * (
            classes[:, None] == owners
        )  # scores of others are at most 2 above
        kept = torch.zeros_like(scores).scatter_(1, first.topk(self.n_kept, dim=1).indices, 1)
        in_sum = self._per_class(kept) > 0
        logits = self._per_class(kept * scores).masked_fill(~in_sum, -torch.inf)
        loss = functional.cross_entropy(logits, classes)
        if self.proxy_weight:
            loss = loss + self.proxy_weight * functional.cross_entropy(
                self._per_class(proxies @ proxies.T), owners
            )
        return loss

    def _per_class(self, values: Tensor) -> Tensor:
        """Return the sums over the proxies of each class, shape (n, n_classes)."""
        return values.reshape(len(values), self.n_classes, self.proxies_per_class).sum(2)


class CSL(Loss):
    """Composite scale loss: one proxy per finest class, a margin at each level (Sun et al., CVPR 2021).

    ::

        sum over columns c of the mean of
            softplus( log sum over proxies z of another class in column c of exp(scale s_z) - scale s_own
                      + scale margin_c )

    ``parts`` has the terms ``level_1``, the coarsest, to ``level_L``.

    Args:
        classes: int64 tensor of shape (n_classes, L): row i has the labels of finest class i, which is its column 0.
        dim: Dimension d of the embeddings.
        margins: One margin per level, finest first. Default: the authors', for 1, 2, 3 or 7 levels.
        scale: Scale of the cosines, above 0.

    Raises:
        InputError: ``classes`` is not such a table.
        ConfigurationError: There is not one margin per level, or the scale is out of range.

    >>> loss = CSL(classes=torch.tensor([[0, 0], [1, 0], [2, 1]]), dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0, 0], [2, 1]])).shape
    torch.Size([])
    >>> list(loss.parts)
    ['level_2', 'level_1']
    """

    uses_references = False

    def __init__(
        self,
        classes: Tensor,
        dim: int,
        margins: tuple[float, ...] | None = None,
        scale: float = 32.0,
    ) -> None:
        super().__init__()
        if (
            classes.ndim != 2
            or not len(classes)
            or classes[:, 0].tolist() != list(range(len(classes)))
        ):
            raise InputError(
                f"`classes` have shape {tuple(classes.shape)}; expected a row of labels per finest class, the first "
                "column numbered from 0"
            )
        n_levels = classes.shape[1]
        level_margins = CSL_MARGINS.get(n_levels) if margins is None else tuple(margins)
        if level_margins is None or len(level_margins) != n_levels:
            raise ConfigurationError(
                f"CSL needs a margin for each of {n_levels} levels, finest first, and has "
                f"{'none by default' if level_margins is None else len(level_margins)}; give `margins`"
            )
        require(scale > 0, "more than 0", scale=scale)
        self.margins = level_margins
        self.scale = scale
        self.proxies = uniform_proxies(len(classes), dim)
        self.classes: Tensor
        self.register_buffer("classes", classes)

    def forward_batch(
        self, embeddings: Tensor, labels: Tensor, *references: Tensor | None
    ) -> Tensor:
        if labels.shape[1] != len(self.margins):
            raise InputError(
                f"`labels` have {labels.shape[1]} levels, but the loss was built for {len(self.margins)}"
            )
        check_proxies(embeddings, labels[:, 0], *self.proxies.shape)
        scores = self.scale * embeddings @ functional.normalize(self.proxies.to(embeddings.dtype)).T
        own = scores.gather(1, labels[:, :1])[:, 0]
        lowest = torch.finfo(scores.dtype).min  # logsumexp of -inf alone has no gradient
        level_losses = []
        for column, margin in enumerate(self.margins):
            same = labels[:, column, None] == self.classes[:, column]
            others = scores.masked_fill(same, lowest).logsumexp(dim=1)
            level_losses.append(functional.softplus(others - own + self.scale * margin).mean())
        self.parts = {
            f"level_{len(level_losses) - i}": value.detach() for i, value in enumerate(level_losses)
        }
        return torch.stack(level_losses).sum()

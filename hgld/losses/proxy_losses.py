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
    """Cross entropy of a linear classifier, with label smoothing (Boudiaf et al., ECCV 2020).

    Logits are W x + b with rows of W of any length, unlike the cosines of NormSoftMax
    (:class:`~hgld.losses.ProxyLoss`). Boudiaf et al. classify features before normalisation; here x
    is the embedding, of length 1, so that W alone determines the scale of the logits. Weights are
    initialised as in ``torch.nn.Linear``.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        label_smoothing: Share of the target that is spread evenly over all classes, 0 to below 1;
            0.1 in the authors' code, 0 for a plain softmax.

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
        weight = self.classifier.weight.to(embeddings.dtype)
        bias = self.classifier.bias.to(embeddings.dtype)
        logits = functional.linear(embeddings, weight, bias)
        return functional.cross_entropy(logits, classes, label_smoothing=self.label_smoothing)


class ArcFace(ProxyBasedLoss):
    """Cross entropy of scaled cosines, with a margin on the angle to the positive proxy.

    Deng et al., CVPR 2019, Eq. 3. Where the angle plus the margin would exceed pi, the cosine is
    lowered by margin sin(margin) instead. Proxies are initialised as in NormSoftMax.

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

    averaged over the batch, with normalised proxies. The sum excludes the proxy of the image's
    class, unlike in :class:`~hgld.losses.ProxyNCAPP`, so the loss may be negative. With a single
    class it is the first term alone.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        scale: Length of embeddings and proxies after scaling, above 0. The default 3 and the
            initialisation of proxies follow the implementation in Table 3 of Smooth-AP (Roth et
            al., ICML 2020).

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
        """Return scale^2 ||x - p||^2 of unit vectors x, (B, d), and each proxy: (B, n_classes)."""
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        return 2 * self.scale**2 * (1 - embeddings @ proxies.T)

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        distances = self.squared_distances(embeddings)
        positive_distances = distances.gather(1, classes.unsqueeze(1))[:, 0]
        if self.n_classes == 1:
            return positive_distances.mean()
        is_positive = functional.one_hot(classes, self.n_classes).bool()
        log_sums = (-distances).masked_fill(is_positive, -torch.inf).logsumexp(dim=1)
        return (positive_distances + log_sums).mean()


class ProxyNCAPP(ProxyNCA):
    """Cross entropy of -scale^2 ||x - p||^2 over normalised proxies p (Teh et al., ECCV 2020).

    Proxies are initialised with a normal distribution of standard deviation 1/8, as in the authors'
    code.

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
    """Cross entropy over the classes of the nearest proxies (Zhu et al., NeurIPS 2020).

    Each embedding keeps the scores of a share of all proxies: first the proxies of its own class,
    then the proxies with the highest scores. The logit of a class is the sum of its kept scores;
    classes without kept scores are excluded from the softmax. The loss also has a term for the
    proxies themselves, with the weight ``proxy_weight``: the cross entropy of logits that are the
    sums of the scores of a proxy with the proxies of each class.

    Args:
        n_classes: Number of classes in column 0 of the labels, C.
        dim: Dimension d of the embeddings.
        proxies_per_class: Number of proxies per class, N; the authors' settings have 12 on CUB and
            Cars196, 1 on SOP.
        share: Share r of all proxies that an embedding keeps, above 0 to 1. At least one proxy of
            another class is kept, as the gradient would be 0 otherwise.
        proxy_weight: Weight lambda of the term for the proxies, 0 or more; 0 on SOP. It takes O(C^2
            N^2) memory.

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
        require(
            proxies_per_class >= 1 and 0 < share <= 1 and proxy_weight >= 0,
            "at least 1, above 0 to 1, and 0 or more",
            proxies_per_class=proxies_per_class,
            share=share,
            proxy_weight=proxy_weight,
        )
        self.proxies_per_class = proxies_per_class
        self.proxy_weight = proxy_weight
        n_proxies = n_classes * proxies_per_class
        self.n_kept = min(n_proxies, max(proxies_per_class + 1, math.ceil(share * n_proxies)))
        bound = n_proxies**-0.5  # as in the authors' initialisation
        self.proxies = nn.Parameter(torch.empty(n_proxies, dim).uniform_(-bound, bound))

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        proxy_classes = torch.arange(self.n_classes, device=classes.device)
        proxy_classes = proxy_classes.repeat_interleave(self.proxies_per_class)
        scores = embeddings @ proxies.T
        # Scores differ by at most 2, so that proxies of the image's class come first.
        priorities = scores.detach() + 3 * (classes[:, None] == proxy_classes)
        kept_proxies = priorities.topk(self.n_kept, dim=1).indices
        is_kept = torch.zeros_like(scores).scatter_(1, kept_proxies, 1)
        has_kept = self._per_class(is_kept) > 0
        logits = self._per_class(is_kept * scores).masked_fill(~has_kept, -torch.inf)
        loss = functional.cross_entropy(logits, classes)
        if self.proxy_weight:
            proxy_logits = self._per_class(proxies @ proxies.T)
            proxy_loss = functional.cross_entropy(proxy_logits, proxy_classes)
            loss = loss + self.proxy_weight * proxy_loss
        return loss

    def _per_class(self, values: Tensor) -> Tensor:
        """Return the sums over the proxies of each class, shape (n, n_classes)."""
        return values.reshape(len(values), self.n_classes, self.proxies_per_class).sum(2)


class CSL(Loss):
    """Composite scale loss: a proxy per finest class, a margin per level (Sun et al., CVPR 2021).

    ::

        sum over columns c of the mean of
            softplus( log sum over proxies z of another class in column c of exp(scale s_z) - scale s_own
                      + scale margin_c )

    ``parts`` has the terms ``level_1``, the coarsest, to ``level_L``.

    Args:
        classes: int64 tensor of shape (n_classes, L): row i has the labels of finest class i, which
            is its column 0.
        dim: Dimension d of the embeddings.
        margins: One margin per level, finest first. Default: margins of the authors, for 1, 2, 3 or
            7 levels.
        scale: Scale of the cosines, above 0.

    Raises:
        InputError: ``classes`` has another shape or numbering.
        ConfigurationError: The number of margins is not the number of levels, or the scale is out
            of range.

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
        if margins is None:
            margins = CSL_MARGINS.get(n_levels, ())
        if len(margins) != n_levels:
            raise ConfigurationError(
                f"CSL needs a margin for each of {n_levels} levels, finest first, and has {len(margins)}; give "
                "`margins`"
            )
        require(scale > 0, "more than 0", scale=scale)
        self.margins = tuple(margins)
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
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        scores = self.scale * embeddings @ proxies.T
        positive_scores = scores.gather(1, labels[:, :1])[:, 0]
        lowest = torch.finfo(scores.dtype).min  # logsumexp of -inf alone has no gradient
        self.parts = {}
        level_losses = []
        for column, margin in enumerate(self.margins):
            same_class = labels[:, column, None] == self.classes[:, column]
            negatives = scores.masked_fill(same_class, lowest).logsumexp(dim=1)
            violations = negatives - positive_scores + self.scale * margin
            level_loss = functional.softplus(violations).mean()
            self.parts[f"level_{len(self.margins) - column}"] = level_loss.detach()
            level_losses.append(level_loss)
        return torch.stack(level_losses).sum()

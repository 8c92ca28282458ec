"""CSL, the composite scale loss: proxies with a margin at each level."""

from __future__ import annotations

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError, InputError
from hgld.losses.base import Loss
from hgld.losses.kernels.class_losses import check_proxies, uniform_proxies

#: The authors' margins by number of levels, finest level first.
CSL_MARGINS = {
    1: (0.25,),
    2: (0.25, 0.45),
    3: (0.25, 0.35, 0.45),
    7: (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75),
}


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

    def __init__(
        self, classes: torch.Tensor, dim: int, margins: tuple[float, ...] | None = None, scale: float = 32.0
    ) -> None:
        super().__init__()
        if classes.ndim != 2 or not len(classes) or classes[:, 0].tolist() != list(range(len(classes))):
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
        if not scale > 0:
            raise ConfigurationError(f"`scale` is {scale}; expected more than 0")
        self.margins = level_margins
        self.scale = scale
        self.proxies = uniform_proxies(len(classes), dim)
        self.classes: torch.Tensor
        self.register_buffer("classes", classes)

    def reference_part(self) -> Loss | None:
        """Return None: proxies do not depend on references."""
        return None

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`; references are ignored."""
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
        self.parts = {f"level_{len(level_losses) - i}": value.detach() for i, value in enumerate(level_losses)}
        return torch.stack(level_losses).sum()

"""Pairs, triplets and proxies that the papers compare with; most are pytorch-metric-learning behind our interface.

That library normalises embeddings once more, which changes nothing but the part of the gradient along them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from hgld.compute.dtypes import at_least_float32
from hgld.errors import ConfigurationError, InputError
from hgld.losses.base import Loss, check_batch
from hgld.losses.binary import BinaryLoss, PairLoss, ProxyBasedLoss, check_proxies, new_proxies

#: Which triplets count: a harder negative within the margin; the easiest positive and the hardest negative below it;
#: or all.
Mining = Literal["semihard", "easy_positive", "all"]

#: Margins of CSL for the numbers of levels that the authors trained with, finest first.
CSL_MARGINS = {
    1: (0.25,),
    2: (0.25, 0.45),
    3: (0.25, 0.35, 0.45),
    7: (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75),
}


class _MinedLoss(BinaryLoss):
    """A loss of pytorch-metric-learning over what a miner of it picks, or over all pairs or triplets."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self._loss = loss
        self._miner = miner

    def of_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.BinaryLoss`."""
        given = (reference_embeddings, reference_classes)
        mined = None if self._miner is None else self._miner(embeddings, classes, *given)
        value: torch.Tensor = self._loss(embeddings, classes, mined, *given)
        return value


class TripletLoss(_MinedLoss):
    """[s_n - s_p + margin]_+, the mean over triplets where it is above 0 (Schroff et al., CVPR 2015).

    The mining is ``semihard``: all triplets whose negative is less similar than the positive, but by less than the
    margin; ``easy_positive``: for each query its most similar positive and the most similar negative below that, as
    the published code means to; or ``all``, as the published settings of the sum over levels have it. The published
    wrapper mines each query as its own easiest positive, so its semi-hard loss is always 0. Triplets are B N^2 in
    memory while being picked: this is for batches and small memories.

    Args:
        margin: above 0.
        mining: which triplets count.

    Raises:
        ConfigurationError: the margin is out of its range, or there is no such mining.
    """

    def __init__(self, margin: float = 0.05, mining: Mining = "semihard") -> None:
        from pytorch_metric_learning import distances, losses, miners

        if not margin > 0:
            raise ConfigurationError(f"margin is {margin}; expected more than 0")
        cosine = distances.DotProductSimilarity()
        if mining == "semihard":
            miner = miners.TripletMarginMiner(margin=margin, type_of_triplets="semihard", distance=cosine)
        elif mining == "easy_positive":
            miner = miners.BatchEasyHardMiner(distance=cosine)
        elif mining == "all":
            miner = None
        else:
            raise ConfigurationError(f'there is no mining "{mining}"; choose semihard, easy_positive or all')
        super().__init__(losses.TripletMarginLoss(margin=margin, distance=cosine), miner)


class ContrastiveLoss(_MinedLoss):
    """[positive_margin - s_p]_+ and [s_n - negative_margin]_+ (Hadsell et al., CVPR 2006), of cosines.

    The sum of two means, each over the pairs where it is above 0; a query is not its own positive.

    Args:
        positive_margin: the score that positives are to reach.
        negative_margin: the score that negatives are to stay below.

    Raises:
        ConfigurationError: a score is no cosine.
    """

    def __init__(self, positive_margin: float = 1.0, negative_margin: float = 0.5) -> None:
        from pytorch_metric_learning import distances, losses

        if not (-1 <= positive_margin <= 1 and -1 <= negative_margin <= 1):
            raise ConfigurationError(f"margins are {positive_margin}, {negative_margin}; expected cosines, -1 to 1")
        cosine = distances.DotProductSimilarity()
        super().__init__(losses.ContrastiveLoss(positive_margin, negative_margin, distance=cosine))


class XBMContrastive(PairLoss):
    """The contrastive loss of cross-batch memory (Wang et al., CVPR 2020), with which the papers run it.

    ::

        1/B ( sum over positive pairs of (1 - s)  +  sum over negative pairs with s > margin of s )

    Positives of score 1 - 1e-5 or more are left out, which is how a query is none of its own, in the batch or in
    a memory.

    Args:
        margin: the score that negatives are to stay below, -1 to 1.

    Raises:
        ConfigurationError: the margin is no cosine.
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__()
        if not -1 <= margin <= 1:
            raise ConfigurationError(f"margin is {margin}; expected a cosine, -1 to 1")
        self.margin = margin

    def of_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.PairLoss`."""
        near = torch.where(positives & (scores < 1 - 1e-5), 1 - scores, 0)
        far = torch.where(negatives & (scores > self.margin), scores, 0)
        return (near.sum() + far.sum()) / len(scores)


class MultiSimilarityLoss(_MinedLoss):
    """Soft margins on each query's positives and negatives, of pairs that are mined (Wang et al., CVPR 2019).

    ::

        1/alpha log(1 + sum over positives of exp(-alpha (s - base)))
        + 1/beta log(1 + sum over negatives of exp(beta (s - base)))

    Positives count that are less similar than the most similar negative plus ``epsilon``, and negatives that are
    more similar than the least similar positive minus ``epsilon``. The defaults are those of the authors' code.

    Args:
        alpha: of positives, above 0.
        beta: of negatives, above 0.
        base: where both begin, lambda in that paper.
        epsilon: how easy a pair may be.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float = 0.1) -> None:
        from pytorch_metric_learning import losses, miners

        if not (alpha > 0 and beta > 0):
            raise ConfigurationError(f"alpha is {alpha} and beta {beta}; expected more than 0")
        super().__init__(losses.MultiSimilarityLoss(alpha, beta, base), miners.MultiSimilarityMiner(epsilon))


class ArcFace(ProxyBasedLoss):
    """Cross entropy of ``scale`` times cosines with proxies, the own class at an angle wider by ``margin``.

    Deng et al., CVPR 2019, Eq. 3. Where the wider angle would exceed pi, the cosine loses margin sin(margin)
    instead. Proxies begin as those of NormSoftMax.

    Args:
        n_classes: how many classes column 0 has.
        dim: d, the dimension of embeddings.
        scale: above 0.
        margin: in radians, 0 to pi / 2.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    def __init__(self, n_classes: int, dim: int, scale: float = 30.0, margin: float = 0.5) -> None:
        from pytorch_metric_learning import losses

        super().__init__(n_classes, dim)
        if not (scale > 0 and 0 <= margin <= math.pi / 2):
            raise ConfigurationError(f"scale is {scale} and margin {margin}; expected above 0, and 0 to pi / 2")
        begin = partial(nn.init.uniform_, a=-(dim**-0.5), b=dim**-0.5)
        self._loss = losses.ArcFaceLoss(
            n_classes, dim, margin=math.degrees(margin), scale=scale, weight_init_func=begin
        )

    def of_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.ProxyBasedLoss`."""
        value: torch.Tensor = self._loss(embeddings, classes)
        return value


class ProxyNCAPP(ProxyBasedLoss):
    """ProxyNCA++: cross entropy of -scale^2 ||x - p||^2, proxies p normalised (Teh et al., ECCV 2020).

    Proxies begin normal with deviation 1/8, as the authors'.

    Args:
        n_classes: how many classes column 0 has.
        dim: d, the dimension of embeddings.
        scale: the root of the inverse temperature, above 0.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    def __init__(self, n_classes: int, dim: int, scale: float = 3.0) -> None:
        from pytorch_metric_learning import losses

        super().__init__(n_classes, dim)
        if not scale > 0:
            raise ConfigurationError(f"scale is {scale}; expected more than 0")
        begin = partial(nn.init.normal_, std=1 / 8)
        self._loss = losses.ProxyNCALoss(n_classes, dim, softmax_scale=scale**2, weight_init_func=begin)

    def of_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.ProxyBasedLoss`."""
        value: torch.Tensor = self._loss(embeddings, classes)
        return value


class CSL(Loss):
    """Composite scale loss: one proxy per finest class, a margin at each level (Sun et al., CVPR 2021).

    ::

        sum over columns c of the mean of
            softplus( log sum over proxies z of another class in column c of exp(scale s_z) - scale s_own
                      + scale margin_c )

    Args:
        classes: int64, shape (n_classes, L): row i holds the labels of finest class i, which is its column 0.
        dim: d, the dimension of embeddings.
        margins: one per column, finest first; None for the authors', for 1, 2, 3 or 7 levels.
        scale: above 0.

    Raises:
        InputError: ``classes`` is no such table.
        ConfigurationError: there is not one margin per level, or the scale is out of its range.
    """

    def __init__(
        self, classes: torch.Tensor, dim: int, margins: Sequence[float] | None = None, scale: float = 32.0
    ) -> None:
        super().__init__()
        if classes.ndim != 2 or not len(classes) or classes[:, 0].tolist() != list(range(len(classes))):
            raise InputError(
                f"a table of classes of shape {tuple(classes.shape)}; expected a row of labels per finest class, "
                "the first column numbered from 0"
            )
        n_levels = classes.shape[1]
        chosen = CSL_MARGINS.get(n_levels) if margins is None else tuple(margins)
        if chosen is None or len(chosen) != n_levels:
            raise ConfigurationError(
                f"CSL needs a margin for each of {n_levels} levels, finest first, and has "
                f"{'none by default' if chosen is None else len(chosen)}; give margins"
            )
        if not scale > 0:
            raise ConfigurationError(f"scale is {scale}; expected more than 0")
        self.margins = chosen
        self.scale = scale
        self.proxies = new_proxies(len(classes), dim)
        self.classes: torch.Tensor
        self.register_buffer("classes", classes)

    def reference_part(self) -> Loss | None:
        """See :class:`~hgld.losses.base.Loss`."""
        return None

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`~hgld.losses.base.Loss`; references do not matter to proxies."""
        check_batch(embeddings, labels, reference_embeddings, reference_labels)
        if labels.shape[1] != len(self.margins):
            raise InputError(f"labels of {labels.shape[1]} levels, but the loss was built for {len(self.margins)}")
        check_proxies(embeddings, labels[:, 0], *self.proxies.shape)
        queries = at_least_float32(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            scores = self.scale * queries @ functional.normalize(self.proxies.to(queries.dtype)).T
            own = scores.gather(1, labels[:, :1])[:, 0]
            nothing = torch.finfo(scores.dtype).min  # and not -inf, whose logsumexp has no gradient
            by_column = []
            for column, margin in enumerate(self.margins):
                same = labels[:, column, None] == self.classes[:, column]
                others = scores.masked_fill(same, nothing).logsumexp(dim=1)
                by_column.append(functional.softplus(others - own + self.scale * margin).mean())
        self.parts = {f"level_{len(by_column) - i}": value.detach() for i, value in enumerate(by_column)}
        return torch.stack(by_column).sum()

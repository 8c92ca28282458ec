"""Losses of pairs: contrastive, also for cross-batch memory, lifted structure and multi-similarity."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.class_losses import MetricLearningLoss, PairLoss, euclidean_distances


class ContrastiveLoss(MetricLearningLoss):
    """[positive_margin - s_p]_+ + [s_n - negative_margin]_+ of cosines (Hadsell et al., CVPR 2006).

    Each of the two terms is averaged over the pairs where it is positive. A query is not its own positive.

    Args:
        positive_margin: Cosine below which positives are penalised, -1 to 1.
        negative_margin: Cosine above which negatives are penalised, -1 to 1.

    Raises:
        ConfigurationError: A margin is not a cosine.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> ContrastiveLoss()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.7800)
    """

    def __init__(self, positive_margin: float = 1.0, negative_margin: float = 0.5) -> None:
        from pytorch_metric_learning import distances, losses

        if not (-1 <= positive_margin <= 1 and -1 <= negative_margin <= 1):
            raise ConfigurationError(
                f"`positive_margin` is {positive_margin} and `negative_margin` {negative_margin}; expected cosines, "
                "-1 to 1"
            )
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        super().__init__(losses.ContrastiveLoss(positive_margin, negative_margin, distance=cosine))


class XBMContrastive(PairLoss):
    """The contrastive loss of cross-batch memory (Wang et al., CVPR 2020).

    ::

        1/B ( sum over positive pairs of (1 - s)  +  sum over negative pairs with s > margin of s )

    A query is not its own positive. Positives with a score of 1 - 1e-5 or more are excluded, which excludes the
    query itself in a memory.

    Args:
        margin: Cosine above which negatives are penalised, -1 to 1.

    Raises:
        ConfigurationError: The margin is not a cosine.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> XBMContrastive()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(1.4400)
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__(include_query=False)
        if not -1 <= margin <= 1:
            raise ConfigurationError(f"`margin` is {margin}; expected a cosine, -1 to 1")
        self.margin = margin

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.PairLoss.forward_pairs`."""
        positive_terms = torch.where(positives & (scores < 1 - 1e-5), 1 - scores, 0)
        negative_terms = torch.where(negatives & (scores > self.margin), scores, 0)
        return (positive_terms.sum() + negative_terms.sum()) / len(scores)


class LiftedStructureLoss(PairLoss):
    """Each positive pair against all negatives of both of its items (Song et al., CVPR 2016, Eq. 4).

    With Euclidean distances D, the mean over the positive pairs i, j of ::

        1/2 [ log( sum over negatives k of i of exp(margin - D_ik)
                   + sum over negatives k of j of exp(margin - D_jk) ) + D_ij ]_+^2

    A query is not its own positive. With references, the negatives of a reference are queries. Pairs whose items have
    no negatives count 0, and so does a batch without positive pairs.

    Args:
        margin: Margin alpha, 1 in that paper.

    Raises:
        ConfigurationError: The margin is not a number.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> LiftedStructureLoss()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(2.3008)
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__(include_query=False)
        if math.isnan(margin):
            raise ConfigurationError("`margin` is not a number")
        self.margin = margin

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.PairLoss.forward_pairs`."""
        distances = euclidean_distances(scores)
        lowest = torch.finfo(scores.dtype).min / 2  # logsumexp of -inf alone has no gradient
        exponents = (self.margin - distances).masked_fill(~negatives, lowest)
        log_sums = torch.logaddexp(exponents.logsumexp(1, keepdim=True), exponents.logsumexp(0, keepdim=True))
        terms = functional.relu(log_sums + distances).square() / 2
        return torch.where(positives, terms, 0).sum() / positives.sum().clamp(min=1)


class MultiSimilarityLoss(MetricLearningLoss):
    """Soft margins on the mined positives and negatives of each query (Wang et al., CVPR 2019).

    ::

        1/alpha log(1 + sum over positives of exp(-alpha (s - base)))
        + 1/beta log(1 + sum over negatives of exp(beta (s - base)))

    Mining keeps positives that are less similar than the most similar negative plus ``epsilon``, and negatives that
    are more similar than the least similar positive minus ``epsilon``. The defaults are those of the authors' code.

    Args:
        alpha: Sharpness of the positive term, above 0.
        beta: Sharpness of the negative term, above 0.
        base: Cosine around which both terms are centred, lambda in that paper.
        epsilon: Slack of the mining.

    Raises:
        ConfigurationError: ``alpha`` or ``beta`` is not above 0.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> MultiSimilarityLoss()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.4527)
    """

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float = 0.1) -> None:
        from pytorch_metric_learning import distances, losses, miners

        if not (alpha > 0 and beta > 0):
            raise ConfigurationError(f"`alpha` is {alpha} and `beta` {beta}; expected more than 0")
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        super().__init__(
            losses.MultiSimilarityLoss(alpha, beta, base, distance=cosine),
            miners.MultiSimilarityMiner(epsilon, distance=cosine),
        )

"""The contrastive loss, and its variant for cross-batch memory."""

from __future__ import annotations

import torch

from hgld.errors import ConfigurationError
from hgld.losses.kernels.metric_learning_loss import MetricLearningLoss
from hgld.losses.kernels.pair_loss import PairLoss


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
        """See :meth:`~hgld.losses.kernels.pair_loss.PairLoss.forward_pairs`."""
        positive_terms = torch.where(positives & (scores < 1 - 1e-5), 1 - scores, 0)
        negative_terms = torch.where(negatives & (scores > self.margin), scores, 0)
        return (positive_terms.sum() + negative_terms.sum()) / len(scores)

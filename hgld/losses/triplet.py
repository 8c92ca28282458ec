"""The triplet loss with several ways of mining."""

from __future__ import annotations

from typing import Literal

import torch

from hgld.errors import ConfigurationError
from hgld.losses.kernels.metric_learning_loss import MetricLearningLoss

#: How triplets are selected, see :class:`TripletLoss`.
Mining = Literal["semihard", "easy_positive", "all"]


class TripletLoss(MetricLearningLoss):
    """[s_n - s_p + margin]_+, averaged over the triplets where it is positive (Schroff et al., CVPR 2015).

    Triplets take O(B N^2) memory while they are selected, so this loss suits batches and small memories.

    Args:
        margin: Margin between positive and negative scores, above 0.
        mining: ``semihard`` takes all triplets whose negative is less similar than the positive, but by less than the
            margin. ``easy_positive`` takes the most similar positive of each query and the most similar negative
            below that, as the published code means to. ``all`` takes all triplets, as the published settings do
            without their option ``semihard``, also those of the sum over levels.
        include_query: Count the query as one of its own positives when there are no references, as the published code
            does. Its triplets then have a loss where a negative is more similar than 1 - margin, and are the only
            ones that ``easy_positive`` takes.

    Raises:
        ConfigurationError: The margin is out of range, or there is no such mining.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> TripletLoss(margin=0.1, mining="all")(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.3800)
    """

    def __init__(self, margin: float = 0.05, mining: Mining = "semihard", *, include_query: bool = False) -> None:
        from pytorch_metric_learning import distances, losses, miners

        if not margin > 0:
            raise ConfigurationError(f"`margin` is {margin}; expected more than 0")
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        if mining == "semihard":
            miner = miners.TripletMarginMiner(margin=margin, type_of_triplets="semihard", distance=cosine)
        elif mining == "easy_positive":
            miner = miners.BatchEasyHardMiner(distance=cosine)
        elif mining == "all":
            miner = None
        else:
            raise ConfigurationError(f'`mining` is "{mining}"; choose semihard, easy_positive or all')
        super().__init__(losses.TripletMarginLoss(margin=margin, distance=cosine), miner)
        self.include_query = include_query

    def forward_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_loss.ClassLoss.forward_classes`."""
        if reference_embeddings is None and self.include_query:
            # the library excludes queries only if the references' classes are the same object
            reference_embeddings, reference_classes = embeddings, classes.clone()
        return super().forward_classes(embeddings, classes, reference_embeddings, reference_classes)

"""The triplet loss with several ways of mining."""

from __future__ import annotations

from typing import Literal

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
            below that, as the published code means to (its wrapper mines the query itself as the easiest positive, so
            that its semi-hard loss is always 0). ``all`` takes all triplets, as the published settings of the sum
            over levels do.

    Raises:
        ConfigurationError: The margin is out of range, or there is no such mining.

    >>> import torch
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> TripletLoss(margin=0.1, mining="all")(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.3800)
    """

    def __init__(self, margin: float = 0.05, mining: Mining = "semihard") -> None:
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

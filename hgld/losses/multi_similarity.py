"""The multi-similarity loss."""

from __future__ import annotations

from hgld.errors import ConfigurationError
from hgld.losses.kernels.metric_learning_loss import MetricLearningLoss


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

    >>> import torch
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

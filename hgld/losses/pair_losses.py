"""Losses of pairs and triplets, such as contrastive, multi-similarity and margin losses."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from hgld.errors import ConfigurationError, require, require_at_least, require_choice
from hgld.losses.kernels.batches import inner_products
from hgld.losses.kernels.class_losses import (
    ClassLoss,
    Items,
    MetricLearningLoss,
    PairLoss,
    check_classes,
    euclidean_distances,
)
from hgld.losses.settings import check_temperature

#: Score above which a positive counts as a copy of the query, as in the authors' code.
COPY = 0.9999
#: Largest difference of a score from 1 at which contrastive losses take an item of a memory for the
#: query itself.
_SAME = 1e-5
#: Selection of triplets, see :class:`TripletLoss`.
Mining = Literal["semihard", "easy_positive", "all"]
#: Distances between which negatives are weighted by their density.
_NEAREST, _FARTHEST = 0.5, 1.4


class ContrastiveLoss(MetricLearningLoss):
    """[positive_margin - s_p]_+ + [s_n - negative_margin]_+ of cosines (Hadsell et al., CVPR 2006).

    The first term is averaged over the pairs where it is above 1e-5, which excludes the query
    itself in a memory whatever its rounding. The second term is averaged over the pairs where it is
    above 0. A query is not its own positive.

    Args:
        positive_margin: Cosine below which positives are penalised, -1 to 1.
        negative_margin: Cosine above which negatives are penalised, -1 to 1.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> ContrastiveLoss()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.7800)
    """

    def __init__(self, positive_margin: float = 1.0, negative_margin: float = 0.5) -> None:
        from pytorch_metric_learning import distances, losses, reducers

        require(
            -1 <= positive_margin <= 1 and -1 <= negative_margin <= 1,
            "cosines, -1 to 1",
            positive_margin=positive_margin,
            negative_margin=negative_margin,
        )
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        means = {
            "pos_loss": reducers.ThresholdReducer(low=_SAME),
            "neg_loss": reducers.AvgNonZeroReducer(),
        }
        reducer = reducers.MultipleReducers(means)
        loss = losses.ContrastiveLoss(
            positive_margin, negative_margin, distance=cosine, reducer=reducer
        )
        super().__init__(loss)


class XBMContrastive(PairLoss):
    """The contrastive loss of cross-batch memory (Wang et al., CVPR 2020).

    ::

        1/B ( sum over positive pairs of (1 - s)  +  sum over negative pairs with s > margin of s )

    A query is not its own positive. Positives with a score of 1 - 1e-5 or more are excluded, as one
    may be the query itself in a memory.

    Args:
        margin: Cosine above which negatives are penalised, -1 to 1.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> XBMContrastive()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(1.4400)
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__(include_query=False)
        require(-1 <= margin <= 1, "a cosine, -1 to 1", margin=margin)
        self.margin = margin

    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        positive_terms = torch.where(positives & (scores < 1 - _SAME), 1 - scores, 0)
        negative_terms = torch.where(negatives & (scores > self.margin), scores, 0)
        return (positive_terms.sum() + negative_terms.sum()) / len(scores)


class LiftedStructureLoss(PairLoss):
    """Positive pairs against all negatives of both items (Song et al., CVPR 2016, Eq. 4).

    With Euclidean distances D, the loss is the mean over the positive pairs i, j of ::

        1/2 [ log( sum over negatives k of i of exp(margin - D_ik)
                   + sum over negatives k of j of exp(margin - D_jk) ) + D_ij ]_+^2

    A query is not its own positive. With references, the negatives of a reference are queries.
    Pairs whose items have no negatives count 0, and so does a batch without positive pairs.

    Args:
        margin: Margin alpha, 1 in the paper.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> LiftedStructureLoss()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(2.3008)
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__(include_query=False)
        if math.isnan(margin):
            raise ConfigurationError("`margin` is not a number")
        self.margin = margin

    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        distances = euclidean_distances(scores)
        lowest = torch.finfo(scores.dtype).min / 2  # logsumexp of -inf alone has a NaN gradient
        exponents = (self.margin - distances).masked_fill(~negatives, lowest)
        query_sums = exponents.logsumexp(1, keepdim=True)
        reference_sums = exponents.logsumexp(0, keepdim=True)
        log_sums = torch.logaddexp(query_sums, reference_sums)
        terms = functional.relu(log_sums + distances).square() / 2
        return torch.where(positives, terms, 0).sum() / positives.sum().clamp(min=1)


class MultiSimilarityLoss(MetricLearningLoss):
    """Soft margins on the mined positives and negatives of each query (Wang et al., CVPR 2019).

    ::

        1/alpha log(1 + sum over positives of exp(-alpha (s - base)))
        + 1/beta log(1 + sum over negatives of exp(beta (s - base)))

    Mining keeps positives that are less similar than the most similar negative plus ``epsilon``,
    and negatives that are more similar than the least similar positive minus ``epsilon``. The
    defaults are those of pytorch-metric-learning; the authors' code has a ``beta`` of 40.

    Args:
        alpha: Sharpness of the positive term, above 0.
        beta: Sharpness of the negative term, above 0.
        base: Cosine around which both terms are centred, lambda in the paper.
        epsilon: Slack of the mining.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> MultiSimilarityLoss()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.4527)
    """

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float = 0.1
    ) -> None:
        from pytorch_metric_learning import distances, losses, miners

        require(alpha > 0 and beta > 0, "more than 0", alpha=alpha, beta=beta)
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        super().__init__(
            losses.MultiSimilarityLoss(alpha, beta, base, distance=cosine),
            miners.MultiSimilarityMiner(epsilon, distance=cosine),
        )


class TripletLoss(MetricLearningLoss):
    """Mean of [s_n - s_p + margin]_+ over the triplets where it is positive (Schroff et al., 2015).

    Triplets take O(B N^2) memory while they are selected, so this loss suits batches and small
    memories.

    Args:
        margin: Margin between positive and negative scores, above 0.
        mining: ``semihard`` takes all triplets whose negative is less similar than the positive,
            but by less than the margin. ``easy_positive`` takes the most similar positive of each
            query and the most similar negative that is less similar, as the published code intends.
            ``all`` takes all triplets. The published settings without the option ``semihard``
            take all, too, and so do the published settings that sum the loss over levels.
        include_query: Count the query as one of its own positives when there are no references, as
            the published code does. Triplets with the query as positive have a loss where a
            negative is more similar than 1 - margin; ``easy_positive`` then takes only these
            triplets.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> TripletLoss(margin=0.1, mining="all")(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.3800)
    """

    def __init__(
        self, margin: float = 0.05, mining: Mining = "semihard", *, include_query: bool = False
    ) -> None:
        from pytorch_metric_learning import distances, losses, miners

        require(margin > 0, "more than 0", margin=margin)
        require_choice(Mining, mining=mining)
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        miner = None
        if mining == "semihard":
            miner = miners.TripletMarginMiner(margin, type_of_triplets="semihard", distance=cosine)
        elif mining == "easy_positive":
            miner = miners.BatchEasyHardMiner(distance=cosine)
        loss = losses.TripletMarginLoss(margin=margin, distance=cosine)
        super().__init__(loss, miner, include_query=include_query)


class SelectivelyContrastiveTriplet(PairLoss):
    """Triplets of the most similar positive and negative; hard negatives are only pushed away.

    Xuan et al., Hard Negative Examples are Hard, but Useful, ECCV 2020. With s_p and s_n the scores
    of the most similar positive and the most similar negative of a query, the loss is the mean over
    queries of ::

        weight s_n                              if s_n > s_p or s_n > hard
        log(1 + exp((s_n - s_p) / tau))         otherwise

    A query is not its own positive, nor are items with a score above 0.9999, which count as copies
    of the query. Queries without a positive or without a negative are excluded from the mean.

    Args:
        tau: Temperature, at least 1e-8.
        hard: Score above which a negative is hard in any case.
        weight: Weight lambda of the hard negatives, 0 or more.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SelectivelyContrastiveTriplet()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.8800)
    """

    def __init__(self, tau: float = 0.1, hard: float = 0.8, weight: float = 1.0) -> None:
        super().__init__(include_query=False)
        check_temperature("tau", tau)
        require_at_least(0, weight=weight)
        self.tau = tau
        self.hard = hard
        self.weight = weight

    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        positives = positives & (scores <= COPY)
        valid = positives.any(dim=1) & negatives.any(dim=1)
        positive_scores = scores.masked_fill(~positives, -2)[valid].amax(dim=1)
        negative_scores = scores.masked_fill(~negatives, -2)[valid].amax(dim=1)
        is_hard = (negative_scores > positive_scores) | (negative_scores > self.hard)
        easy_terms = functional.softplus((negative_scores - positive_scores) / self.tau)
        terms = torch.where(is_hard, self.weight * negative_scores, easy_terms)
        return terms.sum() / valid.sum().clamp(min=1)


class MarginLoss(ClassLoss):
    """[D_ap - beta + margin]_+ + [beta - D_an + margin]_+ of sampled triplets (Wu et al., 2017).

    D are Euclidean distances, and beta is a learnt boundary of the query's class. Each pair of a
    query a and a positive p gets one negative n of the query, drawn with a probability inversely
    proportional to the density of its distance among random unit vectors (their Eqs. 5 and 6), with
    torch's global generator. The sum is divided by the number of positive terms. A query is not its own positive.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        margin: Margin alpha between the boundary and the distances, above 0.
        beta: Initial boundary, a distance, 0 to 2.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> MarginLoss(n_classes=2)(embeddings, torch.tensor([[0], [0], [1]])).isfinite()
    tensor(True)
    """

    def __init__(self, n_classes: int, margin: float = 0.2, beta: float = 1.2) -> None:
        super().__init__()
        require(n_classes >= 1, "at least 1", n_classes=n_classes)
        require(margin > 0, "more than 0", margin=margin)
        require(0 <= beta <= 2, "0 to 2", beta=beta)
        self.n_classes = n_classes
        self.margin = margin
        self.boundaries = nn.Parameter(torch.full((n_classes,), float(beta)))

    def forward_classes(self, queries: Items, references: Items | None) -> Tensor:
        embeddings, classes = queries
        items = references or queries
        check_classes(classes, self.n_classes)
        is_positive = classes[:, None] == items.classes
        is_negative = ~is_positive
        if references is None:
            is_positive.fill_diagonal_(False)
        distances = euclidean_distances(inner_products(embeddings, items.embeddings))
        weights = sampling_weights(distances.detach(), is_negative, embeddings.shape[1])
        rows, positives, negatives = _sampled_triplets(is_positive, weights)
        beta = self.boundaries.to(embeddings.dtype)[classes[rows]]
        gaps = torch.stack([distances[rows, positives] - beta, beta - distances[rows, negatives]])
        terms = functional.relu(gaps + self.margin)
        return terms.sum() / (terms > 0).sum().clamp(min=1)


def _sampled_triplets(is_positive: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a negative for each positive pair of a query that has negatives.

    Args:
        is_positive: Boolean mask of shape (B, N).
        weights: Sampling weights of negatives, of the same shape.

    Returns:
        Query, positive and negative of each triplet, int64 tensors of the same length.
    """
    has_negative = weights.sum(1, keepdim=True) > 0
    queries, positives = (is_positive & has_negative).nonzero().unbind(1)
    if not len(queries):
        return queries, positives, positives
    negatives = torch.multinomial(weights[queries], 1)[:, 0]
    return queries, positives, negatives


def sampling_weights(distances: Tensor, negatives: Tensor, dim: int) -> Tensor:
    """Return the weights of distance-weighted sampling (Wu et al., Eqs. 5 and 6).

    Distances below 0.5 are weighted like 0.5; from 1.4 on the weight is 0.

    Args:
        distances: Float tensor of shape (B, N).
        negatives: Boolean mask of the same shape.
        dim: Dimension d of the embeddings: distances D of random unit vectors have a density
            proportional to D^(d-2) (1 - D^2 / 4)^((d-3)/2).

    Returns:
        Tensor of the same shape: inverse densities relative to the largest of each row.

    >>> distances = torch.tensor([[0.3, 0.5, 1.0, 1.5]])
    >>> sampling_weights(distances, torch.ones(1, 4).bool(), 8)
    tensor([[1.0000, 1.0000, 0.0273, 0.0000]])
    """
    has_weight = negatives & (distances < _FARTHEST)
    clamped = distances.clamp(min=_NEAREST, max=_FARTHEST)
    log_factor = (1 - clamped.square() / 4).log()
    log_density = (dim - 2) * clamped.log() + (dim - 3) / 2 * log_factor
    log_weights = (-log_density).masked_fill(~has_weight, -torch.inf)
    highest = log_weights.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)
    return (log_weights - highest).exp()

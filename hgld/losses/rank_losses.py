"""Losses of rankings: average precision, H-AP, NDCG, recall at k, and decomposability losses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from hgld.errors import ConfigurationError, require, require_at_least, require_choice
from hgld.evaluation.relevance import (
    Relevance,
    checked_relevance,
    exponential_gain,
    hierarchical_relevance,
    weighted_ap_relevance,
)
from hgld.losses.base import Loss, WeightedSum, summed_levels, with_decomposability
from hgld.losses.kernels.class_losses import PairLoss, ProxyBasedLoss, uniform_proxies
from hgld.losses.kernels.rank_loss import (
    Mixup,
    Pairs,
    RankLoss,
    SingleLevelLoss,
    h_rank_plus,
    rank,
    step_sums,
)
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import HEAVISIDE, SIGMOID, SUPRANK_STEP, LeakyStep, Step
from hgld.losses.settings import check_temperature

#: Average over the pairs of L_DG.
PairReduction = Literal["query_mean", "violating"]
#: Relevances by name: Eq. 20 and Property 1 of the paper, and Algorithm 1 of the thesis.
RelevanceName = Literal["hierarchical", "weighted_ap", "algorithm1"]
#: Steps of H-rank^+ that settings can choose.
FinerStep = Literal["heaviside", "leaky"]
#: None is h^+, as for other items.
_FINER_STEPS: Mapping[str, Step | None] = {"heaviside": None, "leaky": LeakyStep()}
#: The set K of Patel et al., which the authors of SupRank adopted.
RECALL_KS = (1, 2, 4, 8, 16)


class DecomposabilityLoss(PairLoss):
    """L_DG, which pulls positives above one score and pushes negatives below another (Eq. 7).

    ::

        L_DG = 1/|Omega^+| sum over positives of [alpha - s]_+  +  1/|Omega^-| sum over negatives of [s - beta]_+

    averaged over queries. It is the calibration loss of ROADMAP (NeurIPS 2021, Eq. 7).

    Args:
        alpha: Cosine below which positives are penalised, -1 to 1.
        beta: Cosine above which negatives are penalised, -1 to 1.
        reduction: ``query_mean`` averages over the pairs of each query (Eq. 7). ``violating``
            averages over all pairs of the batch with a positive term, as the published code does,
            which keeps the gradient large when few such pairs are left.
        include_query: Count the query as one of its own positives when there are no references;
            ``violating`` never does.

    >>> loss = DecomposabilityLoss(include_query=False)
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0], [0]]))
    tensor(0.1000)
    """

    def __init__(
        self,
        alpha: float = 0.9,
        beta: float = 0.6,
        reduction: PairReduction = "query_mean",
        *,
        include_query: bool = True,
    ) -> None:
        super().__init__(include_query and reduction != "violating")
        require(-1 <= alpha <= 1 and -1 <= beta <= 1, "cosines, -1 to 1", alpha=alpha, beta=beta)
        require_choice(PairReduction, reduction=reduction)
        self.alpha = alpha
        self.beta = beta
        self.reduction = reduction

    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        positive_terms = torch.where(positives, functional.relu(self.alpha - scores), 0)
        negative_terms = torch.where(negatives, functional.relu(scores - self.beta), 0)
        if self.reduction == "violating":
            n_positives = (positive_terms > 0).sum().clamp(min=1)
            n_negatives = (negative_terms > 0).sum().clamp(min=1)
            return positive_terms.sum() / n_positives + negative_terms.sum() / n_negatives
        query_losses = positive_terms.sum(dim=1) / positives.sum(dim=1).clamp(min=1)
        query_losses = query_losses + negative_terms.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)
        return query_losses.mean()


class ProxyLoss(ProxyBasedLoss):
    """L*_DG, cross entropy of the cosines with one learnt proxy per class (paper, Eq. 8).

    ::

        L*_DG = -log( exp(v . p_y / eta) / sum over proxies z of exp(v . p_z / eta) )

    averaged over the batch, with normalised proxies. This is NormSoftMax (Zhai and Wu, BMVC 2019),
    including the uniform initialisation of proxies between -1 / sqrt(d) and 1 / sqrt(d).

    The loss of an image with several labels is the mean loss over its labels, which is the cross
    entropy with the target 1/n for each of its n classes (Mahajan et al., ECCV 2018, section 2.1,
    for images with several hashtags).

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        eta: Temperature, at least 1e-8.

    >>> loss = ProxyLoss(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    takes_label_sets = True

    def __init__(self, n_classes: int, dim: int, eta: float = 0.05) -> None:
        super().__init__(n_classes, dim)
        check_temperature("eta", eta)
        self.eta = eta
        self.proxies = uniform_proxies(n_classes, dim)

    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        logits = embeddings @ proxies.T / self.eta
        if classes.ndim == 1:
            return functional.cross_entropy(logits, classes)
        is_label = classes >= 0
        log_probabilities = functional.log_softmax(logits, dim=1).gather(1, classes.clamp(min=0))
        return -((log_probabilities * is_label).sum(1) / is_label.sum(1)).mean()


class SupAP(SingleLevelLoss):
    """L_Sup-AP (paper, Eq. 11), an upper bound of 1 - AP.

    The mean over queries of ::

        1 - 1 / |Omega^+| * sum over k in Omega^+ of rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and is at least 1 - AP (Eq. 9) with the steps ``eq4`` and ``cfg144``.

    Args:
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: Count each query as one of its own positives
            (:class:`~hgld.losses.RankLoss`).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupAP(include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.9565)
    """

    def binary_query_losses(self, scores: Tensor, levels: Tensor) -> Tensor:
        is_positive = levels > 0
        among_positives = scores.new_tensor([[[0, 0], [0, 1]]])
        ranking = Ranking(scores, levels, 1)
        rank_plus = 1 + step_sums(ranking, (among_positives, self.plus))
        rank_minus = step_sums(ranking, (among_positives.flip(2), self.step))
        ratios = rank_plus / (rank_plus + rank_minus)
        # Queries without positives get NaN from 0 / 0.
        return 1 - (ratios * is_positive).sum(1) / is_positive.sum(1)


class SmoothAP(SupAP):
    """L_Smooth-AP (Brown et al., ECCV 2020, Eqs. 5 to 7).

    It equals :class:`~hgld.losses.SupAP` with sigmoids for all steps, and does not bound 1 - AP.

    Args:
        step: Steps h^+ and h^-.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: Count each query as one of its own positives
            (:class:`~hgld.losses.RankLoss`).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothAP(include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        *,
        step: Step = SIGMOID,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(
            step=step, plus=step, level=level, mixup=mixup, include_query=include_query
        )


def roadmap(decomposability: Loss, lambda_: float = 0.1, **sup_ap: Any) -> WeightedSum:
    """Return L_ROADMAP = (1 - lambda) L_Sup-AP + lambda L_DG (paper, Eq. 12).

    Args:
        decomposability: :class:`~hgld.losses.ProxyLoss`, which the paper keeps after its Table II,
            or :class:`~hgld.losses.DecomposabilityLoss`. ROADMAP of NeurIPS 2021 uses the latter
            loss with a lambda of 0.5 and, in the published code, the reduction ``violating``.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_ap: Keyword arguments of :class:`~hgld.losses.SupAP`.

    Returns:
        Loss with the parts ``sup_ap`` and ``decomposability``.

    >>> from hgld.losses import ProxyLoss
    >>> roadmap(ProxyLoss(n_classes=4, dim=8), include_query=False).weights
    {'sup_ap': 0.9, 'decomposability': 0.1}
    """
    return with_decomposability("sup_ap", SupAP(**sup_ap), decomposability, lambda_)


class SupHAP(RankLoss):
    """L_Sup-H-AP (paper, Eq. 21), an upper bound of 1 - H-AP.

    The mean over queries of ::

        1 - 1 / (sum over k in Omega^+ of rel(k)) * sum over k in Omega^+ of H-rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and is at least 1 - H-AP (Eq. 19) with the steps ``eq4`` and
    ``cfg144``.

    Args:
        alpha: Exponent of the relevance ``(l/L)^alpha / |Omega^(l)|`` (Eq. 20), 0 or more; 3 or 5
            in HAPPIER_F. ``|Omega^(L)|`` counts the query if the query is in its retrieval set.
        relevance: ``hierarchical`` for Eq. 20; ``weighted_ap`` for Property 1, which makes H-AP a
            weighted sum of the APs of all levels and ignores ``alpha`` (Table XI); ``algorithm1``
            for Algorithm 1 of the thesis, the mean of l/L over the query's labels, without
            ``alpha``; or a function of the level counts.
        level_weights: Weights of the levels' APs with ``weighted_ap``, coarsest first, positive.
            Default: 1/L each.
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        finer: Step of H-rank^+ for items of a finer level than k: ``heaviside``; ``leaky`` for
            :class:`~hgld.losses.LeakyStep`, which gives H-rank^+ a gradient (``with_hrank`` in the
            authors' settings, enabled in one setting of HAPPIER_F on SOP); or another step.
        include_query: Count each query as one of its own positives
            (:class:`~hgld.losses.RankLoss`).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupHAP(alpha=1.0)(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.2004)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        relevance: RelevanceName | Relevance = "hierarchical",
        level_weights: tuple[float, ...] | None = None,
        *,
        step: Step = SUPRANK_STEP,
        plus: Step = HEAVISIDE,
        finer: FinerStep | Step = "heaviside",
        include_query: bool = True,
    ) -> None:
        super().__init__(step=step, plus=plus, include_query=include_query)
        self.finer: Step | None
        if isinstance(finer, str):
            require_choice(FinerStep, finer=finer)
            self.finer = _FINER_STEPS[finer]
        else:
            self.finer = finer
        self.relevance = _relevance_from_options(relevance, alpha, level_weights)
        self.sums_labels = relevance == "algorithm1"

    def pairs_of_labels(self, labels: Tensor, reference_labels: Tensor) -> Pairs:
        if not self.sums_labels:
            return super().pairs_of_labels(labels, reference_labels)
        # With Algorithm 1, the level of a pair is a sum over the labels of the query.
        n_levels = labels[0].numel()
        return Pairs(lambda block: summed_levels(labels[block], reference_labels), n_levels)

    def query_losses(
        self, scores: Tensor, levels: Tensor, n_levels: int, relevance: Tensor | None = None
    ) -> Tensor:
        ranking = Ranking(scores, levels, n_levels)
        if relevance is None:
            relevance = self.relevance(ranking.counts)
        rank_plus = h_rank_plus(
            ranking, relevance.to(scores.dtype), plus=self.plus, finer=self.finer
        )
        ratios = rank_plus / rank(ranking, plus=self.plus, minus=self.step)
        total = relevance.gather(1, levels.clamp(min=0)).sum(1).to(scores.dtype)
        # Queries without positives get NaN from 0 / 0.
        return 1 - (ratios * (levels > 0)).sum(1) / total


class SmoothHAP(SupHAP):
    """H-AP with sigmoids for all steps, like Smooth-AP (baseline of the paper's Table X).

    It equals :class:`~hgld.losses.SupHAP` with sigmoids, and does not bound 1 - H-AP.

    Args:
        alpha: Exponent of the relevance ``(l/L)^alpha / |Omega^(l)|`` (paper, Eq. 20), 0 or more.
        relevance: ``hierarchical`` for Eq. 20; ``weighted_ap`` for Property 1, which makes H-AP a
            weighted sum of the APs of all levels and ignores ``alpha`` (Table XI); ``algorithm1``
            for Algorithm 1 of the thesis, the mean of l/L over the query's labels, without
            ``alpha``; or a function of the level counts.
        level_weights: Weights of the levels' APs with ``weighted_ap``, coarsest first, positive.
            Default: 1/L each.
        step: Steps h^+ and h^-.
        include_query: Count each query as one of its own positives
            (:class:`~hgld.losses.RankLoss`).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothHAP()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.0029)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        relevance: RelevanceName | Relevance = "hierarchical",
        level_weights: tuple[float, ...] | None = None,
        *,
        step: Step = SIGMOID,
        include_query: bool = True,
    ) -> None:
        super().__init__(
            alpha, relevance, level_weights, step=step, plus=step, include_query=include_query
        )


def happier(decomposability: Loss, lambda_: float = 0.1, **sup_hap: Any) -> WeightedSum:
    """Return L_HAPPIER = (1 - lambda) L_Sup-H-AP + lambda L*_DG (paper, Eq. 22).

    HAPPIER_F is the same with an ``alpha`` above 1: 5 on SOP, 3 on iNaturalist (section VII-C).

    Args:
        decomposability: Decomposability loss, L*_DG (:class:`~hgld.losses.ProxyLoss`) in the paper.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_hap: Keyword arguments of :class:`~hgld.losses.SupHAP`.

    Returns:
        Loss with the parts ``sup_hap`` and ``decomposability``.

    >>> from hgld.losses import ProxyLoss
    >>> happier(ProxyLoss(n_classes=4, dim=8), lambda_=0.5, alpha=5.0).weights
    {'sup_hap': 0.5, 'decomposability': 0.5}
    """
    return with_decomposability("sup_hap", SupHAP(**sup_hap), decomposability, lambda_)


def _relevance_from_options(
    relevance: RelevanceName | Relevance, alpha: float, level_weights: tuple[float, ...] | None
) -> Relevance:
    """Return the relevance that the options of :class:`SupHAP` describe."""
    require_at_least(0, alpha=alpha)
    if relevance == "weighted_ap":
        if level_weights is not None and not all(weight > 0 for weight in level_weights):
            raise ConfigurationError(
                f"`level_weights` are {list(level_weights)}; expected positive ones"
            )
        return partial(weighted_ap_relevance, weights=level_weights)
    if level_weights is not None:
        raise ConfigurationError(
            "`level_weights` have no effect without the `relevance` weighted_ap"
        )
    if relevance == "algorithm1":
        return _level_shares
    if callable(relevance):
        return checked_relevance(relevance)
    require_choice(RelevanceName, relevance=relevance)
    return partial(hierarchical_relevance, alpha=alpha)


def _level_shares(counts: Tensor) -> Tensor:
    """Return l / L: Algorithm 1 up to a factor per query, on which H-AP does not depend."""
    n_levels = counts.shape[1] - 1
    levels = torch.arange(n_levels + 1, dtype=torch.float64, device=counts.device)
    return (levels / n_levels).expand_as(counts)


class SupNDCG(RankLoss):
    """L_Sup-NDCG (paper, Eq. 24), an upper bound of 1 - NDCG.

    The mean over queries of 1 - DCG_s / iDCG with ::

        DCG_s = sum over k in Omega^+ of (2^lv_k - 1) / log2(1 + rank^+(k) + rank_s^-(k))

    and iDCG, the largest DCG of any ranking. It lies between 0 and 1, and is at least 1 - NDCG (Eq.
    23) with the steps ``eq4`` and ``cfg144``.

    Args:
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        include_query: Count each query as one of its own positives
            (:class:`~hgld.losses.RankLoss`).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupNDCG()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.1440)
    """

    def query_losses(
        self, scores: Tensor, levels: Tensor, n_levels: int, relevance: Tensor | None = None
    ) -> Tensor:
        ranking = Ranking(scores, levels, n_levels)
        gain = relevance
        if gain is None:
            gain = exponential_gain(ranking.counts)
        ideal = _ideal_dcg(gain, ranking.counts, levels.shape[1]).unsqueeze(1)
        # float32 has no gain of 2^128. Queries without positives get NaN from 0 / 0.
        shares = (gain / ideal).to(scores.dtype)
        ranks = rank(ranking, plus=self.plus, minus=self.step)
        return 1 - (shares.gather(1, levels.clamp(min=0)) / torch.log2(1 + ranks)).sum(1)


def _ideal_dcg(gain: Tensor, counts: Tensor, n_items: int) -> Tensor:
    """Return the DCG of the ideal ranking of each query, which has the finest level first.

    Args:
        gain: Gain of each level, float64 tensor of shape (n_query, L + 1).
        counts: Number of items of each level, float64 tensor of the same shape.
        n_items: Number of items of a ranking.
    """
    ranks = torch.arange(1, n_items + 1, dtype=torch.float64, device=counts.device)
    discounts = 1 / torch.log2(1 + ranks)
    cumulative = functional.pad(discounts.cumsum(0), (1, 0))
    last_ranks = counts.flip(1).cumsum(1).long()
    start = cumulative.new_zeros(len(counts), 1)
    level_discounts = cumulative[last_ranks].diff(dim=1, prepend=start)
    return (gain.flip(1) * level_discounts).sum(1)


class SmoothNDCG(SupNDCG):
    """NDCG (paper, Eq. 23) with sigmoids for all steps.

    It equals :class:`~hgld.losses.SupNDCG` with sigmoids, and does not bound 1 - NDCG.

    Args:
        step: Steps h^+ and h^-.
        include_query: Count each query as one of its own positives
            (:class:`~hgld.losses.RankLoss`).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothNDCG()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.0373)
    """

    def __init__(self, *, step: Step = SIGMOID, include_query: bool = True) -> None:
        super().__init__(step=step, plus=step, include_query=include_query)


def rod_ndcg(decomposability: Loss, lambda_: float = 0.1, **sup_ndcg: Any) -> WeightedSum:
    """Return L_ROD-NDCG = (1 - lambda) L_Sup-NDCG + lambda L*_DG (paper, Eq. 25).

    Args:
        decomposability: Decomposability loss, L*_DG (:class:`~hgld.losses.ProxyLoss`) in the paper.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_ndcg: Keyword arguments of :class:`~hgld.losses.SupNDCG`.

    Returns:
        Loss with the parts ``sup_ndcg`` and ``decomposability``.

    >>> from hgld.losses import ProxyLoss
    >>> rod_ndcg(ProxyLoss(n_classes=4, dim=8)).weights
    {'sup_ndcg': 0.9, 'decomposability': 0.1}
    """
    return with_decomposability("sup_ndcg", SupNDCG(**sup_ndcg), decomposability, lambda_)


class SupRecall(SingleLevelLoss):
    """L_Sup-R@K (paper, Eq. 16).

    The mean over queries and over the k in K of ::

        1 - 1 / min(|Omega^+|, k) * sum over p in Omega^+ of sigma((k - rank^+(p) - rank_s^-(p)) / tau_star)

    The surrogate bounds the rank from above (with the steps ``eq4`` and ``cfg144``), but the loss
    does not bound 1 - TR@k (Eq. 14): its sigmoid also counts a part of each item beyond rank k. So
    the loss is at most 1, and even negative where k is small compared with ``|Omega^+|``.

    Args:
        ks: Cut-offs K, at least one, each 1 or more.
        tau_star: Temperature of the sigmoid, in ranks, at least 1e-8.
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: Count each query as one of its own positives
            (:class:`~hgld.losses.RankLoss`).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupRecall(ks=(2,), include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(1.0000)
    """

    #: Whether the number of positives among the first k is clipped to k.
    clip = False

    def __init__(
        self,
        ks: tuple[int, ...] = RECALL_KS,
        tau_star: float = 1.0,
        *,
        step: Step = SUPRANK_STEP,
        plus: Step = HEAVISIDE,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(
            step=step, plus=plus, level=level, mixup=mixup, include_query=include_query
        )
        require(len(ks) > 0 and min(ks) >= 1, "at least one k, each 1 or more", ks=list(ks))
        check_temperature("tau_star", tau_star)
        self.ks = tuple(ks)
        self.tau_star = tau_star

    def binary_query_losses(self, scores: Tensor, levels: Tensor) -> Tensor:
        is_positive = levels > 0
        n_positives = is_positive.sum(1)
        ranks = rank(Ranking(scores, levels, 1), plus=self.plus, minus=self.step)
        recalls = torch.zeros_like(scores[:, 0])
        for k in self.ks:
            hits = (torch.sigmoid((k - ranks) / self.tau_star) * is_positive).sum(1)
            if self.clip:
                hits = hits.clamp(max=k)
            recalls = recalls + hits / n_positives.clamp(max=k)  # 0 / 0 without positives
        return 1 - recalls / len(self.ks)


class SmoothRecall(SupRecall):
    """The recall@k surrogate RS@k (Patel et al., CVPR 2022, Eqs. 5 to 7).

    It equals :class:`~hgld.losses.SupRecall` with sigmoids for all steps. ``min(|P_q|, k)`` takes
    the place of ``|P_q|``, as in section 3 of Patel et al. Their tau_1 is ``tau_star``, and their
    tau_2 the temperature of ``step``.

    Args:
        ks: Cut-offs K, at least one, each 1 or more. Patel et al. train with 1, 2, 4, 8, 16, and
            with SiMix with 1, 2, 4, 8, 12, 16, 20, 24, 28, 32.
        tau_star: Temperature of the outer sigmoid, in ranks, at least 1e-8.
        clip: Whether to clip the number of positives among the first k to k, so that the loss is
            not negative, as Patel et al. do, unlike the authors of SupRank.
        step: Steps h^+ and h^-.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: See :class:`~hgld.losses.RankLoss`; Patel et al. exclude the query.
        rank_query: Whether to rank the query among the other items without counting it as a
            positive; requires ``include_query`` false. Every positive then has a rank of 2 or more,
            as in the code of Patel et al., unlike their Eq. 6.

    Raises:
        ConfigurationError: A number is out of range, ``rank_query`` is given together with
            ``include_query``, or (when called) the labels have no such level.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothRecall(ks=(2,), include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        ks: tuple[int, ...] = RECALL_KS,
        tau_star: float = 1.0,
        *,
        clip: bool = False,
        step: Step = SIGMOID,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
        rank_query: bool = False,
    ) -> None:
        super().__init__(
            ks,
            tau_star,
            step=step,
            plus=step,
            level=level,
            mixup=mixup,
            include_query=include_query,
        )
        if rank_query and include_query:
            raise ConfigurationError(
                "`rank_query` requires `include_query` false: the query is not a positive then"
            )
        self.clip = clip
        self.rank_query = rank_query

    @property
    def query_level(self) -> int | None:
        return 0 if self.rank_query else super().query_level


def rod_recall(decomposability: Loss, lambda_: float = 0.5, **sup_recall: Any) -> WeightedSum:
    """Return L_ROD-R@K = (1 - lambda) L_Sup-R@K + lambda L_DG (paper, Eq. 17).

    Args:
        decomposability: :class:`~hgld.losses.ProxyLoss` or
            :class:`~hgld.losses.DecomposabilityLoss`.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_recall: Keyword arguments of :class:`~hgld.losses.SupRecall`.

    Returns:
        Loss with the parts ``sup_recall`` and ``decomposability``.

    >>> from hgld.losses import ProxyLoss
    >>> rod_recall(ProxyLoss(n_classes=4, dim=8), ks=(1, 10)).weights
    {'sup_recall': 0.5, 'decomposability': 0.5}
    """
    return with_decomposability("sup_recall", SupRecall(**sup_recall), decomposability, lambda_)

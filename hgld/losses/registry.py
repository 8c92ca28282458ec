"""Losses by the names and keywords that they have in settings.

Defaults are what the authors of the papers ran on most data sets, but for H^-, which is that of Eq. 4; ``variant``
chooses another (:func:`~hgld.losses.suprank_step`). ``levels`` says whether a loss of classes sees the
finest level, or is summed over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import torch

from hgld.errors import ConfigurationError
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.losses import combined
from hgld.losses.average_precision_baselines import BlackBoxAP, FastAP, SoftBinAP
from hgld.losses.base import Loss
from hgld.losses.baselines import (
    CSL,
    ArcFace,
    ContrastiveLoss,
    Mining,
    MultiSimilarityLoss,
    ProxyNCAPP,
    TripletLoss,
    XBMContrastive,
)
from hgld.losses.combined import SumOverLevels
from hgld.losses.decomposability_losses import DecomposabilityLoss, PairReduction, ProxyLoss
from hgld.losses.kernels.steps import Sigmoid, Variant, suprank_step
from hgld.losses.rank_losses import SmoothHAP, SmoothNDCG, SupHAP, SupNDCG
from hgld.losses.simix import SiMix
from hgld.losses.single_level import SmoothAP, SmoothRecall, SupAP, SupRecall

#: The levels that a loss of classes sees.
Levels = Literal["finest", "all"]
#: L*_DG (Eq. 8) or L_DG (Eq. 7).
Decomposability = Literal["proxies", "pairs"]


@dataclass(frozen=True)
class Space:
    """What a loss has to know of the embeddings and labels it will see.

    Args:
        dim: d, the dimension of embeddings.
        n_classes: how many classes each column of the labels has, finest first; they are numbered from 0.
        classes: int64, shape (n_classes[0], L): the labels of each finest class, which only CSL needs.
    """

    dim: int
    n_classes: tuple[int, ...]
    classes: torch.Tensor | None = field(default=None, compare=False)

    @staticmethod
    def of(dim: int, labels: LabelMatrix) -> Space:
        """The space of training images with these labels, int64 of shape (N, L), numbered from 0 in each column.

        >>> Space.of(8, np.array([[1, 0], [0, 0], [2, 1], [1, 0]])).classes
        tensor([[0, 0],
                [1, 0],
                [2, 1]])
        """
        _, first = np.unique(labels[:, 0], return_index=True)
        n_classes = tuple(int(n) for n in labels.max(axis=0) + 1)
        return Space(dim, n_classes, torch.from_numpy(labels[first]))


def smooth_ap(space: Space, *, tau: float = 0.01, include_query: bool = True) -> Loss:
    """Smooth-AP (Brown et al., ECCV 2020)."""
    return SmoothAP(step=Sigmoid(tau), include_query=include_query)


def sup_ap(
    space: Space,
    *,
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    include_query: bool = True,
) -> Loss:
    """L_Sup-AP (paper, Eq. 11)."""
    return SupAP(step=suprank_step(variant, tau=tau, rho=rho, delta=delta), include_query=include_query)


def roadmap(
    space: Space,
    *,
    lambda_: float = 0.1,
    decomposability: Decomposability = "proxies",
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    include_query: bool = True,
    eta: float = 0.05,
    alpha: float = 0.9,
    beta: float = 0.6,
    reduction: PairReduction = "query_mean",
) -> Loss:
    """ROADMAP (paper, Eq. 12): ``eta`` is of proxies, ``alpha``, ``beta`` and ``reduction`` are of pairs.

    ROADMAP of NeurIPS 2021 is lambda 0.5 with pairs and, as published, the reduction ``violating``.
    """
    return combined.roadmap(
        _decomposability(space, decomposability, eta, alpha, beta, reduction, include_query),
        lambda_,
        step=suprank_step(variant, tau=tau, rho=rho, delta=delta),
        include_query=include_query,
    )


def recall(
    space: Space,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    tau: float = 0.01,
    tau_star: float = 1.0,
    clip: bool = False,
    simix: bool = False,
    include_query: bool = True,
) -> Loss:
    """The surrogate of recall at k (Patel et al., CVPR 2022), as the paper's authors ran it.

    As Patel et al. ran it, with ``simix`` for similarity mixup: clip, and include_query false.
    """
    loss = SmoothRecall(ks, tau_star, clip=clip, step=Sigmoid(tau), include_query=include_query)
    return SiMix(loss) if simix else loss


def sup_recall(
    space: Space,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    tau_star: float = 1.0,
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    simix: bool = False,
    include_query: bool = True,
) -> Loss:
    """L_Sup-R@K (paper, Eq. 16), with ``simix`` for similarity mixup (Patel et al., Eqs. 8 to 10)."""
    step = suprank_step(variant, tau=tau, rho=rho, delta=delta)
    loss = SupRecall(ks, tau_star, step=step, include_query=include_query)
    return SiMix(loss) if simix else loss


def rod_recall(
    space: Space,
    *,
    lambda_: float = 0.5,
    decomposability: Decomposability = "proxies",
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    tau_star: float = 1.0,
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    include_query: bool = True,
    eta: float = 0.05,
    alpha: float = 0.9,
    beta: float = 0.6,
    reduction: PairReduction = "query_mean",
) -> Loss:
    """ROD-R@k (paper, Eq. 17); keywords as in :func:`roadmap`."""
    return combined.rod_recall(
        _decomposability(space, decomposability, eta, alpha, beta, reduction, include_query),
        lambda_,
        ks=ks,
        tau_star=tau_star,
        step=suprank_step(variant, tau=tau, rho=rho, delta=delta),
        include_query=include_query,
    )


def sup_hap(
    space: Space,
    *,
    alpha: float = 1.0,
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    include_query: bool = True,
) -> Loss:
    """L_Sup-H-AP (paper, Eq. 21); ``alpha`` is that of the relevance (Eq. 20)."""
    return SupHAP(alpha, step=suprank_step(variant, tau=tau, rho=rho, delta=delta), include_query=include_query)


def smooth_hap(space: Space, *, alpha: float = 1.0, tau: float = 0.01, include_query: bool = True) -> Loss:
    """H-AP with sigmoids, the baseline of the paper's Table X."""
    return SmoothHAP(alpha, step=Sigmoid(tau), include_query=include_query)


def happier(
    space: Space,
    *,
    lambda_: float = 0.1,
    alpha: float = 1.0,
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    include_query: bool = True,
    eta: float = 0.05,
) -> Loss:
    """HAPPIER (paper, Eq. 22); ``alpha`` is that of the relevance (Eq. 20).

    The name ``happier_f`` is HAPPIER_F (VII-C), this with what the authors ran on SOP; on iNaturalist, alpha is 3.
    """
    return combined.happier(
        ProxyLoss(space.n_classes[0], space.dim, eta),
        lambda_,
        alpha=alpha,
        step=suprank_step(variant, tau=tau, rho=rho, delta=delta),
        include_query=include_query,
    )


def sup_ndcg(
    space: Space,
    *,
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    include_query: bool = True,
) -> Loss:
    """L_Sup-NDCG (paper, Eq. 24)."""
    return SupNDCG(step=suprank_step(variant, tau=tau, rho=rho, delta=delta), include_query=include_query)


def smooth_ndcg(space: Space, *, tau: float = 0.01, include_query: bool = True) -> Loss:
    """NDCG with sigmoids."""
    return SmoothNDCG(step=Sigmoid(tau), include_query=include_query)


def rod_ndcg(
    space: Space,
    *,
    lambda_: float = 0.1,
    variant: Variant = "eq4",
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    include_query: bool = True,
    eta: float = 0.05,
) -> Loss:
    """ROD-NDCG (paper, Eq. 25)."""
    return combined.rod_ndcg(
        ProxyLoss(space.n_classes[0], space.dim, eta),
        lambda_,
        step=suprank_step(variant, tau=tau, rho=rho, delta=delta),
        include_query=include_query,
    )


def softbin_ap(space: Space, *, levels: Levels = "finest", n_bins: int = 20, include_query: bool = True) -> Loss:
    """SoftBin-AP (Revaud et al., ICCV 2019)."""
    return _at(levels, space, lambda column: SoftBinAP(n_bins, include_query))


def fast_ap(space: Space, *, levels: Levels = "finest", n_bins: int = 10) -> Loss:
    """FastAP (Cakir et al., CVPR 2019)."""
    return _at(levels, space, lambda column: FastAP(n_bins))


def blackbox_ap(space: Space, *, levels: Levels = "finest", lambda_: float = 4.0, margin: float = 0.02) -> Loss:
    """BlackBox-AP (Rolinek et al., CVPR 2020)."""
    return _at(levels, space, lambda column: BlackBoxAP(lambda_, margin))


def triplet(space: Space, *, levels: Levels = "finest", margin: float = 0.05, mining: Mining = "semihard") -> Loss:
    """TL_SH, triplets with semi-hard mining (Schroff et al., CVPR 2015); Sigma TL_SH with ``levels`` "all"."""
    return _at(levels, space, lambda column: TripletLoss(margin, mining))


def contrastive(
    space: Space,
    *,
    levels: Levels = "finest",
    positive_margin: float = 1.0,
    negative_margin: float = 0.5,
) -> Loss:
    """The contrastive loss (Hadsell et al., CVPR 2006)."""
    return _at(levels, space, lambda column: ContrastiveLoss(positive_margin, negative_margin))


def xbm_contrastive(space: Space, *, levels: Levels = "finest", margin: float = 0.5) -> Loss:
    """The contrastive loss of cross-batch memory (Wang et al., CVPR 2020), to be used with a memory."""
    return _at(levels, space, lambda column: XBMContrastive(margin))


def multi_similarity(
    space: Space,
    *,
    levels: Levels = "finest",
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    epsilon: float = 0.1,
) -> Loss:
    """The multi-similarity loss (Wang et al., CVPR 2019), with its mining."""
    return _at(levels, space, lambda column: MultiSimilarityLoss(alpha, beta, base, epsilon))


def norm_softmax(space: Space, *, levels: Levels = "finest", eta: float = 0.05) -> Loss:
    """NSM, NormSoftMax (Zhai and Wu, BMVC 2019), which is L*_DG (Eq. 8); Sigma NSM with ``levels`` "all"."""
    return _at(levels, space, lambda column: ProxyLoss(space.n_classes[column], space.dim, eta))


def arcface(space: Space, *, levels: Levels = "finest", scale: float = 30.0, margin: float = 0.5) -> Loss:
    """ArcFace (Deng et al., CVPR 2019); the margin is 0.3 on SOP and H-GLDv2."""
    return _at(levels, space, lambda column: ArcFace(space.n_classes[column], space.dim, scale, margin))


def proxy_nca_pp(space: Space, *, levels: Levels = "finest", scale: float = 3.0) -> Loss:
    """ProxyNCA++ (Teh et al., ECCV 2020)."""
    return _at(levels, space, lambda column: ProxyNCAPP(space.n_classes[column], space.dim, scale))


def csl(space: Space, *, margins: tuple[float, ...] | None = None, scale: float = 32.0) -> Loss:
    """CSL (Sun et al., CVPR 2021); the margins of columns, finest first, are those of the authors unless given."""
    if space.classes is None:
        raise ConfigurationError(
            "CSL has to know the labels of each class; make its Space with Space.of(dim, labels)"
        )
    return CSL(space.classes, space.dim, margins, scale)


def _decomposability(
    space: Space,
    kind: Decomposability,
    eta: float,
    alpha: float,
    beta: float,
    reduction: PairReduction,
    include_query: bool,
) -> Loss:
    if kind == "pairs":
        return DecomposabilityLoss(alpha, beta, reduction, include_query=include_query)
    if kind == "proxies":
        return ProxyLoss(space.n_classes[0], space.dim, eta)
    raise ConfigurationError(f'there is no decomposability loss of "{kind}"; choose proxies or pairs')


def _at(levels: Levels, space: Space, make_loss: Callable[[int], Loss]) -> Loss:
    if levels == "finest":
        return make_loss(0)
    if levels == "all":
        return SumOverLevels(make_loss, len(space.n_classes))
    raise ConfigurationError(f'levels is "{levels}"; choose finest or all')


#: The constructors by name.
LOSSES: Mapping[str, Callable[..., Loss]] = {
    "smooth_ap": smooth_ap,
    "sup_ap": sup_ap,
    "roadmap": roadmap,
    "recall": recall,
    "sup_recall": sup_recall,
    "rod_recall": rod_recall,
    "sup_hap": sup_hap,
    "smooth_hap": smooth_hap,
    "happier": happier,
    "happier_f": partial(happier, lambda_=0.5, alpha=5.0),
    "sup_ndcg": sup_ndcg,
    "smooth_ndcg": smooth_ndcg,
    "rod_ndcg": rod_ndcg,
    "softbin_ap": softbin_ap,
    "fast_ap": fast_ap,
    "blackbox_ap": blackbox_ap,
    "triplet": triplet,
    "contrastive": contrastive,
    "xbm_contrastive": xbm_contrastive,
    "multi_similarity": multi_similarity,
    "norm_softmax": norm_softmax,
    "arcface": arcface,
    "proxy_nca_pp": proxy_nca_pp,
    "csl": csl,
}

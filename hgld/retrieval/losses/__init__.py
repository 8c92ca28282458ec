"""Losses of retrieval: rank losses and their surrogates, decomposability, and the baselines of the papers."""

from hgld.retrieval.losses.average_precision_baselines import BlackBoxAP, FastAP, SoftBinAP
from hgld.retrieval.losses.base import Loss
from hgld.retrieval.losses.baselines import (
    CSL,
    ArcFace,
    ContrastiveLoss,
    MultiSimilarityLoss,
    ProxyNCAPP,
    TripletLoss,
    XBMContrastive,
)
from hgld.retrieval.losses.combined import (
    AtLevel,
    SumOverLevels,
    WeightedSum,
    happier,
    roadmap,
    rod_ndcg,
    rod_recall,
)
from hgld.retrieval.losses.decomposability_losses import DecomposabilityLoss, ProxyLoss
from hgld.retrieval.losses.named import LOSSES, Space
from hgld.retrieval.losses.rank_loss import RankLoss
from hgld.retrieval.losses.rank_losses import SmoothHAP, SmoothNDCG, SupHAP, SupNDCG
from hgld.retrieval.losses.single_level import SmoothAP, SmoothRecall, SupAP, SupRecall
from hgld.retrieval.losses.steps import Heaviside, LeakyStep, Sigmoid, Step, SupRankStep, suprank_step

__all__ = [
    "CSL",
    "LOSSES",
    "ArcFace",
    "AtLevel",
    "BlackBoxAP",
    "ContrastiveLoss",
    "DecomposabilityLoss",
    "FastAP",
    "Heaviside",
    "LeakyStep",
    "Loss",
    "MultiSimilarityLoss",
    "ProxyLoss",
    "ProxyNCAPP",
    "RankLoss",
    "Sigmoid",
    "SmoothAP",
    "SmoothHAP",
    "SmoothNDCG",
    "SmoothRecall",
    "SoftBinAP",
    "Space",
    "Step",
    "SumOverLevels",
    "SupAP",
    "SupHAP",
    "SupNDCG",
    "SupRankStep",
    "SupRecall",
    "TripletLoss",
    "WeightedSum",
    "XBMContrastive",
    "happier",
    "roadmap",
    "rod_ndcg",
    "rod_recall",
    "suprank_step",
]

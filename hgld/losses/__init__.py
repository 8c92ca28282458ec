"""Losses of retrieval: rank losses and their surrogates, decomposability, and the baselines of the papers."""

from hgld.losses.average_precision_baselines import BlackBoxAP, FastAP, SoftBinAP
from hgld.losses.base import Loss
from hgld.losses.baselines import (
    CSL,
    ArcFace,
    ContrastiveLoss,
    MultiSimilarityLoss,
    ProxyNCAPP,
    TripletLoss,
    XBMContrastive,
)
from hgld.losses.combined import (
    AtLevel,
    SumOverLevels,
    WeightedSum,
    happier,
    roadmap,
    rod_ndcg,
    rod_recall,
)
from hgld.losses.decomposability_losses import DecomposabilityLoss, ProxyLoss
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.steps import Heaviside, LeakyStep, Sigmoid, Step, SupRankStep, suprank_step
from hgld.losses.rank_losses import SmoothHAP, SmoothNDCG, SupHAP, SupNDCG
from hgld.losses.registry import LOSSES, Space
from hgld.losses.simix import MixedPositives, SiMix
from hgld.losses.single_level import SmoothAP, SmoothRecall, SupAP, SupRecall

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
    "MixedPositives",
    "MultiSimilarityLoss",
    "ProxyLoss",
    "ProxyNCAPP",
    "RankLoss",
    "SiMix",
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

"""Losses for retrieval with hierarchical labels.

Each loss has a file of its own, under the name the field gives it. :mod:`~hgld.losses.registry` lists them by their
names in settings, and ``kernels`` holds what they share. Call a loss as ``loss(embeddings, labels)``, see
:class:`Loss`.
"""

from typing import NoReturn

from hgld.errors import similar_names
from hgld.losses.arcface import ArcFace
from hgld.losses.base import Loss, pair_levels
from hgld.losses.blackbox_ap import BlackBoxAP
from hgld.losses.contrastive import ContrastiveLoss, XBMContrastive
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.losses.cross_entropy import CrossEntropy
from hgld.losses.csl import CSL
from hgld.losses.decomposability import DecomposabilityLoss, ProxyLoss
from hgld.losses.fast_ap import FastAP
from hgld.losses.gathering import gather_embeddings
from hgld.losses.happier import happier
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.steps import Heaviside, LeakyStep, Sigmoid, Step, SupRankStep, suprank_step
from hgld.losses.lifted_structure import LiftedStructureLoss
from hgld.losses.loss_specs import LabelSpace
from hgld.losses.margin import MarginLoss
from hgld.losses.multi_similarity import MultiSimilarityLoss
from hgld.losses.proxy_gml import ProxyGML
from hgld.losses.proxy_nca import ProxyNCA
from hgld.losses.proxy_nca_pp import ProxyNCAPP
from hgld.losses.registry import LOSSES, build_loss
from hgld.losses.roadmap import roadmap
from hgld.losses.rod_ndcg import rod_ndcg
from hgld.losses.rod_recall import rod_recall
from hgld.losses.simix import MixedPositives, SiMix
from hgld.losses.smooth_ap import SmoothAP
from hgld.losses.smooth_hap import SmoothHAP
from hgld.losses.smooth_ndcg import SmoothNDCG
from hgld.losses.smooth_recall import SmoothRecall
from hgld.losses.soft_bin_ap import SoftBinAP
from hgld.losses.sum_over_levels import AtLevel, SumOverLevels
from hgld.losses.sup_ap import SupAP
from hgld.losses.sup_hap import SupHAP
from hgld.losses.sup_ndcg import SupNDCG
from hgld.losses.sup_recall import SupRecall
from hgld.losses.triplet import TripletLoss
from hgld.losses.triplet_sct import SelectivelyContrastiveTriplet
from hgld.losses.weighted_sum import WeightedSum

__all__ = [
    "CSL",
    "LOSSES",
    "ArcFace",
    "AtLevel",
    "BlackBoxAP",
    "ContrastiveLoss",
    "CrossBatchMemory",
    "CrossEntropy",
    "DecomposabilityLoss",
    "FastAP",
    "Heaviside",
    "LabelSpace",
    "LeakyStep",
    "LiftedStructureLoss",
    "Loss",
    "MarginLoss",
    "MixedPositives",
    "MultiSimilarityLoss",
    "ProxyGML",
    "ProxyLoss",
    "ProxyNCA",
    "ProxyNCAPP",
    "RankLoss",
    "SelectivelyContrastiveTriplet",
    "SiMix",
    "Sigmoid",
    "SmoothAP",
    "SmoothHAP",
    "SmoothNDCG",
    "SmoothRecall",
    "SoftBinAP",
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
    "build_loss",
    "gather_embeddings",
    "happier",
    "pair_levels",
    "roadmap",
    "rod_ndcg",
    "rod_recall",
    "suprank_step",
]


def __getattr__(name: str) -> NoReturn:
    """Suggest a name for one that does not exist, such as ``happier`` for the paper's HAPPIER."""
    similar = similar_names(name, __all__)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return __all__

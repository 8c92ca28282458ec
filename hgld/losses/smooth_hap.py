"""Smooth-H-AP, hierarchical average precision with sigmoids in place of the rank's steps."""

from __future__ import annotations

from hgld.evaluation.relevance import Relevance
from hgld.losses.kernels.metric_surrogates import HAPLoss
from hgld.losses.kernels.relevance_options import RelevanceName
from hgld.losses.kernels.steps import SIGMOID, Step


class SmoothHAP(HAPLoss):
    """H-AP with sigmoids for all steps, in the manner of Smooth-AP (baseline of the paper's Table X).

    As :class:`~hgld.losses.SupHAP` with other steps; it does not bound 1 - H-AP.

    Args:
        alpha: Exponent of the relevance ``(l/L)^alpha / |Omega^(l)|`` (paper, Eq. 20), 0 or more.
        relevance: ``hierarchical`` for Eq. 20; ``weighted_ap`` for that of Property 1, which makes H-AP a weighted
            sum of the APs of all levels and ignores ``alpha`` (Table XI); or a function of the level counts.
        level_weights: Weights of the levels' APs with ``weighted_ap``, coarsest first, positive. Default: 1/L each.
        step: Steps h^+ and h^-.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: A value is out of range; (when called) the number of ``level_weights`` is not that of
            the levels.
        InputError: (when called) No query has a positive.

    >>> import torch
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
            alpha, relevance, level_weights, plus=step, step=step, finer=None, include_query=include_query
        )

"""Smooth-H-AP, hierarchical average precision with sigmoids in place of the rank's steps."""

from __future__ import annotations

from hgld.evaluation.relevance import Relevance
from hgld.losses.kernels.metric_surrogates import HAPLoss
from hgld.losses.kernels.steps import SIGMOID, Step


class SmoothHAP(HAPLoss):
    """H-AP with sigmoids for all steps, in the manner of Smooth-AP (baseline of the paper's Table X).

    As :class:`~hgld.losses.SupHAP` with other steps; it does not bound 1 - H-AP.

    Args:
        alpha: Exponent of the relevance (l/L)^alpha / |Omega^(l)| (paper, Eq. 20), 0 or more.
        relevance: Relevance that replaces Eq. 20.
        step: Steps h^+ and h^-.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: ``alpha`` is negative.
        InputError: (when called) No query has a positive.

    >>> import torch
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothHAP()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.0029)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        relevance: Relevance | None = None,
        *,
        step: Step = SIGMOID,
        include_query: bool = True,
    ) -> None:
        super().__init__(alpha, relevance, plus=step, step=step, finer=None, include_query=include_query)

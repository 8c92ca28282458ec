"""Smooth-NDCG, the normalised discounted cumulative gain with sigmoids in place of the rank's steps."""

from __future__ import annotations

from hgld.losses.kernels.metric_surrogates import NDCGLoss
from hgld.losses.kernels.steps import SIGMOID, Step


class SmoothNDCG(NDCGLoss):
    """NDCG (paper, Eq. 23) with sigmoids for all steps.

    As :class:`~hgld.losses.SupNDCG` with other steps; it does not bound 1 - NDCG.

    Args:
        step: Steps h^+ and h^-.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        InputError: (when called) No query has a positive.

    >>> import torch
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothNDCG()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.0373)
    """

    def __init__(self, *, step: Step = SIGMOID, include_query: bool = True) -> None:
        super().__init__(plus=step, step=step, include_query=include_query)

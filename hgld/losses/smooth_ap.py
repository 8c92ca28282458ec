"""Smooth-AP, average precision with sigmoids in place of the rank's steps."""

from __future__ import annotations

from hgld.losses.kernels.metric_surrogates import APLoss, Mixup
from hgld.losses.kernels.steps import SIGMOID, Step


class SmoothAP(APLoss):
    """L_Smooth-AP (Brown et al., ECCV 2020, Eqs. 5 to 7).

    As :class:`~hgld.losses.SupAP` with sigmoids for all steps; it does not bound 1 - AP.

    Args:
        step: Steps h^+ and h^-.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: (when called) The labels have no such level.
        InputError: (when called) No query has a positive.

    >>> import torch
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
        super().__init__(plus=step, step=step, level=level, mixup=mixup, include_query=include_query)

"""Sup-H-AP, hierarchical average precision with the SupRank surrogate of the rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hgld.errors import ConfigurationError
from hgld.evaluation.relevance import Relevance
from hgld.losses.kernels.metric_surrogates import HAPLoss
from hgld.losses.kernels.relevance_options import RelevanceName
from hgld.losses.kernels.steps import HEAVISIDE, SUPRANK_STEP, LeakyStep, Step

#: Steps of H-rank^+ that settings can choose.
FinerStep = Literal["heaviside", "leaky"]
FINER_STEPS: Mapping[str, Step | None] = {"heaviside": None, "leaky": LeakyStep()}


class SupHAP(HAPLoss):
    """L_Sup-H-AP (paper, Eq. 21), an upper bound of 1 - H-AP.

    The mean over queries of ::

        1 - 1 / (sum over k in Omega^+ of rel(k)) * sum over k in Omega^+ of H-rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and is at least 1 - H-AP (Eq. 19) with the steps ``eq4`` and ``cfg144``.

    Args:
        alpha: Exponent of the relevance ``(l/L)^alpha / |Omega^(l)|`` (Eq. 20), 0 or more; 3 or 5 in HAPPIER_F.
            ``|Omega^(L)|`` counts the query if the query is in its retrieval set.
        relevance: ``hierarchical`` for Eq. 20; ``weighted_ap`` for that of Property 1, which makes H-AP a weighted
            sum of the APs of all levels and ignores ``alpha`` (Table XI); or a function of the level counts.
        level_weights: Weights of the levels' APs with ``weighted_ap``, coarsest first, positive. Default: 1/L each.
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        finer: Step of H-rank^+ for items of finer levels than that of k: ``heaviside``; ``leaky`` for
            :class:`~hgld.losses.LeakyStep`, which gives H-rank^+ a gradient (``with_hrank`` in the authors' settings,
            on in one of HAPPIER_F on SOP); or another step.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: A value is out of range; (when called) the number of ``level_weights`` is not that of
            the levels.
        InputError: (when called) No query has a positive.

    >>> import torch
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
        finer: FinerStep | Step = "heaviside",
        include_query: bool = True,
    ) -> None:
        if isinstance(finer, str) and finer not in FINER_STEPS:
            raise ConfigurationError(f'`finer` is "{finer}"; choose heaviside or leaky')
        chosen = FINER_STEPS[finer] if isinstance(finer, str) else finer
        super().__init__(
            alpha, relevance, level_weights, plus=HEAVISIDE, step=step, finer=chosen, include_query=include_query
        )

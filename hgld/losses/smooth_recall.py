"""RS@k, the surrogate of recall at k with sigmoids in place of all steps."""

from __future__ import annotations

from hgld.errors import ConfigurationError
from hgld.losses.kernels.metric_surrogates import Mixup, RecallLoss
from hgld.losses.kernels.steps import SIGMOID, Step
from hgld.losses.sup_recall import RECALL_KS


class SmoothRecall(RecallLoss):
    """The recall@k surrogate RS@k (Patel et al., CVPR 2022, Eqs. 5 to 7).

    ``min(|P_q|, k)`` takes the place of ``|P_q|``, as in their section 3.

    As :class:`~hgld.losses.SupRecall` with sigmoids for all steps. ``tau_star`` is tau_1 of that paper, and the
    temperature of ``step`` its tau_2.

    Args:
        ks: Cut-offs K, at least one, each 1 or more. Patel et al. train with 1, 2, 4, 8, 16, and with SiMix with
            1, 2, 4, 8, 12, 16, 20, 24, 28, 32.
        tau_star: Temperature of the outer sigmoid, in ranks, at least 1e-8.
        clip: Clip the number of positives among the first k to k, so that the loss is not negative, as Patel et al.
            do; the authors of SupRank do not.
        step: Steps h^+ and h^-.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: See :class:`~hgld.losses.RankLoss`; Patel et al. exclude the query.
        rank_query: Without ``include_query``, rank the query among the others, but do not count it as a positive:
            every positive has a rank of 2 or more, as in the code of Patel et al., but not in their Eq. 6.

    Raises:
        ConfigurationError: A number is out of range, ``rank_query`` is given together with ``include_query``, or
            (when called) the labels have no such level.
        InputError: (when called) No query has a positive.

    >>> import torch
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
            ks, tau_star, clip=clip, plus=step, step=step, level=level, mixup=mixup, include_query=include_query
        )
        if rank_query and include_query:
            raise ConfigurationError("`rank_query` requires `include_query` false: the query is no positive then")
        self.rank_query = rank_query

    @property
    def query_level(self) -> int | None:
        """See :attr:`~hgld.losses.RankLoss.query_level`."""
        return 0 if self.rank_query else super().query_level
